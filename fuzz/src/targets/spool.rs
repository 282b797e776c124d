//! A spool file of any bytes, read as the trace is written from it.

use crate::nesting::Nesting;
use crate::scratch::directory;
use ampere_collector::spool;

pub fn run(data: &[u8]) {
    let path = directory("spool").join("1.0.records");
    std::fs::write(&path, data).expect("room");
    let (mut nesting, mut count) = (Nesting::default(), 0);
    spool::read(&path, |record| {
        nesting.take(record);
        count += 1;
        Ok(())
    })
    .expect("any bytes are records");
    assert_eq!(count, data.len() / 16, "a last one that was written in part is left out");
    nesting.finish();
}
