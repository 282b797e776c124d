//! Checks whether the kernel lets this user sample the stacks of programs.

use super::findings::{Check, Group};
use ampere_stacks::{Options, Sampler};

pub fn check() -> Vec<Check> {
    let mut group = Group::new("call paths of any program");
    match Sampler::begin(&Options::default()) {
        Ok(_) => group.ok("stacks", "can be sampled: ampere run --sample auto"),
        Err(why) => group.note("stacks", format!("cannot be sampled: {why}"), None),
    }
    group.checks
}
