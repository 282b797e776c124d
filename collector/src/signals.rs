//! Being asked to end.

/// SIGTERM and SIGINT end the work in order: what is there is written. The first of them calls `first`, in a thread of its
/// own; later ones are taken and do nothing, as results are being written.
pub fn when_asked_to_end(first: impl FnOnce() + Send + 'static) -> Result<(), String> {
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
            first();
            loop {
                tokio::select! { _ = term.recv() => {}, _ = int.recv() => {} }
            }
        });
    };
    let thread = std::thread::Builder::new().name("ampere-signals".to_owned()).spawn(watch);
    thread.map(drop).map_err(|e| format!("cannot start a thread: {e}"))
}
