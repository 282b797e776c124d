//! Events that the kernel can count in threads (perf events), and how users write them.

/// Events that have a name of their own, in the order in which they get one of the processor's counters.
pub const NAMED_EVENTS: [&str; 4] = ["instructions", "cycles", "cache_misses", "flops"];

/// The maximum number of bytes of a name.
const NAME_BYTES_MAX: usize = 32;
/// The maximum number of perf events in one sum.
const PARTS_MAX: usize = 8;
/// The maximum factor of a perf event.
const FACTOR_MAX: u64 = 1 << 20;

/// An event that is to be counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountedEvent {
    /// The name in the figures.
    pub name: String,
    /// The perf events whose sum is counted. Empty for one of [`NAMED_EVENTS`], whose perf events depend on the machine.
    pub parts: Vec<EventPart>,
}

/// A perf event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventPart {
    /// `type` of the kernel's `perf_event_attr`.
    pub kind: u32,
    /// `config` there.
    pub config: u64,
    /// The number that each such event adds to the sum.
    pub factor: u64,
}

impl CountedEvent {
    /// Parses an event: one of [`NAMED_EVENTS`], or `NAME=TYPE:CONFIG`, where further perf events are added with `+`, and each
    /// may have a factor (`*2`). Numbers are decimal, or hexadecimal with `0x`.
    ///
    /// # Errors
    /// The error states what is wrong with the text.
    pub fn parse(text: &str) -> Result<CountedEvent, &'static str> {
        let Some((name, sum)) = text.split_once('=') else {
            let named = NAMED_EVENTS.contains(&text);
            let event = CountedEvent { name: text.to_owned(), parts: Vec::new() };
            return if named { Ok(event) } else { Err("there is no event with this name") };
        };
        let is_allowed =
            |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_';
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(is_allowed) {
            return Err("a name has 1 to 32 letters from a to z, digits and _");
        }
        if ["path", "location", "location_group"].contains(&name) {
            return Err("this name has another meaning in summary.json");
        }
        let parts: Option<Vec<EventPart>> = sum.split('+').map(EventPart::parse).collect();
        match parts {
            Some(parts) if parts.len() <= PARTS_MAX => Ok(CountedEvent { name: name.to_owned(), parts }),
            Some(_) => Err("at most 8 perf events can be added"),
            None => Err("write it like faults=1:2 or flops=4:0x1c7+4:0x4c7*2"),
        }
    }
}

impl EventPart {
    fn parse(text: &str) -> Option<EventPart> {
        let (event, factor) = text.split_once('*').unwrap_or((text, "1"));
        let (kind, config) = event.split_once(':')?;
        let [kind, config, factor] = [kind, config, factor].map(|text| number(text.trim()));
        let factor = factor.filter(|factor| (1..=FACTOR_MAX).contains(factor))?;
        Some(EventPart { kind: kind?.try_into().ok()?, config: config?, factor })
    }
}

fn number(text: &str) -> Option<u64> {
    text.strip_prefix("0x").map_or_else(|| text.parse().ok(), |digits| u64::from_str_radix(digits, 16).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_written_by_name_or_as_sums_of_perf_events() {
        let part = |kind, config, factor| EventPart { kind, config, factor };
        let event = |name: &str, parts: &[EventPart]| {
            Ok(CountedEvent { name: name.to_owned(), parts: parts.to_vec() })
        };
        assert_eq!(CountedEvent::parse("cycles"), event("cycles", &[]));
        assert_eq!(CountedEvent::parse("faults=1:2"), event("faults", &[part(1, 2, 1)]));
        let sum = event("flops", &[part(4, 0x1c7, 1), part(4, 0x4c7, 2)]);
        assert_eq!(CountedEvent::parse("flops=4:0x1c7+4:0x4c7 * 2"), sum);
        for wrong in ["", "joules", "x", "x=", "x=1", "x=1:", "x=-1:2", "x=1:2*0", "x=1:2*", "X=1:2", "=1:2"]
        {
            assert!(CountedEvent::parse(wrong).is_err(), "{wrong}");
        }
        for wrong in ["path=1:2", "x=1:2+", "x=5000000000:1", "x=0:1+0:1+0:1+0:1+0:1+0:1+0:1+0:1+0:1"] {
            assert!(CountedEvent::parse(wrong).is_err(), "{wrong}");
        }
    }
}
