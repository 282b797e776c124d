//! Streams, and the locations on which their frames are recorded.
//!
//! Frames on one location must not overlap, and must be recorded in the order of their starts. Kernels of one stream may
//! overlap (an out-of-order queue, concurrent kernels), and their records may come in any order. So each stream has lanes, and
//! each lane is a location. A frame goes to the first lane whose last frame ended before it starts. The first lane is the
//! stream's own location; further lanes are made when they are needed.

use crate::host::{Device, Host};
use crate::interface::{Frame, LocationHandle};

/// The maximum number of lanes of a stream. Frames for which no lane is free are counted instead of recorded.
const LANES_MAX: usize = 32;

/// A lane: a location, and the end of its last frame.
struct Lane {
    location: LocationHandle,
    end: u64,
    frames: Vec<Frame>,
}

/// A stream or queue of a device.
pub struct Stream {
    kind: &'static str,
    /// The number of the context, and the number of the stream in it.
    numbers: String,
    device: Device,
    lanes: Vec<Lane>,
    /// Frames that have not been recorded yet.
    waiting: Vec<Frame>,
}

// SAFETY: the handles of locations may be used by any thread.
unsafe impl Send for Stream {}

impl Stream {
    /// Returns a stream on a device. Its location is called `KIND[CONTEXT:STREAM]`, and belongs to the context `KIND Context
    /// CONTEXT`. If `context` is a number, it must be the device's number among the devices that the process can see.
    pub fn new(kind: &'static str, context: &str, stream: u64, device: Device) -> Stream {
        let numbers = format!("{context}:{stream}");
        Stream { kind, numbers, device, lanes: Vec::new(), waiting: Vec::new() }
    }

    /// Defines the stream's own location. The collector then waits for the stream's first frame, so that its first kernels are
    /// not late.
    pub fn open(&mut self, host: &Host) {
        if self.lanes.is_empty() {
            let _ = self.new_lane(host);
        }
    }

    /// Queues a frame until [`Stream::flush`]. Returns `false` if the frame's times are impossible; the frame is then left out.
    pub fn push(&mut self, frame: Frame) -> bool {
        let is_possible = frame.begin > 0 && frame.begin <= frame.end;
        if is_possible {
            self.waiting.push(frame);
        }
        is_possible
    }

    /// Returns the number of queued frames.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Returns the earliest start of a queued frame; `None` if none is queued.
    pub fn oldest(&self) -> Option<u64> {
        self.waiting.iter().map(|frame| frame.begin).min()
    }

    /// Records all queued frames. Returns how many of them could not be recorded.
    pub fn flush(&mut self, host: &Host) -> u64 {
        let mut left_out = 0;
        // This takes one pass if the frames are already in order.
        self.waiting.sort_by_key(|frame| frame.begin);
        let mut waiting = std::mem::take(&mut self.waiting);
        for frame in waiting.drain(..) {
            match self.lanes.iter().position(|lane| lane.end <= frame.begin) {
                Some(at) => self.lanes[at].take(frame),
                None => match self.new_lane(host) {
                    Some(lane) => lane.take(frame),
                    None => left_out += 1,
                },
            }
        }
        self.waiting = waiting;
        for lane in &mut self.lanes {
            if !lane.frames.is_empty() && !host.record(lane.location, &lane.frames) {
                left_out += lane.frames.len() as u64;
            }
            lane.frames.clear();
        }
        left_out
    }

    /// Reports that all frames that begin before this time, in ticks of the run's clock, have been recorded.
    pub fn quiet_until(&self, host: &Host, time: u64) {
        self.lanes.iter().for_each(|lane| host.quiet_until(lane.location, time));
    }

    fn new_lane(&mut self, host: &Host) -> Option<&mut Lane> {
        let number = self.lanes.len();
        if number == LANES_MAX {
            return None;
        }
        let name = match number {
            0 => format!("{}[{}]", self.kind, self.numbers),
            _ => format!("{}[{}:{number}]", self.kind, self.numbers),
        };
        let location = host.define_location(&name, &self.device)?;
        self.lanes.push(Lane { location, end: 0, frames: Vec::new() });
        self.lanes.last_mut()
    }
}

impl Lane {
    fn take(&mut self, frame: Frame) {
        self.end = frame.end;
        self.frames.push(frame);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::stand_in;
    use std::collections::BTreeMap;

    fn frame(begin: u64, end: u64) -> Frame {
        Frame { begin, end, correlation: begin, region: 1 }
    }

    fn recorded(batches: &[&[(u64, u64)]]) -> (BTreeMap<String, Vec<(u64, u64)>>, u64) {
        let (host, frames) = stand_in::host();
        let mut stream = Stream::new("HIP", "0", 3, Device::default());
        let mut left_out = 0;
        for batch in batches {
            for &(begin, end) in *batch {
                left_out += u64::from(!stream.push(frame(begin, end)));
            }
            left_out += stream.flush(&host);
        }
        (frames(), left_out)
    }

    #[test]
    fn frames_are_put_in_the_order_of_time() {
        let (frames, left_out) = recorded(&[&[(30, 40), (10, 20), (20, 30)], &[(40, 41)]]);
        assert_eq!(frames["HIP[0:3]"], [(10, 20), (20, 30), (30, 40), (40, 41)]);
        assert_eq!((frames.len(), left_out), (1, 0));
    }

    #[test]
    fn frames_that_overlap_or_come_late_are_on_further_lanes() {
        let (frames, left_out) = recorded(&[&[(10, 20), (15, 18), (19, 25)], &[(12, 14), (25, 26)]]);
        assert_eq!(frames["HIP[0:3]"], [(10, 20), (25, 26)]);
        assert_eq!(frames["HIP[0:3:1]"], [(15, 18), (19, 25)]);
        assert_eq!(frames["HIP[0:3:2]"], [(12, 14)]);
        assert_eq!(left_out, 0);
    }

    #[test]
    fn impossible_frames_and_those_without_a_lane_are_counted() {
        let overlapping: Vec<(u64, u64)> = (1..=LANES_MAX as u64 + 3).map(|begin| (begin, 1000)).collect();
        let (frames, left_out) = recorded(&[&[(9, 8), (0, 5)], &overlapping]);
        assert_eq!((frames.len(), left_out), (LANES_MAX, 5));
    }
}
