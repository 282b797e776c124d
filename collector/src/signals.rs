//! Signals that ask the process to end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Returns a flag that becomes true at the first SIGTERM or SIGINT, so that the caller can end properly. Later signals are
/// ignored, because results are being written. Fails if its thread cannot be started.
pub fn asked_to_end() -> std::io::Result<Arc<AtomicBool>> {
    let asked = Arc::new(AtomicBool::new(false));
    let first = asked.clone();
    let (has_handlers, handlers) = std::sync::mpsc::channel::<()>();
    let watch = move || {
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
        runtime.block_on(async {
            use tokio::signal::unix::{SignalKind, signal};
            let (Ok(mut term), Ok(mut int)) =
                (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
            else {
                return;
            };
            // With a handler, a write beyond `ulimit -f` fails as on a full disk, instead of ending the process.
            let _file_size = signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()));
            drop(has_handlers);
            tokio::select! { _ = term.recv() => {}, _ = int.recv() => {} }
            first.store(true, Ordering::Relaxed);
            loop {
                tokio::select! { _ = term.recv() => {}, _ = int.recv() => {} }
            }
        });
    };
    std::thread::Builder::new().name("ampere-signals".to_owned()).spawn(watch)?;
    // Before the handlers are there, a signal would end the process. The channel is closed when they are.
    let _ = handlers.recv();
    Ok(asked)
}
