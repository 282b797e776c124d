//! Every target with its seeds, with inputs that were once a defect, and for a second (`AMPERE_TEST_SECONDS`) with random ones.
//! `make fuzz` is guided by coverage and runs for as long as it is told to.

use ampere_fuzz::mutate::Mutator;
use ampere_fuzz::{TARGETS, Target, find, inputs};
use ampere_tests::random::{seed, setting};
use std::time::{Duration, Instant};

/// No input takes longer, in a build that is not optimized.
const LIMIT: Duration = Duration::from_secs(10);

fn run(target: &Target, data: &[u8]) {
    let begun = Instant::now();
    (target.run)(data);
    assert!(begun.elapsed() < LIMIT, "{} took {:?} for {} bytes", target.name, begun.elapsed(), data.len());
}

/// Seeds and regressions, and the first half of each.
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
        let data = mutator.mutate(&seeds, target.most_bytes);
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
                // The OTF2 library is not ours to mend, and could end this process.
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

/// Where `KEEP=1 make fuzz` has added up how long each target ran.
#[test]
fn every_target_has_been_fuzzed() {
    let hours = include_str!("../hours.json");
    for target in TARGETS {
        assert!(hours.contains(&format!("\"{}\"", target.name)), "KEEP=1 make fuzz TARGETS={}", target.name);
    }
}
