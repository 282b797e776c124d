//! Score-P looks for a metric plugin called `ampere_plugin` in `libampere_plugin.so`. That is a link to the library, here as in
//! an installation: one library, whichever way Score-P comes in.

use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Events may come as long as the process lives, and handlers of ours stay behind: a program that closes the library once
    // too often must not unmap it.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    let Ok(out) = std::env::var("OUT_DIR") else { return };
    // target/<profile>/build/<package>/out: the library will lie in target/<profile>. Cargo has no better word for that.
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
