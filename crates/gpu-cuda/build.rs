//! Links the library so that it is never unloaded, because CUDA and CUPTI keep addresses of its functions.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rerun-if-changed=build.rs");
}
