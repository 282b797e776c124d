//! rocprofiler-sdk keeps pointers to this library's functions: it is never unloaded.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rerun-if-changed=build.rs");
}
