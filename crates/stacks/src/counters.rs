//! Chooses the perf events that are counted in each sampled thread, and finds out which of them this machine has.

use std::io;

use ampere_model::{CountedEvent, EventPart};

use crate::events::Group;
use crate::options::Options;

const HARDWARE: u32 = 0;
const RAW: u32 = 4;

/// An event that is not counted, and the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotCounted {
    /// The name of the event.
    pub name: String,
    /// The reason, as the end of a sentence.
    pub why: &'static str,
}

/// The reason if the kernel refuses `PERF_SAMPLE_READ` for events that new threads and processes inherit.
const NO_GROUPS: &str = "this kernel does not read counters with the samples of a thread and of what it starts: use a more recent one";
const NO_COUNTER: &str = "the processor's counters are not available here, as usual in virtual machines";
const NO_ROOM: &str = "the processor has no such event, or no counter left for it next to the others";
const DENIED: &str = "the kernel does not allow it for this user";
const NO_FLOPS: &str = "no event that counts floating-point operations is known for this processor";

/// Returns the events that the kernel can count together with samples, each with its perf events, and the others with reasons.
pub fn countable(wanted: &[CountedEvent], options: &Options) -> (Vec<CountedEvent>, Vec<NotCounted>) {
    let (mut countable, mut others) = (Vec::new(), Vec::new());
    if wanted.is_empty() {
        return (countable, others);
    }
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let has_groups = Group::try_out(&[], options).is_ok();
    for event in wanted {
        let parts = if event.parts.is_empty() { parts_of(&event.name, &cpu) } else { event.parts.clone() };
        let event = CountedEvent { name: event.name.clone(), parts };
        let with: Vec<CountedEvent> = countable.iter().chain([&event]).cloned().collect();
        let why = match Group::try_out(&with, options) {
            _ if !has_groups => NO_GROUPS,
            _ if event.parts.is_empty() => NO_FLOPS,
            Ok(()) => {
                countable.push(event);
                continue;
            }
            Err(error) => reason(&error),
        };
        others.push(NotCounted { name: event.name, why });
    }
    (countable, others)
}

fn reason(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => DENIED,
        Some(libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP) => NO_COUNTER,
        _ => NO_ROOM,
    }
}

/// Returns the perf events of an event that is requested only by its name, such as `cycles`; none if they are not known for the
/// processor.
fn parts_of(name: &str, cpu: &str) -> Vec<EventPart> {
    let hardware = |config| vec![EventPart { kind: HARDWARE, config, factor: 1 }];
    match name {
        "cycles" => hardware(0),
        "instructions" => hardware(1),
        "cache_misses" => hardware(3),
        _ => flops(cpu),
    }
}

/// Intel's processors whose event 0xc7 counts retired floating-point instructions by their width, by model, from Broadwell to
/// Granite Rapids. Hybrid processors are left out, because their small cores do not have it.
const FP_ARITH_MODELS: [u32; 23] = [
    0x3d, 0x47, 0x4f, 0x56, 0x4e, 0x5e, 0x55, 0x8e, 0x9e, 0xa5, 0xa6, 0x66, 0x6a, 0x6c, 0x7d, 0x7e, 0x8c,
    0x8d, 0xa7, 0x8f, 0xcf, 0xad, 0xae,
];

/// Returns the perf events that count floating-point operations, from the text of `/proc/cpuinfo`.
fn flops(cpu: &str) -> Vec<EventPart> {
    let value = |name: &str| {
        let mut lines = cpu.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(key, _)| key.trim() == name).map_or("", |(_, value)| value.trim())
    };
    let number = |name: &str| value(name).parse::<u32>().unwrap_or(0);
    let raw = |mask: u64, event: u64, factor| EventPart { kind: RAW, config: mask << 8 | event, factor };
    match (value("vendor_id"), number("cpu family")) {
        // Retired SSE and AVX operations, without those of bfloat16. One that multiplies and adds counts as two.
        ("AuthenticAMD", 0x17) => vec![raw(0xff, 0x03, 1)],
        ("AuthenticAMD", 0x19 | 0x1a) => vec![raw(0x0f, 0x03, 1)],
        ("GenuineIntel", 6) if FP_ARITH_MODELS.contains(&number("model")) => {
            // The parts are scalar instructions, those on 128 bits of doubles, and those on four, eight and sixteen numbers. An
            // instruction that multiplies and adds is counted twice.
            let mut parts =
                vec![raw(0x03, 0xc7, 1), raw(0x04, 0xc7, 2), raw(0x18, 0xc7, 4), raw(0x60, 0xc7, 8)];
            if value("flags").split(' ').any(|flag| flag == "avx512f") {
                parts.push(raw(0x80, 0xc7, 16));
            }
            parts
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpu(vendor: &str, family: u32, model: u32, flags: &str) -> String {
        format!(
            "processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\nflags\t\t: {flags}\n"
        )
    }

    #[test]
    fn floating_point_operations_are_counted_only_on_processors_whose_events_are_known() {
        let configs = |cpu: String| -> Vec<(u64, u64)> {
            flops(&cpu).iter().map(|part| (part.config, part.factor)).collect()
        };
        assert_eq!(configs(cpu("AuthenticAMD", 25, 17, "avx512f")), [(0xf03, 1)]);
        let wide = configs(cpu("GenuineIntel", 6, 0x8f, "fpu avx512f"));
        assert_eq!(wide, [(0x3c7, 1), (0x4c7, 2), (0x18c7, 4), (0x60c7, 8), (0x80c7, 16)]);
        assert_eq!(configs(cpu("GenuineIntel", 6, 0x9e, "fpu avx2")).len(), 4);
        // Haswell, Alder Lake, another vendor, no text.
        assert_eq!(configs(cpu("GenuineIntel", 6, 0x3f, "fpu")), []);
        assert_eq!(configs(cpu("GenuineIntel", 6, 0x97, "fpu")), []);
        assert_eq!(configs(cpu("AuthenticAMD", 0x15, 1, "fpu")), []);
        assert_eq!(configs(String::new()), []);
    }

    #[test]
    fn what_the_machine_cannot_count_is_named_with_a_reason() {
        let parse = |text| CountedEvent::parse(text).unwrap();
        // No machine has the second one.
        let wanted = [parse("page_faults=1:2"), parse("nothing=1:99999"), parse("switches=1:3")];
        if Group::try_out(&[], &Options::default()).is_err() {
            println!("skipped: the kernel does not read counters with samples");
            return;
        }
        let (countable, others) = countable(&wanted, &Options::default());
        assert_eq!(countable, [wanted[0].clone(), wanted[2].clone()]);
        assert_eq!(others.len(), 1, "{others:?}");
        assert_eq!(others[0].name, "nothing");
    }
}
