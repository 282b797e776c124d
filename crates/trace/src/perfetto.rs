//! Perfetto's own format: a `Trace` (protos/perfetto/trace of github.com/google/perfetto) with a packet for each event. Names are
//! written once. The power of a device is a counter, and so is its dynamic part if that is known.

use crate::chrome::{Curve, EventFormat, ThreadNumber, Watts};
use ampere_report::protobuf::Message;
use serde_json::Value;
use std::collections::HashMap;
use std::io::{self, Write};

/// The numbers of the fields, by message.
mod field {
    pub const PACKET: u32 = 1;
    /// Fields of a packet.
    pub const TIMESTAMP: u32 = 8;
    pub const SEQUENCE: u32 = 10;
    pub const EVENT: u32 = 11;
    pub const INTERNED: u32 = 12;
    pub const SEQUENCE_FLAGS: u32 = 13;
    pub const TRACK: u32 = 60;
    /// Fields of a track.
    pub const UUID: u32 = 1;
    pub const TRACK_NAME: u32 = 2;
    pub const PROCESS: u32 = 3;
    pub const THREAD: u32 = 4;
    pub const PARENT: u32 = 5;
    pub const COUNTER: u32 = 8;
    /// Fields of a process.
    pub const PROCESS_NAME: u32 = 6;
    pub const LABELS: u32 = 8;
    /// Fields of a process and of a thread.
    pub const PID: u32 = 1;
    pub const TID: u32 = 2;
    pub const THREAD_NAME: u32 = 5;
    /// Fields of a counter.
    pub const UNIT_NAME: u32 = 6;
    /// Fields of an event.
    pub const ANNOTATION: u32 = 4;
    pub const TYPE: u32 = 9;
    pub const NAME_ID: u32 = 10;
    pub const TRACK_UUID: u32 = 11;
    pub const DOUBLE_VALUE: u32 = 44;
    /// Fields of an annotation.
    pub const UINT_VALUE: u32 = 3;
    pub const ANNOTATION_NAME: u32 = 10;
    /// Fields of the names that are written once.
    pub const EVENT_NAMES: u32 = 2;
    pub const NAME_NUMBER: u32 = 1;
    pub const NAME: u32 = 2;
}

/// The types of events.
const BEGIN: u64 = 1;
const END: u64 = 2;
const COUNTER: u64 = 4;
/// The number of the only sequence of packets, and its flags: the first packet clears all names, and the others need them.
const SEQUENCE: u64 = 1;
const CLEARED: u64 = 1;
const NEEDS_NAMES: u64 = 2;

/// The format, with the names and the counters that are written.
#[derive(Default)]
pub struct Perfetto {
    has_packet: bool,
    names: HashMap<String, u64>,
    /// The numbers of the tracks of powers.
    counters: HashMap<(usize, String), u64>,
    packet: Message,
}

/// The number of a process's track, which is also its pid. The numbers of threads are odd, those of powers are divisible by 4.
fn of_process(process: usize) -> u64 {
    process as u64 * 4 + 2
}

fn of_thread(thread: usize) -> u64 {
    thread as u64 * 2 + 1
}

impl Perfetto {
    /// Writes a packet that `fill` adds fields to.
    fn put(&mut self, out: &mut dyn Write, fill: impl FnOnce(&mut Message)) -> io::Result<()> {
        let flags = if std::mem::replace(&mut self.has_packet, true) { NEEDS_NAMES } else { CLEARED };
        self.packet.0.clear();
        fill(&mut self.packet);
        self.packet.number(field::SEQUENCE, SEQUENCE);
        self.packet.number(field::SEQUENCE_FLAGS, flags);
        let mut whole = Message::default();
        whole.bytes(field::PACKET, &self.packet.0);
        out.write_all(&whole.0)
    }

    /// Returns the number of a device's power, whose track is described when it is first needed.
    fn counter(&mut self, process: usize, name: &str, out: &mut dyn Write) -> io::Result<u64> {
        if let Some(uuid) = self.counters.get(&(process, name.to_owned())) {
            return Ok(*uuid);
        }
        let uuid = (self.counters.len() as u64 + 1) * 4;
        self.counters.insert((process, name.to_owned()), uuid);
        self.put(out, |packet| {
            packet.message(field::TRACK, |track| {
                track.number(field::UUID, uuid);
                track.number(field::PARENT, of_process(process));
                track.bytes(field::TRACK_NAME, name.as_bytes());
                track.message(field::COUNTER, |counter| counter.bytes(field::UNIT_NAME, b"W"));
            });
        })?;
        Ok(uuid)
    }

    fn count(&mut self, uuid: u64, time: u64, watts: f64, out: &mut dyn Write) -> io::Result<()> {
        self.put(out, |packet| {
            packet.number(field::TIMESTAMP, time);
            packet.message(field::EVENT, |event| {
                event.number(field::TYPE, COUNTER);
                event.number(field::TRACK_UUID, uuid);
                event.double(field::DOUBLE_VALUE, watts);
            });
        })
    }
}

impl EventFormat for Perfetto {
    fn begin(&mut self, _: &Value, _: &mut dyn Write) -> io::Result<()> {
        Ok(())
    }

    fn process(&mut self, process: usize, name: &str, node: &str, out: &mut dyn Write) -> io::Result<()> {
        self.put(out, |packet| {
            packet.message(field::TRACK, |track| {
                track.number(field::UUID, of_process(process));
                track.message(field::PROCESS, |of| {
                    of.number(field::PID, of_process(process));
                    of.bytes(field::PROCESS_NAME, name.as_bytes());
                    if !node.is_empty() {
                        of.bytes(field::LABELS, node.as_bytes());
                    }
                });
            });
        })
    }

    fn thread(&mut self, on: ThreadNumber, name: &str, out: &mut dyn Write) -> io::Result<()> {
        self.put(out, |packet| {
            packet.message(field::TRACK, |track| {
                track.number(field::UUID, of_thread(on.thread));
                track.number(field::PARENT, of_process(on.process));
                track.message(field::THREAD, |of| {
                    of.number(field::PID, of_process(on.process));
                    of.number(field::TID, of_thread(on.thread));
                    of.bytes(field::THREAD_NAME, name.as_bytes());
                });
            });
        })
    }

    fn enter(
        &mut self,
        on: ThreadNumber,
        time: u64,
        (name, calls): (&str, Option<u64>),
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let known = self.names.get(name).copied();
        let number = known.unwrap_or(self.names.len() as u64 + 1);
        if known.is_none() {
            self.names.insert(name.to_owned(), number);
        }
        self.put(out, |packet| {
            if known.is_none() {
                packet.message(field::INTERNED, |names| {
                    names.message(field::EVENT_NAMES, |of| {
                        of.number(field::NAME_NUMBER, number);
                        of.bytes(field::NAME, name.as_bytes());
                    });
                });
            }
            packet.number(field::TIMESTAMP, time);
            packet.message(field::EVENT, |event| {
                event.number(field::TYPE, BEGIN);
                event.number(field::NAME_ID, number);
                event.number(field::TRACK_UUID, of_thread(on.thread));
                if let Some(calls) = calls {
                    event.message(field::ANNOTATION, |of| {
                        of.number(field::UINT_VALUE, calls);
                        of.bytes(field::ANNOTATION_NAME, b"calls");
                    });
                }
            });
        })
    }

    fn leave(&mut self, on: ThreadNumber, time: u64, _: &str, out: &mut dyn Write) -> io::Result<()> {
        self.put(out, |packet| {
            packet.number(field::TIMESTAMP, time);
            let event = [(field::TYPE, END), (field::TRACK_UUID, of_thread(on.thread))];
            packet.fields(field::EVENT, &event);
        })
    }

    fn power(&mut self, curve: &Curve, time: u64, watts: Watts, out: &mut dyn Write) -> io::Result<()> {
        let sum = match watts {
            Watts::All(watts) => watts,
            Watts::Parts([static_watts, dynamic_watts]) => static_watts + dynamic_watts,
        };
        let uuid = self.counter(curve.process, &curve.name, out)?;
        self.count(uuid, time, sum, out)?;
        if let Watts::Parts([_, dynamic_watts]) = watts {
            let uuid = self.counter(curve.process, &format!("{}, dynamic", curve.name), out)?;
            self.count(uuid, time, dynamic_watts, out)?;
        }
        Ok(())
    }

    fn end(&mut self, _: &mut dyn Write) -> io::Result<()> {
        Ok(())
    }
}
