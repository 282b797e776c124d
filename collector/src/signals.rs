//! Being asked to end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// SIGTERM and SIGINT end the work in order: what is there is written. The first of them makes this true, later ones are taken
/// and do nothing, as results are being written.
pub fn asked_to_end() -> Result<Arc<AtomicBool>, String> {
    let asked = Arc::new(AtomicBool::new(false));
    let first = asked.clone();
    let watch = move || {
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
        runtime.block_on(async {
            use tokio::signal::unix::{SignalKind, signal};
            let (Ok(mut term), Ok(mut int)) =
                (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
            else {
                return;
            };
            // Beyond `ulimit -f` a write is to fail, as it does where a disk is full.
            let _file_size = signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()));
            tokio::select! { _ = term.recv() => {}, _ = int.recv() => {} }
            first.store(true, Ordering::Relaxed);
            loop {
                tokio::select! { _ = term.recv() => {}, _ = int.recv() => {} }
            }
        });
    };
    let thread = std::thread::Builder::new().name("ampere-signals".to_owned()).spawn(watch);
    thread.map(|_| asked).map_err(|e| format!("cannot start a thread: {e}"))
}
