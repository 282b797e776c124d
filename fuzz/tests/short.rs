//! A short look with every test run: the seeds, what was once a defect, and a second of unguided inputs for each target.
//! `make fuzz` is the long one.

use ampere_fuzz::mutate::Mutator;
use ampere_fuzz::{TARGETS, Target, inputs};
use std::time::{Duration, Instant};

const EACH: Duration = Duration::from_millis(1000);
/// No input takes longer, in a build that is not optimized.
const SLOW: Duration = Duration::from_secs(10);

fn run(target: &Target, data: &[u8]) {
    let begun = Instant::now();
    (target.run)(data);
    assert!(begun.elapsed() < SLOW, "{} took {:?} for {} bytes", target.name, begun.elapsed(), data.len());
}

#[test]
fn what_was_once_a_defect_is_none() {
    for target in TARGETS {
        let all = inputs(target);
        assert!(!all.is_empty(), "{} has no seeds", target.name);
        for data in &all {
            run(target, data);
            run(target, &data[..data.len() / 2]);
        }
        run(target, &[]);
    }
}

/// `make soak` shows them.
#[test]
fn every_target_has_its_hours() {
    let hours = include_str!("../hours.json");
    for target in TARGETS {
        assert!(hours.contains(&format!("\"{}\"", target.name)), "KEEP=1 make fuzz TARGETS={}", target.name);
    }
}

#[test]
fn inputs_that_nobody_meant_are_survived() {
    for (number, target) in TARGETS.iter().enumerate() {
        if target.foreign {
            continue; // a library that is not ours could take the other tests with it
        }
        let seeds = inputs(target);
        let mut mutator = Mutator::new(0x5eed + number as u64);
        let (begun, mut count) = (Instant::now(), 0);
        while begun.elapsed() < EACH {
            let data = mutator.mutate(&seeds, target.most_bytes);
            let panicked = std::panic::catch_unwind(|| run(target, &data)).is_err();
            assert!(!panicked, "{} fails with {data:?}", target.name);
            count += 1;
        }
        println!("{:<8} {count} inputs", target.name);
    }
}
