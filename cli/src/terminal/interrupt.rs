//! Handles Ctrl-C while a file is written, so that no incomplete file is left.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use tokio::signal::unix::{SignalKind, signal};

/// The unfinished files; `None` until a thread waits for signals.
static UNFINISHED: Mutex<Option<Vec<PathBuf>>> = Mutex::new(None);

/// After this call, SIGINT and SIGTERM remove these files and empty directories, in addition to those of earlier calls, print a
/// line about that, and end the command with the status that shells use.
pub fn remove_when_interrupted(unfinished: Vec<PathBuf>) -> std::io::Result<()> {
    let mut known = UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = &mut *known {
        known.extend(unfinished);
        return Ok(());
    }
    *known = Some(unfinished);
    let watch = move || {
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
        let which = runtime.block_on(async {
            let (mut term, mut int) =
                (signal(SignalKind::terminate()).ok()?, signal(SignalKind::interrupt()).ok()?);
            Some(tokio::select! {
                _ = term.recv() => SignalKind::terminate(),
                _ = int.recv() => SignalKind::interrupt(),
            })
        });
        let Some(which) = which else { return };
        let mut unfinished = UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner);
        for path in unfinished.iter_mut().flatten() {
            let _ = std::fs::remove_file(&*path).or_else(|_| std::fs::remove_dir(path));
        }
        say!("ampere: interrupted: nothing was written");
        std::process::exit(128 + which.as_raw_value());
    };
    std::thread::Builder::new().name("ampere-signals".to_owned()).spawn(watch).map(drop)
}
