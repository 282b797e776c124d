//! `ampere top` and the live table of `ampere run` on a real terminal, provided by tmux.

use ampere_model::digits;
use ampere_tests::collector::{announced, events};
use ampere_tests::http;
use ampere_tests::jobs::{Place, Running, have, start, until};
use ampere_tests::runs::list;
use ampere_tests::terminal::Terminal;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// A program that works until there is a file `go`.
const WORKS: &str = r#"
    #include <stdio.h>
    #include <unistd.h>
    #ifdef RANKS
    #include <mpi.h>
    #else
    #define MPI_Init(count, words)
    #define MPI_Finalize()
    #endif
    __attribute__((noinline)) void small(void) { for (volatile int i = 0; i < 200000; i++); }
    __attribute__((noinline)) void large(void) { for (volatile int i = 0; i < 1000000; i++); small(); }
    int main(int count, char **words) {
        MPI_Init(&count, &words);
        for (int i = 1; access("go", F_OK) != 0; i++) {
            large();
            usleep(2000);
            if (i % 100 == 0) { printf("line %d\n", i); fflush(stdout); }
        }
        MPI_Finalize();
        puts("the last line");
        return 0;
    }
"#;

const SIZES: [(u16, u16); 2] = [(80, 24), (200, 50)];

/// Returns a run that continues until there is a file `go`.
fn running(place: &Place) -> Running {
    let program = place.compile("cc", "works", WORKS, &["-finstrument-functions"]);
    let running = start(&mut place.ampere_run("out", [&program]));
    until("the run has events", || events(&place.path("out")) > 100);
    running
}

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
        let first = terminal.until("functions, and what is above them", |screen| {
            has_row(screen, "small") && screen.contains("estimated") && screen.contains(" cores busy")
        });
        assert_eq!(first.lines().count(), usize::from(size.1), "{first}");
        terminal.until("the most dynamic joules are first", |screen| rows(screen).first() == Some(&"large"));
        terminal.types("I");
        terminal.until("the least joules are first", |screen| {
            rows(screen).first().is_some_and(|name| *name != "large")
        });
        terminal.press(&["I", "F6"]);
        terminal.until("sorted by another column", |screen| screen.contains("TOTAL J▼"));
        terminal.press(&["F4"]);
        terminal.types("SMALL");
        terminal.press(&["Enter"]);
        terminal.until("a filter", |screen| has_row(screen, "small") && !has_row(screen, "large"));
        // If Escape and a function key came in one piece, they would be another key.
        terminal.press(&["Escape"]);
        terminal.until("no filter", |screen| has_row(screen, "large"));
        terminal.press(&["F5"]);
        terminal.until("a tree", |screen| has_row(screen, "large") && screen.contains("all devices"));
        terminal.press(&["F3"]);
        terminal.types("large");
        terminal.press(&["Enter", "-"]);
        terminal
            .until("a closed call path", |screen| screen.contains("+ large") && !has_row(screen, "small"));
        terminal.types("+");
        terminal.until("an open one", |screen| screen.contains("- large") && has_row(screen, "small"));
        terminal.types("2");
        terminal.until("ranks", |screen| screen.contains("NOW IN"));
        // Without a GPU, there is no view of kernels.
        terminal.press(&["Tab"]);
        terminal.until("devices", |screen| has_row(screen, "node") && screen.contains("QUALITY"));
        terminal.types("5");
        let own = rustix::system::uname().nodename().to_string_lossy().into_owned();
        terminal.until("nodes", |screen| has_row(screen, &own) && screen.contains("running"));
        terminal.press(&["F1"]);
        terminal.until("help", |screen| screen.contains("Keys, as in htop"));
        terminal.press(&["Escape", "F10"]);
        terminal.assert_restored(0);
        place.write("go", "");
        assert_eq!(run.wait().code, 0);
    }
}

#[test]
fn a_successor_of_the_collector_is_found_and_the_end_of_the_run_is_shown() {
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
    // When the run ends, its final figures are on the screen, and the last live ones after a key.
    place.write("go", "");
    assert_eq!(run.wait().code, 0);
    let table = std::fs::read_to_string(place.path("out/summary.txt")).expect("a table");
    let energy = table.lines().find(|line| line.starts_with("energy")).expect("the energy");
    let energy = energy.split_whitespace().take(3).collect::<Vec<_>>().join(" ");
    // The line about the end may come a moment before the result.
    terminal.until(&format!("the end, and {energy}"), |screen| {
        let mut lines = screen.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
        let words = ["the run has ended", "large", "exit 0", "out/report.html"];
        lines.any(|line| line.starts_with(&energy)) && words.iter().all(|word| screen.contains(word))
    });
    terminal.types("1");
    terminal.until("the last live figures", |screen| {
        has_row(screen, "large") && screen.contains("ended, figures at ")
    });
    terminal.types("e");
    terminal.until("the final figures again", |screen| screen.contains("exit 0"));
    // Figures that are computed again from the trace, or joined with other nodes', replace those that were written first.
    let summary = std::fs::read_to_string(place.path("out/summary.json")).expect("a summary");
    let mut again: serde_json::Value = serde_json::from_str(&summary).expect("JSON");
    again["run"]["command"] = serde_json::json!(["computed_again"]);
    // Like ampere, replaces the file at once.
    let written = place.write("out/again.json", &again.to_string());
    std::fs::rename(written, place.path("out/summary.json")).expect("a summary");
    terminal.until("the figures that were written last", |screen| screen.contains("computed_again"));
    terminal.types("q");
    terminal.assert_restored(0);
    assert!(terminal.screen().contains("the run has ended: out/summary.json"), "{}", terminal.screen());
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
        terminal.assert_restored(status);
    }
}

#[test]
fn call_paths_are_of_all_ranks_or_of_one() {
    if !have(&["tmux", "mpirun.openmpi", "mpicc.openmpi"]) {
        return;
    }
    let place = Place::new();
    let program = place.compile("mpicc.openmpi", "works", WORKS, &["-DRANKS", "-finstrument-functions"]);
    let mut run = place.ampere_run("out", ["mpirun.openmpi", "--oversubscribe", "-n", "2"]);
    let run = start(run.arg(&program));
    // The first page that is shown has both ranks, so that a key can choose either.
    until("the page has both ranks", || {
        let address = announced(&place.path("out")).map(|collector| collector.address());
        let page = address.and_then(|address| http::get(address, "/page.json").ok());
        let page: Value = page.and_then(|page| serde_json::from_str(&page.body).ok()).unwrap_or_default();
        let ranks = page["tables"]["ranks"]["each"].as_array();
        ranks.is_some_and(|ranks| {
            ranks.len() == 2 && ranks.contains(&"0".into()) && ranks.contains(&"1".into())
        })
    });
    let terminal = Terminal::open(&place, (80, 24));
    terminal.runs("$AMPERE top out");
    terminal.until("both ranks", |screen| screen.contains("  2 ranks  "));
    terminal.press(&["6"]);
    let is_of = |words: &'static str| {
        move |screen: &str| screen.lines().any(|line| line.ends_with(words)) && screen.contains("large")
    };
    terminal.until("all ranks", is_of("- all devices"));
    for (key, of) in [
        ("r", "- all devices, rank 0"),
        ("r", "- all devices, rank 1"),
        ("r", "- all devices"),
        ("R", "- all devices, rank 1"),
        ("r", "- all devices"),
    ] {
        terminal.press(&[key]);
        terminal.until(of, is_of(of));
    }
    // The cursor is on the rank that has most joules at the moment.
    terminal.press(&["2", "Enter"]);
    terminal.until("the call paths of a rank", |screen| {
        ["rank 0", "rank 1"].iter().any(|rank| {
            screen.contains(&format!("6 tree  {rank}")) && screen.contains(&format!("- all devices, {rank}"))
        })
    });
    terminal.press(&["q"]);
    terminal.assert_restored(0);
    place.write("go", "");
    assert_eq!(run.wait().code, 0);
}

#[test]
fn sampled_ranks_are_counted_once_and_their_node_ends_with_the_run() {
    if !have(&["tmux", "mpirun.openmpi", "mpicc.openmpi"]) {
        return;
    }
    let place = Place::new();
    let program = place.compile("mpicc.openmpi", "works", WORKS, &["-DRANKS"]);
    let mut run = place.ampere_run("out", ["mpirun.openmpi", "--oversubscribe", "-n", "2"]);
    let run = start(run.arg(&program).env_remove("AMPERE_SAMPLE"));
    let terminal = Terminal::open(&place, SIZES[1]);
    until("a collector", || announced(&place.path("out")).is_some());
    terminal.runs("$AMPERE top out");
    terminal.until("both ranks", |screen| {
        screen.contains("  2 ranks and 1 other process  ") && has_row(screen, "large")
    });
    let address = announced(&place.path("out")).expect("a collector").address();
    let get = |path: &str| -> Value {
        serde_json::from_str(&http::get(address, path).expect("an answer").body).expect("JSON")
    };
    let ranks: Vec<Value> = list(&get("/snapshot.json"), "ranks").iter().map(|r| r["rank"].clone()).collect();
    assert_eq!(ranks[..2], ["0", "1"], "{ranks:?}");
    assert_eq!(ranks.len(), 3, "{ranks:?}");
    let now = get("/page.json")["now"].clone();
    let cells: Vec<&Value> = list(&now, "cells").iter().map(|cell| &cell["label"]).collect();
    assert_eq!(cells, ["0", "1"], "{now}");
    let own = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let line = |screen: &str| -> Vec<String> {
        let line = screen.lines().rev().find(|line| line.ends_with(&own)).unwrap_or_default();
        line.split_whitespace().map(str::to_owned).collect()
    };
    terminal.types("5");
    let is_node =
        |screen: &str, state: &str| line(screen).get(4..6).is_some_and(|words| words == ["2", state]);
    terminal.until("the node with two ranks", |screen| is_node(screen, "running"));
    // Other views do not request the nodes.
    terminal.types("1");
    place.write("go", "");
    assert_eq!(run.wait().code, 0);
    // The result would hide the nodes if it came after the key.
    terminal.until("the end, and the result", |screen| {
        screen.contains("the run has ended") && screen.contains("exit 0")
    });
    terminal.types("5");
    terminal.until("the node is over, and has the joules above it", |screen| {
        let above = screen.lines().find(|line| line.starts_with(" node ")).unwrap_or_default();
        let joules = above.split_whitespace().nth(1);
        is_node(screen, "over") && joules == line(screen).first().map(String::as_str)
    });
    terminal.press(&["q"]);
    terminal.assert_restored(0);
}

#[test]
fn it_can_be_stopped_and_continued() {
    if !have(&["tmux"]) {
        return;
    }
    let place = Place::new();
    let run = running(&place);
    let terminal = Terminal::open(&place, (80, 24));
    terminal.runs("$AMPERE top out");
    terminal.until("functions", |screen| has_row(screen, "large"));
    terminal.press(&["6"]);
    terminal.until("the tree", |screen| screen.contains("all devices"));
    terminal.press(&["C-z"]);
    terminal.assert_restored(128 + Signal::TSTP.as_raw());
    terminal.tmux(&["resize-window", "-x", "100", "-y", "30"]);
    terminal.says("fg; echo then $?");
    let is_whole = |screen: &str| screen.contains(" ampere ") && screen.contains("- all devices");
    terminal.until("the same view, as large as the terminal is now", |screen| {
        is_whole(screen)
            && screen.lines().count() == 30
            && screen.lines().last().is_some_and(|line| line.starts_with("F1Help"))
    });
    // The keys work again, and `ampere top` can be stopped again.
    terminal.press(&["C-z"]);
    terminal.until("the shell", |screen| screen.contains("then 148") && !screen.contains("F1Help"));
    terminal.says("fg; echo at last $?");
    terminal.until("the tree again", is_whole);
    terminal.press(&["q"]);
    terminal.until("it has ended", |screen| screen.contains("at last 0") && !screen.contains("F1Help"));
    place.write("go", "");
    assert_eq!(run.wait().code, 0);
}

#[test]
fn the_live_table_leaves_the_terminal_to_the_shell_while_the_run_is_stopped() {
    if !have(&["tmux"]) {
        return;
    }
    let place = Place::new();
    place.compile("cc", "works", WORKS, &["-finstrument-functions"]);
    let terminal = Terminal::open(&place, (100, 40));
    terminal.runs("$AMPERE run -o out -- ./works");
    let has_table = |screen: &str| screen.contains(" now in  ");
    terminal.until("the table", has_table);
    terminal.press(&["C-z"]);
    terminal.assert_settings_restored(128 + Signal::TSTP.as_raw());
    assert!(!has_table(&terminal.screen()), "{}", terminal.screen());
    terminal.says("fg; echo then $?");
    terminal.until("the table again", has_table);
    place.write("go", "");
    terminal.until("the end", |screen| screen.contains("then 0") && !has_table(screen));
}

#[test]
fn the_live_table_leaves_the_terminal_to_a_command_that_reads_keys() {
    if !have(&["tmux"]) {
        return;
    }
    let place = Place::new();
    place.compile("cc", "works", WORKS, &["-finstrument-functions"]);
    place.script(
        "reads",
        "#!/bin/sh\nwait_for() { until [ -e $1 ]; do sleep 0.01; done; }\n\
         ./works >works.out & wait_for begin; printf 'a part '; wait_for keys; stty -icanon; wait_for go; stty icanon; echo of a line; wait\n",
    );
    let terminal = Terminal::open(&place, (100, 40));
    terminal.runs("$AMPERE run -o out -- ./reads");
    // The line about the live page must not come after a part of a line of the command.
    terminal.until("the table", |screen| screen.contains(" now in  "));
    place.write("begin", "");
    terminal.until("a part of a line", |screen| screen.contains("a part"));
    let region = || terminal.tmux(&["display-message", "-p", "#{scroll_region_lower}"]);
    assert_ne!(region().trim(), "39");
    place.write("keys", "");
    until("the whole terminal scrolls", || region().trim() == "39");
    place.write("go", "");
    terminal.assert_settings_restored(0);
    assert!(terminal.screen().contains("a part of a line"), "{}", terminal.screen());
}

#[test]
fn why_a_command_was_not_measured_is_said_again_below_its_output() {
    if !have(&["tmux"]) {
        return;
    }
    let place = Place::new();
    let terminal = Terminal::open(&place, (160, 20));
    terminal.runs("AMPERE_SHM=/nonexistent $AMPERE run -o out -- seq 1000");
    let screen = terminal.until("the end", |screen| screen.contains("status 0"));
    let (output, below) = screen.split_once("1000\n").expect("the output");
    assert!(
        !output.contains("being measured"),
        "the line above the output is no longer on the screen: {screen}"
    );
    assert!(
        below.contains("ampere: ") && below.contains("the command ran without being measured"),
        "{screen}"
    );
}

/// A server that answers in place of a collector.
struct Server {
    address: SocketAddr,
    ends: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Server {
    /// `answer` returns the body for a path; with `None` the client waits.
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

/// Possible answers of a collector: a device, two ranks, and functions of this name.
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
        for view in ["1", "2", "3", "4", "5", "6", "7", "h"] {
            terminal.types(view);
            // The help has the whole screen.
            let first = if view == "h" { " Keys" } else { " ampere" };
            let screen = terminal.until("a view", |screen| screen.starts_with(first));
            assert!(!screen.contains("\u{202e}"), "{screen}");
        }
        if size.0 >= 40 {
            // First come the joules of all nodes, and then those of the first node alone.
            for (keys, joules) in [("h1", "140.0"), ("a", "70.0")] {
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

/// `main` calls a hundred functions, each of which calls a hundred others.
fn page_of_10000_call_paths() -> String {
    let mut caller = vec![0, 0];
    let mut name = vec![0, 0];
    let mut names = vec!["main".to_owned()];
    for at in 0..100 {
        let above = caller.len();
        caller.push(1);
        name.push(names.len());
        names.push(format!("f{at}"));
        for below in 0..100 {
            caller.push(above);
            name.push(names.len());
            names.push(format!("f{at}_{below}"));
        }
    }
    let (joules, calls) = (vec![1.0; caller.len()], vec![1; caller.len()]);
    let rows = json!({
        "name": [], "joules": [], "least_joules": [], "most_joules": [], "inclusive_joules": [], "seconds": [],
        "calls": [], "watts": [], "others": { "count": 0, "joules": 0.0 },
    });
    let flame = json!({
        "title": "all devices", "view": "ranks", "idle_joules": 0.0, "lost_joules": 0.0, "caller": caller,
        "name": name, "joules": joules, "calls": calls, "small": [], "by_rank": [],
    });
    json!({
        "schema": "", "state": "running", "sentences": [], "notes": [], "devices": [],
        "run": {
            "id": "f", "command": [], "job": null, "nodes": "", "ranks": 1, "start": "", "end": "", "seconds": 2.0,
            "energy": "", "cpu": "",
        },
        "totals": {
            "joules": 0.0, "watts": null, "idle_joules": 0.0, "lost_joules": 0.0, "mpi_joules": 0.0,
            "gpu_joules": 0.0, "kernel_joules": 0.0,
        },
        "other_devices": { "rows": [], "left_out": 0 }, "power": [], "quality": [], "monitor": [], "assignment": [],
        "tables": {
            "names": names, "mpi": [], "functions": rows, "kernels": rows, "heat": { "name": [], "joules": [] },
            "ranks": { "label": ["0"], "count": [1], "words": "" }, "flames": [flame], "views": [],
            "paths": { "rows": [], "others": { "count": 0, "joules": 0.0 } },
        },
    })
    .to_string()
}

#[test]
fn ten_thousand_call_paths_can_be_searched_and_filtered() {
    if !have(&["tmux"]) {
        return;
    }
    let page = page_of_10000_call_paths();
    let server =
        Server::start(move |path| Some(if path == "/page.json" { page.clone() } else { made_up(path, "f") }));
    let place = Place::new();
    let terminal = Terminal::open(&place, (200, 50));
    terminal.runs(&format!("$AMPERE top {}", server.url()));
    terminal.until("functions", |screen| has_row(screen, "f"));
    terminal.press(&["6"]);
    terminal.until("the tree", |screen| screen.contains("- all devices") && screen.contains("+ f99"));
    terminal.types("/f77_88");
    terminal.until("what is searched is found in a call path that was closed", |screen| {
        has_row(screen, "f77_88")
    });
    terminal.press(&["Escape"]);
    terminal.types("\\f99_9");
    terminal.until("eleven call paths", |screen| {
        rows(screen).iter().filter(|name| name.starts_with("f99_9")).count() == 11
    });
    terminal.press(&["Enter"]);
    // All rows are open, so the last one is far down.
    terminal.press(&["Escape"]);
    terminal.types("/_");
    terminal.press(&["Enter", "End"]);
    terminal.until("the last call path", |screen| has_row(screen, "f0_0"));
    let begun = std::time::Instant::now();
    terminal.press(&["PageUp", "Home"]);
    terminal.until("the first one", |screen| screen.contains("- all devices"));
    println!(
        "from the last to the first of 10,000 call paths: {:.0} ms",
        1e3 * begun.elapsed().as_secs_f64()
    );
    assert!(begun.elapsed().as_secs_f64() < 60.0, "{begun:?}");
    terminal.press(&["q"]);
    terminal.assert_restored(0);
}

#[test]
fn an_unresponsive_collector_is_reported_and_its_last_figures_stay() {
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
    terminal.until("the missing answer is shown, above the figures", |screen| {
        screen.contains("no answer for") && has_row(screen, "work")
    });
    // Keys are handled without waiting for the answer.
    terminal.types("4");
    terminal.until("another view", |screen| screen.contains("IDLE J"));
    hangs.store(false, Ordering::Relaxed);
    terminal.until("it answers again", |screen| !screen.contains("no answer for"));
    let url = server.url();
    drop(server);
    terminal.until("it is gone", |screen| screen.contains("these are the last figures"));
    terminal.types("q");
    terminal.assert_restored(0);
    assert!(terminal.screen().contains(&format!("the collector at {url} no longer answers")));
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
    let is_of_one_snapshot = |screen: &str| {
        let is_shown = |snapshot: &&Value| {
            let device = snapshot["devices"][0]["joules"].as_f64().map(digits::energy).expect("joules");
            screen.lines().nth(1).is_some_and(|line| line.contains(&format!(" {device} ")))
        };
        // Two snapshots of almost the same moment can have the same joules of the device.
        let has_rows = |snapshot: &Value| {
            let mut functions: BTreeMap<&str, [f64; 2]> = BTreeMap::new();
            for row in snapshot["region_energy"].as_array().expect("rows") {
                let sums = functions.entry(row["region"].as_str().expect("a name")).or_default();
                for (sum, key) in sums.iter_mut().zip(["dynamic_joules", "joules"]) {
                    *sum += row[key].as_f64().expect("joules");
                }
            }
            let column = |at: usize| {
                let values: Vec<f64> = functions.values().map(|sums| sums[at]).collect();
                digits::column(&values, digits::ESTIMATED)
            };
            let sums = column(0).into_iter().zip(column(1));
            functions.keys().zip(sums).all(|(name, (dynamic, all))| {
                let line = screen.lines().find(|line| line.ends_with(&format!(" {name}")));
                line.is_some_and(|line| line.split_whitespace().take(2).eq([dynamic, all]))
            })
        };
        snapshots.lock().expect("no panic").iter().filter(is_shown).any(has_rows)
    };
    for _ in 0..3 {
        let before = terminal.screen();
        // A screen that is just being drawn has figures of two snapshots.
        terminal.until("other figures, all of one snapshot", |screen| {
            *screen != before && has_row(screen, "large") && is_of_one_snapshot(screen)
        });
    }
    terminal.types("q");
    terminal.assert_restored(0);
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
                screen.lines().position(|line| line.starts_with(" ampere ") && line.contains(" 1 process"));
            first == Some(height - rows) && screen.contains("% █") && screen.contains("\nline ")
        };
        // The busy cores are left out where the line has no room for them, and the base of the shares never is.
        let is_whole = |line: &str| line.contains(" W estimated") && line.contains("; functions: ");
        let has_base = |line: &str| line.ends_with(", of dynamic") || line.ends_with(", of total");
        terminal.until("the whole table, and the command's output", |screen| {
            is_table(screen, size.1.into())
                && screen.lines().map(str::trim_end).any(|line| is_whole(line) && has_base(line))
                && screen.contains("\n now in  Process: ")
        });
        terminal.tmux(&["resize-window", "-x", then, "-y", "40"]);
        terminal.until("the table where the bottom is now", |screen| is_table(screen, 40));
        place.write("go", "");
        terminal.assert_settings_restored(0);
        let left = terminal.screen();
        assert!(!left.contains(" now in ") && left.contains("ampere report out"), "{left}");
    }
}

#[test]
fn a_small_terminal_shows_only_the_commands_output() {
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
    terminal.assert_settings_restored(0);
}

#[test]
fn a_slow_command_shows_its_progress_in_a_line_that_vanishes() {
    if !have(&["tmux"]) {
        return;
    }
    let place = Place::new();
    let terminal = Terminal::open(&place, SIZES[0]);
    let library = ampere_tests::artifact("libstand_in_rocm_smi64.so");
    let counters = format!("AMPERE_COUNTERS=rocm_smi AMPERE_ROCM_SMI_LIBRARY={}", library.display());
    terminal.runs(&format!("{counters} $AMPERE calibrate --period 500ms --duration 8s"));
    terminal
        .until("how far it is", |screen| screen.contains("███  ") && screen.contains(" of 8 s, reading "));
    let shown = terminal.until("its end", |screen| screen.contains("\nstatus "));
    assert!(!shown.contains(" of 8 s, reading "), "{shown}");
}
