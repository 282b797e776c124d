//! Checks whether the kernel lets this user sample the stacks of programs, and count events in their threads.

use super::findings::{Check, Group};
use ampere_model::{CountedEvent, NAMED_EVENTS};
use ampere_stacks::{NotCounted, Options, Sampler, countable};

pub fn check() -> Vec<Check> {
    let mut group = Group::new("call paths of any program");
    match Sampler::begin(&Options::default()) {
        Ok(_) => {
            group.ok("stacks", "can be sampled: ampere run --sample auto");
            let named = NAMED_EVENTS.map(|name| CountedEvent { name: name.to_owned(), parts: Vec::new() });
            let (counted, others) = countable(&named, &Options::default());
            let what = events_text(&counted, &others);
            match others.is_empty() {
                true => group.ok("events", what),
                false => group.note("events", what, None),
            }
        }
        Err(why) => group.note("stacks", format!("cannot be sampled: {why}"), None),
    }
    group.checks
}

/// Returns a text with the events that can be counted, and why the first of the others cannot.
fn events_text(counted: &[CountedEvent], others: &[NotCounted]) -> String {
    let names: Vec<&str> = counted.iter().map(|event| event.name.as_str()).collect();
    let Some(first) = others.first() else {
        return format!("{} can be counted: AMPERE_HARDWARE_COUNTERS=on", names.join(", "));
    };
    let without = others.iter().map(|one| one.name.as_str()).collect::<Vec<_>>().join(", ");
    let why = first.why;
    match names.is_empty() {
        true => format!("{without} cannot be counted: {why}"),
        false => format!(
            "{} can be counted: AMPERE_HARDWARE_COUNTERS=on; {without} cannot: {why}",
            names.join(", ")
        ),
    }
}
