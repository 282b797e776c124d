//! The series of samples that the metric plugin reads.

use ampere_ring::Session;
use ampere_ring::samples::{SAMPLES_MAX, SampleWriter, path_of, read, read_end};
use std::path::Path;

/// A session that is removed with its test.
struct Place(Session);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.remove();
    }
}

fn session(name: &str) -> Place {
    Place(Session::open_or_create(&format!("samples-test-{}-{name}", std::process::id())).unwrap())
}

fn times(path: &Path) -> Vec<u64> {
    read(path).unwrap().samples.iter().map(|sample| sample.0).collect()
}

#[test]
fn no_series_is_kept_until_it_is_wanted() {
    let place = session("wanted");
    let session = &place.0;
    let mut writer = SampleWriter::new(session.directory(), 2, SAMPLES_MAX);
    writer.add(0, 10, 1000);
    writer.flush(11);
    assert!(!path_of(session.directory(), 0).exists());
    session.want_samples();
    writer.flush(12);
    writer.add(0, 20, 2000);
    writer.add(1, 21, 7);
    writer.add(5, 21, 7); // no such device
    writer.flush(22);
    writer.add(0, 30, 3000);
    writer.flush(31);
    let series = read(&path_of(session.directory(), 0)).unwrap();
    assert_eq!((series.until, series.samples), (31, vec![(20, 2000), (30, 3000)]));
    assert_eq!(read_end(&path_of(session.directory(), 1)).unwrap(), 31);
}

/// A long series has no more samples than the limit, but covers the whole time up to the newest sample.
#[test]
fn a_long_series_is_thinned_and_stays_complete() {
    let place = session("thinner");
    let session = &place.0;
    session.want_samples();
    let mut writer = SampleWriter::new(session.directory(), 1, 64);
    writer.flush(0);
    let path = path_of(session.directory(), 0);
    for time in 1..=10_000 {
        writer.add(0, time, time * 500);
        if time % 7 == 0 {
            writer.flush(time + 1);
            let series = read(&path).unwrap();
            assert!(series.samples.len() <= 64 + 1, "{} samples", series.samples.len());
            assert_eq!(series.samples.first(), Some(&(1, 500)));
            assert_eq!(series.samples.last(), Some(&(time, time * 500)));
        }
    }
    let times = times(&path);
    let widest = times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
    assert!(times.len() > 32 && widest <= 256, "{} samples, {widest} apart", times.len());
    assert!(read(&path).unwrap().samples.iter().all(|(time, nanojoules)| *nanojoules == time * 500));
}

#[test]
fn a_new_sampler_starts_a_new_series() {
    let place = session("anew");
    let session = &place.0;
    session.want_samples();
    let path = path_of(session.directory(), 0);
    for start in [1000, 5] {
        let mut writer = SampleWriter::new(session.directory(), 1, SAMPLES_MAX);
        writer.flush(start);
        writer.add(0, start, 1);
        writer.flush(start + 1);
        assert_eq!(times(&path), [start]);
    }
}

#[test]
fn damaged_files_are_errors_and_damaged_samples_are_left_out() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("x");
    assert!(read(&path).unwrap_err().to_string().contains("cannot open"));
    for (bytes, why) in [(&b"short"[..], "shorter than its header"), (&[0xff; 64], "AMPSAMP1")] {
        std::fs::write(&path, bytes).unwrap();
        let error = read(&path).unwrap_err().to_string();
        assert!(error.contains("not a file of this version of ampere") && error.contains(why), "{error}");
    }
    // Half a sample, and times that go back.
    let words = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let mut bytes = b"AMPSAMP1".to_vec();
    bytes.extend(words(&[100, 90, 9, 50, 5, 40, 4, 60, 6]));
    bytes.extend([1; 5]);
    std::fs::write(&path, &bytes).unwrap();
    assert_eq!(read(&path).unwrap().samples, [(50, 5), (60, 6), (90, 9)]);
    // A file without end.
    std::fs::File::options().write(true).open(&path).unwrap().set_len(1 << 40).unwrap();
    assert!(read(&path).unwrap_err().to_string().contains("more than"));
}

#[test]
fn a_series_is_continued_after_its_samplers_death() {
    let place = session("goes-on");
    place.0.want_samples();
    let directory = place.0.directory();
    let mut first = SampleWriter::new(directory, 1, 1000);
    first.flush(0);
    (1..=10).for_each(|time| first.add(0, time, 100 * time));
    first.flush(11);
    (20..=30).for_each(|time| first.add(0, time, 100 * time)); // never written
    let mut second = SampleWriter::new(directory, 1, 1000).continued();
    second.flush(40);
    (41..=50).for_each(|time| second.add(0, time, 100 * time));
    second.flush(51);
    let series = read(&path_of(directory, 0)).unwrap();
    let expected = (1..=10).chain(41..=50).map(|time| (time, 100 * time));
    assert!(series.samples.iter().copied().eq(expected), "{series:?}");
    assert_eq!(series.until, 51);
}
