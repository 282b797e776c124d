//! Encodes and decodes entries of the definitions log. Decoding accepts arbitrary bytes.

use ampere_model::{
    Clocks, Communicator, Definition, Device, GpuRecords, LocalLocation, Location, LocationKind, Members,
    Process, Program, Quality, Region, RegionHandle, StreamDevice,
};

const PROCESS: u8 = 1;
const RANK: u8 = 2;
const REGION: u8 = 3;
const LOCATION: u8 = 4;
const DEVICE: u8 = 5;
const FINISHED: u8 = 6;
const UNRECORDED: u8 = 7;
const COMMUNICATOR: u8 = 8;
const PROGRAM: u8 = 9;
/// The fields of a device, followed by the power that it draws without the job.
const DEVICE_WITH_BASELINE: u8 = 10;
const STREAM_DEVICE: u8 = 11;
const GPU_RECORDS: u8 = 12;
const THREAD: u8 = 13;

/// A program with more arguments counts as damaged.
const ARGUMENTS_MAX: u32 = 1 << 16;
/// A process with more environment entries counts as damaged.
const ENVIRONMENT_MAX: u32 = 256;
/// A device with more parts counts as damaged.
const PARTS_MAX: u32 = 4096;

struct Out<'a>(&'a mut Vec<u8>);

impl Out<'_> {
    fn u8(&mut self, value: u8) {
        self.0.push(value);
    }
    fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }
    fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }
    fn string(&mut self, value: impl AsRef<[u8]>) {
        let value = value.as_ref();
        self.u32(value.len() as u32);
        self.0.extend_from_slice(value);
    }
}

struct In<'a>(&'a [u8]);

impl<'a> In<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(head)
    }
    fn u8(&mut self) -> Option<u8> {
        Some(self.take(1)?[0])
    }
    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }
    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }
    fn string(&mut self) -> Option<String> {
        let length = self.u32()? as usize;
        Some(String::from_utf8_lossy(self.take(length)?).into_owned())
    }
}

pub(super) fn encode(definition: &Definition, into: &mut Vec<u8>) {
    let mut out = Out(into);
    match definition {
        Definition::Process(p) => {
            out.u8(PROCESS);
            out.u32(p.pid);
            out.u64(p.start_time);
            out.string(&p.hostname);
            out.string(&p.executable);
            out.string(&p.host);
            out.u64(p.clocks.tsc);
            out.u64(p.clocks.monotonic_ns);
            out.u64(p.clocks.monotonic_raw_ns);
            out.u64(p.clocks.realtime_ns);
            out.u32(p.environment.len() as u32);
            for entry in &p.environment {
                out.string(entry);
            }
            out.u64(p.pid_namespace);
        }
        Definition::Rank { rank, size } => {
            out.u8(RANK);
            out.u32(*rank);
            out.u32(*size);
        }
        Definition::Region(region) => encode_region(region, into),
        Definition::Location(l) => {
            out.u8(LOCATION);
            out.u32(l.id.0);
            out.u8(match l.kind {
                LocationKind::CpuThread => 0,
                LocationKind::Gpu => 1,
                LocationKind::Metric => 2,
                LocationKind::CpuTime => 3,
            });
            out.string(&l.name);
            out.string(&l.ring);
            out.u32(l.thread);
        }
        Definition::Device(d) => {
            out.u8(if d.baseline_microwatts.is_some() { DEVICE_WITH_BASELINE } else { DEVICE });
            out.u32(d.index);
            out.string(&d.name);
            out.string(&d.metric);
            out.string(&d.source);
            out.u8(match d.quality {
                Quality::Measured => 0,
                Quality::Estimated => 1,
                Quality::Simulated => 2,
                Quality::Integrated => 3,
            });
            out.u64(d.resolution_joules.to_bits());
            out.string(&d.kind);
            out.string(&d.pci);
            out.string(&d.description);
            out.u32(d.contains.len() as u32);
            for metric in &d.contains {
                out.string(metric);
            }
            out.u64(d.wraps_at.unwrap_or(0));
            if let Some(microwatts) = d.baseline_microwatts {
                out.u64(microwatts);
            }
        }
        Definition::Unrecorded { locations, calls } => {
            out.u8(UNRECORDED);
            out.u64(*locations);
            out.u64(*calls);
        }
        Definition::Thread { location, thread } => {
            out.u8(THREAD);
            out.u32(location.0);
            out.u32(*thread);
        }
        Definition::StreamDevice(d) => {
            out.u8(STREAM_DEVICE);
            out.u32(d.location.0);
            [&d.pci, &d.uuid, &d.model].into_iter().for_each(|text| out.string(text));
        }
        Definition::GpuRecords(g) => {
            out.u8(GPU_RECORDS);
            [g.not_recorded, g.clock_error, g.clock_drift].into_iter().for_each(|number| out.u64(number));
        }
        Definition::Communicator(c) => {
            out.u8(COMMUNICATOR);
            out.u32(c.handle);
            encode_members(&c.members, &mut out);
        }
        Definition::Program(program) => {
            out.u8(PROGRAM);
            out.string(&program.name);
            out.u32(program.arguments.len() as u32);
            program.arguments.iter().for_each(|argument| out.string(argument));
        }
        Definition::Finished { left_out } => {
            out.u8(FINISHED);
            out.u64(*left_out);
        }
    }
}

fn encode_members(members: &Members, out: &mut Out) {
    match members {
        Members::World => out.u8(0),
        Members::Ranks(ranks) => {
            out.u8(1);
            out.u32(ranks.len() as u32);
            ranks.iter().for_each(|rank| out.u32(*rank));
        }
        Members::Shared { root, id, size, rank } => {
            out.u8(2);
            [root, id, size, rank].into_iter().for_each(|number| out.u32(*number));
        }
    }
}

fn decode_members(from: &mut In) -> Option<Members> {
    Some(match from.u8()? {
        0 => Members::World,
        1 => {
            // Taking the bytes first bounds the allocation by the size of the entry.
            let ranks = (from.u32()? as usize).checked_mul(4).and_then(|bytes| from.take(bytes))?;
            Members::Ranks(ranks.chunks_exact(4).filter_map(|rank| In(rank).u32()).collect())
        }
        2 => Members::Shared { root: from.u32()?, id: from.u32()?, size: from.u32()?, rank: from.u32()? },
        _ => return None,
    })
}

pub(super) fn encode_region(region: &Region<impl AsRef<[u8]>>, into: &mut Vec<u8>) {
    let mut out = Out(into);
    out.u8(REGION);
    out.u32(region.handle.0);
    out.string(&region.name);
    out.string(&region.canonical_name);
    out.string(&region.source_file);
    out.u32(region.begin_line);
    out.u32(region.end_line);
    out.u8(region.region_type);
    out.u8(region.paradigm);
}

/// Returns the definition in an entry; `None` if the bytes are not an entry of this version.
pub(super) fn decode(bytes: &[u8]) -> Option<Definition> {
    let mut from = In(bytes);
    Some(match from.u8()? {
        PROCESS => Definition::Process(Process {
            pid: from.u32()?,
            start_time: from.u64()?,
            hostname: from.string()?,
            executable: from.string()?,
            host: from.string()?,
            clocks: Clocks {
                tsc: from.u64()?,
                monotonic_ns: from.u64()?,
                monotonic_raw_ns: from.u64()?,
                realtime_ns: from.u64()?,
            },
            environment: {
                let count = from.u32().filter(|count| *count <= ENVIRONMENT_MAX)?;
                (0..count).map(|_| from.string()).collect::<Option<_>>()?
            },
            pid_namespace: from.u64()?,
        }),
        RANK => Definition::Rank { rank: from.u32()?, size: from.u32()? },
        REGION => Definition::Region(Region {
            handle: RegionHandle(from.u32()?),
            name: from.string()?,
            canonical_name: from.string()?,
            source_file: from.string()?,
            begin_line: from.u32()?,
            end_line: from.u32()?,
            region_type: from.u8()?,
            paradigm: from.u8()?,
        }),
        LOCATION => Definition::Location(Location {
            id: LocalLocation(from.u32()?),
            kind: match from.u8()? {
                0 => LocationKind::CpuThread,
                1 => LocationKind::Gpu,
                2 => LocationKind::Metric,
                3 => LocationKind::CpuTime,
                _ => return None,
            },
            name: from.string()?,
            ring: from.string()?,
            thread: from.u32()?,
        }),
        kind @ (DEVICE | DEVICE_WITH_BASELINE) => Definition::Device(Device {
            index: from.u32()?,
            name: from.string()?,
            metric: from.string()?,
            source: from.string()?,
            quality: match from.u8()? {
                0 => Quality::Measured,
                1 => Quality::Estimated,
                2 => Quality::Simulated,
                3 => Quality::Integrated,
                _ => return None,
            },
            resolution_joules: f64::from_bits(from.u64()?),
            kind: from.string()?,
            pci: from.string()?,
            description: from.string()?,
            contains: {
                let count = from.u32().filter(|count| *count <= PARTS_MAX)?;
                (0..count).map(|_| from.string()).collect::<Option<_>>()?
            },
            wraps_at: Some(from.u64()?).filter(|range| *range > 0),
            baseline_microwatts: match kind {
                DEVICE_WITH_BASELINE => Some(from.u64()?),
                _ => None,
            },
        }),
        COMMUNICATOR => Definition::Communicator(Communicator {
            handle: from.u32()?,
            members: decode_members(&mut from)?,
        }),
        PROGRAM => Definition::Program(Program {
            name: from.string()?,
            arguments: {
                let count = from.u32().filter(|count| *count <= ARGUMENTS_MAX)?;
                (0..count).map(|_| from.string()).collect::<Option<_>>()?
            },
        }),
        UNRECORDED => Definition::Unrecorded { locations: from.u64()?, calls: from.u64()? },
        STREAM_DEVICE => Definition::StreamDevice(StreamDevice {
            location: LocalLocation(from.u32()?),
            pci: from.string()?,
            uuid: from.string()?,
            model: from.string()?,
        }),
        THREAD => Definition::Thread { location: LocalLocation(from.u32()?), thread: from.u32()? },
        GPU_RECORDS => Definition::GpuRecords(GpuRecords {
            not_recorded: from.u64()?,
            clock_error: from.u64()?,
            clock_drift: from.u64()?,
        }),
        FINISHED => Definition::Finished { left_out: from.u64()? },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KINDS: [LocationKind; 4] =
        [LocationKind::CpuThread, LocationKind::Gpu, LocationKind::Metric, LocationKind::CpuTime];

    fn any_definition() -> impl Strategy<Value = Definition> {
        prop_oneof![
            (
                any::<[u64; 6]>(),
                any::<u32>(),
                any::<[String; 3]>(),
                prop::collection::vec(any::<String>(), 0..4)
            )
                .prop_map(|(n, pid, [hostname, executable, host], environment)| {
                    Definition::Process(Process {
                        pid,
                        start_time: n[0],
                        hostname,
                        executable,
                        host,
                        clocks: Clocks {
                            tsc: n[1],
                            monotonic_ns: n[2],
                            monotonic_raw_ns: n[3],
                            realtime_ns: n[4],
                        },
                        environment,
                        pid_namespace: n[5],
                    })
                }),
            (any::<u32>(), any::<u32>()).prop_map(|(rank, size)| Definition::Rank { rank, size }),
            (any::<[u32; 3]>(), any::<[String; 3]>(), any::<[u8; 2]>()).prop_map(
                |(n, [name, canonical_name, source_file], [region_type, paradigm])| Definition::Region(
                    Region {
                        handle: RegionHandle(n[0]),
                        name,
                        canonical_name,
                        source_file,
                        begin_line: n[1],
                        end_line: n[2],
                        region_type,
                        paradigm,
                    }
                )
            ),
            (any::<[u32; 2]>(), proptest::sample::select(KINDS.to_vec()), any::<[String; 2]>()).prop_map(
                |([id, thread], kind, [name, ring])| {
                    Definition::Location(Location { id: LocalLocation(id), kind, name, ring, thread })
                }
            ),
            (
                any::<u32>(),
                0usize..4,
                any::<[String; 6]>(),
                -1e9f64..1e9,
                prop::collection::vec(any::<String>(), 0..4)
            )
                .prop_map(
                    |(
                        index,
                        quality,
                        [name, metric, source, kind, pci, description],
                        resolution_joules,
                        contains,
                    )| {
                        let all =
                            [Quality::Measured, Quality::Estimated, Quality::Simulated, Quality::Integrated];
                        let quality = all[quality];
                        Definition::Device(Device {
                            index,
                            name,
                            metric,
                            source,
                            quality,
                            resolution_joules,
                            kind,
                            pci,
                            description,
                            contains,
                            wraps_at: Some(u64::from(index)).filter(|range| *range > 0),
                            baseline_microwatts: Some(u64::from(index)).filter(|watts| *watts > 3),
                        })
                    }
                ),
            any::<u64>().prop_map(|left_out| Definition::Finished { left_out }),
            (any::<String>(), prop::collection::vec(any::<String>(), 0..4))
                .prop_map(|(name, arguments)| Definition::Program(Program { name, arguments })),
            any::<(u64, u64)>().prop_map(|(locations, calls)| Definition::Unrecorded { locations, calls }),
            (any::<u32>(), any::<[String; 3]>()).prop_map(|(id, [pci, uuid, model])| {
                Definition::StreamDevice(StreamDevice { location: LocalLocation(id), pci, uuid, model })
            }),
            any::<(u32, u32)>()
                .prop_map(|(id, thread)| Definition::Thread { location: LocalLocation(id), thread }),
            any::<[u64; 3]>().prop_map(|[not_recorded, clock_error, clock_drift]| {
                Definition::GpuRecords(GpuRecords { not_recorded, clock_error, clock_drift })
            }),
            (any::<u32>(), 0usize..3, any::<[u32; 4]>(), prop::collection::vec(any::<u32>(), 0..4)).prop_map(
                |(handle, kind, [root, id, size, rank], ranks)| {
                    let shared = Members::Shared { root, id, size, rank };
                    let members = [Members::World, Members::Ranks(ranks), shared][kind].clone();
                    Definition::Communicator(Communicator { handle, members })
                }
            ),
        ]
    }

    proptest! {
        #[test]
        fn definitions_are_encoded_and_decoded(definition in any_definition()) {
            let mut bytes = Vec::new();
            encode(&definition, &mut bytes);
            prop_assert_eq!(decode(&bytes), Some(definition));
            for shorter in 0..bytes.len() {
                prop_assert_eq!(decode(&bytes[..shorter]), None);
            }
        }

        #[test]
        fn arbitrary_bytes_do_no_harm(bytes: Vec<u8>) {
            let _ = decode(&bytes);
        }
    }
}
