//! Which of many streams has the earliest event: a binary tree whose leaves are the streams' keys, in which every other node has
//! the least of those below it. The root is the first of all, and a change concerns only the nodes above its leaf.
//!
//! Events of many streams alternate as they like, so that no branch on which is less can be predicted: here there is none.
#![forbid(unsafe_code)]

use std::hint::select_unpredictable;

/// A stream's next event: its time, and at the same time the stream's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// The event's time.
    pub time: u64,
    /// The stream's number, from 0 on.
    pub place: usize,
}

impl Key {
    /// Of a stream without a next event: after all others. No place is as large.
    const NONE: Key = Key { time: u64::MAX, place: usize::MAX };

    /// Whether this one's event comes first.
    #[inline]
    pub fn is_before(self, other: Key) -> bool {
        (self.time < other.time) | ((self.time == other.time) & (self.place < other.place))
    }

    #[inline]
    fn earlier(self, other: Key) -> Key {
        let other_first = other.is_before(self);
        Key {
            time: select_unpredictable(other_first, other.time, self.time),
            place: select_unpredictable(other_first, other.place, self.place),
        }
    }

    #[inline]
    fn of(time: Option<u64>, place: usize) -> Key {
        time.map_or(Key::NONE, |time| Key { time, place })
    }

    #[inline]
    fn some(self) -> Option<Key> {
        (self.place != Key::NONE.place).then_some(self)
    }
}

/// The next events of streams.
pub struct Tree {
    /// The root is at 1, the children of node n are at 2 n and 2 n + 1. The leaves are the second half.
    nodes: Vec<Key>,
}

impl Tree {
    /// Of the times of each stream's next event; `None` where there is none.
    pub fn new(times: impl ExactSizeIterator<Item = Option<u64>>) -> Tree {
        let leaves = times.len().next_power_of_two();
        let mut nodes = vec![Key::NONE; 2 * leaves];
        for (place, time) in times.enumerate() {
            nodes[leaves + place] = Key::of(time, place);
        }
        for at in (1..leaves).rev() {
            nodes[at] = nodes[2 * at].earlier(nodes[2 * at + 1]);
        }
        Tree { nodes }
    }

    /// The earliest; `None` if no stream has an event.
    #[inline]
    pub fn first(&self) -> Option<Key> {
        self.nodes[1].some()
    }

    /// The earliest of all other streams.
    #[inline]
    pub fn first_but(&self, place: usize) -> Option<Key> {
        let mut least = Key::NONE;
        let mut at = self.nodes.len() / 2 + place;
        while at > 1 {
            least = least.earlier(self.nodes[at ^ 1]);
            at /= 2;
        }
        least.some()
    }

    /// A stream's next event is another one now.
    #[inline]
    pub fn set(&mut self, place: usize, time: Option<u64>) {
        let mut at = self.nodes.len() / 2 + place;
        let mut least = Key::of(time, place);
        if self.nodes[at] == least {
            return;
        }
        self.nodes[at] = least;
        while at > 1 {
            least = least.earlier(self.nodes[at ^ 1]);
            at /= 2;
            self.nodes[at] = least;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Times that often are the same, up to the last there is.
    fn time(stream: usize, event: usize) -> u64 {
        match (event as u64 / 2).pow(2) + (stream as u64 % 3) * 2 {
            late if late > 30 => u64::MAX,
            time => time,
        }
    }

    #[test]
    fn any_number_of_streams_is_in_order() {
        for streams in 0..20 {
            let events = |stream: usize| 14 + stream % 2;
            let mut expected: Vec<Key> = (0..streams)
                .flat_map(|place| {
                    (0..events(place)).map(move |event| Key { time: time(place, event), place })
                })
                .collect();
            expected.sort_unstable_by_key(|key| (key.time, key.place));
            let mut next = vec![0; streams];
            let mut next_time = |stream: usize| {
                let event = next[stream];
                next[stream] += 1;
                (event < events(stream)).then(|| time(stream, event))
            };
            let first: Vec<Option<u64>> = (0..streams).map(&mut next_time).collect();
            let mut tree = Tree::new(first.into_iter());
            for (at, key) in expected.iter().enumerate() {
                assert_eq!(tree.first(), Some(*key), "{streams} streams, event {at}");
                let other = expected[at..].iter().find(|other| other.place != key.place);
                assert_eq!(tree.first_but(key.place), other.copied());
                tree.set(key.place, next_time(key.place));
            }
            assert_eq!(tree.first(), None);
        }
    }
}
