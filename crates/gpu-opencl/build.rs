//! Links the library so that it is never unloaded, because the runtime may call it until the process ends.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
