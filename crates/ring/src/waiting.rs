//! Waits for space in a ring, if every event must be recorded ([`crate::OverloadPolicy::Wait`]).

use crate::output::{Output, RESERVE};
use crate::overload::SessionProbes;
use crate::ring::ConsumerState;
use ampere_signal_safety::{preserving_thread_state, sleep};
use std::time::{Duration, Instant};

const WAIT: Duration = Duration::from_micros(50);
/// The number of waits between two checks of whether the collector is still alive.
const WAITS_PER_CHECK: u32 = 1000;
/// A dead collector is replaced within a fraction of this time, if at all.
const REPLACEMENT_MAX: Duration = Duration::from_secs(3);

pub(crate) struct Waiting {
    probes: SessionProbes,
    /// The position up to which the ring could be written when waiting was given up.
    given_up_at: Option<u64>,
}

impl Waiting {
    pub fn new(probes: SessionProbes) -> Waiting {
        Waiting { probes, given_up_at: None }
    }

    /// Waits for room for some records while a collector is alive. If it is dead, waits for a few seconds for another one to
    /// replace it. `false` if there is nothing to wait for.
    #[cold]
    pub fn wait_for_room(&mut self, output: &mut Output, records: u64) -> bool {
        let needed = output.open + records + RESERVE;
        let limit = |output: &mut Output| output.ring.position() + output.ring.free(); // the read position plus a constant
        // Even an empty ring has no room for the leaves, or nothing was read since waiting was given up.
        if needed >= output.ring.capacity_records() || self.given_up_at == Some(limit(output)) {
            return false;
        }
        if self.wait(output, needed) {
            return true;
        }
        self.given_up_at = Some(limit(output));
        false
    }

    /// Returns `false` if no collector reads this ring and none will. A signal handler may leave this function by `longjmp`,
    /// so it changes no state that would have to be restored.
    fn wait(&self, output: &mut Output, needed: u64) -> bool {
        let SessionProbes { collector_is_alive, collector_rounds, .. } = self.probes;
        let (mut unread_since, mut last_round) = (None, collector_rounds());
        loop {
            for _ in 0..WAITS_PER_CHECK {
                sleep(WAIT);
                if output.ring.free() > needed {
                    return true;
                }
            }
            let (round, consumer) = (collector_rounds(), output.ring.consumer_state());
            let rounds_continue = std::mem::replace(&mut last_round, round) != round;
            match consumer {
                ConsumerState::GaveUp => return false,
                ConsumerState::Present if preserving_thread_state(collector_is_alive) => unread_since = None,
                // The collector has not looked at this ring since it was made.
                ConsumerState::NotYet if !rounds_continue && preserving_thread_state(collector_is_alive) => {
                    unread_since = None
                }
                // The collector is about to open the ring or cannot open it; or it is dead and may be replaced.
                _ => {
                    if unread_since.get_or_insert_with(Instant::now).elapsed() > REPLACEMENT_MAX {
                        return false;
                    }
                }
            }
        }
    }
}
