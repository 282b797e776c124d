//! Unwinds a sample of a thread's stack with a file that has the segments, unwind tables and symbols. The first two bytes are the
//! length of the sample's record. The seeds come from small programs that wrote their registers and stacks to a file.

use crate::bytes::Bytes;
use ampere_stacks::fuzzing::{FILE_AT, Sample};

/// The number of addresses in the file that replace the sample's instruction pointer, one after the other.
const ADDRESSES: usize = 16;

pub fn run(data: &[u8]) {
    let mut from = Bytes::new(data);
    let length = from.u16();
    let record = from.take(length.into());
    let file = from.rest();
    let Some(mut sample) = Sample::of(record, file.to_vec()) else { return };
    let step = file.len() / ADDRESSES + 1;
    let of_file = (0..file.len()).step_by(step).map(|at| Some(FILE_AT + at as u64));
    for address in [None].into_iter().chain(of_file) {
        let (functions, _) = sample.walk(address);
        assert!((1..=1024).contains(&functions.len()), "{} frames", functions.len());
        for function in functions {
            assert!(!function.name.is_empty() && function.name.len() < 1 << 21, "{}", function.name.len());
        }
    }
}
