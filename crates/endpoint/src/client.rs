//! The HTTP client with which `ampere run` and `ampere top` send requests to a collector.

use crate::connect::connect_at_once;
use crate::listen::UNIX;
use crate::proof;
use crate::token::Token;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::path::Path;
use std::time::{Duration, Instant};

/// The maximum size of an answer.
const BYTES_MAX: usize = 1 << 28;

/// The reason why there is no answer, as a message of one line.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The collector cannot be reached or does not answer in time.
    #[error("cannot reach {url}: {why}")]
    Unreachable { url: String, why: std::io::Error },
    /// The answer is not HTTP.
    #[error("{url} does not speak HTTP")]
    NotHttp { url: String },
    /// The collector requires a token, and the one given is missing or wrong.
    #[error("{url} requires a token: set AMPERE_TOKEN_FILE to the file that contains it")]
    WantsToken { url: String },
    /// The status is not 200.
    #[error("{asked}: {status}")]
    Refused { asked: String, status: String },
}

/// The way in which a client shows that it has access.
#[derive(Clone, Copy)]
pub enum Secret<'a> {
    /// The request carries no secret.
    None,
    /// The client sends the token itself, to an address that the user has named.
    Sent(&'a Token),
    /// The client only proves that it knows the token, if the server asks for that, because the program at the address may belong
    /// to another user.
    Proved(&'a Token),
}

/// Requests `path` and returns the body of the answer. `url` has the form of the address in `collector.json`.
pub fn get(url: &str, path: &str, secret: Secret, limit: Duration) -> Result<Vec<u8>, Error> {
    let unreachable = |why| Error::Unreachable { url: url.to_owned(), why };
    let server = server_at(url).map_err(unreachable)?;
    let ask = |authorization: Option<&str>| {
        ask(&server, request(path, authorization).as_bytes(), limit).map_err(unreachable)
    };
    let (token, answer) = match secret {
        Secret::None => (None, ask(None)?),
        Secret::Sent(token) => (None, ask(Some(&token.authorization()))?),
        Secret::Proved(token) => (Some(token), ask(None)?),
    };
    let place = match &server {
        Server::Tcp(address) => proof::place(Some(*address)),
        Server::Unix(_) => proof::place(None),
    };
    match token.and_then(|token| proof_for(&answer, token, &place, path)) {
        Some(proof) => body_of(ask(Some(&proof))?, url, path),
        None => body_of(answer, url, path),
    }
}

/// Returns the header with which a refused client proves that it knows the token; `None` if it was not refused, or not by a
/// collector.
pub fn proof_for(answer: &[u8], token: &Token, place: &str, path: &str) -> Option<String> {
    let head = String::from_utf8_lossy(&answer[..head_of(answer)?]);
    let is_refusal = head.split(' ').nth(1) == Some("401");
    proof::challenge_in(&head)
        .filter(|_| is_refusal)
        .and_then(|challenge| proof::answer(token, challenge, place, path))
}

/// Returns a request after which the connection is closed.
pub fn request(path: &str, authorization: Option<&str>) -> String {
    let authorization = authorization.map_or_else(String::new, |value| format!("Authorization: {value}\r\n"));
    format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n{authorization}Connection: close\r\n\r\n")
}

/// Returns the length of an answer's head.
fn head_of(answer: &[u8]) -> Option<usize> {
    answer.windows(4).position(|window| window == b"\r\n\r\n")
}

/// Returns the body of an answer to a request for `path` at `url`.
pub fn body_of(mut answer: Vec<u8>, url: &str, path: &str) -> Result<Vec<u8>, Error> {
    let head = head_of(&answer).ok_or_else(|| Error::NotHttp { url: url.to_owned() })?;
    let first = String::from_utf8_lossy(&answer[..head]).lines().next().unwrap_or_default().to_owned();
    if first.split(' ').nth(1) == Some("401") {
        return Err(Error::WantsToken { url: url.to_owned() });
    }
    if first.split(' ').nth(1) != Some("200") {
        return Err(Error::Refused {
            asked: format!("{url}{path}"),
            status: ampere_model::text::printable(&first),
        });
    }
    Ok(answer.split_off(head + 4))
}

/// The kind of server at an address.
enum Server<'a> {
    Tcp(SocketAddr),
    Unix(&'a Path),
}

fn server_at(url: &str) -> std::io::Result<Server<'_>> {
    if let Some(path) = url.strip_prefix(UNIX) {
        return Ok(Server::Unix(Path::new(path)));
    }
    let no_address = || std::io::Error::new(std::io::ErrorKind::InvalidInput, "no address");
    let host = url.strip_prefix("http://").ok_or_else(no_address)?.trim_end_matches('/');
    host.to_socket_addrs()?.next().map(Server::Tcp).ok_or_else(no_address)
}

fn ask(server: &Server, request: &[u8], limit: Duration) -> std::io::Result<Vec<u8>> {
    match server {
        Server::Unix(path) => {
            let stream = connect_at_once(path)?;
            stream.set_read_timeout(Some(limit))?;
            stream.set_write_timeout(Some(limit))?;
            exchange(stream, request, limit)
        }
        Server::Tcp(address) => {
            let stream = TcpStream::connect_timeout(address, limit)?;
            stream.set_read_timeout(Some(limit))?;
            stream.set_write_timeout(Some(limit))?;
            exchange(stream, request, limit)
        }
    }
}

/// Sends the request and reads the whole answer. Reading takes at most the limit plus the time of one more read.
fn exchange(mut stream: impl Read + Write, request: &[u8], limit: Duration) -> std::io::Result<Vec<u8>> {
    stream.write_all(request)?;
    let (mut answer, mut chunk) = (Vec::new(), [0; 1 << 14]);
    let begun = Instant::now();
    loop {
        match stream.read(&mut chunk)? {
            0 => return Ok(answer),
            count => answer.extend_from_slice(&chunk[..count]),
        }
        if answer.len() > BYTES_MAX || begun.elapsed() > limit {
            return Err(std::io::Error::new(std::io::ErrorKind::TimedOut, "the answer does not end"));
        }
    }
}
