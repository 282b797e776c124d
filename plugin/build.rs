//! Makes `libampere_plugin.so`, the file that Score-P looks for when it loads a metric plugin called `ampere_plugin`. It is a
//! link to the library, as in an installation.

use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Events and the atfork handler may call into the library as long as the process lives: a program that closes it once too
    // often must not unmap it.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    let Ok(out) = std::env::var("OUT_DIR") else { return };
    // target/<profile>/build/<package>/out: the library will lie in target/<profile>. Cargo does not name that directory.
    let Some(directory) = Path::new(&out).ancestors().nth(3) else { return };
    let link = directory.join("libampere_plugin.so");
    let _ = std::fs::remove_file(&link);
    if let Err(why) = std::os::unix::fs::symlink("libscorep_substrate_ampere.so", &link) {
        println!(
            "cargo::warning=cannot make {}: {why}; Score-P does not find the metric plugin",
            link.display()
        );
    }
}
