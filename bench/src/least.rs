//! Builds the yardsticks that are our own C programs and do as little as possible.

use crate::child;
use anyhow::Context;
use std::path::{Path, PathBuf};
use std::process::Command;

pub fn directory() -> PathBuf {
    child::sibling("bench-programs")
}

/// Returns the file name under which Score-P looks for the plugin (`least.c`).
pub fn plugin() -> PathBuf {
    directory().join("libscorep_substrate_least.so")
}

pub fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("programs").join(name)
}

pub fn build_plugin() -> anyhow::Result<PathBuf> {
    build("least.c", &[], "libscorep_substrate_least.so")
}

/// Like [`build_plugin`], with a process that reads the events, so that none is lost.
pub fn build_lossless() -> anyhow::Result<PathBuf> {
    build("least.c", &["-DLOSSLESS"], "libscorep_substrate_lossless.so")
}

/// Builds a plugin that receives no events.
pub fn build_nothing() -> anyhow::Result<PathBuf> {
    build("nothing.c", &[], "libnothing.so")
}

pub fn build_engine() -> anyhow::Result<PathBuf> {
    build("least_engine.c", &[], "libleast_engine.so")
}

fn build(name: &str, options: &[&str], library: &str) -> anyhow::Result<PathBuf> {
    std::fs::create_dir_all(directory())?;
    let library = directory().join(library);
    let mut compile = Command::new("cc");
    compile.args(["-O2", "-shared", "-fPIC"]).args(options).arg("-o").arg(&library).arg(source(name));
    child::run(&mut compile).with_context(|| name.to_owned())?;
    Ok(library)
}
