//! Takes seeds out of a running session and writes them where they belong:
//! `ampere-fuzz-seeds /dev/shm/ampere-0/s-... fuzz/seeds`. Each is cut down to what a target takes.

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
            logs.push(log[8..].to_vec());
        } else if name.ends_with(".ring") {
            let records = &bytes[HEADER..HEADER + 16 * 120];
            put("spool", &format!("real-{}", rings.len()), records);
            // Capacity 128, no patches, whole; the records, and what is read of them.
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
    // A whole session: the first log, each ring, and rounds in between.
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
}
