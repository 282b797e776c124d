//! libFuzzer's main, for the target that `FUZZ_TARGET` names.
#![no_main]

use std::sync::OnceLock;

static TARGET: OnceLock<fn(&[u8])> = OnceLock::new();

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let run = TARGET.get_or_init(|| {
        let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
        ampere_fuzz::find(&name).unwrap_or_else(|| panic!("FUZZ_TARGET={name:?} is not a target")).run
    });
    run(data);
});
