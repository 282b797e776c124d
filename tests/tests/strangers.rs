//! Another user on the node, and a program that attacks its measurement: what they can learn, and what they can delay. The other
//! user is a real one if root runs the tests.

use ampere_tests::collector::announced;
use ampere_tests::jobs::{Place, Running, is_root, run, start, until};
use ampere_tests::runs::{compile, json, may_mount, may_sample, text};
use ampere_tests::skip_unless;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The user nobody.
const OTHER_USER: u32 = 65534;
const TOKEN: &str = "a-token-of-this-test-0123456789";

fn as_other(words: &[&str]) -> Command {
    let user = OTHER_USER.to_string();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", &user, "--regid", &user, "--clear-groups", "--"]).args(words);
    command
}

/// Returns the answer that another user gets. That of `/events` continues until the run ends, so it is cut off after 6 s.
fn answer_to_other(address: SocketAddr, path: &str) -> String {
    let limit = if path == "/events" { 6 } else { 60 };
    let script = format!(
        "exec 3<>/dev/tcp/{}/{}; printf 'GET {path} HTTP/1.0\\r\\n\\r\\n' >&3; timeout {limit} cat <&3",
        address.ip(),
        address.port()
    );
    let output = as_other(&["bash", "-c", &script]).output().expect("bash");
    text(&output.stdout)
}

fn private(place: &Place, name: &str, content: &str) -> PathBuf {
    let path = place.write(name, content);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("ours");
    path
}

/// A server that refuses all requests as a collector does, and the requests that it got.
struct Refuses {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Refuses {
    fn start() -> Refuses {
        const REFUSAL: &str = "HTTP/1.1 401 No\r\nWWW-Authenticate: Bearer\r\nWWW-Authenticate: Ampere 5-ab\r\nContent-Length: 0\r\n\r\n";
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let known = asked.clone();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let mut request = vec![0; 1 << 14];
                let length = stream.read(&mut request).unwrap_or(0);
                let request = String::from_utf8_lossy(&request[..length]).into_owned();
                known.lock().expect("a list").push(request);
                let _ = stream.write_all(REFUSAL.as_bytes());
            }
        });
        Refuses { address, asked }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().expect("a list").clone()
    }
}

fn ends(running: Running) -> String {
    let done = running.wait();
    assert_eq!(done.code, 0, "{}", done.stderr);
    done.stderr
}

#[test]
fn without_a_token_other_users_see_only_names_devices_and_joules() {
    skip_unless!(is_root(), "needs root");
    let place = Place::new();
    let mut command =
        place.ampere_run("out", ["sh", "-c", "while test ! -e go; do sleep 0.1; done", "--password=hunter2"]);
    let running = start(command.env("SLURM_JOB_ID", "471147"));
    until("a collector", || announced(&place.path("out")).is_some());
    let address = announced(&place.path("out")).expect("a collector").address();
    let own = |path: &str| ampere_tests::http::get(address, path).expect("an answer").body;
    until("the run is known", || own("/metrics").contains("ampere_device_energy_joules_total{"));
    for path in
        ["/", "/metrics", "/snapshot.json", "/summary.json", "/page.json", "/events", "/nodes", "/node.json"]
    {
        let answer = answer_to_other(address, path);
        assert!(answer.starts_with("HTTP/1.0 "), "{path}: {answer}");
        assert!(!answer.contains("hunter2") && !answer.contains("471147"), "{path}: {answer}");
    }
    assert!(answer_to_other(address, "/summary.json").starts_with("HTTP/1.0 401"));
    assert!(answer_to_other(address, "/metrics").contains("ampere_device_energy_joules_total{"));
    assert!(answer_to_other(address, "/page.json").contains("\"joules\""));
    // The user's own browser, terminal and Prometheus see everything.
    for path in ["/page.json", "/summary.json"] {
        assert!(own(path).contains("hunter2") && own(path).contains("471147"), "{path}");
    }
    assert!(own("/metrics").contains("job_id=\"471147\"") && own("/snapshot.json").contains("471147"));
    place.write("go", "");
    ends(running);
}

#[test]
fn a_token_goes_to_no_address_that_another_user_announces() {
    skip_unless!(is_root(), "needs root");
    let place = Place::new();
    for (directory, mode) in [(place.directory().to_owned(), 0o1777), (place.path("private"), 0o700)] {
        std::fs::create_dir_all(&directory).expect("a directory");
        std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(mode)).expect("ours");
    }
    let token = private(&place, "private/token", &format!("{TOKEN}\n"));
    let server = Refuses::start();
    let json = format!(r#"{{"pid":1,"url":"http://{}","node":"{}","run":"r"}}"#, server.address, node());
    let script = format!(
        "mkdir theirs; echo '{json}' > theirs/collector.json; ln -s {} theirs/collector.token",
        token.display()
    );
    run(as_other(&["sh", "-c", &script]).current_dir(place.directory()));
    let mut said = Vec::new();
    for (command, with_file) in [("report", true), ("report", false), ("top", true), ("top", false)] {
        let mut command = place.ampere([command, "theirs"]);
        if with_file {
            command.env("AMPERE_TOKEN_FILE", &token);
        }
        said.push(run(&mut command));
    }
    let asked = server.asked();
    assert!(asked.len() >= 4, "{asked:?}");
    assert!(asked.iter().all(|request| !request.to_lowercase().contains("authorization")), "{asked:?}");
    for done in said {
        assert!(done.code != 0 && done.stderr.contains("another user's"), "{}", done.stderr);
    }
    // The token itself is never sent, not even to one's own address, which another user may have taken by now.
    std::fs::create_dir(place.path("own")).expect("a directory");
    place.write("own/collector.json", &json);
    run(place.ampere(["report", "own"]).env("AMPERE_TOKEN_FILE", &token));
    let asked = server.asked().split_off(asked.len());
    assert!(asked.iter().any(|request| request.contains("Authorization: Ampere 5-ab ")), "{asked:?}");
    assert!(asked.iter().all(|request| !request.contains(TOKEN)), "{asked:?}");
}

fn node() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[test]
fn a_collector_json_that_is_a_pipe_or_has_no_end_blocks_no_command() {
    let place = Place::new();
    for script in
        ["mkfifo d/collector.json", "ln -s /dev/zero d/collector.json", "truncate -s 1T d/collector.json"]
    {
        let done = run(place.command("sh").args(["-c", &format!("rm -rf d; mkdir d; {script}")]));
        assert_eq!(done.code, 0, "{}", done.stderr);
        for command in ["report", "top"] {
            let done = run(place
                .command("timeout")
                .arg("60")
                .arg(ampere_tests::artifact("ampere"))
                .args([command, "d"]));
            assert!(
                done.code == 1 && done.stderr.lines().count() == 1,
                "{script}: {} {}",
                done.code,
                done.stderr
            );
        }
    }
}

/// What the first node's collector sends to another user, or to a node that is gone and whose port another user has taken.
#[test]
fn the_first_node_gives_nobody_the_token_of_a_run() {
    skip_unless!(is_root(), "needs root");
    let place = Place::new();
    let token = private(&place, "token", &format!("{TOKEN}\n"));
    let mut command = place.ampere_run("out", ["sh", "-c", "while test ! -e go; do sleep 0.1; done"]);
    let running = start(command.env("AMPERE_TOKEN_FILE", &token));
    until("a collector", || announced(&place.path("out")).is_some());
    let manifest = std::fs::read(place.path(format!("out/spool-{}/run.json", node()))).expect("a manifest");
    let mut manifest: serde_json::Value = serde_json::from_slice(&manifest).expect("JSON");
    let plant = |name: &str, manifest: &mut serde_json::Value| {
        let server = Refuses::start();
        let directory = place.path("out").join(name);
        std::fs::create_dir_all(directory.join(format!("spool-{name}"))).expect("a directory");
        manifest["node"] = name.into();
        std::fs::write(directory.join(format!("spool-{name}/run.json")), manifest.to_string()).expect("room");
        let json = serde_json::json!({
            "pid": 1, "url": format!("http://{}", server.address), "node": name, "run": manifest["run_id"],
        });
        std::fs::write(directory.join("collector.json"), json.to_string()).expect("room");
        (server, directory)
    };
    // There are three cases. Another user owns the directory; another user owns only the file; this user owns both, but another
    // user holds the port.
    let (of_other, directory) = plant("planted1", &mut manifest);
    chown(&directory, Some(OTHER_USER), Some(OTHER_USER)).expect("chown");
    let (in_ours, directory) = plant("planted2", &mut manifest);
    chown(directory.join("collector.json"), Some(OTHER_USER), Some(OTHER_USER)).expect("chown");
    let (held, _) = plant("node7", &mut manifest);
    until("the node is asked", || {
        held.asked().iter().filter(|asked| asked.contains("Authorization: Ampere ")).count() > 1
    });
    assert!(held.asked().iter().all(|request| !request.contains(TOKEN)), "{:?}", held.asked());
    let strangers: Vec<String> = of_other.asked().into_iter().chain(in_ours.asked()).collect();
    assert_eq!(strangers, Vec::<String>::new(), "planted before the one that was asked twice");
    place.write("go", "");
    ends(running);
}

/// Holds ten ports, and the abstract socket names by which a lingering collector would be asked to leave.
const HOLDER: &str = r#"
import os, socket, sys, threading, time
accepts, held = sys.argv[1] == "accepts", []
for attempt in range(50):
    first = 20000 + (os.getpid() * 37 + attempt * 101) % 12000 # the kernel chooses higher ones for other programs
    try:
        for port in range(first, first + 10):
            s = socket.socket(); s.bind(("127.0.0.1", port)); s.listen(0); held.append(s)
        break
    except OSError:
        held = []
def take(server):
    while True: held.append(server.accept()[0])
for port in range(first, first + 10):
    s = socket.socket(socket.AF_UNIX); s.bind("\0ampere-0-%d" % port); s.listen(1); held.append(s)
    if accepts:
        threading.Thread(target=take, args=(s,), daemon=True).start()
        continue
    while True:
        c = socket.socket(socket.AF_UNIX); c.setblocking(False)
        try: c.connect("\0ampere-0-%d" % port)
        except BlockingIOError: break
        held.append(c)
print(first, flush=True)
time.sleep(120)
"#;

struct Held(Child);

impl Drop for Held {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn ports_and_names_that_another_user_holds_keep_no_run_waiting() {
    skip_unless!(is_root(), "needs root");
    for manner in ["accepts", "never accepts"] {
        let place = Place::new();
        let mut holder = as_other(&["/usr/bin/python3", "-c", HOLDER, manner]);
        let mut holder = Held(holder.stdout(Stdio::piped()).spawn().expect("python3"));
        let mut first = String::new();
        let mut out = std::io::BufReader::new(holder.0.stdout.take().expect("piped"));
        std::io::BufRead::read_line(&mut out, &mut first).expect("a line");
        let port: u16 = first.trim().parse().expect("a port");
        let mut command = place.ampere_run("out", ["echo", "done"]);
        let done = run(command.env("AMPERE_LISTEN", format!("127.0.0.1:{port}")));
        assert_eq!((done.code, done.stdout.as_str()), (0, "done\n"), "{}", done.stderr);
        assert!(done.took < Duration::from_secs(60), "{manner}: {:?}", done.took);
        let summary = json(&place.path("out/summary.json"));
        let notes = summary["run"]["notes"].to_string();
        assert!(
            notes.contains(&format!("port {port} is in use; metrics are on port {}", port + 10)),
            "{notes}"
        );
    }
}

#[test]
fn listen_off_serves_nothing_and_measures_all_the_same() {
    let place = Place::new();
    for by_option in [true, false] {
        let mut command = place.ampere(["run", "-o", "out"]);
        match by_option {
            true => command.args(["--listen", "off"]),
            false => command.env("AMPERE_LISTEN", "off"),
        };
        let running = start(command.args([
            "--",
            "sh",
            "-c",
            "echo ready > ready; while test ! -e go; do sleep 0.1; done",
        ]));
        until("the command runs", || place.path("ready").exists());
        assert!(!place.path("out/collector.json").exists());
        let collectors = place.collectors();
        assert_eq!(collectors.len(), 1);
        let listens = std::fs::read_to_string("/proc/net/tcp").expect("a list");
        let sockets: Vec<PathBuf> = std::fs::read_dir(format!("/proc/{}/fd", collectors[0]))
            .expect("ours")
            .flatten()
            .filter_map(|entry| std::fs::read_link(entry.path()).ok())
            .collect();
        for line in listens.lines().skip(1) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let socket = PathBuf::from(format!("socket:[{}]", words[9]));
            assert!(words[3] != "0A" || !sockets.contains(&socket), "it listens: {line}");
        }
        place.write("go", "");
        let said = ends(running);
        assert!(said.contains("no live metrics"), "{said}");
        let summary = json(&place.path("out/summary.json"));
        assert!(summary["run"]["total_joules"].as_f64().is_some_and(|joules| joules > 0.0));
        assert!(summary["run"]["notes"].to_string().contains("--listen off"), "{}", summary["run"]["notes"]);
        for name in ["go", "ready"] {
            std::fs::remove_file(place.path(name)).expect("it exists");
        }
        std::fs::remove_dir_all(place.path("out")).expect("ours");
    }
}

/// A program whose code is in no file, and whose directory for perf maps is on a mount whose server never answers.
const DEAD_MOUNT: &str = r#"
    #define _GNU_SOURCE
    #include <fcntl.h>
    #include <sched.h>
    #include <stdio.h>
    #include <string.h>
    #include <sys/mman.h>
    #include <sys/mount.h>
    #include <time.h>
    #include <unistd.h>
    int main(void) {
        char how[99];
        int fuse = open("/dev/fuse", O_RDWR);
        snprintf(how, sizeof how, "fd=%d,rootmode=40000,user_id=0,group_id=0", fuse);
        if (fuse < 0 || unshare(CLONE_NEWNS) || mount("none", "/", 0, MS_REC | MS_PRIVATE, 0)) return 3;
        if (mount("dead", "/tmp", "fuse.dead", 0, how)) return 4;
        int holder = fork(); // it keeps the mount after the end of this program
        if (holder == 0) {
            for (int file = 0; file < 3; file++) close(file);
            sleep(150);
            _exit(0);
        }
        FILE *file = fopen("holder", "w");
        fprintf(file, "%d", holder);
        fclose(file);
        unsigned char code[] = {0xb9, 0, 0, 0, 4, 0xff, 0xc9, 0x75, 0xfc, 0xc3}; // this code counts down in ecx
        void *at = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memcpy(at, code, sizeof code);
        for (time_t end = time(0) + 3; time(0) < end;) ((void (*)(void))at)();
        return 0;
    }
"#;

#[test]
fn a_program_whose_perf_map_is_on_a_dead_mount_is_measured_without_its_names() {
    skip_unless!(
        is_root() && may_mount() && Path::new("/dev/fuse").exists(),
        "needs root, and to be allowed to mount"
    );
    skip_unless!(may_sample(), "perf_event_open is not allowed here");
    let place = Place::new();
    let program = compile(&place, &["gcc", "-O1"], "dead", DEAD_MOUNT);
    let mut command = place.command("timeout");
    command
        .args(["-s", "KILL", "140"])
        .arg(ampere_tests::artifact("ampere"))
        .args(["run", "-o", "out", "--"])
        .arg(&program);
    let done = run(command.env("AMPERE_SAMPLE", "5ms"));
    skip_unless!(done.code != 4, "needs root, and to be allowed to mount");
    let holder = std::fs::read_to_string(place.path("holder")).expect("a pid");
    ampere_tests::jobs::kill(holder.parse().expect("a pid"));
    assert!(done.took < Duration::from_secs(100), "{:?}: it waited for the mount", done.took);
    assert_eq!(done.code, 0, "{}", done.stderr);
    let summary = json(&place.path("out/summary.json"));
    let notes = summary["run"]["notes"].to_string();
    assert!(notes.contains("took more than"), "{notes}");
    assert!(summary["run"]["total_joules"].as_f64().is_some_and(|joules| joules > 0.0));
    place.no_process_left();
}

/// Results of another user are shown on a terminal in each format.
#[test]
fn hostile_results_do_nothing_to_a_terminal() {
    let place = Place::new();
    assert_eq!(run(&mut place.ampere_run("out", ["true"])).code, 0);
    let text = std::fs::read_to_string(place.path("out/summary.json")).expect("a summary");
    let mut summary: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    const HOSTILE: &str = "x\u{1b}]0;title\u{7}\u{1b}[31m\u{9b}2J\u{202e}";
    summary["run"]["end"] = HOSTILE.into();
    summary["run"]["start"] = HOSTILE.into();
    summary["run"]["command"] = serde_json::json!([HOSTILE]);
    summary["run"]["notes"] = serde_json::json!([HOSTILE]);
    for name in summary["names"].as_array_mut().into_iter().flatten() {
        *name = HOSTILE.into();
    }
    std::fs::create_dir(place.path("theirs")).expect("a directory");
    for running in [false, true] {
        summary["run"]["running"] = running.into();
        place.write("theirs/summary.json", &summary.to_string());
        for form in ["table", "csv", "json", "folded", "flamegraph", "html", "scorep-filter"] {
            let words = format!("{} report -f {form} theirs", ampere_tests::artifact("ampere").display());
            let done = run(place.command("script").args(["-qec", &words, "/dev/null"]));
            // The styles of ampere's own lines.
            let styles = ["\u{1b}[1m", "\u{1b}[36m", "\u{1b}[1;31m", "\u{1b}[0m"];
            let shown = styles.iter().fold(done.stdout.clone(), |shown, style| shown.replace(style, ""));
            assert!(!shown.is_empty(), "{form}");
            let left: String = shown
                .chars()
                .filter(|c| c.is_control() && !"\r\n\t".contains(*c) || *c == '\u{202e}')
                .collect();
            assert!(left.is_empty(), "{form}: {left:?} in {shown}");
        }
    }
    // A shell's pattern expands to names of files that anybody may have made.
    for name in ["1", "2"] {
        std::fs::create_dir(place.path(format!("theirs/{HOSTILE}{name}"))).expect("a directory");
    }
    let words = format!("{} report theirs/x*", ampere_tests::artifact("ampere").display());
    let done = run(place.command("script").args(["-qec", &words, "/dev/null"]));
    let left = |c: char| c.is_control() && !"\r\n\t".contains(c) || c == '\u{202e}';
    assert!(done.code == 2 && done.stdout.contains("Usage"), "{done:#?}");
    assert!(!done.stdout.contains(left), "{done:#?}");
    // A file and a pipe get the rows unchanged.
    let rows = run(&mut place.ampere(["report", "-f", "json", "out"])).stdout;
    assert!(rows.contains("\"run\""), "{rows}");
}
