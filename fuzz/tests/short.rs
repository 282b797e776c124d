//! Runs every target with its seeds, with inputs that once showed a defect, and for a second (`AMPERE_TEST_SECONDS`) with random
//! ones. `make fuzz` is guided by coverage and runs for a given time.

use ampere_fuzz::mutate::Mutator;
use ampere_fuzz::{TARGETS, Target, find, inputs};
use ampere_tests::cpu_time::of_this_thread;
use ampere_tests::random::{seed, setting};
use std::time::{Duration, Instant};

/// The longest CPU time that an input may take, in a build that is not optimized. A busy machine does not prolong it.
const INPUT_TIME_MAX: Duration = Duration::from_secs(10);

fn run(target: &Target, data: &[u8]) {
    let begun = of_this_thread();
    (target.run)(data);
    let took = of_this_thread() - begun;
    assert!(took < INPUT_TIME_MAX, "{} took {took:?} for {} bytes", target.name, data.len());
}

/// Runs seeds and regressions, and the first half of each.
fn known_inputs(target: &Target) {
    let all = inputs(target);
    assert!(!all.is_empty(), "{} has no seeds", target.name);
    for data in &all {
        run(target, data);
        run(target, &data[..data.len() / 2]);
    }
    run(target, &[]);
}

fn random_inputs(target: &Target) {
    let seeds = inputs(target);
    let seed = seed();
    println!("AMPERE_TEST_SEED={seed}");
    let mut mutator = Mutator::new(seed);
    let time = Duration::from_secs(setting("AMPERE_TEST_SECONDS", 1));
    let (begun, mut count) = (Instant::now(), 0);
    while begun.elapsed() < time {
        let data = mutator.mutate(&seeds, target.bytes_max);
        let panicked = std::panic::catch_unwind(|| run(target, &data)).is_err();
        assert!(!panicked, "{} fails with input {count}: {data:?}", target.name);
        count += 1;
    }
    println!("{count} inputs");
}

macro_rules! tests {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                let target = find(stringify!($name)).expect("a target of this name");
                known_inputs(target);
                // We cannot fix the OTF2 library, and it could end this process.
                if !target.foreign {
                    random_inputs(target);
                }
            }
        )*

        #[test]
        fn every_target_has_a_test() {
            let tested = [$(stringify!($name)),*];
            assert_eq!(TARGETS.iter().map(|target| target.name).collect::<Vec<_>>(), tested);
        }
    };
}

tests! { ring writer log page spool session samples config stacks nodes http names engine otf2 }

/// `KEEP=1 make fuzz` adds up in hours.json how long each target has run.
#[test]
fn every_target_has_been_fuzzed() {
    let hours = include_str!("../hours.json");
    for target in TARGETS {
        assert!(hours.contains(&format!("\"{}\"", target.name)), "KEEP=1 make fuzz TARGETS={}", target.name);
    }
}
