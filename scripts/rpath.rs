//! Build script of every package that makes programs out of the `otf2` crate: where OTF2 lies in a directory of its own (as
//! Score-P installs it), the programs find it there when they run, and not only when they are linked. The library that `make dist`
//! puts into `lib`, beside `bin`, comes first.

fn main() {
    println!("cargo::rustc-link-arg=-Wl,-rpath,$ORIGIN/../lib");
    println!("cargo::rerun-if-env-changed=DEP_OTF2_LIBDIR");
    let Ok(directory) = std::env::var("DEP_OTF2_LIBDIR") else { return };
    // The loader looks into the system's own directories by itself.
    if !directory.starts_with("/usr/lib") && !directory.starts_with("/lib") {
        println!("cargo::rustc-link-arg=-Wl,-rpath,{directory}");
    }
}
