//! Uses the whole terminal for one program, and restores it when the program ends, also if it panics.

use super::paint;
use ratatui_core::buffer::Buffer;
use rustix::process::{Signal, getpid, kill_process};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use std::fs::File;
use std::io::{IsTerminal, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

/// The codes that switch to the terminal's other screen and hide the cursor, and those that switch back.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[2J";
const LEAVE: &str = "\x1b[0m\x1b[?25h\x1b[?1049l";

/// The state of the terminal before this program took it; `None` while it is not taken.
static BEFORE: Mutex<Option<(OwnedFd, Termios)>> = Mutex::new(None);

/// Returns the descriptor from which keys are read; `None` if standard output is not a terminal, or if there is no keyboard.
pub fn keys() -> Option<OwnedFd> {
    let stdin = std::io::stdin();
    match (std::io::stdout().is_terminal(), stdin.is_terminal()) {
        (false, _) => None,
        (true, true) => stdin.as_fd().try_clone_to_owned().ok(),
        (true, false) => File::open("/dev/tty").ok().map(OwnedFd::from),
    }
}

/// A terminal that this program has taken: keys arrive as they are pressed, and nothing scrolls. Dropping it restores the
/// terminal.
pub struct FullScreen {
    keys: OwnedFd,
    shown: Buffer,
}

impl FullScreen {
    /// Takes control of the terminal. Keys are read from `keys`.
    pub fn open(keys: &OwnedFd) -> std::io::Result<FullScreen> {
        let keys = keys.try_clone()?;
        take(&keys)?;
        // The terminal is restored before a panic's message is printed, because the message would disappear with this screen.
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            give_back();
            report(panic);
        }));
        Ok(FullScreen { keys, shown: paint::empty(0, 0) })
    }

    /// Restores the terminal and stops the program until the shell continues it. Returns whether the program has taken the
    /// terminal again.
    pub fn suspend(&mut self) -> bool {
        give_back();
        let is_stopped = kill_process(getpid(), Signal::TSTP);
        self.shown = paint::empty(0, 0);
        is_stopped.is_ok() && take(&self.keys).is_ok()
    }

    /// Returns the terminal's columns and lines. A terminal that was made without a size reports 0.
    pub fn size() -> (u16, u16) {
        let size = tcgetwinsize(std::io::stdout()).ok().filter(|size| size.ws_row > 0 && size.ws_col > 0);
        size.map_or((80, 24), |size| (size.ws_col.min(1000), size.ws_row.min(1000)))
    }

    /// Draws a picture. Returns whether it could be written.
    pub fn draw(&mut self, picture: Buffer) -> bool {
        let is_written = print(&paint::change(&self.shown, &picture));
        self.shown = picture;
        is_written
    }
}

impl Drop for FullScreen {
    fn drop(&mut self) {
        give_back();
    }
}

fn take(keys: &OwnedFd) -> std::io::Result<()> {
    let before = tcgetattr(keys)?;
    let mut raw = before.clone();
    raw.make_raw();
    let kept = keys.try_clone()?;
    tcsetattr(keys, OptionalActions::Now, &raw)?;
    *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some((kept, before));
    print(ENTER);
    Ok(())
}

/// Restores the terminal, at most once.
fn give_back() {
    let before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some((keys, before)) = before {
        print(LEAVE);
        let _ = tcsetattr(keys, OptionalActions::Now, &before);
    }
}

fn print(text: &str) -> bool {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_ok()
}
