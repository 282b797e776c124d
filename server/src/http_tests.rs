//! Tests over real connections: which requests are answered, and how long slow clients can delay others.

use super::*;
use ampere_collector::serving::latest::Latest;
use ampere_endpoint::access::Access;
use ampere_endpoint::client::{self, Secret};
use ampere_settings::Config;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

const LIMIT: Duration = Duration::from_secs(60);
const TOKEN: &str = "0123456789abcdef-token";

fn start(wanted: &str, token: Option<&Path>) -> (Server, Access) {
    let mut config = Config::default();
    config.metrics.token_file = token.map(Path::to_owned);
    let access = Access::load(&config).unwrap();
    let (summaries, asked) = crossbeam_channel::bounded::<Wanted>(16);
    // This thread replaces the collector's loop, which answers one request at a time.
    std::thread::spawn(move || {
        let attributor = ampere_timeline::attributor::Attributor::new(Config::default(), 1);
        while let Ok(wanted) = asked.recv() {
            let run =
                ampere_figures::summary::Run { id: "one".to_owned(), running: true, ..Default::default() };
            let summary = Summary::new(&attributor, None, run, Default::default());
            match wanted {
                Wanted::Summary(answer) => _ = answer.send(Box::new(summary)),
                Wanted::Page(_, answer) => _ = answer.send((Page::of(&summary), Duration::ZERO)),
                Wanted::Note(_) => {}
            }
        }
    });
    let server = serve(&wanted.parse().unwrap(), access.clone(), Latest::default(), summaries, None).unwrap();
    (server, access)
}

fn address(server: &Server) -> SocketAddr {
    server.url.strip_prefix("http://").unwrap().parse().unwrap()
}

fn ask(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    // The server may refuse the request before all of it is sent.
    let _ = stream.write_all(request.as_bytes());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or(answer)
}

#[test]
fn only_known_paths_of_this_node_are_answered() {
    let (server, _) = start("127.0.0.1:0", None);
    let at = address(&server);
    assert_eq!(server.notes, Vec::<String>::new(), "loopback needs no note");
    let long = "x".repeat(40_000);
    let many: String = (0..200).map(|n| format!("X-{n}: y\r\n")).collect();
    for (request, expected) in [
        ("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(), "200"),
        (format!("GET /snapshot.json HTTP/1.1\r\nHost: {at}\r\n\r\n"), "200"),
        ("GET /summary.json HTTP/1.0\r\n\r\n".to_owned(), "200"),
        ("GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n".to_owned(), "200"),
        ("GET /page.json?rank=3 HTTP/1.0\r\n\r\n".to_owned(), "200"),
        ("GET /page.json?rank=-1 HTTP/1.0\r\n\r\n".to_owned(), "400"),
        ("GET /events?rank=%3Cscript HTTP/1.0\r\n\r\n".to_owned(), "400"),
        ("POST /events HTTP/1.0\r\n\r\n".to_owned(), "405"),
        ("GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n".to_owned(), "403"),
        ("GET http://evil.example/metrics HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(), "403"),
        ("GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n".to_owned(), "400"),
        ("GET /../../../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(), "404"),
        ("GET /%2e%2e/%2e%2e/etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(), "404"),
        ("GET /traces.otf2 HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(), "404"),
        ("POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx".to_owned(), "405"),
        ("TRACE / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(), "405"),
        (format!("GET /{long} HTTP/1.1\r\nHost: localhost\r\n\r\n"), "431"),
        (format!("GET / HTTP/1.1\r\nHost: localhost\r\n{many}\r\n"), "431"),
    ] {
        let answer = ask(at, &request);
        let shown: String = request.chars().take(60).collect();
        assert!(
            status(&answer) == expected || (expected == "431" && answer.is_empty()),
            "{shown:?}: {answer}"
        );
        assert!(!answer.contains("root:"), "{answer}");
    }
}

#[test]
fn a_connection_serves_one_request() {
    let (server, _) = start("127.0.0.1:0", None);
    let request = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(50);
    let answer = ask(address(&server), &request);
    assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{answer}");
}

#[test]
fn without_the_token_every_path_is_refused_in_the_same_way() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("token");
    std::fs::write(&file, format!("{TOKEN}\n")).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let (server, access) = start("127.0.0.1:0", Some(&file));
    for path in [
        "/metrics",
        "/snapshot.json",
        "/summary.json",
        "/page.json",
        "/events",
        "/nodes",
        "/node.json",
        "/nothing",
    ] {
        let answer = ask(address(&server), &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        assert_eq!(status(&answer), "401", "{answer}");
        assert!(answer.to_ascii_lowercase().contains("www-authenticate: bearer"), "{answer}");
        let why = client::get(&server.url, path, Secret::None, LIMIT).unwrap_err();
        assert!(matches!(why, client::Error::WantsToken { .. }) && !why.to_string().contains('\n'), "{why}");
    }
    let token = access.token().unwrap();
    for secret in [Secret::Sent(token), Secret::Proved(token)] {
        assert!(client::get(&server.url, "/page.json?rank=3", secret, LIMIT).is_ok());
    }
    // A browser cannot send the token with its first request. The page has no data, and asks for the token.
    let page = String::from_utf8(client::get(&server.url, "/", Secret::None, LIMIT).unwrap()).unwrap();
    assert!(page.contains("data-token=\"wanted\"") && !page.contains("id=\"data\""), "{page}");
    let evil = format!("GET / HTTP/1.1\r\nHost: evil.example\r\nAuthorization: Bearer {TOKEN}\r\n\r\n");
    assert_eq!(status(&ask(address(&server), &evil)), "403", "the token does not make another name valid");
}

#[test]
fn a_socket_serves_the_same_as_an_address() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("a.sock");
    let (server, _) = start(&format!("unix:{}", path.display()), None);
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let metrics = client::get(&server.url, "/metrics", Secret::None, LIMIT).unwrap();
    assert!(String::from_utf8(metrics).unwrap().ends_with("# EOF\n"));
    drop(server);
    assert!(!path.exists());
}

#[test]
fn listening_beyond_this_node_is_noted() {
    let (server, _) = start("0.0.0.0:0", None);
    assert!(server.notes[0].contains("which other nodes can reach"), "{:?}", server.notes);
}

/// Clients that send nothing or half a request take all the connections; their heads' time limit frees them.
#[test]
fn slow_clients_keep_others_waiting_for_a_moment_only() {
    let (server, _) = start("127.0.0.1:0", None);
    let at = address(&server);
    let mut slow = Vec::new();
    for number in 0..3 * CONNECTIONS_MAX {
        // If connections arrive faster than they are accepted, the kernel delays one of them by a second.
        let Ok(mut stream) = TcpStream::connect_timeout(&at, Duration::from_secs(5)) else { break };
        let part: &[u8] = match number % 3 {
            0 => b"",
            1 => b"GET /metrics HTTP/1.1\r\nHost: loc",
            _ => b"GET /metrics HTTP/1.1\r\nX-",
        };
        let _ = stream.write_all(part);
        slow.push(stream);
    }
    assert!(slow.len() > 2 * CONNECTIONS_MAX, "{}", slow.len());
    let begun = Instant::now();
    // A byte from time to time does not extend the limit.
    let (done, ended) = std::sync::mpsc::channel::<()>();
    let dripping = std::thread::spawn(move || {
        while ended.recv_timeout(Duration::from_millis(500)).is_err() {
            slow.iter_mut().for_each(|stream| drop(stream.write_all(b"a")));
        }
    });
    let answer = ask(at, "GET /metrics HTTP/1.0\r\n\r\n");
    let waited = begun.elapsed();
    done.send(()).unwrap();
    dripping.join().unwrap();
    assert_eq!(status(&answer), "200", "after {waited:?}");
    // Several rounds of slow clients are served first, which takes three times HEAD_LIMIT if each of them gets all of it. The
    // kernel may repeat the request for this connection after up to three seconds.
    assert!(waited < 2 * HEAD_LIMIT, "{waited:?}");
}

/// Making a summary takes time of the collector's loop.
#[test]
fn a_summary_is_sent_again_while_it_is_young() {
    let (server, _) = start("127.0.0.1:0", None);
    let bodies: Vec<Vec<u8>> =
        (0..50).map(|_| client::get(&server.url, "/summary.json", Secret::None, LIMIT).unwrap()).collect();
    let parsed: Summary = serde_json::from_slice(&bodies[0]).unwrap();
    assert_eq!(parsed.run.id, "one");
    assert!(bodies.iter().all(|body| *body == bodies[0]));
}

/// Reads a stream until it has `count` events.
fn events(address: SocketAddr, count: usize) -> Vec<Page> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.write_all(b"GET /events HTTP/1.0\r\n\r\n").unwrap();
    let (mut text, mut part) = (Vec::new(), [0; 1 << 14]);
    loop {
        let whole = String::from_utf8_lossy(&text).into_owned();
        let all: Vec<&str> = whole.split("data:").skip(1).filter(|event| event.ends_with("\n\n")).collect();
        if all.len() >= count {
            return all.iter().map(|event| serde_json::from_str(event).unwrap()).collect();
        }
        let read = stream.read(&mut part).unwrap();
        assert!(read > 0, "{whole}");
        text.extend_from_slice(&part[..read]);
    }
}

#[test]
fn a_page_is_complete_once_and_then_only_has_changes() {
    let (server, _) = start("127.0.0.1:0", None);
    let pages = events(address(&server), 3);
    assert!(pages[0].tables.is_some() && pages[0].run.id == "one", "{pages:?}");
    assert!(pages.iter().all(|page| page.state == ampere_report::page::State::Running), "{pages:?}");
}

/// The streams belong to browsers that request events and read nothing.
#[test]
fn streams_that_are_not_read_leave_places_for_others() {
    let (server, _) = start("127.0.0.1:0", None);
    let at = address(&server);
    let open = || {
        let mut stream = TcpStream::connect(at).unwrap();
        stream.write_all(b"GET /events HTTP/1.0\r\n\r\n").unwrap();
        stream
    };
    let unread: Vec<TcpStream> = (0..100).map(|_| open()).collect();
    let begun = Instant::now();
    assert_eq!(status(&ask(at, "GET /metrics HTTP/1.0\r\n\r\n")), "200");
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    let refused = ask(at, "GET /events HTTP/1.0\r\n\r\n");
    assert!(status(&refused) == "503" && refused.contains("pages are open"), "{refused}");
    drop(unread);
    assert_eq!(events(at, 1).len(), 1);
}

#[test]
fn a_scrape_gets_the_format_that_it_asks_for_and_no_proxy_holds_events_back() {
    let (server, _) = start("127.0.0.1:0", None);
    let get = |path: &str, accept: &str| {
        ask(address(&server), &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{accept}\r\n"))
    };
    let classic = get("/metrics", "Accept: text/plain\r\n");
    assert!(classic.contains("content-type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{classic}");
    assert!(!classic.contains("# EOF") && !classic.contains("# UNIT"), "{classic}");
    assert!(classic.contains("# TYPE ampere_build_info gauge\n"), "{classic}");
    for accept in ["", "Accept: */*\r\n", "Accept: application/openmetrics-text, text/plain;q=0.5\r\n"] {
        let text = get("/metrics", accept);
        assert!(text.contains("content-type: application/openmetrics-text; version=1.0.0"), "{text}");
        assert!(text.ends_with("# EOF\n"), "{text}");
    }
    let mut stream = TcpStream::connect(address(&server)).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.write_all(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut head = [0; 1024];
    let count = stream.read(&mut head).unwrap();
    let head = String::from_utf8_lossy(&head[..count]);
    assert!(head.contains("x-accel-buffering: no\r\n") && head.contains("no-transform"), "{head}");
}

#[test]
fn requests_for_every_rank_take_little_time_of_the_loop() {
    let (server, _) = start("127.0.0.1:0", None);
    let ask_for = |query: &str| ask(address(&server), &format!("GET /page.json{query} HTTP/1.0\r\n\r\n"));
    let begun = Instant::now();
    let answers: Vec<String> = (0..20).map(|rank| ask_for(&format!("?rank={rank}"))).collect();
    assert_eq!(status(&ask_for("")), "200", "all ranks together");
    let made = answers.iter().filter(|answer| status(answer) == "200").count();
    // The requests take less time than a page's age, except on a busy machine.
    assert!(made <= 8 || begun.elapsed() > Duration::from_millis(800), "{made} of {answers:?}");
    assert!(made >= 8 && answers.iter().all(|answer| ["200", "503"].contains(&status(answer))));
}
