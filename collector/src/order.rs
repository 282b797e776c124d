//! Events of several locations in the order of time.
//!
//! Each location's stream is in order by itself; a *lane* merges the streams that one group of views needs, up to a
//! *watermark*: a time before which nothing is expected any more. The ranks of a node share a lane. Each device with GPU
//! streams has one more, because those report late and in batches: waiting for them must not hold the ranks back.

use crate::attributor::Attributor;
use ampere_attribution::{Increase, LocationIndex, ViewIndex};
use ampere_model::{RegionRef, Timestamp};
use std::collections::VecDeque;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum What {
    Enter(LocationIndex, RegionRef),
    /// One that stands for so many calls.
    EnterFolded(LocationIndex, RegionRef, u32),
    Leave(LocationIndex),
    /// Leaves every open frame.
    Close(LocationIndex),
    Sample(ViewIndex, Increase),
}

#[derive(Clone, Copy, Debug)]
struct Item {
    time: Timestamp,
    what: What,
}

/// One stream's place in a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueIndex(usize);

impl QueueIndex {
    /// The place in a lane that has absorbed this one's.
    pub fn further(self, by: usize) -> QueueIndex {
        QueueIndex(self.0 + by)
    }
}

#[derive(Default)]
pub struct Lane {
    queues: Vec<VecDeque<Item>>,
    /// What has been handed to the engine.
    done_until: Timestamp,
    /// Events that came after their time had been handed over. They still go to the engine, which counts them.
    pub late: u64,
    waiting: usize,
}

impl Lane {
    pub fn add_queue(&mut self) -> QueueIndex {
        self.queues.push(VecDeque::new());
        QueueIndex(self.queues.len() - 1)
    }

    /// Takes in another lane: what waits there waits here from now on. How much further the places of its queues are.
    pub fn absorb(&mut self, other: Lane) -> usize {
        let before = self.queues.len();
        self.queues.extend(other.queues);
        // No view was in both, so none sees time go back; what is late for either is late.
        self.done_until = self.done_until.max(other.done_until);
        self.late += other.late;
        self.waiting += other.waiting;
        before
    }

    /// Within one queue, times must not go back.
    pub fn push(&mut self, queue: QueueIndex, time: Timestamp, what: What) {
        if time < self.done_until {
            self.late += 1;
        }
        self.queues[queue.0].push_back(Item { time, what });
        self.waiting += 1;
    }

    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Hands everything before `watermark` to the engine, in order.
    pub fn advance(&mut self, watermark: Timestamp, into: &mut Attributor) {
        while let Some((first, limit)) = self.next_run(watermark) {
            // The whole run of one queue that no other queue interrupts.
            while let Some(item) = self.queues[first].front().filter(|item| item.time <= limit) {
                let Item { time, what } = *item;
                self.queues[first].pop_front();
                self.waiting -= 1;
                match what {
                    What::Enter(location, region) => into.enter(location, time, region),
                    What::EnterFolded(location, region, calls) => {
                        into.enter_folded(location, time, region, calls.into());
                    }
                    What::Leave(location) => into.leave(location, time),
                    What::Close(location) => into.close(location, time),
                    What::Sample(view, increase) => into.engine.sample(view, time, increase),
                }
            }
        }
        self.done_until = self.done_until.max(watermark);
    }

    /// The queue with the earliest item, and the time up to which it stays the earliest.
    fn next_run(&self, watermark: Timestamp) -> Option<(usize, Timestamp)> {
        let (mut first, mut earliest, mut second) = (None, Timestamp::MAX, Timestamp::MAX);
        for (index, queue) in self.queues.iter().enumerate() {
            let Some(item) = queue.front() else { continue };
            if first.is_none() || item.time < earliest {
                second = earliest;
                (first, earliest) = (Some(index), item.time);
            } else {
                second = second.min(item.time);
            }
        }
        let first = first.filter(|_| earliest < watermark)?;
        // Never beyond the watermark; at least the earliest item itself.
        Some((first, second.min(watermark - 1).max(earliest)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributor::{FoundDevice, LocationInfo, ViewKind};
    use crate::config::Config;
    use ampere_model::{LocationKind, Quality};

    fn attributor() -> (Attributor, [LocationIndex; 2]) {
        let mut attributor = Attributor::new(Config::default(), 1000);
        attributor.add_device(FoundDevice {
            node: "n".to_owned(),
            metric: "estimate:::energy".to_owned(),
            source: "estimate".to_owned(),
            quality: Quality::Estimated,
            joules_per_unit: Some(1.0),
        });
        let location = |rank| LocationInfo {
            node: "n".to_owned(),
            group: format!("MPI Rank {rank}"),
            name: "Master thread".to_owned(),
            kind: LocationKind::CpuThread,
            rank: Some(rank),
            main: true,
        };
        let locations = [attributor.add_location(location(0)), attributor.add_location(location(1))];
        (attributor, locations)
    }

    /// The same events, handed over in any batches, give the same figures to the last bit.
    #[test]
    fn batches_do_not_matter() {
        let results: Vec<_> = [1, 7, 50, 1000]
            .into_iter()
            .map(|batch| {
                let (mut attributor, locations) = attributor();
                let view = attributor.devices[0].view(ViewKind::Ranks);
                let mut lane = Lane::default();
                let queues = [lane.add_queue(), lane.add_queue(), lane.add_queue()];
                for step in 0..1000u64 {
                    let time = step * 3;
                    for (at, location) in locations.iter().enumerate() {
                        let time = time + at as u64;
                        let what = if (step + at as u64).is_multiple_of(2) {
                            What::Enter(*location, RegionRef((step % 5) as u32))
                        } else {
                            What::Leave(*location)
                        };
                        lane.push(queues[at], time, what);
                    }
                    if step % 4 == 0 {
                        let (time, increase) = attributor.devices[0].read_u64(time, step * step);
                        lane.push(queues[2], time, What::Sample(view, increase));
                    }
                    if step % batch == 0 {
                        lane.advance(time.saturating_sub(10), &mut attributor);
                    }
                }
                lane.advance(Timestamp::MAX, &mut attributor);
                assert_eq!((lane.late, lane.waiting()), (0, 0));
                assert_eq!(attributor.engine.oddities().late, 0);
                attributor.engine.report(view).callpaths
            })
            .collect();
        assert!(results.windows(2).all(|pair| pair[0] == pair[1]));
    }

    #[test]
    fn a_lane_that_is_absorbed_loses_nothing() {
        let (mut attributor, locations) = attributor();
        let (mut lane, mut other) = (Lane::default(), Lane::default());
        let (first, second) = (lane.add_queue(), other.add_queue());
        lane.push(first, 10, What::Enter(locations[0], RegionRef(0)));
        other.push(second, 5, What::Enter(locations[1], RegionRef(1)));
        let second = second.further(lane.absorb(other));
        lane.push(second, 20, What::Leave(locations[1]));
        lane.push(first, 30, What::Leave(locations[0]));
        lane.advance(Timestamp::MAX, &mut attributor);
        assert_eq!((lane.late, lane.waiting(), attributor.engine.oddities().late), (0, 0, 0));
        assert!(locations.iter().all(|location| !attributor.engine.is_open(*location)));
    }

    #[test]
    fn late_events_are_counted() {
        let (mut attributor, locations) = attributor();
        let mut lane = Lane::default();
        let queue = lane.add_queue();
        lane.push(queue, 10, What::Enter(locations[0], RegionRef(0)));
        lane.advance(20, &mut attributor);
        lane.push(queue, 15, What::Leave(locations[0]));
        assert_eq!(lane.late, 1);
    }
}
