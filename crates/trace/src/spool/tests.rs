use super::*;

fn records(range: std::ops::Range<u64>) -> Vec<Record> {
    range.map(|time| Record::new(Kind::Enter, time, 1)).collect()
}

fn spool_in(directories: &[PathBuf]) -> SpoolDirectory {
    SpoolDirectory::new(&directories[0], Store::open(directories), true, false)
}

fn all_of(spool: &Spool) -> Vec<Record> {
    let mut all = Vec::new();
    spool
        .read(|records| {
            all.extend_from_slice(records);
            Ok(())
        })
        .unwrap();
    all
}

#[test]
fn writing_twice_changes_nothing() {
    let place = tempfile::tempdir().unwrap();
    let directories = [place.path().to_owned()];
    let all = records(0..100);
    let spool = spool_in(&directories);
    let mut first = spool.open("1.0", 0).unwrap();
    first.write(0, &all[..60]).unwrap();
    spool.open("1.1", 0).unwrap().write(0, &all[..7]).unwrap();
    spool.store().flush().unwrap();
    // The collector was killed before it had handed all of them back.
    let spool = spool_in(&directories);
    let mut again = spool.open("1.0", 40).unwrap();
    assert_eq!(again.end_after(40), None);
    again.write(40, &all[40..]).unwrap();
    let mut read = Vec::new();
    assert_eq!(again.read_back(10, 90, 1000, &mut read).unwrap(), 80);
    assert_eq!(read, all[10..90]);
    again.append(Record::new(Kind::LocationEnd, 100, 0)).unwrap();
    assert_eq!(again.end_after(100).map(|end| end.word0), Some(100));
    assert_eq!(all_of(&again)[..100], all);
    spool.store().flush().unwrap();
    let third = spool_in(&directories).open("1.0", 100).unwrap();
    assert_eq!((all_of(&third)[..100].to_vec(), third.end()), (all.clone(), 101));
    assert_eq!(all_of(&spool_in(&directories).open("1.1", 7).unwrap()), all[..7]);
}

#[test]
fn nothing_is_written_after_a_gap() {
    let place = tempfile::tempdir().unwrap();
    let directories = [place.path().to_owned()];
    let spool = spool_in(&directories);
    spool.open("1.0", 0).unwrap().write(0, &records(0..1)).unwrap();
    spool.store().flush().unwrap();
    assert!(!spool_in(&directories).open("1.0", 1).unwrap().is_cut());
    let mut short = spool_in(&directories).open("1.0", 2).unwrap();
    assert!(short.is_cut() && short.records_of(2) == 1);
    short.write(2, &records(2..3)).unwrap();
    assert_eq!(short.end(), 1);
    assert_eq!(
        spool_in(&directories).open("1.0", 0).unwrap().end(),
        0,
        "a new ring has nothing of an old one's"
    );
}

#[test]
fn a_piece_that_was_written_in_part_is_overwritten() {
    let place = tempfile::tempdir().unwrap();
    let directories = [place.path().to_owned()];
    let spool = spool_in(&directories);
    let mut stream = spool.open("1.0", 0).unwrap();
    stream.write(0, &records(0..50)).unwrap();
    spool.store().flush().unwrap();
    stream.write(50, &records(50..90)).unwrap();
    spool.store().flush().unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(place.path().join(RECORDS)).unwrap();
    file.set_len(file.metadata().unwrap().len() - 1).unwrap();
    let spool = spool_in(&directories);
    let mut stream = spool.open("1.0", 50).unwrap();
    assert_eq!(stream.end(), 50);
    stream.write(50, &records(50..60)).unwrap();
    spool.store().flush().unwrap();
    assert_eq!(all_of(&spool_in(&directories).open("1.0", 60).unwrap()), records(0..60));
}

#[test]
fn a_directory_that_cannot_be_written_is_left_with_a_line_and_nothing_is_lost() {
    let place = tempfile::tempdir().unwrap();
    let (full, other) = (place.path().join("full"), place.path().join("other"));
    std::fs::create_dir_all(&full).unwrap();
    // Writing there fails as on a full disk.
    std::os::unix::fs::symlink("/dev/full", full.join(RECORDS)).unwrap();
    let directories = [full.clone(), other.clone()];
    let spool = spool_in(&directories);
    let mut stream = spool.open("1.0", 0).unwrap();
    stream.write(0, &records(0..50)).unwrap();
    spool.store().flush().unwrap();
    let notes = spool.store().take_notes();
    assert!(notes.iter().any(|line| line.contains("full/records")), "{notes:?}");
    stream.write(50, &records(50..90)).unwrap();
    assert_eq!(all_of(&stream), records(0..90), "also those in the buffer");
    spool.store().flush().unwrap();
    assert_eq!(all_of(&spool_in(&directories).open("1.0", 90).unwrap()), records(0..90));
}

#[test]
fn records_continue_in_the_second_file_when_the_first_is_left() {
    let place = tempfile::tempdir().unwrap();
    let directories = [place.path().join("a"), place.path().join("b")];
    let spool = spool_in(&directories);
    let mut stream = spool.open("1.0", 0).unwrap();
    stream.write(0, &records(0..50)).unwrap();
    spool.store().flush().unwrap();
    assert!(spool.store().leave_part());
    assert!(!spool.store().leave_part(), "there is no third");
    stream.write(50, &records(50..90)).unwrap();
    spool.store().flush().unwrap();
    let again = spool_in(&directories);
    assert_eq!(all_of(&again.open("1.0", 90).unwrap()), records(0..90));
    assert_eq!(again.store().path(), Some(directories[1].join(RECORDS).as_path()));
}

#[test]
fn a_log_is_read_as_it_was_written() {
    let place = tempfile::tempdir().unwrap();
    let directories = [place.path().join("spool")];
    let spool = spool_in(&directories);
    let mut copy = spool.copy_of(Path::new("/dev/shm/s/17-2.defs")).unwrap();
    assert!(copy(0, b"AMPDEFS1") && copy(8, b"abcdef") && copy(11, b"defghi"));
    let retired = Retired { records: 3, suppressed_calls: 2, dropped_records: 1 };
    spool.retire(place.path(), "17-2.0", &retired).unwrap();
    let again = spool_in(&directories);
    assert_eq!(again.retired(place.path(), "17-2.0"), Some(retired));
    let paths = again.store().unpack_logs(&directories[0], |name| name == "17-2").unwrap();
    assert_eq!(std::fs::read(&paths[0]).unwrap(), b"AMPDEFS1abcdefghi");
}

/// Later, the process may have no descriptor left.
#[test]
fn nothing_is_opened_for_the_first_records_of_a_store_that_has_begun() {
    let place = tempfile::tempdir().unwrap();
    let [directory, moved] = ["spool", "moved"].map(|name| place.path().join(name));
    std::fs::create_dir(&directory).unwrap();
    let spool = spool_in(std::slice::from_ref(&directory));
    spool.store().begin().unwrap();
    std::fs::rename(&directory, &moved).unwrap();
    let mut records_of_ring = spool.open("1.0", 0).unwrap();
    records_of_ring.write(0, &records(0..100)).unwrap();
    spool.store().flush().unwrap();
    assert!(!directory.exists());
    assert_eq!(spool_in(&[moved]).records("1.0"), 100);
}
