//! Lets ampere's own clients prove that they know a token without sending it. An attacker who reads the connection, or occupies
//! the port of a collector that has ended, learns nothing that is useful elsewhere.
//!
//! A server that refuses a request sends a challenge: the present time, with a code that only this server can make. The client
//! answers with a code (HMAC-SHA-256, with the token as key) of the challenge, of the server's address as the client sees it, and
//! of the path. So each answer is valid for one server, one path, and [`VALID_TIME`]. Browsers and Prometheus send the token
//! itself.

use crate::token::Token;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::fmt::Write;
use std::io::Read;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// The scheme of both headers, `WWW-Authenticate` and `Authorization`.
pub const SCHEME: &str = "Ampere";
/// The time for which an answer to a challenge is valid.
const VALID_TIME: Duration = Duration::from_secs(30);
/// The maximum number of characters of a challenge that a client answers.
const CHALLENGE_MAX: usize = 128;
/// The number of bytes of a SHA-256 code.
const CODE_BYTES: usize = 32;

/// Makes a server's challenges, and recognizes them.
#[derive(Clone)]
pub struct Challenges {
    key: [u8; CODE_BYTES],
    begun: Instant,
}

impl Challenges {
    /// Chooses a new random key. Returns `None` if the system has no randomness; then only the token itself is accepted.
    pub fn begin() -> Option<Challenges> {
        let mut key = [0; CODE_BYTES];
        std::fs::File::open("/dev/urandom").and_then(|mut random| random.read_exact(&mut key)).ok()?;
        Some(Challenges { key, begun: Instant::now() })
    }

    pub fn challenge(&self) -> String {
        let second = self.begun.elapsed().as_secs().to_string();
        let code =
            code(&self.key, &[&second]).map_or_else(Vec::new, |code| code.finalize().into_bytes().to_vec());
        format!("{second}-{}", hexadecimal(&code))
    }

    fn is_fresh(&self, challenge: &str) -> bool {
        let Some((second, given)) = challenge.split_once('-') else { return false };
        let age = second.parse().ok().and_then(|made| self.begun.elapsed().as_secs().checked_sub(made));
        age.is_some_and(|age| age <= VALID_TIME.as_secs()) && is_code(&self.key, &[second], given)
    }

    /// Whether `given`, the header's value after the scheme, is the answer of a client with the token.
    pub fn accept(&self, token: &Token, given: &str, place: &str, path: &str) -> bool {
        let Some((challenge, given)) = given.trim().split_once(' ') else { return false };
        self.is_fresh(challenge) && is_code(token.secret(), &[SCHEME, challenge, place, path], given)
    }
}

/// Returns the text for a server's address, which is the same at both ends of a connection; `None` means a Unix socket.
pub fn place(server: Option<SocketAddr>) -> String {
    server.map_or_else(
        || "unix".to_owned(),
        |address| SocketAddr::new(address.ip().to_canonical(), address.port()).to_string(),
    )
}

pub fn challenge_in(head: &str) -> Option<&str> {
    head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let (scheme, challenge) = value.trim().split_once(' ')?;
        let is_plain =
            challenge.len() <= CHALLENGE_MAX && challenge.bytes().all(|byte| byte.is_ascii_graphic());
        let is_ours = name.eq_ignore_ascii_case("www-authenticate") && scheme == SCHEME;
        (is_ours && is_plain).then_some(challenge)
    })
}

/// Returns the answer of a client with the token: the value of its `Authorization` header.
pub fn answer(token: &Token, challenge: &str, place: &str, path: &str) -> Option<String> {
    let code = code(token.secret(), &[SCHEME, challenge, place, path])?.finalize().into_bytes();
    Some(format!("{SCHEME} {challenge} {}", hexadecimal(&code)))
}

/// Returns the code of some words, none of which has a line break.
fn code(key: &[u8], words: &[&str]) -> Option<Hmac<Sha256>> {
    let mut code = Hmac::<Sha256>::new_from_slice(key).ok()?;
    words.iter().for_each(|word| {
        code.update(word.as_bytes());
        code.update(b"\n");
    });
    Some(code)
}

/// Whether `given` is the code of these words. The comparison always takes the same time.
fn is_code(key: &[u8], words: &[&str], given: &str) -> bool {
    let given = bytes(given);
    code(key, words).zip(given).is_some_and(|(code, given)| code.verify_slice(&given).is_ok())
}

pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn bytes(text: &str) -> Option<Vec<u8>> {
    let is_code = text.len() == 2 * CODE_BYTES && text.is_ascii();
    is_code
        .then(|| (0..CODE_BYTES).map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()).collect())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_valid_for_one_server_one_path_and_a_short_time() {
        let (token, other) = (Token::of("0123456789abcdef"), Token::of("0123456789abcdeg"));
        let server = Challenges::begin().unwrap();
        let (place, challenge) = ("10.0.0.1:9977", server.challenge());
        let answer = |token, challenge: &str, place, path| answer(token, challenge, place, path).unwrap();
        let given = |text: &str| text.strip_prefix("Ampere ").unwrap().to_owned();
        let right = given(&answer(&token, &challenge, place, "/nodes"));
        assert!(server.accept(&token, &right, place, "/nodes"));
        assert!(!right.contains("0123456789abcdef"), "the token is not in it");
        assert!(!server.accept(&other, &right, place, "/nodes"), "another token");
        assert!(!server.accept(&token, &right, "10.0.0.2:9977", "/nodes"), "another server's address");
        assert!(!server.accept(&token, &right, place, "/page.json"), "another path");
        assert!(
            !Challenges::begin().unwrap().accept(&token, &right, place, "/nodes"),
            "another server's challenge"
        );
        for wrong in
            ["", " ", "x", &right[..right.len() - 1], &right.replace('-', "-0"), &format!("1{right}")]
        {
            assert!(!server.accept(&token, wrong, place, "/nodes"), "{wrong}");
        }
        let old = Challenges { begun: server.begun - 2 * VALID_TIME, ..server.clone() };
        assert!(!old.accept(&token, &right, place, "/nodes"), "the challenge is too old");
        // This challenge was made by the client.
        let made_up = given(&answer(&token, "0-00", place, "/nodes"));
        assert!(!server.accept(&token, &made_up, place, "/nodes"));
    }

    #[test]
    fn only_a_plain_challenge_is_answered() {
        assert_eq!(
            challenge_in("HTTP/1.1 401 X\r\nwww-authenticate: Bearer\r\nWWW-Authenticate: Ampere 5-ab\r\n"),
            Some("5-ab")
        );
        for head in [
            "www-authenticate: Bearer",
            "x: Ampere 5-ab",
            "www-authenticate: Ampere a b",
            "www-authenticate: Ampere",
        ] {
            assert_eq!(challenge_in(head), None, "{head}");
        }
        assert_eq!(
            challenge_in(&format!("www-authenticate: Ampere {}", "x".repeat(CHALLENGE_MAX + 1))),
            None
        );
    }
}
