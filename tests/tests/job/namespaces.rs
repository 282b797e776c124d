//! Eight real collectors, each on a node of its own: a network namespace with an address, a name, and a shared memory of its own.

use super::*;
use ampere_tests::jobs::is_root;
use ampere_tests::jobs::{Running, have, kill, preloaded, run, start};
use ampere_tests::process::program as installed;
use ampere_tests::prometheus::Prometheus;
use ampere_tests::terminal::Terminal;
use ampere_tests::{artifact, openmetrics};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::sync::atomic::{AtomicU8, Ordering};

const NODES: usize = 8;
const WHY: &str = "no namespaces can be made here";

/// Nodes on a network of their own, which this machine can reach.
struct Network {
    /// The name is different for each test that runs.
    name: String,
    /// The third byte of its addresses.
    third: u32,
}

fn ip(arguments: &str) -> bool {
    Command::new("ip").args(arguments.split(' ')).output().is_ok_and(|done| done.status.success())
}

impl Network {
    /// `None` if the user may not make namespaces.
    fn new() -> Option<Network> {
        static NETWORKS: AtomicU8 = AtomicU8::new(0);
        let (process, number) = (std::process::id(), NETWORKS.fetch_add(1, Ordering::Relaxed));
        let letter = char::from(b'a' + number);
        let third = (2 * process + u32::from(number)) % 250;
        let network = Network { name: format!("am{process}{letter}"), third };
        let bridge = &network.name;
        let mut made = ip(&format!("link add {bridge} type bridge"))
            && ip(&format!("addr add 10.213.{third}.254/24 dev {bridge}"))
            && ip(&format!("link set {bridge} up"));
        for node in 0..NODES {
            let (space, cable) = (network.space(node), format!("{bridge}v{node}"));
            let address = network.address(node);
            made = made
                && ip(&format!("netns add {space}"))
                && ip(&format!("link add {cable} type veth peer name eth0 netns {space}"))
                && ip(&format!("link set {cable} master {bridge} up"))
                && ip(&format!("-n {space} addr add {address}/24 dev eth0"))
                && ip(&format!("-n {space} link set eth0 up"))
                && ip(&format!("-n {space} link set lo up"));
        }
        made.then_some(network)
    }

    fn space(&self, node: usize) -> String {
        format!("{}n{node}", self.name)
    }

    fn address(&self, node: usize) -> String {
        format!("10.213.{}.{}", self.third, node + 1)
    }

    /// Ends all processes on a node, as when the node fails.
    fn dies(&self, node: usize) {
        let all = Command::new("ip").args(["netns", "pids", &self.space(node)]).output().expect("ip");
        for pid in String::from_utf8_lossy(&all.stdout).split_ascii_whitespace() {
            kill(pid.parse().expect("a pid"));
        }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for node in 0..NODES {
            ip(&format!("netns del {}", self.space(node)));
        }
        ip(&format!("link del {}", self.name));
    }
}

/// Returns the program on a node, as a rank of the job.
fn command(place: &Place, network: &Network, at: usize, until: &str) -> Command {
    let inner = format!("exec '{}' '{}'", place.path("work").display(), place.path(until).display());
    let script = place.write(&format!("on-{at}"), &inner);
    let as_node = place.on_another_node(&format!("n{at}"), &format!("sh '{}'", script.display()));
    let mut command = place.command("ip");
    command.args(["netns", "exec", &network.space(at), "sh", "-c", &as_node]);
    command.env_remove("AMPERE_LISTEN").env("AMPERE_SESSION", "job").env("AMPERE_OUTPUT", place.path("out"));
    command.env("LD_PRELOAD", preloaded()).env("OMPI_COMM_WORLD_RANK", at.to_string());
    command.env("OMPI_COMM_WORLD_SIZE", NODES.to_string());
    command
}

/// Starts the program on all nodes: on the first one until there is the file `first`, on the others until there is `go`.
fn start_nodes(place: &Place, network: &Network, first: &str) -> Vec<Running> {
    program(place);
    let mut running = vec![start(&mut command(place, network, 0, first))];
    address_of_first(place);
    running.extend((1..NODES).map(|at| start(&mut command(place, network, at, "go"))));
    running
}

#[test]
fn eight_nodes_are_one_job_at_the_first_ones_collector() {
    if !have(&["ip", "unshare"]) {
        return;
    }
    let network = if is_root() { Network::new() } else { None };
    ampere_tests::skip_unless!(network.is_some(), WHY);
    let network = network.expect("it is some");
    let place = Place::new();
    let running = start_nodes(&place, &network, "end");
    // The file with the run's token is all that a user needs elsewhere.
    let file = place.path("out/collector.token");
    until("there is a token", || file.exists());
    assert_eq!(file.metadata().expect("a token").permissions().mode() & 0o777, 0o600);
    let address: SocketAddr = format!("{}:9977", network.address(0)).parse().expect("an address");
    until("the first node listens on the network", || http::get(address, "/").is_ok());
    let token = std::fs::read_to_string(&file).expect("a token").trim().to_owned();
    let wrong = token.replace(|c: char| c.is_ascii_digit(), "x");
    for (method, path, token, status) in [
        ("GET", "/nodes", None, 401),
        ("GET", "/metrics", Some(wrong.as_str()), 401),
        ("GET", "/node.json", None, 401),
        ("GET", "/", None, 200),
        ("GET", "/other", Some(token.as_str()), 404),
        ("POST", "/nodes", Some(token.as_str()), 405),
    ] {
        let answer = http::ask(address, method, path, token).expect("an answer");
        assert_eq!(answer.status, status, "{method} {path}");
    }
    let token = Some(token.as_str());
    let is_running = |job: &Value| {
        (0..NODES).all(|at| {
            let node = format!("n{at}");
            state(job, &node) == "running" && super::node(job, &node)["watts"].is_f64()
        })
    };
    let all = job_when(address, token, "all nodes run", is_running);
    assert_eq!((&all["here"], &all["run"]), (&"n0".into(), &"job".into()));
    job_when(address, token, "all ranks have joules", |job| {
        job["ranks"].as_array().is_some_and(|all| all.len() == NODES)
    });
    // The sums are those of the nodes, and no more than what the nodes themselves report a moment later.
    let metrics = http::ask(address, "GET", "/metrics", token).expect("metrics").body;
    let metrics = openmetrics::parse(&metrics).expect("OpenMetrics");
    let sum = |name: &str| -> f64 { metrics.iter().filter(|s| s.name == name).map(|s| s.value).sum() };
    let whole = sum("ampere_job_energy_joules_total");
    assert!((sum("ampere_job_node_energy_joules_total") - whole).abs() < 1e-6 && whole > 0.0);
    let parts = ["ampere_job_region_energy_joules_total", "ampere_job_idle_energy_joules_total"].map(sum);
    assert!(parts[0] > 0.0 && parts.iter().sum::<f64>() <= whole + 1e-3, "{parts:?} {whole}");
    assert_eq!(sum("ampere_job_nodes"), NODES as f64);
    let mut of_nodes = 0.0;
    for at in 0..NODES {
        let address: SocketAddr = format!("{}:9977", network.address(at)).parse().expect("an address");
        let own = http::ask(address, "GET", "/metrics", token).expect("metrics").body;
        let own = openmetrics::parse(&own).expect("OpenMetrics");
        of_nodes += own
            .iter()
            .filter(|s| s.name == "ampere_device_energy_joules_total")
            .map(|s| s.value)
            .sum::<f64>();
    }
    assert!(whole <= of_nodes, "{whole} {of_nodes}");
    // When a node fails, its last figures are kept.
    let before = job(address, token).expect("a job");
    network.dies(7);
    let after = job_when(address, token, "a node is gone", |job| state(job, "n7") == "gone");
    assert!(joules(node(&after, "n7")) >= joules(node(&before, "n7")) && joules(node(&after, "n7")) > 0.0);
    assert!(joules(&after["totals"]) >= joules(&before["totals"]));
    assert!(
        node(&after, "n7")["problem"].as_str().is_some_and(|why| why.contains("does not answer")),
        "{after}"
    );
    // The others end one after the other, and report their final figures.
    place.write("go", "");
    let over = job_when(address, token, "the others have ended", |job| {
        (1..NODES - 1).all(|at| state(job, &format!("n{at}")) == "over")
    });
    for at in 1..NODES - 1 {
        let summary = place.summary(&format!("out/n{at}"));
        let (wanted, reported) = (
            summary["run"]["total_joules"].as_f64().expect("joules"),
            joules(node(&over, &format!("n{at}"))),
        );
        assert!((wanted - reported).abs() <= 1e-9 * wanted, "n{at}: {wanted} {reported}");
    }
    place.write("end", "");
    for node in running {
        node.wait();
    }
    place.no_process_left();
    assert!(!file.exists() && !place.path("out/collector.json").exists());
    let notes = place.summary("out")["run"]["notes"].to_string();
    assert!(notes.contains("node n7: its collector does not answer"), "{notes}");
    let report = run(&mut place.ampere(["report", "out/n1", "-f", "json"]));
    assert_eq!(report.code, 0, "{report:#?}");
}

/// The client is on a machine that is not one of the nodes, and knows only the output directory.
#[test]
fn top_shows_all_nodes_and_what_becomes_of_them() {
    if !have(&["ip", "unshare", "tmux"]) {
        return;
    }
    let network = if is_root() { Network::new() } else { None };
    ampere_tests::skip_unless!(network.is_some(), WHY);
    let network = network.expect("it is some");
    let place = Place::new();
    let running = start_nodes(&place, &network, "go");
    let terminal = Terminal::open(&place, (120, 40));
    until("the first node's collector listens on the network", || {
        std::fs::read_to_string(place.path("out/collector.json"))
            .is_ok_and(|json| json.contains("http://0.0.0.0:"))
    });
    terminal.runs("$AMPERE top out");
    terminal.press(&["5"]);
    // On a node's line, its state is in front of its quality and its name. A line about the devices of a node is above.
    let state_of = |screen: &str, node: &str| -> Option<String> {
        let row = screen.lines().rev().find(|line| line.split_whitespace().next_back() == Some(node))?;
        row.split_whitespace().nth_back(2).map(str::to_owned)
    };
    let all_run =
        |screen: &str| (0..NODES).all(|at| state_of(screen, &format!("n{at}")).as_deref() == Some("running"));
    terminal.until("all nodes run", all_run);
    terminal.press(&["2"]);
    terminal.until("the ranks of all nodes", |screen| {
        (0..NODES).all(|at| screen.lines().any(|line| line.ends_with(&format!(" n{at}"))))
    });
    // First come the functions of all nodes, then those of the first node alone.
    terminal.press(&["1"]);
    let joules_of = |screen: &str| -> Option<f64> {
        let row = screen.lines().find(|line| line.split_whitespace().next_back() == Some("wait_a_moment"))?;
        row.split_whitespace().next()?.parse().ok()
    };
    let mut of_all = None;
    terminal.until("a function of all", |screen| {
        of_all = joules_of(screen);
        of_all.is_some() && screen.lines().next().is_some_and(|line| line.contains(" nodes: "))
    });
    terminal.press(&["a"]);
    terminal.until("of the first node alone there are fewer joules", |screen| {
        screen.contains("only n0") && joules_of(screen) < of_all
    });
    terminal.press(&["a", "5"]);
    network.dies(7);
    let gone = terminal.until("a node is gone", |screen| {
        let row = screen.lines().find(|line| line.contains("does not answer"));
        row.is_some_and(|row| row.contains(" gone ") && row.contains(" n7 "))
    });
    assert_eq!(state_of(&gone, "n6").as_deref(), Some("running"), "{gone}");
    place.write("go", "");
    terminal.until("the run has ended", |screen| screen.contains("the run has ended"));
    terminal.press(&["q"]);
    terminal.until("the path of the results is shown", |screen| screen.contains("summary.json"));
    drop(terminal);
    for node in running {
        node.wait();
    }
    place.no_process_left();
}

/// This follows the book: a file for each node, and a token that the user made.
#[test]
fn prometheus_finds_all_nodes_of_a_live_job() {
    if !have(&["ip", "unshare"]) {
        return;
    }
    let Some(server) = installed("prometheus") else {
        println!("skipped: no prometheus");
        return;
    };
    let network = if is_root() { Network::new() } else { None };
    ampere_tests::skip_unless!(network.is_some(), WHY);
    let network = network.expect("it is some");
    let place = Place::new();
    program(&place);
    let token = place.write("token", "a-token-of-this-test-0123456789");
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o600)).expect("ours");
    let start_on = |at: usize| {
        let mut command = command(&place, &network, at, "go");
        command.env("AMPERE_LISTEN", format!("{}:9977", network.address(at)));
        command.env("AMPERE_TOKEN_FILE", &token).env("AMPERE_TARGETS", place.path("targets"));
        command.env("AMPERE_ROCM_SMI_LIBRARY", artifact("libstand_in_rocm_smi64.so"));
        start(command.env("AMPERE_COUNTERS", "rocm_smi,estimate").env("STAND_IN_ROCM_SMI", "watts=300"))
    };
    let mut running = vec![start_on(0)];
    address_of_first(&place);
    running.extend((1..NODES).map(start_on));
    until("all nodes are named", || {
        std::fs::read_dir(place.path("targets")).is_ok_and(|files| files.count() == NODES)
    });
    let prometheus = Prometheus::start_with(&server, place.directory(), |shipped| {
        let all = "    static_configs:\n";
        let with_token = format!("    authorization: {{credentials_file: '{}'}}\n{all}", token.display());
        shipped.replace("127.0.0.1:9977", &format!("{}:9977", network.address(0))).replace(all, &with_token)
    });
    until("all nodes are scraped, and gathered by the first", || {
        let value = |query: &str| prometheus.query(query).ok()?.first().map(|series| series.points[0].1);
        let all = Some(NODES as f64);
        value("count(up == 1)") == all && value("sum(ampere_job_nodes{state=\"running\"})") == all
    });
    // There are no GPU kernels in this job; made_up.rs has some.
    let (expressions, rules) =
        prometheus.all_have_data(&["ampere_kernel_energy", "ampere_job_kernel_energy", "_waiting_energy"]);
    assert!(expressions > 60 && rules == 25, "{expressions} {rules}");
    // The job's joules are no more than those of its nodes a moment later, and at least most of them.
    let value = |query: &str| prometheus.query(query).expect("an answer")[0].points[0].1;
    let (job, nodes) = (value("ampere_job_energy_joules_total"), value("sum(node:ampere_energy_joules:sum)"));
    assert!(job > 0.5 * nodes && job < 2.0 * nodes, "{job} {nodes}");
    place.write("go", "");
    drop(prometheus);
    for node in running {
        node.wait();
    }
    place.no_process_left();
    let left = std::fs::read_dir(place.path("targets")).expect("a directory").count();
    assert_eq!(left, 0, "Prometheus still lists the job after its end");
}
