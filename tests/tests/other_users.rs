//! What another user has put into shared places: this user's files are not changed, and the other user's results are shown and
//! not changed. This user is root here, so that only ampere itself can prevent forbidden changes.

use ampere_tests::jobs::{Done, Place, WAITS, files_below, is_root, kill, processes_of, run, start, until};
use ampere_tests::runs::text;
use ampere_tests::skip_unless;
use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The user nobody, and a group to which both users could belong.
const OTHER: u32 = 65534;
const LIMIT: Duration = Duration::from_secs(120);

/// A program that runs until there is a file "go". Its trace takes a while to write.
const BUSY: &str = r#"
    #include <unistd.h>
    __attribute__((noinline)) void tiny(void) { __asm__ volatile(""); }
    __attribute__((noinline)) void step(void) { for (int i = 0; i < 2000; i++) tiny(); usleep(1000); }
    int main(void) {
        for (int i = 0; i < 1000 || access("go", F_OK); i++) step();
        return 7;
    }
"#;

/// As soon as the trace is started, replaces all files that may be written by links to a file of this user.
const LINKS: &str = r#"
    #include <dirent.h>
    #include <stdio.h>
    #include <string.h>
    #include <unistd.h>
    static void put_into(const char *directory, const char *up) {
        const char *names[] = {"0.def", "0.evt", "9223372032559808512.def", "9223372032559808512.evt", "room.tmp"};
        char path[600], target[100];
        snprintf(target, sizeof target, "%sprecious", up);
        for (int n = 0; n < 5; n++) {
            snprintf(path, sizeof path, "%s/%s", directory, names[n]);
            if (symlink(target, path)) continue;
        }
    }
    int main(void) {
        char path[600];
        for (;;) {
            put_into("out/traces", "../../");
            DIR *out = opendir("out");
            for (struct dirent *entry; out && (entry = readdir(out));) {
                if (strncmp(entry->d_name, ".ampere-", 8) && strncmp(entry->d_name, "spool-", 6)) continue;
                snprintf(path, sizeof path, "out/%s", entry->d_name);
                put_into(path, "../../");
                snprintf(path, sizeof path, "out/%s/traces", entry->d_name);
                put_into(path, "../../../");
            }
            if (out) closedir(out);
            int failed = access("out/traces", F_OK) ? 0 : symlink("../precious", "out/traces.def") + symlink("../precious", "out/traces.otf2");
            failed += symlink("../precious", "out/.ampere-summary.json.part") + symlink("../precious", "out/.ampere-report.html.part");
            failed += symlink("../precious", "out/collector.json");
            if (failed > 0) return 1;
        }
    }
"#;

fn place() -> Place {
    let place = Place::new();
    open(place.directory(), 0o755);
    place
}

fn open(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("chmod");
}

fn of_other(path: &Path) {
    give(path, "65534:65534");
}

fn give(path: &Path, owner: &str) {
    assert!(Command::new("chown").args(["-hR", owner]).arg(path).status().expect("chown").success());
}

fn as_other(directory: &Path, script: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "sh", "-c", script]);
    command.current_dir(directory);
    command
}

/// Returns the same command with another umask.
fn with_umask(umask: &str, command: &Command) -> Command {
    let mut with = Command::new("sh");
    with.args(["-c", &format!("umask {umask}; exec \"$@\""), "sh"]).arg(command.get_program());
    with.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => with.env(name, value),
            None => with.env_remove(name),
        };
    }
    if let Some(directory) = command.get_current_dir() {
        with.current_dir(directory);
    }
    with
}

/// A process that ends with the test.
struct Attack(Child);

impl Attack {
    fn start(directory: &Path, script: &str) -> Attack {
        Attack(as_other(directory, script).stderr(Stdio::null()).spawn().expect("setpriv"))
    }
}

impl Drop for Attack {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns all that can be seen of a tree: kind, owner, permissions and contents, by path.
fn state(directory: &Path) -> BTreeMap<PathBuf, (u32, u32, i64, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut to_do = vec![directory.to_owned()];
    while let Some(path) = to_do.pop() {
        let data = path.symlink_metadata().expect("it exists");
        let content = if data.is_file() { std::fs::read(&path).expect("readable") } else { Vec::new() };
        if data.is_dir() {
            to_do.extend(std::fs::read_dir(&path).expect("readable").flatten().map(|entry| entry.path()));
        }
        found.insert(path, (data.mode(), data.uid(), data.mtime_nsec(), content));
    }
    found
}

/// Makes a run in `out` that was killed with its collector. Only its spool is left.
fn killed_run(place: &Place) {
    let program = place.compile("cc", "waits", WAITS, &["-finstrument-functions"]);
    let running = start(&mut place.ampere_run("out", [&program]));
    until("figures of events", || {
        let text = std::fs::read(place.path("out/summary.json")).unwrap_or_default();
        let summary: serde_json::Value = serde_json::from_slice(&text).unwrap_or_default();
        summary["quality"]["events"].as_u64().unwrap_or(0) > 500
    });
    kill(running.pid().as_raw_nonzero().get() as u32);
    until("all are dead", || {
        let left = processes_of(place.directory());
        left.iter().for_each(|(pid, _)| kill(*pid));
        left.is_empty()
    });
    drop(running);
    for session in std::fs::read_dir(place.path("shm")).expect("it exists").flatten() {
        std::fs::remove_dir_all(session.path()).expect("ours");
    }
}

/// Makes a run in a directory of this name, which has ended.
fn whole_run(place: &Place, output: &str) {
    let program = place.compile("cc", "waits", WAITS, &["-finstrument-functions"]);
    place.write("go", "");
    let done = run(&mut place.ampere_run(output, [&program]));
    assert_eq!(done.code, 7, "{done:#?}");
    assert!(place.path(output).join("traces.otf2").exists(), "{done:#?}");
    std::fs::remove_file(place.path("go")).expect("it exists");
}

fn ampere(place: &Place, arguments: &[&str]) -> Done {
    run(&mut place.ampere(arguments))
}

#[test]
fn a_killed_run_of_another_user_is_shown_and_not_changed() {
    skip_unless!(is_root(), "needs root");
    let place = place();
    killed_run(&place);
    let spool = std::fs::read_dir(place.path("out")).expect("it exists").flatten();
    let spool = spool.map(|entry| entry.path()).find(|path| path.to_string_lossy().contains("/spool-"));
    let spool = spool.expect("a spool").to_string_lossy().into_owned();
    of_other(&place.path("out"));
    open(&place.path("out"), 0o777);
    let precious = place.write("precious", "mine");
    for name in ["traces.otf2.part", "report.html.part"] {
        symlink(&precious, place.path("out").join(name)).expect("a link");
    }
    let before = state(&place.path("out"));
    for arguments in [
        &["report", "out"][..],
        &["report", "-f", "json", "out"],
        &["report", "-f", "chrome", "out"],
        &["recover", "out"],
        &["recover", "--discard", "out"],
        &["recover", &spool],
        &["recover"],
        &["compare", "out", "out"],
        &["top", "out"],
        &["attribute", "out/traces.otf2"],
    ] {
        let done = ampere(&place, arguments);
        done.no_panic();
        assert_eq!(state(&place.path("out")), before, "{arguments:?}: {done:#?}");
        if ["report", "compare", "top"].contains(&arguments[0]) || arguments.len() == 3 {
            assert!(done.stderr.contains("belongs to nobody"), "{arguments:?}: {done:#?}");
        }
    }
    // The figures of the run are shown.
    let shown = ampere(&place, &["report", "out"]);
    assert!(shown.code == 0 && shown.stdout.contains(" J"), "{shown:#?}");
    assert_eq!(std::fs::read_to_string(&precious).expect("it exists"), "mine");
}

#[test]
fn a_plan_in_another_users_directory_is_not_carried_out() {
    skip_unless!(is_root(), "needs root");
    let place = place();
    whole_run(&place, "mine");
    let copied = Command::new("cp").arg("-r").arg(place.path("mine")).arg(place.path("theirs")).status();
    assert!(copied.expect("cp").success());
    let definitions = place.path("theirs/traces.def").symlink_metadata().expect("it exists");
    let plan = |node: &str| {
        serde_json::json!({
            "made_from": {
                "inode": definitions.ino(), "bytes": definitions.len(),
                "changed": [definitions.mtime(), definitions.mtime_nsec()],
            },
            "nodes": [{ "node": node, "locations": [[0, 0]] }],
        })
    };
    std::fs::create_dir(place.path("theirs/.ampere-joined")).expect("a directory");
    symlink(place.path("mine"), place.path("theirs/n2")).expect("a link");
    std::fs::write(place.path("theirs/.ampere-joined/plan.json"), plan("n2").to_string()).expect("a file");
    std::fs::write(place.path("theirs/.ampere-joined/traces.def"), "x").expect("a file");
    of_other(&place.path("theirs"));
    let before = (state(&place.path("mine")), state(&place.path("theirs")));
    for arguments in [&["report", "theirs"][..], &["compare", "theirs", "mine"], &["recover", "theirs"]] {
        let done = ampere(&place, arguments);
        assert_eq!(
            (state(&place.path("mine")), state(&place.path("theirs"))),
            before,
            "{arguments:?}: {done:#?}"
        );
    }
    // A plan is not trusted either if others could have written it, or if it points outside the run directory.
    give(&place.path("theirs"), "0:0");
    std::fs::write(place.path("theirs/.ampere-joined/plan.json"), plan("../mine").to_string())
        .expect("a file");
    open(&place.path("theirs/.ampere-joined"), 0o777);
    ampere(&place, &["report", "theirs"]);
    assert!(place.path("theirs/.ampere-joined/plan.json").exists());
    open(&place.path("theirs/.ampere-joined"), 0o755);
    ampere(&place, &["report", "theirs"]);
    assert_eq!(state(&place.path("mine")), before.0);
}

#[test]
fn links_in_a_directory_that_the_group_may_write_into_lead_nowhere() {
    skip_unless!(is_root(), "needs root");
    for _ in 0..3 {
        let place = place();
        let precious = place.write("precious", "mine");
        let program = place.compile("cc", "busy", BUSY, &["-finstrument-functions"]);
        std::fs::create_dir(place.path("out")).expect("a directory");
        chown(place.path("out"), None, Some(OTHER)).expect("chown");
        open(&place.path("out"), 0o2775);
        let links = place.compile("cc", "links", LINKS, &[]);
        let attack = Attack::start(place.directory(), &format!("exec {}", links.display()));
        let running = start(&mut with_umask("002", &place.ampere_run("out", [&program])));
        until("it runs", || place.path("out/summary.json").symlink_metadata().is_ok_and(|f| f.is_file()));
        place.write("go", "");
        let done = running.wait();
        drop(attack);
        assert_eq!(std::fs::read_to_string(&precious).expect("it exists"), "mine", "{done:#?}");
        assert_eq!(done.code, 7, "{done:#?}");
        done.no_panic();
    }
}

#[test]
fn directories_for_results_are_open_to_the_group_only_where_that_is_set() {
    skip_unless!(is_root(), "needs root");
    let place = place();
    std::fs::create_dir(place.path("project")).expect("a directory");
    chown(place.path("project"), None, Some(OTHER)).expect("chown");
    open(&place.path("project"), 0o2775);
    let mode_of = |output: &str, setting: &[(&str, &str)]| {
        let done = run(with_umask("000", &place.ampere_run(output, ["true"])).envs(setting.iter().copied()));
        assert_eq!(done.code, 0, "{done:#?}");
        let found = place.path(output).symlink_metadata();
        found.unwrap_or_else(|_| panic!("no {output}: {done:#?}")).mode() & 0o777
    };
    assert_eq!(mode_of("project/a/b", &[]), 0o755);
    assert_eq!(place.path("project/a").metadata().expect("it exists").mode() & 0o777, 0o755);
    assert_eq!(mode_of("project/c", &[("AMPERE_GROUP_WRITABLE", "1")]), 0o775);
}

#[test]
fn a_umask_that_takes_everything_from_the_user_does_not_affect_later_runs() {
    let place = Place::new();
    run(&mut with_umask("777", &place.ampere_run("out", ["true"])));
    let entries =
        std::fs::read_dir(place.path("shm")).expect("a directory").map(|entry| entry.expect("an entry"));
    let modes: Vec<u32> = entries.map(|entry| entry.metadata().expect("it exists").mode() & 0o7777).collect();
    assert_eq!(modes, [0o700]);
}

#[test]
fn results_go_to_the_directory_that_was_claimed_and_not_to_what_is_put_in_its_place() {
    skip_unless!(is_root(), "needs root");
    for exchange in ["ln -s ../other out", "mv other out", "mkdir -m 777 out"] {
        let place = place();
        let project = place.path("project");
        std::fs::create_dir(&project).expect("a directory");
        whole_run(&place, "project/other");
        std::fs::rename(project.join("other"), place.path("other")).expect("renamed");
        if exchange.starts_with("mv") {
            std::fs::rename(place.path("other"), project.join("other")).expect("renamed");
        }
        let program = place.path("waits");
        chown(&project, None, Some(OTHER)).expect("chown");
        open(&project, 0o775);
        let running = start(&mut place.ampere_run("project/out", [&program]));
        until("it runs", || project.join("out/summary.json").exists());
        let other = if exchange.starts_with("mv") { project.join("other") } else { place.path("other") };
        let before: Vec<_> = state(&other).into_values().collect();
        let done = as_other(&project, &format!("mv out moved; {exchange}")).status().expect("setpriv");
        assert!(done.success());
        place.write("go", "");
        let done = running.wait();
        done.no_panic();
        assert_eq!(done.code, 7, "{done:#?}");
        let now = if exchange.starts_with("mv") { project.join("out") } else { place.path("other") };
        let after: Vec<_> = state(&now).into_values().collect();
        assert_eq!(after.len(), before.len(), "{exchange}: {:?}\n{done:#?}", state(&now).keys());
        assert!(after == before, "{exchange}: {done:#?}");
    }
}

#[test]
fn what_is_put_in_the_place_of_the_records_is_not_removed_with_them() {
    skip_unless!(is_root(), "needs root");
    let place = place();
    let program = place.compile("cc", "waits", WAITS, &["-finstrument-functions"]);
    std::fs::create_dir(place.path("out")).expect("a directory");
    chown(place.path("out"), None, Some(OTHER)).expect("chown");
    open(&place.path("out"), 0o775);
    let running = start(&mut place.ampere_run("out", [&program]));
    until("it runs", || place.path("out/summary.json").exists());
    std::fs::create_dir(place.path("out/other")).expect("a directory");
    std::fs::write(place.path("out/other/precious"), "mine").expect("a file");
    let script = "s=$(echo spool-*); mv $s moved && mv other $s";
    assert!(as_other(&place.path("out"), script).status().expect("setpriv").success());
    place.write("go", "");
    let done = running.wait();
    assert_eq!(done.code, 7, "{done:#?}");
    done.no_panic();
    let precious = files_below(&place.path("out")).into_iter().find(|path| path.ends_with("precious"));
    assert_eq!(std::fs::read_to_string(precious.expect("it exists")).expect("readable"), "mine");
}

#[test]
fn a_directory_is_not_removed_for_having_the_name_of_what_a_killed_process_left() {
    skip_unless!(is_root(), "needs root");
    let own = ampere_ring::process::own_name();
    let namespace = own.split_once('.').expect("a pid and its namespace").1;
    let gone = format!("999999999.{namespace}");
    let node = ampere_ring::process::node_name();
    for (mode, is_kept) in [(0o2775, true), (0o755, false)] {
        for name in [format!(".spool-{node}.{gone}"), format!(".ampere-trace-{gone}")] {
            let place = place();
            std::fs::create_dir_all(place.path("out/thesis/chapter")).expect("a directory");
            let before = place.write("out/thesis/chapter/text", "mine");
            chown(place.path("out"), None, Some(OTHER)).expect("chown");
            open(&place.path("out"), 0o2775);
            let moved = as_other(&place.path("out"), &format!("mv thesis {name}")).status().expect("setpriv");
            assert!(moved.success() && !before.exists());
            open(&place.path("out"), mode);
            let done = run(&mut place.ampere_run("out", ["true"]));
            assert!(place.path("out/traces.otf2").exists(), "{done:#?}");
            let path = place.path("out").join(&name);
            assert_eq!(path.join("chapter/text").exists(), is_kept, "{mode:o} {name}: {done:#?}");
        }
    }
}

#[test]
fn reports_are_not_written_through_links_of_another_user() {
    skip_unless!(is_root(), "needs root");
    let place = place();
    whole_run(&place, "out");
    for name in ["private", "theirs"] {
        std::fs::create_dir(place.path(name)).expect("a directory");
    }
    let private = place.write("private/notes", "mine");
    symlink(&private, place.path("theirs/page")).expect("a link");
    symlink(place.path("private"), place.path("theirs/link")).expect("a link");
    symlink(place.path("theirs/page"), place.path("mine")).expect("a link");
    of_other(&place.path("theirs"));
    let before = state(&place.path("private"));
    for (form, output) in [
        ("html", "theirs/page"),
        ("html", "theirs/link/notes"),
        ("html", "mine"),
        ("chrome", "theirs/page"),
        ("parquet", "theirs/link/notes"),
        ("sqlite", "theirs/link/notes"),
    ] {
        let done = ampere(&place, &["report", "-f", form, "-o", output, "out"]);
        assert_eq!(state(&place.path("private")), before, "{form} {output}: {done:#?}");
        let is_refused = done.code == 1 && done.stderr.contains("link of another user");
        assert!(is_refused, "{form} {output}: {done:#?}");
    }
    // Now the directory and its links belong to this user, and the links are followed.
    give(&place.path("theirs"), "0:0");
    for output in ["theirs/page", "theirs/link/new"] {
        let done = ampere(&place, &["report", "-f", "html", "-o", output, "out"]);
        assert_eq!(done.code, 0, "{output}: {done:#?}");
    }
    assert!(std::fs::read_to_string(&private).expect("it exists").contains("<html"));
    assert!(place.path("private/new").exists());
}

/// SQLite opens files by path and follows links. Both users are ordinary ones here, because root could remove the links.
#[test]
fn a_database_is_not_written_through_links_of_another_user() {
    skip_unless!(is_root(), "needs root");
    let place = place();
    whole_run(&place, "out");
    let program = place.path("ampere");
    std::fs::copy(ampere_tests::artifact("ampere"), &program).expect("a copy");
    for (directory, mode) in [("shared", 0o1777), ("home", 0o755)] {
        std::fs::create_dir(place.path(directory)).expect("a directory");
        open(&place.path(directory), mode);
    }
    let names = ["part", "joules", "waiting"].map(|end| format!(".ampere-x.db.{end}"));
    for name in &names {
        let private = place.write(&format!("home/{name}"), "");
        symlink(&private, place.path("shared").join(name)).expect("a link");
    }
    of_other(&place.path("shared"));
    give(&place.path("home"), "65533:65533");
    let before = state(&place.path("home"));
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65533", "--regid", "65533", "--clear-groups"]).arg(&program);
    command.args(["report", "-f", "sqlite", "-o", "shared/x.db", "out"]).current_dir(place.directory());
    let done = run(&mut command);
    assert_eq!(state(&place.path("home")), before, "{done:#?}");
    assert_eq!(done.code, 0, "{done:#?}");
    assert!(std::fs::read(place.path("shared/x.db")).expect("a database").starts_with(b"SQLite format 3"));
    let left = std::fs::read_dir(place.path("shared")).expect("it exists").count();
    assert_eq!(left, names.len() + 1, "{done:#?}");
}

#[test]
fn shared_memory_that_others_may_rename_in_is_refused() {
    skip_unless!(is_root(), "needs root");
    for (owner, group, mode) in
        [(0, OTHER, 0o775), (0, OTHER, 0o2770), (OTHER, OTHER, 0o755), (OTHER, OTHER, 0o1777)]
    {
        let place = place();
        chown(place.path("shm"), Some(owner), Some(group)).expect("chown");
        open(&place.path("shm"), mode);
        let done = run(&mut place.ampere_run("out", ["echo", "done"]));
        assert_eq!((done.code, done.stdout.as_str()), (0, "done\n"), "{done:#?}");
        done.said_once(&["AMPERE_SHM to a directory of your own", "without being measured"]);
        assert_eq!(std::fs::read_dir(place.path("shm")).expect("it exists").count(), 0, "{done:#?}");
    }
}

#[test]
fn results_do_not_go_through_a_link_of_another_user() {
    skip_unless!(is_root(), "needs root");
    for output in ["theirs/link", "theirs/link/out", "theirs/link/../private/out"] {
        let place = place();
        std::fs::create_dir(place.path("private")).expect("a directory");
        std::fs::create_dir(place.path("theirs")).expect("a directory");
        symlink(place.path("private"), place.path("theirs/link")).expect("a link");
        of_other(&place.path("theirs"));
        let done = run(&mut place.ampere_run(output, ["echo", "done"]));
        assert_eq!((done.code, done.stdout.as_str()), (0, "done\n"), "{done:#?}");
        assert!(done.stderr.contains("through a link of another user (nobody)"), "{output}: {done:#?}");
        assert_eq!(files_below(&place.path("private")), Vec::<PathBuf>::new(), "{output}: {done:#?}");
        // A link of one's own is followed.
        give(&place.path("theirs"), "0:0");
        let done = run(&mut place.ampere_run(output, ["echo", "done"]));
        assert!(place.path(output).join("summary.json").exists(), "{output}: {done:#?}");
    }
}

#[test]
fn pipes_and_files_without_end_are_not_waited_for() {
    skip_unless!(is_root(), "needs root");
    let pipe = |path: &Path| assert!(Command::new("mkfifo").arg(path).status().expect("mkfifo").success());
    let endless = |path: &Path| symlink("/dev/zero", path).expect("a link");
    let huge = |path: &Path| {
        std::fs::File::create(path).and_then(|file| file.set_len(1 << 40)).expect("a sparse file");
    };
    type Make<'a> = &'a dyn Fn(&Path);
    let kinds: [(&str, Make); 3] = [("pipe", &pipe), ("endless", &endless), ("huge", &huge)];
    for (kind, make) in kinds {
        for name in ["summary.json", "collector.json", "spool-n/run.json", ".ampere-joined/plan.json"] {
            let place = place();
            let path = place.path("out").join(name);
            std::fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
            make(&path);
            of_other(&place.path("out"));
            for owner in ["65534:65534", "0:0"] {
                give(&place.path("out"), owner);
                for arguments in [&["report", "out"][..], &["recover", "out"], &["compare", "out", "out"]] {
                    let mut command = place.ampere(arguments);
                    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
                    let mut child = command.spawn().expect("it starts");
                    let begun = std::time::Instant::now();
                    let status = loop {
                        match child.try_wait().expect("a child") {
                            Some(status) => break status,
                            None if begun.elapsed() > LIMIT => {
                                let _ = child.kill();
                                panic!("{arguments:?} waits for a {kind} {name} of {owner}");
                            }
                            None => std::thread::sleep(Duration::from_millis(5)),
                        }
                    };
                    let mut said = Vec::new();
                    use std::io::Read;
                    child.stderr.take().expect("a pipe").read_to_end(&mut said).expect("readable");
                    let said = text(&said);
                    assert!(
                        !status.success() || name.contains("plan"),
                        "{arguments:?} {kind} {name}: {said}"
                    );
                    assert!(!said.contains("panicked"), "{said}");
                }
            }
        }
    }
    for name in ["traces.def", "traces/0.def", "traces/0.evt"] {
        let place = place();
        whole_run(&place, "out");
        let path = place.path("out").join(name);
        std::fs::remove_file(&path).expect("it is there");
        pipe(&path);
        of_other(&place.path("out"));
        for arguments in [&["attribute", "out"][..], &["report", "out", "-f", "chrome"], &["replay", "out"]] {
            let done = run(&mut place.ampere(arguments));
            assert_eq!(done.code, 1, "{done:#?}");
            done.said_once(&[name, "not a regular file"]);
        }
    }
}
