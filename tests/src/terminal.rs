//! A real terminal, provided by tmux.

use crate::jobs::{Place, until};
use std::process::Command;

/// A terminal with a shell in it.
pub struct Terminal<'a> {
    place: &'a Place,
}

impl<'a> Terminal<'a> {
    /// Opens a terminal with this number of columns and lines.
    pub fn open(place: &'a Place, (columns, lines): (u16, u16)) -> Terminal<'a> {
        let terminal = Terminal { place };
        let (columns, lines) = (columns.to_string(), lines.to_string());
        let size = ["-x", &columns, "-y", &lines];
        terminal.tmux(&[&["-f", "/dev/null", "new-session", "-d"][..], &size, &["sh"]].concat());
        terminal
    }

    /// Runs a command of tmux and returns its output.
    pub fn tmux(&self, arguments: &[&str]) -> String {
        let mut command = self.place.command("tmux");
        // The shell reads no rc file, and has the same prompt everywhere.
        command.env_remove("TMUX").env("LC_ALL", "C.UTF-8").env("PS1", "$ ").env_remove("ENV");
        command.env("AMPERE", crate::artifact("ampere"));
        let done = command.arg("-u").arg("-S").arg(self.place.path("tmp/tmux")).args(arguments).output();
        let done = done.expect("tmux");
        assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8_lossy(&done.stdout).into_owned()
    }

    /// Presses keys, which are given by tmux's names.
    pub fn press(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    /// Types characters.
    pub fn types(&self, text: &str) {
        self.tmux(&["send-keys", "-l", text]);
    }

    /// Types a line and presses Enter.
    pub fn says(&self, command: &str) {
        self.types(command);
        self.press(&["Enter"]);
    }

    pub fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// Waits for a screen for which `is_so` is true, and returns it.
    #[track_caller]
    pub fn until(&self, what: &str, mut is_so: impl FnMut(&str) -> bool) -> String {
        let mut last = String::new();
        let seen = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            until(what, || {
                last = self.screen();
                is_so(&last)
            });
        }));
        assert!(seen.is_ok(), "never: {what}:\n{last}");
        last
    }

    /// Checks that the terminal is as it was before a program, which has ended with this status.
    #[track_caller]
    pub fn assert_restored(&self, status: i32) {
        self.assert_settings_restored(status);
        let shown = self.screen();
        assert!(shown.contains("before"), "what was on the terminal is there again: {shown}");
    }

    /// Like `assert_restored`, for a program that does not restore what was on the screen.
    #[track_caller]
    pub fn assert_settings_restored(&self, status: i32) {
        self.until("the shell has its terminal again", |screen| screen.contains(&format!("status {status}")));
        let flags = self.tmux(&[
            "display-message",
            "-p",
            "#{alternate_on} #{cursor_flag} #{scroll_region_upper}-#{scroll_region_lower}/#{pane_height}",
        ]);
        let height: u32 =
            flags.trim().rsplit('/').next().and_then(|height| height.parse().ok()).expect("a height");
        assert_eq!(flags.trim(), format!("0 1 0-{}/{height}", height - 1));
        // The first line has the size of the terminal.
        let settings = |name: &str| {
            let text = std::fs::read_to_string(self.place.path(name)).unwrap_or_default();
            text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>()
        };
        until("stty has printed the settings", || settings("after").len() == settings("before").len());
        assert_eq!(settings("before"), settings("after"));
    }

    /// Runs a command, with the terminal's settings printed before and after it.
    pub fn runs(&self, command: &str) {
        let _ = std::fs::remove_file(self.place.path("after"));
        self.says(&format!("echo before; stty -a >before; {command}; echo status $?; stty -a >after"));
    }
}

impl Drop for Terminal<'_> {
    fn drop(&mut self) {
        let _ = Command::new("tmux").arg("-S").arg(self.place.path("tmp/tmux")).arg("kill-server").output();
    }
}
