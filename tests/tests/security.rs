//! Who can read what, and what the names in an application can cause, in whole runs.

use ampere_tests::collector::announced;
use ampere_tests::jobs::{Place, is_root};
use ampere_tests::process::{Running, wait_for};
use ampere_tests::runs::{compile, json, list, on_path, succeed, text};
use ampere_tests::{artifact, skip_unless};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);
/// The user nobody.
const OTHER_USER: &str = "65534";
const TOKEN: &str = "a-token-of-this-test-0123456789";

fn token_file(place: &Place) -> PathBuf {
    let path = place.path("token");
    std::fs::write(&path, format!("{TOKEN}\n")).expect("room");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("ours");
    path
}

fn mode(path: &Path) -> u32 {
    path.symlink_metadata().expect("it exists").permissions().mode() & 0o7777
}

fn below(directory: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            all.extend(below(&path));
        }
        all.push(path);
    }
    all
}

fn ask(socket: &Path, path: &str, more: &str) -> String {
    let mut stream = UnixStream::connect(socket).expect("a socket");
    stream.set_read_timeout(Some(LIMIT)).expect("a limit");
    write!(stream, "GET {path} HTTP/1.0\r\n{more}\r\n").expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

/// On a shared node, the socket belongs to the user alone, and a token is required as well.
#[test]
fn a_run_with_socket_and_token_is_closed_to_other_users() {
    let place = Place::new();
    let (socket, log) = (place.path("m.sock"), place.path("log"));
    let mut command = place.ampere_run("out", ["sh", "-c", "while test ! -e go; do sleep 0.1; done"]);
    command
        .env("AMPERE_LISTEN", format!("unix:{}", socket.display()))
        .env("AMPERE_TOKEN_FILE", token_file(&place));
    let mut run = Running::start(command.stderr(std::fs::File::create(&log).expect("a log")));
    let collector = wait_for("a collector", LIMIT, || announced(&place.path("out")));
    assert_eq!(collector.url, format!("unix:{}", socket.display()));
    assert_eq!(mode(&socket), 0o600);
    assert_eq!(mode(&place.path("out").join("collector.json")), 0o600);

    assert!(ask(&socket, "/metrics", "").starts_with("HTTP/1.0 401"));
    assert!(
        ask(&socket, "/metrics", "Authorization: Bearer another-token-altogether\r\n")
            .starts_with("HTTP/1.0 401")
    );
    let answer = wait_for("metrics", LIMIT, || {
        let answer = ask(&socket, "/metrics", &format!("Authorization: Bearer {TOKEN}\r\n"));
        answer.contains("ampere_device_energy_joules_total{").then_some(answer)
    });
    assert!(answer.starts_with("HTTP/1.0 200"), "{answer}");

    // Only the user can read what is in shared memory and in the spool.
    let base = wait_for("session", LIMIT, || {
        let bases = std::fs::read_dir(place.path("shm")).ok()?.flatten().map(|entry| entry.path());
        bases.into_iter().find(|path| path.join("..").is_dir() && is_base(path))
    });
    let spools =
        below(&place.path("out")).into_iter().filter(|path| path.to_string_lossy().contains("/spool-"));
    let private: Vec<PathBuf> = below(&base).into_iter().chain([base]).chain(spools).collect();
    assert!(private.len() > 5, "{private:?}");
    // A file that is replaced in the meantime is no longer there under its first name.
    for (path, found) in private.iter().filter_map(|path| Some((path, path.symlink_metadata().ok()?))) {
        let wanted = if found.is_dir() { 0o700 } else { 0o600 };
        let mode = found.permissions().mode() & 0o7777;
        assert_eq!(mode, wanted, "{} is {mode:o}", path.display());
    }
    wait_for("line of figures", LIMIT, || {
        std::fs::read_to_string(&log).ok().filter(|said| said.contains(" s  node "))
    });
    place.write("go", "");
    assert!(run.wait(LIMIT).is_some_and(|status| status.success()));
    let said = std::fs::read_to_string(&log).expect("a log");
    assert!(said.contains(&format!("live metrics at unix:{}", socket.display())), "{said}");
    assert!(said.contains(" s  node "), "our own `ampere top` passes both: {said}");
    assert!(!said.contains(TOKEN), "{said}");
    // Because it was asked for metrics before, the collector serves the final figures for a while.
    place.assert_clean();
    assert!(!socket.exists());
}

fn is_base(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    name.strip_prefix("ampere-").is_some_and(|uid| uid.parse::<u32>().is_ok())
}

#[test]
fn a_token_file_that_others_can_read_is_refused_before_anything_starts() {
    let place = Place::new();
    let (file, marker) = (token_file(&place), place.path("ran"));
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).expect("ours");
    let marker = marker.to_string_lossy().into_owned();
    let output = place
        .ampere_run("out", ["touch", &marker])
        .env("AMPERE_TOKEN_FILE", &file)
        .output()
        .expect("it runs");
    let said = text(&output.stderr);
    assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}");
    assert!(said.contains("is accessible to other users: use chmod 600"), "{said}");
    assert!(!Path::new(&marker).exists());
}

/// Permits every user to write into this directory.
fn open_to_all(directory: &Path, mode: u32) {
    std::fs::set_permissions(directory, std::fs::Permissions::from_mode(mode)).expect("ours");
}

/// Another user has made our directory before us: it is not used.
#[test]
fn directories_of_other_users_are_not_used() {
    skip_unless!(is_root(), "needs root");
    let as_other = |directory: &Path, script: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", OTHER_USER, "--regid", OTHER_USER, "--clear-groups", "sh", "-c", script]);
        succeed(command.current_dir(directory));
    };
    let before: [(&str, &str); 4] = [
        ("mkdir -m 700 ampere-0", "belongs to another user"),
        ("mkdir -m 777 ampere-0; mkdir -m 777 ampere-0/s-x", "belongs to another user"),
        ("mkdir d; ln -s d ampere-0", "is not a directory"),
        ("mkfifo -m 666 ampere-0", "is not a directory"),
    ];
    for (script, why) in before {
        let place = Place::new();
        let shared = place.path("shm");
        open_to_all(place.directory(), 0o1777);
        open_to_all(&shared, 0o1777);
        as_other(&shared, script);
        let output = place.ampere_run("out", ["echo", "done"]).output().expect("it runs");
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(0), "done\n"), "{said}");
        assert!(said.contains(why) && said.contains("without being measured"), "{script}: {said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        let touched = below(&shared)
            .into_iter()
            .filter(|path| path.symlink_metadata().is_ok_and(|found| found.uid() == 0));
        assert_eq!(touched.collect::<Vec<_>>(), Vec::<PathBuf>::new(), "{script}");
    }
    // If everybody may rename files in a directory, nothing in it is safe.
    let place = Place::new();
    open_to_all(&place.path("shm"), 0o777);
    let output = place.ampere_run("out", ["echo", "done"]).output().expect("it runs");
    assert!(text(&output.stderr).contains("not sticky"), "{}", text(&output.stderr));

    // The same holds for the output directory, whose owner can replace files by links.
    let place = Place::new();
    open_to_all(place.directory(), 0o1777);
    let as_other = |place: &Place, script: &str| as_other(place.directory(), script);
    as_other(&place, "mkdir -m 777 out; touch precious; ln -s ../precious out/traces.def");
    let output = place.ampere_run("out", ["echo", "done"]).output().expect("it runs");
    assert!(
        text(&output.stderr).contains("out holds the results of another run: these results are written to"),
        "{}",
        text(&output.stderr)
    );
    as_other(&place, "rm out/traces.def");
    let output = place.ampere_run("out", ["echo", "done"]).output().expect("it runs");
    assert!(text(&output.stderr).contains("belongs to another user (nobody)"), "{}", text(&output.stderr));
}

/// Markup, lines of metrics and commands for a terminal have no effect in a function's name.
#[test]
fn a_function_whose_name_is_markup_or_a_control_sequence_is_shown_harmlessly() {
    skip_unless!(on_path("clang"), "no clang, whose functions can have any name");
    let place = Place::new();
    let source = r#"
        #include <time.h>
        #include <unistd.h>
        void odd(void) __asm__("<script>\"\n{}\033[31m\033]0;title\007\\");
        void odd(void) {
            struct timespec begin, now;
            clock_gettime(CLOCK_MONOTONIC, &begin);
            do clock_gettime(CLOCK_MONOTONIC, &now);
            while (now.tv_sec - begin.tv_sec + 1e-9 * (now.tv_nsec - begin.tv_nsec) < 0.1);
        }
        int main(void) { for (int i = 0; i < 60 || access("go", F_OK); i++) odd(); return 0; }
    "#;
    let name = "<script>\"\n{}\x1b[31m\x1b]0;title\x07\\";
    let program = compile(&place, &["clang", "-O1", "-finstrument-functions", "-rdynamic"], "odd", source);
    let log = place.path("log");
    let mut command = place.ampere_run("out", [&program]);
    command.stdin(Stdio::null()).stderr(std::fs::File::create(&log).expect("a log"));
    let mut run = Running::start(&mut command);
    let escaped = r#"region="<script>\"\n{}"#;
    let metrics = wait_for("metrics with the name", LIMIT, || {
        let address = announced(&place.path("out"))?.address();
        let body = ampere_tests::http::get(address, "/metrics").ok()?.body;
        body.contains("<script>").then_some(body)
    });
    place.write("go", "");
    assert!(metrics.contains(escaped), "{metrics}");
    assert!(metrics.ends_with("# EOF\n") && metrics.matches("# EOF").count() == 1);
    let parsed = ampere_tests::openmetrics::parse(&metrics).expect("valid metrics");
    assert!(!parsed.is_empty());
    assert!(run.wait(LIMIT).is_some_and(|status| status.success()));

    let summary = json(&place.path("out/summary.json"));
    let regions = list(&list(&list(&summary, "devices")[0], "views")[0], "regions");
    assert!(regions.iter().any(|row| row["region"] == name), "JSON has it as it is: {regions:?}");
    let trace = otf2::Trace::open(&place.path("out/traces.otf2")).expect("a trace");
    assert!(
        trace.definitions().regions.iter().any(|(_, region)| region.name == name),
        "and so has the trace"
    );
    // In output for people and their terminals, such characters are replaced by visible marks.
    let said = std::fs::read_to_string(&log).expect("a log");
    let table = std::fs::read_to_string(place.path("out/summary.txt")).expect("a table");
    let attributed =
        succeed(Command::new(artifact("ampere")).arg("attribute").arg(place.path("out/traces.otf2")));
    for shown in [said, table, text(&attributed.stdout)] {
        let control: Vec<char> = shown.chars().filter(|c| c.is_control() && *c != '\n').collect();
        assert_eq!(control, Vec::<char>::new(), "{shown:?}");
        assert!(shown.contains("<script>\"\u{fffd}{}\u{fffd}[31m"), "{shown}");
    }
}
