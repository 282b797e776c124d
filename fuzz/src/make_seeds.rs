//! Takes seeds from the files of a running session and writes them to their targets' directories:
//! `ampere-fuzz-seeds /dev/shm/ampere-0/s-... fuzz/seeds`. Each seed is cut to the size that its target takes.

use ampere_fuzz::targets;
use std::path::Path;

const HEADER: usize = 4096;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [session, seeds] = arguments.as_slice() else {
        eprintln!("usage: ampere-fuzz-seeds SESSION SEEDS");
        std::process::exit(2);
    };
    let (session, seeds) = (Path::new(session), Path::new(seeds));
    let mut names: Vec<_> =
        std::fs::read_dir(session).expect("a session").flatten().map(|e| e.path()).collect();
    names.sort();
    let put = |target: &str, name: &str, bytes: &[u8]| {
        let directory = seeds.join(target);
        std::fs::create_dir_all(&directory).expect("a directory");
        std::fs::write(directory.join(name), bytes).expect("room");
    };
    let (mut logs, mut rings) = (Vec::new(), Vec::new());
    for path in names {
        let Ok(bytes) = std::fs::read(&path) else { continue };
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if name.ends_with(".defs") {
            let log = &bytes[..bytes.len().min(4000)];
            put("log", &format!("real-{}", logs.len()), &[&[1], log].concat());
            let mut log = log[8..].to_vec();
            if !name.starts_with("sampler") {
                rename_process(&mut log, targets::PROCESSES[0]);
            }
            logs.push(log);
        } else if name.ends_with(".ring") {
            let records = &bytes[HEADER..HEADER + 16 * 120];
            put("spool", &format!("real-{}", rings.len()), &[&[0], records].concat());
            // The ring has capacity 128, no patches, and is not cut; then come the records and the steps of the reader.
            let mut ring = vec![7, 0, 0, 0, 120];
            ring.extend_from_slice(records);
            ring.extend_from_slice(&[4, 0xff, 0x0f, 6, 0, 0xff, 0xff, 7]);
            put("ring", &format!("real-{}", rings.len()), &ring);
            rings.push((name, records[..16 * 40].to_vec()));
        } else if name.ends_with(".samples") {
            put("samples", "real-0", &bytes[..bytes.len().min(2000)]);
        } else if name == "session" {
            put(
                "page",
                "real-0",
                &[&[0, 0, 0, 16][..], &bytes[..16], &[16, 0, 16], &bytes[16..200]].concat(),
            );
        }
    }
    // The seed for a whole session has the first log and each ring, with rounds of the loop in between.
    let mut whole = vec![0];
    let program = logs.iter().find(|log| log.len() > 600).cloned().unwrap_or_default();
    let part = &program[..program.len().min(2000)];
    whole.push(0);
    whole.extend_from_slice(&(part.len() as u16).to_le_bytes());
    whole.extend_from_slice(part);
    for (name, records) in &rings {
        whole.push(if name.starts_with("sampler") { 5 } else { 2 });
        whole.push(40);
        whole.extend_from_slice(records);
        whole.push(7);
    }
    whole.extend_from_slice(&[6, 255, 0, 0, 0, 0, 0, 1, 0, 0, 7]);
    put("session", "real-0", &whole);
    put("spool", "disk-0", &left_over(&logs, &rings, false));
    put("spool", "shared-0", &left_over(&logs, &rings, true));
}

/// Replaces the number of the process in its log by the one that the targets use in the names of their files.
fn rename_process(log: &mut [u8], process: u32) {
    let own = u32::from_le_bytes(log[5..9].try_into().expect("four bytes"));
    log[5..9].copy_from_slice(&process.to_le_bytes());
    let (own, process) = (format!("{own}.").into_bytes(), format!("{process}.").into_bytes());
    assert_eq!(
        own.len(),
        process.len(),
        "pids must have five digits, so that names in the log keep their lengths: use another session"
    );
    for at in 0..log.len() - own.len() {
        if log[at..].starts_with(&own) {
            log[at..at + own.len()].copy_from_slice(&process);
        }
    }
}

/// Makes a seed from which the target makes the files that a run has left: the logs of the program and the sampler, with a part
/// of a ring of each, or with records on disk in place of the rings.
fn left_over(logs: &[Vec<u8>], rings: &[(String, Vec<u8>)], in_shared_memory: bool) -> Vec<u8> {
    let mut whole = vec![if in_shared_memory { 2 } else { 1 }, 0];
    let program = logs.iter().max_by_key(|log| log.len());
    for (number, log) in [(0, program), (2, logs.last())] {
        let log = log.map_or(&[][..], |log| &log[..log.len().min(2000)]);
        whole.push(number);
        whole.extend_from_slice(&(log.len() as u16).to_le_bytes());
        whole.extend_from_slice(log);
    }
    let sampler = rings.iter().position(|(name, _)| name.starts_with("sampler"));
    for (number, (_, records)) in [(4, rings.first()), (3, sampler.map(|at| &rings[at]))]
        .into_iter()
        .filter_map(|(number, ring)| Some((number, ring?)))
    {
        whole.push(number);
        if in_shared_memory {
            // All records are written, and none is read.
            whole.extend_from_slice(&[0, (records.len() / 16) as u8, 0, 0, 0, 0, (records.len() / 16) as u8]);
        } else {
            whole.extend_from_slice(&(records.len() as u16).to_le_bytes());
        }
        whole.extend_from_slice(records);
    }
    whole
}
