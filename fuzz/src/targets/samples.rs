//! Reads a file of samples, as the metric plugin does inside the application.

use crate::scratch::{assert_is_line, directory};
use ampere_ring::samples;

pub fn run(data: &[u8]) {
    let path = directory("samples").join("sampler.0.samples");
    std::fs::write(&path, data).expect("room");
    if let Err(error) = samples::read_end(&path) {
        assert_is_line(&error.to_string());
    }
    match samples::read(&path) {
        Ok(series) => {
            assert!(series.samples.windows(2).all(|pair| pair[0].0 < pair[1].0), "in order of time");
            assert!(series.samples.len() <= data.len() / 16);
        }
        Err(error) => assert_is_line(&error.to_string()),
    }
}
