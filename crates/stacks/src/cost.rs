//! Measures the cost of a sample for the sampled thread, on a thread of this process.

use std::hint::black_box;
use std::time::{Duration, Instant};

use crate::events::sample_this_thread;
use crate::options::Options;

/// The period while the cost is measured.
const PERIOD: Duration = Duration::from_micros(100);
/// The number of samples of which the median is taken, and the minimum.
const SAMPLES: usize = 33;
const SAMPLES_MIN: usize = 9;
/// The maximum time for measuring, if the thread rarely gets a CPU.
const TIME_MAX: Duration = Duration::from_millis(50);

/// Returns the time for which a sample with these options interrupts a thread: the median of a few dozen samples of the calling
/// thread. Measuring takes a few milliseconds. Returns `None` if too few samples were taken, or if the kernel does not allow
/// sampling.
pub fn sample_cost(options: &Options) -> Option<Duration> {
    let options = Options { period: PERIOD, ..options.clone() };
    // With this array, the stack is deep enough for the kernel to copy the default size.
    let mut stack = [0_u8; 32 << 10];
    black_box(&mut stack);
    let (_event, mut ring) = sample_this_thread(&options).ok()?;
    let begun = Instant::now();
    let mut costs = Vec::with_capacity(SAMPLES);
    let mut last = begun;
    // A sample interrupts this loop, so an iteration in which one appears lasts as long as its cost.
    while costs.len() < SAMPLES {
        ring.refresh();
        let (is_sampled, now) = (!ring.range().is_empty(), Instant::now());
        if is_sampled {
            costs.push(now - last);
            ring.release(u64::MAX);
        }
        if now - begun > TIME_MAX {
            break;
        }
        last = if is_sampled { Instant::now() } else { now };
    }
    black_box(&mut stack);
    costs.sort_unstable();
    costs.get(costs.len() / 2).copied().filter(|_| costs.len() >= SAMPLES_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_of_a_sample_is_between_a_tenth_of_a_microsecond_and_a_millisecond() {
        let cost = |stack_bytes| sample_cost(&Options { stack_bytes, kernel: true, ..Options::default() });
        let (Some(small), Some(large)) = (cost(8), cost(56 << 10)) else {
            println!("skipped: perf_event_open is not allowed here");
            return;
        };
        println!("{small:?} {large:?}");
        assert!(small > Duration::from_nanos(100) && large < Duration::from_millis(1), "{small:?} {large:?}");
    }
}
