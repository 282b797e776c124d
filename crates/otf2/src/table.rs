//! References, and the tables that they point into.

use std::fmt;
use std::marker::PhantomData;

/// A reference to a definition: a number that is meaningful within one trace.
pub trait Reference: Copy + Ord + fmt::Debug {
    /// Returns the number of the reference.
    fn number(self) -> u64;
    /// Returns the reference with this number; `None` if the number is too large. OTF2 reserves the largest number of
    /// each reference type for "none".
    fn of_number(number: u64) -> Option<Self>;
}

macro_rules! references {
    ($($(#[$meta:meta])* $name:ident($raw:ty);)*) => { $(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $raw);

        impl Reference for $name {
            fn number(self) -> u64 {
                self.0.into()
            }
            fn of_number(number: u64) -> Option<Self> {
                let raw = <$raw>::try_from(number).ok()?;
                (raw != <$raw>::MAX).then_some($name(raw))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )* };
}

references! {
    /// A location: a thread, an accelerator stream, or a recorder of metrics. The event file is named after it.
    LocationRef(u64);
    /// A location group: a process, or an accelerator context.
    LocationGroupRef(u32);
    /// A node of the system tree.
    SystemTreeNodeRef(u32);
    /// A region, which is entered and left.
    RegionRef(u32);
    /// One quantity within a metric class.
    MetricMemberRef(u32);
    /// A metric class. Classes and instances are numbered together: no number is used for both.
    MetricClassRef(u32);
    /// A metric instance. Classes and instances are numbered together: no number is used for both.
    MetricInstanceRef(u32);
    /// A group of locations, regions, metrics or ranks.
    GroupRef(u32);
    /// A communicator, which refers to a group.
    CommRef(u32);
    /// An attribute that events can have.
    AttributeRef(u32);
    /// A calling context: a place in a region, and its callers.
    CallingContextRef(u32);
    /// A string that events refer to.
    StringRef(u32);
}

/// Definitions by reference, in ascending order of reference.
///
/// The references in traces of other programs may have gaps; every look-up is checked. Without gaps, as in tables that were
/// filled only by [`push`](Table::push), a look-up is an index.
#[derive(Clone, PartialEq)]
pub struct Table<R, T> {
    entries: Vec<(R, T)>,
    reference: PhantomData<R>,
}

impl<R: Reference, T> Table<R, T> {
    /// Returns a table without definitions.
    pub fn new() -> Table<R, T> {
        Table { entries: Vec::new(), reference: PhantomData }
    }

    /// Returns a table of these entries. The first of several entries with the same reference is kept.
    pub(crate) fn of_entries(mut entries: Vec<(R, T)>) -> Table<R, T> {
        entries.sort_by_key(|entry| entry.0);
        entries.dedup_by_key(|entry| entry.0);
        Table { entries, reference: PhantomData }
    }

    /// Adds a definition under the next free reference, which is zero in an empty table.
    ///
    /// # Panics
    /// If the reference type has no number left.
    pub fn push(&mut self, value: T) -> R {
        let number = self.entries.last().map_or(0, |entry| entry.0.number() + 1);
        let reference = R::of_number(number).expect("fewer definitions than reference numbers");
        self.entries.push((reference, value));
        reference
    }

    /// Adds a definition under this reference and returns the one that it replaces.
    pub fn insert(&mut self, reference: R, value: T) -> Option<T> {
        match self.entries.binary_search_by_key(&reference, |entry| entry.0) {
            Ok(at) => Some(std::mem::replace(&mut self.entries[at].1, value)),
            Err(at) => {
                self.entries.insert(at, (reference, value));
                None
            }
        }
    }

    /// Returns the definition of a reference, if there is one.
    pub fn get(&self, reference: R) -> Option<&T> {
        self.position(reference).map(|at| &self.entries[at].1)
    }

    /// Returns the definition of a reference for modification, if there is one.
    pub fn get_mut(&mut self, reference: R) -> Option<&mut T> {
        self.position(reference).map(|at| &mut self.entries[at].1)
    }

    /// Whether the reference is defined.
    pub fn contains(&self, reference: R) -> bool {
        self.position(reference).is_some()
    }

    /// Returns the largest reference that is defined.
    pub fn last(&self) -> Option<R> {
        self.entries.last().map(|entry| entry.0)
    }

    /// Returns the number of definitions in the table.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the table has no definitions.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns all references with their definitions, in ascending order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (R, &T)> + Clone {
        self.entries.iter().map(|(reference, value)| (*reference, value))
    }

    /// Returns all definitions, in ascending order of their references.
    pub fn values(&self) -> impl ExactSizeIterator<Item = &T> + Clone {
        self.entries.iter().map(|entry| &entry.1)
    }

    fn position(&self, reference: R) -> Option<usize> {
        // Without gaps the number is the position.
        if let Ok(number) = usize::try_from(reference.number())
            && self.entries.get(number).is_some_and(|entry| entry.0 == reference)
        {
            return Some(number);
        }
        self.entries.binary_search_by_key(&reference, |entry| entry.0).ok()
    }
}

impl<R: Reference, T> Default for Table<R, T> {
    fn default() -> Self {
        Table::new()
    }
}

impl<R: Reference, T: fmt::Debug> fmt::Debug for Table<R, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_may_have_gaps() {
        let mut table = Table::<LocationRef, &str>::new();
        assert_eq!(table.push("a"), LocationRef(0));
        assert_eq!(table.insert(LocationRef(1 << 32), "far"), None);
        assert_eq!(table.insert(LocationRef(7), "seven"), None);
        assert_eq!(table.insert(LocationRef(7), "new seven"), Some("seven"));
        assert_eq!(table.push("after"), LocationRef((1 << 32) + 1));
        assert_eq!(table.get(LocationRef(7)), Some(&"new seven"));
        assert_eq!(table.get(LocationRef(1)), None);
        assert_eq!(table.get(LocationRef(u64::MAX)), None);
        assert_eq!(table.values().copied().collect::<Vec<_>>(), ["a", "new seven", "far", "after"]);
    }

    #[test]
    fn the_first_of_several_entries_with_the_same_reference_is_kept() {
        let table = Table::of_entries(vec![(RegionRef(5), 'x'), (RegionRef(2), 'y'), (RegionRef(5), 'z')]);
        assert_eq!(table.iter().collect::<Vec<_>>(), [(RegionRef(2), &'y'), (RegionRef(5), &'x')]);
    }

    #[test]
    fn the_largest_number_is_none() {
        assert_eq!(RegionRef::of_number(u64::from(u32::MAX)), None);
        assert_eq!(RegionRef::of_number(1 << 40), None);
        assert_eq!(RegionRef::of_number(3), Some(RegionRef(3)));
    }
}
