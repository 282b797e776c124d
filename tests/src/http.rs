//! A minimal HTTP client for the tests.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub struct Response {
    pub status: u16,
    pub content_type: String,
    pub body: String,
}

/// Sends a GET request. It uses HTTP/1.0, so that a body is not chunked and ends with the connection.
pub fn get(address: SocketAddr, path: &str) -> std::io::Result<Response> {
    ask(address, "GET", path, None)
}

/// Sends a request with any method, and with a token.
pub fn ask(address: SocketAddr, method: &str, path: &str, token: Option<&str>) -> std::io::Result<Response> {
    let mut stream = TcpStream::connect_timeout(&address, LIMIT)?;
    stream.set_read_timeout(Some(LIMIT))?;
    let token = token.map_or_else(String::new, |token| format!("Authorization: Bearer {token}\r\n"));
    write!(stream, "{method} {path} HTTP/1.0\r\nHost: {address}\r\nAccept: */*\r\n{token}\r\n")?;
    let mut text = Vec::new();
    stream.read_to_end(&mut text)?;
    parse(&String::from_utf8_lossy(&text))
        .ok_or_else(|| std::io::Error::other("this is not a whole answer of HTTP"))
}

/// Returns `None` for a text that is not HTTP, and for an answer that is incomplete because its connection ended early.
fn parse(text: &str) -> Option<Response> {
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.lines().next()?.split(' ').nth(1)?.parse().ok()?;
    let header = |wanted: &str| {
        head.lines().skip(1).find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case(wanted).then(|| value.trim())
        })
    };
    let length: usize = header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let content_type = header("content-type").unwrap_or_default().to_owned();
    (body.len() >= length).then(|| Response { status, content_type, body: body.to_owned() })
}

/// Encodes a value of a query's parameter.
pub fn percent_encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut encoded, byte| {
        let _ = match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
                write!(encoded, "{}", byte as char)
            }
            _ => write!(encoded, "%{byte:02X}"),
        };
        encoded
    })
}

/// Returns a loopback address whose port is free at the moment.
pub fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a loopback port");
    listener.local_addr().expect("its address")
}
