//! Events that were counted with stack samples, such as instructions: how often each has happened in each call path.

use ampere_attribution::{LocationIndex, NodeIndex};
use ampere_model::numbers::NumberMap;

/// The maximum number of different events, in all processes of a run.
pub const EVENTS_MAX: usize = 16;

/// The events of a run, by call path.
#[derive(Debug, Default)]
pub struct EventCounts {
    names: Vec<String>,
    /// For each location, the indices of its events in `names`, by their numbers in its records. `None`: an event for which there
    /// was no room.
    numbers: NumberMap<u32, Vec<Option<u8>>>,
    by_path: NumberMap<(u32, u32), [u64; EVENTS_MAX]>,
}

impl EventCounts {
    /// Sets the events of a location: their names, separated by commas, in the order of their numbers.
    pub(crate) fn set_events(&mut self, location: LocationIndex, names: &str) {
        let numbers = names.split(',').take(EVENTS_MAX).map(|name| self.number(name)).collect();
        self.numbers.insert(location.0, numbers);
    }

    fn number(&mut self, name: &str) -> Option<u8> {
        let known = self.names.iter().position(|known| known == name);
        if known.is_none() && self.names.len() < EVENTS_MAX {
            self.names.push(name.to_owned());
        }
        known.or_else(|| self.names.iter().position(|known| known == name)).map(|at| at as u8)
    }

    /// Returns the number of an event in the records of a location; `None` if these do not contain it.
    pub fn number_at(&self, location: LocationIndex, name: &str) -> Option<u32> {
        let event = self.names.iter().position(|known| known == name)?;
        let numbers = self.numbers.get(&location.0)?;
        numbers.iter().position(|number| *number == Some(event as u8)).map(|at| at as u32)
    }

    /// Adds events that were counted on a location to a call path of the location `on`, which is another one if calls of the same
    /// thread are recorded.
    pub(crate) fn add(
        &mut self,
        location: LocationIndex,
        event: u32,
        count: u64,
        (on, path): (LocationIndex, NodeIndex),
    ) {
        let number = self.numbers.get(&location.0).and_then(|numbers| *numbers.get(event as usize)?);
        if let Some(number) = number {
            let sum = &mut self.by_path.entry((on.0, path.0)).or_default()[usize::from(number)];
            *sum = sum.saturating_add(count);
        }
    }

    /// Returns the names of the events.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Iterates over the call paths, in no order, with the count of each event.
    pub fn by_path(&self) -> impl Iterator<Item = (LocationIndex, NodeIndex, &[u64])> {
        let counts = self.by_path.iter();
        counts.map(|((on, path), counts)| (LocationIndex(*on), NodeIndex(*path), &counts[..self.names.len()]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_added_by_the_names_of_events_and_hostile_ones_are_left_out() {
        let one = LocationIndex(1);
        let other = LocationIndex(2);
        let path = NodeIndex(3);
        let mut counts = EventCounts::default();
        counts.set_events(one, "instructions,cycles");
        counts.set_events(other, "cycles");
        counts.add(one, 1, 5, (one, path));
        counts.add(other, 0, 7, (one, path));
        counts.add(other, 1, 100, (one, path));
        counts.add(LocationIndex(9), 0, 100, (one, path));
        assert_eq!(counts.by_path().collect::<Vec<_>>(), [(one, path, &[0, 12][..])]);
        assert_eq!(
            (counts.number_at(other, "cycles"), counts.number_at(other, "instructions")),
            (Some(0), None)
        );
        counts.add(one, 1, u64::MAX, (one, path));
        assert_eq!(counts.by_path().next().unwrap().2[1], u64::MAX);
        let many: Vec<String> = (0..100).map(|number| format!("event {number}")).collect();
        counts.set_events(one, &many.join(","));
        assert_eq!(counts.names().len(), EVENTS_MAX);
        counts.add(one, 15, 1, (one, path));
        assert_eq!(counts.by_path().next().unwrap().2.len(), EVENTS_MAX);
    }
}
