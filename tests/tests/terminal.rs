//! `ampere top` and the live table of `ampere run` on a real terminal, tmux's.

use ampere_model::text::joules;
use ampere_tests::collector::{announced, events};
use ampere_tests::http;
use ampere_tests::jobs::{Place, Running, have, start, until};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// Works until there is a file `go`.
const WORKS: &str = r#"
    #include <stdio.h>
    #include <unistd.h>
    __attribute__((noinline)) void small(void) { for (volatile int i = 0; i < 200000; i++); }
    __attribute__((noinline)) void large(void) { for (volatile int i = 0; i < 1000000; i++); small(); }
    int main(void) {
        for (int i = 1; access("go", F_OK) != 0; i++) {
            large();
            usleep(2000);
            if (i % 100 == 0) { printf("line %d\n", i); fflush(stdout); }
        }
        puts("the last line");
        return 0;
    }
"#;

const SIZES: [(u16, u16); 2] = [(80, 24), (200, 50)];

/// A terminal with a shell in it.
struct Terminal<'a> {
    place: &'a Place,
}

impl<'a> Terminal<'a> {
    fn open(place: &'a Place, (columns, lines): (u16, u16)) -> Terminal<'a> {
        let terminal = Terminal { place };
        let (columns, lines) = (columns.to_string(), lines.to_string());
        let size = ["-x", &columns, "-y", &lines];
        terminal.tmux(&[&["-f", "/dev/null", "new-session", "-d"][..], &size, &["sh"]].concat());
        terminal
    }

    fn tmux(&self, arguments: &[&str]) -> String {
        let mut command = self.place.command("tmux");
        // Without an rc file, and with a prompt that is the same for all.
        command.env_remove("TMUX").env("LC_ALL", "C.UTF-8").env("PS1", "$ ").env_remove("ENV");
        command.env("AMPERE", ampere_tests::artifact("ampere"));
        let done = command.arg("-u").arg("-S").arg(self.place.path("tmp/tmux")).args(arguments).output();
        let done = done.expect("tmux");
        assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8_lossy(&done.stdout).into_owned()
    }

    /// Keys by tmux's names.
    fn press(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    fn types(&self, text: &str) {
        self.tmux(&["send-keys", "-l", text]);
    }

    fn says(&self, command: &str) {
        self.types(command);
        self.press(&["Enter"]);
    }

    fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    #[track_caller]
    fn until(&self, what: &str, mut is_so: impl FnMut(&str) -> bool) -> String {
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

    /// The terminal is as it was before a program that has ended with this status.
    #[track_caller]
    fn is_given_back(&self, status: i32) {
        self.is_as_before(status);
        let shown = self.screen();
        assert!(shown.contains("before"), "what was on the terminal is there again: {shown}");
    }

    /// The same of a program that writes on it.
    #[track_caller]
    fn is_as_before(&self, status: i32) {
        self.until("the shell has its terminal again", |screen| screen.contains(&format!("status {status}")));
        let flags = self.tmux(&[
            "display-message",
            "-p",
            "#{alternate_on} #{cursor_flag} #{scroll_region_upper}-#{scroll_region_lower}/#{pane_height}",
        ]);
        let height: u32 =
            flags.trim().rsplit('/').next().and_then(|height| height.parse().ok()).expect("a height");
        assert_eq!(flags.trim(), format!("0 1 0-{}/{height}", height - 1));
        // The first line has its size.
        let settings = |name: &str| {
            let text = std::fs::read_to_string(self.place.path(name)).unwrap_or_default();
            text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>()
        };
        until("stty has said how it is", || settings("after").len() == settings("before").len());
        assert_eq!(settings("before"), settings("after"));
    }

    /// Runs a command between two looks at the terminal's settings.
    fn runs(&self, command: &str) {
        let _ = std::fs::remove_file(self.place.path("after"));
        self.says(&format!("echo before; stty -a >before; {command}; echo status $?; stty -a >after"));
    }
}

impl Drop for Terminal<'_> {
    fn drop(&mut self) {
        let _ = Command::new("tmux").arg("-S").arg(self.place.path("tmp/tmux")).arg("kill-server").output();
    }
}

/// A run that goes on until there is a file `go`.
fn running(place: &Place) -> Running {
    let program = place.compile("cc", "works", WORKS, &["-finstrument-functions"]);
    let running = start(&mut place.ampere_run("out", [&program]));
    until("the run has events", || events(&place.path("out")) > 100);
    running
}

/// The rows' names.
fn rows(screen: &str) -> Vec<&str> {
    let table = screen.lines().skip_while(|line| !line.contains('▼') && !line.contains('▲')).skip(1);
    table.filter_map(|line| line.split_whitespace().next_back()).collect()
}

fn has_row(screen: &str, name: &str) -> bool {
    rows(screen).contains(&name)
}

#[test]
fn keys_sort_filter_search_and_choose_views_and_quitting_gives_the_terminal_back() {
    if !have(&["tmux"]) {
        return;
    }
    for size in SIZES {
        let place = Place::new();
        let run = running(&place);
        let terminal = Terminal::open(&place, size);
        terminal.runs("$AMPERE top out");
        let first = terminal.until("functions", |screen| has_row(screen, "small"));
        assert_eq!(first.lines().count(), usize::from(size.1), "{first}");
        assert!(first.contains("estimated") && first.contains(" busy cores  lag "), "{first}");
        assert_eq!(rows(&first)[0], "main", "the most joules are first: {first}");
        terminal.types("I");
        terminal.until("the least joules are first", |screen| rows(screen)[0] != "main");
        terminal.press(&["I", "F6"]);
        terminal.until("sorted by another column", |screen| screen.contains("SHARE▼"));
        terminal.press(&["F4"]);
        terminal.types("SMALL");
        terminal.press(&["Enter"]);
        terminal.until("a filter", |screen| has_row(screen, "small") && !has_row(screen, "large"));
        terminal.press(&["Escape", "F5"]);
        let tree = terminal.until("a tree", |screen| screen.contains("- large"));
        assert!(tree.contains("all devices") && has_row(&tree, "main"), "{tree}");
        terminal.press(&["F3"]);
        terminal.types("large");
        terminal.press(&["Enter", "-"]);
        terminal
            .until("a closed call path", |screen| screen.contains("+ large") && !has_row(screen, "small"));
        terminal.types("+");
        terminal.until("an open one", |screen| screen.contains("- large") && has_row(screen, "small"));
        terminal.types("2");
        terminal.until("ranks", |screen| screen.contains("NOW IN"));
        terminal.press(&["Tab", "Tab"]);
        terminal.until("devices", |screen| has_row(screen, "node") && screen.contains("QUALITY"));
        terminal.types("5");
        let own = rustix::system::uname().nodename().to_string_lossy().into_owned();
        terminal.until("nodes", |screen| has_row(screen, &own) && screen.contains("running"));
        terminal.press(&["F1"]);
        terminal.until("help", |screen| screen.contains("Keys, as in htop"));
        terminal.press(&["Escape", "F10"]);
        terminal.is_given_back(0);
        place.write("go", "");
        assert_eq!(run.wait().code, 0);
    }
}

#[test]
fn a_successor_of_the_collector_is_found_and_the_end_of_the_run_is_said() {
    if !have(&["tmux"]) {
        return;
    }
    let place = Place::new();
    let run = running(&place);
    let terminal = Terminal::open(&place, SIZES[0]);
    terminal.runs("$AMPERE top out");
    terminal.until("functions", |screen| has_row(screen, "large"));
    let old = announced(&place.path("out")).expect("a collector");
    old.kill();
    until("another collector", || announced(&place.path("out")).is_some_and(|new| new.pid != old.pid));
    until("it has events", || events(&place.path("out")) > 100);
    let seconds = |screen: &str| {
        let before = screen.lines().next().and_then(|line| line.split(" s  ").next()?.split(' ').next_back());
        before.and_then(|seconds| seconds.parse().ok()).unwrap_or(0.0)
    };
    let then: f64 = seconds(&terminal.screen());
    terminal.until("its figures", |screen| seconds(screen) > then + 2.0 && !screen.contains("no answer"));
    // The run's end: its figures stay.
    place.write("go", "");
    assert_eq!(run.wait().code, 0);
    let last = terminal.until("the end", |screen| screen.contains("the run is over"));
    assert!(has_row(&last, "large"), "{last}");
    terminal.types("q");
    terminal.is_given_back(0);
    assert!(terminal.screen().contains("the run is over: out/summary.json"), "{}", terminal.screen());
}

#[test]
fn a_signal_gives_the_terminal_back() {
    if !have(&["tmux"]) {
        return;
    }
    let place = Place::new();
    let server = Server::start(|path| Some(made_up(path, "work")));
    let terminal = Terminal::open(&place, SIZES[0]);
    for (signal, status) in [(Signal::TERM, 143), (Signal::HUP, 129), (Signal::INT, 130)] {
        terminal.says("clear");
        terminal.runs(&format!("$AMPERE top {}", server.url()));
        terminal.until("functions", |screen| has_row(screen, "work"));
        let is_top = |(_, command): &(u32, String)| command.contains("/ampere top http");
        let top = place.processes().into_iter().find(is_top).expect("ampere top").0;
        ampere_tests::jobs::signal(top, signal);
        terminal.is_given_back(status);
    }
}

/// Answers for a collector.
struct Server {
    address: SocketAddr,
    ends: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Server {
    /// `answer`: the body for a path; with `None` the client waits.
    fn start(answer: impl Fn(&str) -> Option<String> + Send + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let ends = Arc::new(AtomicBool::new(false));
        let over = ends.clone();
        let thread = std::thread::spawn(move || {
            let mut waiting = Vec::new();
            for mut stream in listener.incoming().flatten() {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                let mut request = [0; 4096];
                let length = stream.read(&mut request).unwrap_or(0);
                let request = String::from_utf8_lossy(&request[..length]);
                match answer(request.split(' ').nth(1).unwrap_or_default()) {
                    Some(body) => {
                        let head = format!("HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
                        let _ = stream.write_all((head + &body).as_bytes());
                    }
                    None => waiting.push(stream),
                }
            }
        });
        Server { address, ends, thread: Some(thread) }
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address);
        let _ = self.thread.take().map(std::thread::JoinHandle::join);
    }
}

/// What a collector could answer: a device, two ranks, and functions of this name.
fn made_up(path: &str, name: &str) -> String {
    let device = json!({
        "device": name, "source": "x", "energy": "measured", "joules": 100.0, "watts": 50.0, "lost_joules": 0.0,
        "idle_joules_ranks": 1.0, "idle_joules_kernels": 0.0, "pending_joules_kernels": 0.0,
        "conservation_error_joules": 0.0, "samples": 10, "counter_resets": 0, "sampling_gaps": 0,
        "unusable_samples": 0, "stale": false,
    });
    let rank = |rank: &str| {
        json!({
            "rank": rank, "events": 1, "coalesced_calls": 0, "suppressed_calls": 0, "late_events": 0,
            "dropped_records": 0, "ring_fill_ratio": 0.0, "current_region": name,
        })
    };
    let snapshot = json!({
        "node": "n1", "run": name, "seconds": 2.0, "devices": [device],
        "region_energy": [{ "rank": "0", "device": name, "region": name, "joules": 70.0 }],
        "kernel_energy": [{ "device": name, "kernel": name, "joules": 20.0 }], "region_time": [],
        "ranks": [rank("0"), rank(name)], "notes": [name], "lag_seconds": 0.0, "collector_cpu_seconds": 0.0,
        "collector_rss_bytes": 0,
    });
    let node = |node: &str| {
        json!({
            "node": node, "state": "running", "problem": "", "energy": "measured", "joules": 100.0, "watts": 50.0,
            "idle_joules": 1.0, "lost_joules": 0.0, "idle_ratio": 0.1, "ranks": 2,
        })
    };
    let job = json!({
        "schema": "", "run": name, "here": "n1", "hottest": [], "idle": [], "nodes": [node("n1"), node(name)],
        "totals": {
            "joules": 200.0, "watts": 100.0, "idle_joules": 2.0, "lost_joules": 0.0, "mpi_joules": 0.0,
            "gpu_joules": 0.0, "kernel_joules": 0.0,
        },
        "other_nodes": { "count": 0, "joules": 0.0 }, "ranks": [{ "rank": "0", "node": name, "joules": 70.0 }],
        "functions": [{ "name": name, "joules": 140.0 }], "kernels": [{ "name": name, "joules": 40.0 }],
    });
    match path {
        "/snapshot.json" => snapshot.to_string(),
        "/nodes" => job.to_string(),
        _ => "{}".to_owned(),
    }
}

#[test]
fn hostile_names_and_tiny_terminals_do_no_harm() {
    if !have(&["tmux"]) {
        return;
    }
    let name = format!("\x1b[2J\x1b]0;title\x07\n\r\"'<b>\u{202e}evil\u{9b}2J {}", "long ".repeat(2000));
    let server = Server::start(move |path| Some(made_up(path, &name)));
    for size in [(80, 24), (200, 50), (40, 10), (20, 5), (10, 3)] {
        let place = Place::new();
        let terminal = Terminal::open(&place, size);
        terminal.runs(&format!("$AMPERE top {}", server.url()));
        terminal.until("ampere has the terminal", |screen| {
            screen.lines().next().is_some_and(|line| line.contains("ampere"))
        });
        for view in ["1", "2", "3", "4", "5", "6", "h"] {
            terminal.types(view);
            let screen = terminal.until("a view", |screen| screen.starts_with(" ampere"));
            assert!(!screen.contains("\u{202e}"), "{screen}");
        }
        if size.0 >= 40 {
            // Of all nodes, and then of the first alone.
            for (keys, joules) in [("h1", "140.000"), ("a", "70.000")] {
                terminal.types(keys);
                let is_name = |screen: &str| screen.contains(joules) && screen.contains("\u{fffd}[2J");
                terminal.until("the name, made printable", is_name);
            }
            terminal.types("5");
            terminal.until("both nodes", |screen| screen.matches(" running ").count() == 2);
        }
        assert_ne!(terminal.tmux(&["display-message", "-p", "#{pane_title}"]).trim(), "title");
        terminal.tmux(&["resize-window", "-x", "80", "-y", "24"]);
        terminal.until("it fits the terminal", |screen| screen.contains("F10"));
        terminal.types("qq");
        terminal.until("the shell", |screen| screen.contains("status 0"));
    }
}

#[test]
fn a_collector_that_does_not_answer_is_said_to_and_its_last_figures_stay() {
    if !have(&["tmux"]) {
        return;
    }
    let place = Place::new();
    let hangs = Arc::new(AtomicBool::new(false));
    let is_hanging = hangs.clone();
    let server =
        Server::start(move |path| (!is_hanging.load(Ordering::Relaxed)).then(|| made_up(path, "work")));
    let terminal = Terminal::open(&place, SIZES[0]);
    terminal.runs(&format!("$AMPERE top {}", server.url()));
    terminal.until("functions", |screen| has_row(screen, "work"));
    hangs.store(true, Ordering::Relaxed);
    let silent = terminal.until("it says so", |screen| screen.contains("no answer for"));
    assert!(has_row(&silent, "work"), "{silent}");
    // Keys do not wait for it.
    terminal.types("4");
    terminal.until("another view", |screen| screen.contains("IDLE J"));
    hangs.store(false, Ordering::Relaxed);
    terminal.until("it answers again", |screen| !screen.contains("no answer for"));
    let url = server.url();
    drop(server);
    terminal.until("it is gone", |screen| screen.contains("these are the last figures"));
    terminal.types("q");
    terminal.is_given_back(0);
    assert!(terminal.screen().contains(&format!("no collector answers at {url} any more")));
}

#[test]
fn the_joules_are_those_of_a_snapshot() {
    if !have(&["tmux"]) {
        return;
    }
    let place = Place::new();
    let run = running(&place);
    let collector = announced(&place.path("out")).expect("a collector").address();
    let snapshots: Arc<Mutex<Vec<Value>>> = Arc::default();
    let seen = snapshots.clone();
    let server = Server::start(move |path| {
        let answer = http::get(collector, path).ok()?.body;
        if path == "/snapshot.json" {
            seen.lock().expect("no panic").push(serde_json::from_str(&answer).expect("JSON"));
        }
        Some(answer)
    });
    let terminal = Terminal::open(&place, SIZES[1]);
    terminal.runs(&format!("$AMPERE top {}", server.url()));
    for _ in 0..3 {
        let before = terminal.screen();
        let screen = terminal.until("other figures", |screen| *screen != before && has_row(screen, "large"));
        let known = snapshots.lock().expect("no panic");
        let is_shown = |snapshot: &&Value| {
            let device = snapshot["devices"][0]["joules"].as_f64().map(joules).expect("joules");
            screen.lines().nth(1).is_some_and(|line| line.contains(&format!(" {device} J")))
        };
        let snapshot =
            known.iter().find(is_shown).unwrap_or_else(|| panic!("no snapshot has these:\n{screen}"));
        let mut functions: BTreeMap<&str, f64> = BTreeMap::new();
        for row in snapshot["region_energy"].as_array().expect("rows") {
            *functions.entry(row["region"].as_str().expect("a name")).or_default() +=
                row["joules"].as_f64().expect("joules");
        }
        for (name, sum) in functions {
            let line = screen.lines().find(|line| line.ends_with(&format!(" {name}"))).expect("a row");
            assert_eq!(line.split_whitespace().next(), Some(joules(sum).as_str()), "{screen}");
        }
    }
    terminal.types("q");
    terminal.is_given_back(0);
    place.write("go", "");
    assert_eq!(run.wait().code, 0);
}

#[test]
fn the_live_table_stays_below_the_commands_output_and_leaves_the_terminal_as_it_was() {
    if !have(&["tmux"]) {
        return;
    }
    for (size, rows, then) in [((80, 24), 11, "120"), ((200, 50), 19, "90")] {
        let place = Place::new();
        place.compile("cc", "works", WORKS, &["-finstrument-functions"]);
        let terminal = Terminal::open(&place, size);
        terminal.runs("$AMPERE run -o out -- ./works");
        let is_table = |screen: &str, height: usize| {
            let first =
                screen.lines().position(|line| line.starts_with(" ampere ") && line.contains(" ranks  "));
            first == Some(height - rows) && screen.contains("% █") && screen.contains("\nline ")
        };
        let is_at_first = |screen: &str| is_table(screen, size.1.into());
        let shown = terminal.until("the table, and the command's output", is_at_first);
        assert!(shown.contains(" W estimated, ") && shown.contains("\n now in  0: "), "{shown}");
        terminal.tmux(&["resize-window", "-x", then, "-y", "40"]);
        terminal.until("the table where the bottom is now", |screen| is_table(screen, 40));
        place.write("go", "");
        terminal.is_as_before(0);
        let left = terminal.screen();
        assert!(!left.contains(" now in ") && left.contains("summary: "), "{left}");
    }
}

#[test]
fn a_small_terminal_is_the_commands_alone() {
    if !have(&["tmux"]) {
        return;
    }
    let place = Place::new();
    place.compile("cc", "works", WORKS, &["-finstrument-functions"]);
    let terminal = Terminal::open(&place, (40, 10));
    terminal.runs("$AMPERE run -o out -- ./works");
    terminal.until("output", |screen| screen.contains("line 300"));
    assert!(!terminal.screen().contains(" now in "));
    place.write("go", "");
    terminal.is_as_before(0);
}

#[test]
fn a_command_that_takes_long_says_how_far_it_is_in_a_line_that_goes() {
    if !have(&["tmux"]) {
        return;
    }
    let place = Place::new();
    let terminal = Terminal::open(&place, SIZES[0]);
    let library = ampere_tests::artifact("libstand_in_rocm_smi64.so");
    let counters = format!("AMPERE_COUNTERS=rocm_smi AMPERE_ROCM_SMI_LIBRARY={}", library.display());
    terminal.runs(&format!("{counters} $AMPERE calibrate --period 500ms --duration 3s"));
    terminal
        .until("how far it is", |screen| screen.contains("███  ") && screen.contains(" of 3 s, reading "));
    let shown = terminal.until("its end", |screen| screen.contains("\nstatus "));
    assert!(!shown.contains(" of 3 s, reading "), "{shown}");
}
