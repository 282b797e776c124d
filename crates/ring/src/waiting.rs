//! Waiting for room in a ring, if every event is to be recorded ([`OverloadPolicy::Wait`]).

use crate::coalescing::OverloadPolicy;
use crate::event_writer::{EventWriter, RESERVE};
use crate::ring::ConsumerState;
use ampere_signal_safety::{preserving_thread_state, sleep};
use std::time::{Duration, Instant};

const WAIT: Duration = Duration::from_micros(50);
/// The number of waits between two checks of whether the collector is still alive.
const WAITS_PER_LOOK: u32 = 1000;
/// A dead collector is replaced within a fraction of this time, if at all.
const REPLACEMENT_LIMIT: Duration = Duration::from_secs(3);

impl EventWriter {
    /// Waits for room for some records while a collector is alive, and for a few seconds for another one to replace a dead one.
    /// `false` if there is nothing to wait for.
    #[cold]
    pub(crate) fn wait_for_room(&mut self, records: u64) -> bool {
        let needed = self.open + records + RESERVE;
        let reached = self.ring.position() + self.ring.free(); // the read position plus a constant
        let Some(coalescing) = self.coalescing.as_ref().filter(|_| self.policy == OverloadPolicy::Wait)
        else {
            return false;
        };
        // Not even an empty ring has room for the leaves, or nothing was read since waiting was given up.
        if needed >= self.ring.capacity_records() || coalescing.given_up_at == Some(reached) {
            return false;
        }
        let probes = coalescing.probes;
        if self.wait_for(needed, probes.collector_is_alive, probes.collector_rounds) {
            return true;
        }
        let reached = self.ring.position() + self.ring.free();
        if let Some(coalescing) = &mut self.coalescing {
            coalescing.given_up_at = Some(reached);
        }
        false
    }

    /// Returns `false` if no collector reads this ring and none will. A signal handler may leave this function by `longjmp`,
    /// so it changes no state that would have to be restored.
    fn wait_for(&mut self, needed: u64, collector_is_alive: fn() -> bool, rounds: fn() -> u64) -> bool {
        let (mut unread_since, mut last_round) = (None, rounds());
        loop {
            for _ in 0..WAITS_PER_LOOK {
                sleep(WAIT);
                if self.ring.free() > needed {
                    return true;
                }
            }
            let (round, consumer) = (rounds(), self.ring.consumer_state());
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
                    if unread_since.get_or_insert_with(Instant::now).elapsed() > REPLACEMENT_LIMIT {
                        return false;
                    }
                }
            }
        }
    }
}
