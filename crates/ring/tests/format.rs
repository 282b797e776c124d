//! The version of the format changes with the format: the bytes of records and definitions are compared with the digest
//! that belongs to the version.

use ampere_model::{
    Clocks, Communicator, Definition, Device, GpuRecords, LocalLocation, Location, LocationKind, Members,
    Process, Program, Quality, Region, RegionHandle, StreamDevice,
};
use ampere_ring::communication::{Collective, Communication, Message};
use ampere_ring::layout::ABI_VERSION;
use ampere_ring::{CoalescedCalls, Kind, LogWriter, Record};

/// A version, and the digest of its format.
const FORMAT: (u32, u64) = (8, 6_687_689_288_226_299_157);

fn records() -> Vec<Record> {
    let kinds = [
        Kind::Enter,
        Kind::Leave,
        Kind::ProgramBegin,
        Kind::ProgramEnd,
        Kind::LocationEnd,
        Kind::Sample,
        Kind::Value,
        Kind::Suppressed,
        Kind::Group,
        Kind::Resume,
        Kind::CpuTime,
        Kind::Counts,
        Kind::Correlation,
    ];
    let mut records = kinds.map(|kind| Record::new(kind, 1 << 40, 7)).to_vec();
    records.push(Record::coalesced_calls(CoalescedCalls {
        region: 1,
        depth: 2,
        calls: 3,
        exclusive_ticks: 4,
    }));
    let message = |bytes| Message { peer: 1, communicator: 2, tag: 3, bytes };
    let collective = Collective { operation: 1, communicator: 2, root: -1, bytes_sent: 3, bytes_received: 4 };
    let events = [
        Communication::MpiSend(message(8)),
        Communication::MpiRecv(message(1 << 40)),
        Communication::MpiIsend(message(8), 5),
        Communication::MpiIsendComplete(5),
        Communication::MpiIrecvRequest(5),
        Communication::MpiIrecv(message(8), 5),
        Communication::MpiRequestTest(5),
        Communication::MpiRequestCancelled(5),
        Communication::MpiCollectiveBegin,
        Communication::MpiCollectiveEnd(collective),
        Communication::NonBlockingCollectiveRequest(5),
        Communication::NonBlockingCollectiveComplete(collective, 5),
        Communication::CommCreate(5),
        Communication::CommDestroy(5),
        Communication::ThreadFork(5, 6),
        Communication::ThreadJoin(5),
        Communication::MeasurementOnOff(true),
        Communication::MeasurementOnOff(false),
    ];
    records.extend(events.into_iter().flat_map(|event| event.records(9)));
    records
}

fn definitions() -> Vec<Definition> {
    let text = |text: &str| text.to_owned();
    let clocks = Clocks { tsc: 1, monotonic_ns: 2, monotonic_raw_ns: 3, realtime_ns: 4 };
    let members =
        [Members::World, Members::Ranks(vec![1, 2]), Members::Shared { root: 1, id: 2, size: 3, rank: 4 }];
    let process = Process {
        pid: 1,
        start_time: 2,
        hostname: text("node"),
        executable: text("/a/program"),
        host: text("embedded"),
        clocks,
        environment: vec![text("A=1")],
        pid_namespace: 3,
    };
    let region = Region {
        handle: RegionHandle(1),
        name: text("main"),
        canonical_name: text("main"),
        source_file: text("main.c"),
        begin_line: 2,
        end_line: 3,
        region_type: 4,
        paradigm: 5,
    };
    let device = Device {
        index: 1,
        name: text("package-0"),
        metric: text("energy"),
        source: text("rapl"),
        quality: Quality::Measured,
        resolution_joules: 0.5,
        kind: text("cpu"),
        pci: text("0000:00:00.0"),
        description: text("a device"),
        contains: vec![text("dram-0")],
        wraps_at: Some(6),
        baseline_microwatts: Some(7),
    };
    let location = |kind| {
        let (name, ring) = (text("thread"), text("1.0.ring"));
        Definition::Location(Location { id: LocalLocation(1), kind, name, ring, thread: 2 })
    };
    let mut all = vec![
        Definition::Process(process),
        Definition::Rank { rank: 1, size: 2 },
        Definition::Region(region),
        Definition::Device(device),
        Definition::Unrecorded { locations: 1, calls: 2 },
        Definition::Thread { location: LocalLocation(1), thread: 2 },
        Definition::StreamDevice(StreamDevice {
            location: LocalLocation(1),
            pci: text("0000:c1:00.0"),
            uuid: text("GPU-1"),
            model: text("MI300A"),
        }),
        Definition::GpuRecords(GpuRecords { not_recorded: 1, clock_error: 2, clock_drift: 3 }),
        Definition::Program(Program { name: text("program"), arguments: vec![text("-a")] }),
        Definition::Finished { left_out: 3 },
    ];
    all.extend(
        [LocationKind::CpuThread, LocationKind::Gpu, LocationKind::Metric, LocationKind::CpuTime]
            .map(location),
    );
    all.extend(members.map(|members| Definition::Communicator(Communicator { handle: 1, members })));
    all
}

#[test]
fn the_version_changes_with_the_format() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("1.defs");
    let mut log = LogWriter::create(&path).unwrap();
    assert!(definitions().iter().all(|definition| log.append(definition)));
    let mut bytes = std::fs::read(&path).unwrap();
    records().iter().for_each(|record| bytes.extend(record.to_bytes()));
    // FNV-1a
    let digest = bytes.iter().fold(0xcbf2_9ce4_8422_2325, |digest: u64, byte| {
        (digest ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    assert_eq!(
        (ABI_VERSION, digest),
        FORMAT,
        "the format has changed: raise ABI_VERSION in layout.rs, so that records of older builds are refused, and write both here"
    );
}
