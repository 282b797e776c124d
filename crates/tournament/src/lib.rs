//! Finds the earliest event of many streams with a binary tree. Its leaves are the streams' keys, and every other node has the
//! smallest key below it. The root has the smallest key of all, and a change of a leaf affects only the nodes above it.
//!
//! Events of many streams alternate arbitrarily, so the processor could not predict a branch on the smaller key. The tree has no
//! such branch.
#![forbid(unsafe_code)]

use std::hint::select_unpredictable;

/// A stream's next event, ordered by time and then by the stream's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    pub time: u64,
    /// The stream's number, starting at 0.
    pub place: usize,
}

impl Key {
    /// The key of a stream without a next event. It is after all others, because no stream has this number.
    const NONE: Key = Key { time: u64::MAX, place: usize::MAX };

    /// Whether the event of this key comes first.
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

/// The next events of all streams.
pub struct Tree {
    /// The root is at 1, the children of node n are at 2 n and 2 n + 1. The leaves are the second half.
    nodes: Vec<Key>,
}

impl Tree {
    /// Makes a tree from the time of each stream's next event; `None` if a stream has none.
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

    /// Returns the earliest event; `None` if no stream has one.
    #[inline]
    pub fn first(&self) -> Option<Key> {
        self.nodes[1].some()
    }

    /// Returns the earliest event of all other streams.
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

    /// Calls `pass` for each stream whose next event is before `end`, in the order of their places. `pass` returns the time of
    /// the stream's following event.
    #[inline]
    pub fn pass_before(&mut self, end: u64, pass: &mut impl FnMut(usize) -> Option<u64>) {
        if self.nodes[1].time < end {
            self.pass_below(1, end, pass);
        }
    }

    fn pass_below(&mut self, at: usize, end: u64, pass: &mut impl FnMut(usize) -> Option<u64>) {
        let leaves = self.nodes.len() / 2;
        if at >= leaves {
            self.nodes[at] = Key::of(pass(at - leaves), at - leaves);
            return;
        }
        for child in [2 * at, 2 * at + 1] {
            if self.nodes[child].time < end {
                self.pass_below(child, end, pass);
            }
        }
        self.nodes[at] = self.nodes[2 * at].earlier(self.nodes[2 * at + 1]);
    }

    /// Sets the time of a stream's next event.
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

    /// Returns times that are often equal, up to the last possible one.
    fn time(stream: usize, event: usize) -> u64 {
        match (event as u64 / 2).pow(2) + (stream as u64 % 3) * 2 {
            late if late > 30 => u64::MAX,
            time => time,
        }
    }

    #[test]
    fn streams_pass_in_the_order_of_their_places() {
        for streams in 0..20 {
            let mut next: Vec<u64> = (0..streams).map(|place| place * 7 % 5).collect();
            let mut tree = Tree::new(next.iter().map(|time| Some(*time)).collect::<Vec<_>>().into_iter());
            for end in 0..12 {
                let mut passed = Vec::new();
                let expected: Vec<usize> = (0..next.len()).filter(|place| next[*place] < end).collect();
                tree.pass_before(end, &mut |place| {
                    passed.push(place);
                    next[place] = end + place as u64 % 3;
                    (next[place] < 10).then_some(next[place])
                });
                assert_eq!(passed, expected, "{streams} streams, before {end}");
                next.iter_mut().filter(|time| **time >= 10).for_each(|time| *time = u64::MAX);
                let first =
                    (0..next.len()).min_by_key(|place| next[*place]).filter(|place| next[*place] < 10);
                assert_eq!(tree.first(), first.map(|place| Key { time: next[place], place }));
            }
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
