//! Build script of every package with programs that use the `otf2` crate: if OTF2 is in a directory of its own (as Score-P
//! installs it), the programs also find it there at run time. The library that `make dist` puts into `lib`, next to `bin`, comes
//! first.

fn main() {
    println!("cargo::rustc-link-arg=-Wl,-rpath,$ORIGIN/../lib");
    println!("cargo::rerun-if-env-changed=DEP_OTF2_LIBDIR");
    let Ok(directory) = std::env::var("DEP_OTF2_LIBDIR") else { return };
    // The loader searches the system's directories anyway.
    if !directory.starts_with("/usr/lib") && !directory.starts_with("/lib") {
        println!("cargo::rustc-link-arg=-Wl,-rpath,{directory}");
    }
}
