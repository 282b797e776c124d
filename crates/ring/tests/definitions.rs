//! The definitions log in a program that closes descriptors which are not its own.

use ampere_model::{Definition, Region, RegionHandle};
use ampere_ring::{LogReader, LogWriter};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

fn region(handle: u32) -> Definition {
    Definition::Region(Region {
        handle: RegionHandle(handle),
        name: format!("region {handle}"),
        canonical_name: String::new(),
        source_file: String::new(),
        begin_line: 0,
        end_line: 0,
        region_type: 0,
        paradigm: 0,
    })
}

/// The program closes every descriptor that it did not open, and then opens files of its own under the same numbers.
#[test]
fn a_log_whose_descriptor_was_closed_and_used_again_writes_to_its_own_file() {
    let place = tempfile::tempdir_in("/dev/shm").expect("a directory in shared memory");
    let (path, own) = (place.path().join("1.defs"), place.path().join("own"));
    let mut log = LogWriter::create(&path).expect("a log");
    assert!(log.append(&region(1)));
    let is_log =
        |entry: &std::fs::DirEntry| std::fs::read_link(entry.path()).is_ok_and(|target| target == path);
    let descriptors = std::fs::read_dir("/proc/self/fd").expect("/proc").flatten();
    let ours = descriptors.filter(is_log).filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let ours: Vec<i32> = ours.collect();
    assert_eq!(ours.len(), 1);
    // SAFETY: the test does on purpose what the log must withstand: it closes the log's descriptor and gives the number to
    // another file.
    drop(unsafe { OwnedFd::from_raw_fd(ours[0]) });
    let mine = std::fs::File::create(&own).expect("a file");
    let taken: Vec<_> = (0..100).map_while(|_| mine.try_clone().ok()).collect();
    assert!(taken.iter().chain([&mine]).any(|file| file.as_raw_fd() == ours[0]), "the number is used again");
    assert!(log.append(&region(2)));
    assert_eq!(std::fs::read(&own).expect("the file"), b"", "nothing of ours is in it");
    let mut handles = Vec::new();
    let mut reader = LogReader::open(&path).expect("the log").expect("its beginning");
    let read = reader.read_new(|definition| {
        if let Definition::Region(region) = definition {
            handles.push(region.handle.0);
        }
    });
    read.expect("readable");
    assert_eq!(handles, [1, 2]);
}
