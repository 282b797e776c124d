//! The HTTP client that `ampere run` and `ampere top` ask a collector with.

use crate::serving::access::Token;
use crate::serving::listen::UNIX;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// The longest answer that is read.
const MOST_BYTES: usize = 1 << 28;

/// Why there is no answer; each in one line.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The collector cannot be reached or does not answer in time.
    #[error("cannot ask {url}: {why}")]
    Unreachable { url: String, why: std::io::Error },
    /// The answer is not HTTP.
    #[error("{url} does not speak HTTP")]
    NotHttp { url: String },
    /// The collector requires a token, and the one given is missing or wrong.
    #[error("{url} wants a token: AMPERE_TOKEN_FILE has to name the file that it is in")]
    WantsToken { url: String },
    /// Any other status than 200.
    #[error("{asked}: {status}")]
    Refused { asked: String, status: String },
}

/// Asks for `path` and returns the body of the answer. `url`: as `collector.json` has it.
pub fn get(url: &str, path: &str, token: Option<&Token>, limit: Duration) -> Result<Vec<u8>, Error> {
    let answer = ask(url, request(path, token).as_bytes(), limit);
    body_of(answer.map_err(|why| Error::Unreachable { url: url.to_owned(), why })?, url, path)
}

/// A request after which the connection is closed.
pub(crate) fn request(path: &str, token: Option<&Token>) -> String {
    let authorization =
        token.map_or_else(String::new, |token| format!("Authorization: {}\r\n", token.authorization()));
    format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n{authorization}Connection: close\r\n\r\n")
}

/// The body of an answer. `url`, `path`: what was asked.
pub(crate) fn body_of(mut answer: Vec<u8>, url: &str, path: &str) -> Result<Vec<u8>, Error> {
    let head = answer.windows(4).position(|window| window == b"\r\n\r\n");
    let head = head.ok_or_else(|| Error::NotHttp { url: url.to_owned() })?;
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

fn ask(url: &str, request: &[u8], limit: Duration) -> std::io::Result<Vec<u8>> {
    if let Some(path) = url.strip_prefix(UNIX) {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(limit))?;
        stream.set_write_timeout(Some(limit))?;
        return exchange(stream, request, limit);
    }
    let no_address = || std::io::Error::new(std::io::ErrorKind::InvalidInput, "no address");
    let host = url.strip_prefix("http://").ok_or_else(no_address)?.trim_end_matches('/');
    let address: SocketAddr = host.to_socket_addrs()?.next().ok_or_else(no_address)?;
    let stream = TcpStream::connect_timeout(&address, limit)?;
    stream.set_read_timeout(Some(limit))?;
    stream.set_write_timeout(Some(limit))?;
    exchange(stream, request, limit)
}

/// Sends the request and reads the whole answer. It takes no longer than the limit and one read more.
fn exchange(mut stream: impl Read + Write, request: &[u8], limit: Duration) -> std::io::Result<Vec<u8>> {
    stream.write_all(request)?;
    let (mut answer, mut chunk) = (Vec::new(), [0; 1 << 14]);
    let begun = Instant::now();
    loop {
        match stream.read(&mut chunk)? {
            0 => return Ok(answer),
            count => answer.extend_from_slice(&chunk[..count]),
        }
        if answer.len() > MOST_BYTES || begun.elapsed() > limit {
            return Err(std::io::Error::new(std::io::ErrorKind::TimedOut, "the answer does not end"));
        }
    }
}
