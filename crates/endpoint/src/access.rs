//! Decides which HTTP requests are answered: those whose `Host` is a name or an address of this node and which, if a token is
//! set, carry it. If none is set, requests from other machines must carry the run's own token, which the first collector that
//! needs it makes.
//!
//! The name is checked because of browsers: a web page may have its own name resolved to 127.0.0.1 (DNS rebinding) to read
//! what is served there. Its requests carry that name as `Host`. Addresses cannot be rebound, so they are allowed.

use crate::proof::{self, Challenges};
use ampere_ring::process::node_name;
use ampere_settings::Config;
use rustix::fs::{Mode, OFlags};
use std::fmt;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// The minimum length of a token. A shorter one can be guessed.
const TOKEN_BYTES_MIN: usize = 16;
const TOKEN_BYTES_MAX: usize = 4096;
/// The run's own token, in the output directory of its first node.
pub const RUN_TOKEN: &str = "collector.token";
/// The permissions of the token's file.
const TOKEN_MODE: u32 = 0o600;
/// The number of random bytes in the run's own token.
const RANDOM_BYTES: usize = 24;
/// The longest time for which the token's file is awaited, which another node's collector may be writing.
const WRITE_LIMIT: Duration = Duration::from_secs(2);

/// The two ends of a connection over TCP.
#[derive(Clone, Copy, Debug)]
pub struct Ends {
    pub peer: SocketAddr,
    pub own: SocketAddr,
}

/// The secret that requests carry. It is never printed.
#[derive(Clone)]
pub struct Token(Vec<u8>);

/// The reason why a token file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the token file {} {problem}", .path.display())]
pub struct TokenError {
    path: PathBuf,
    problem: TokenProblem,
}

#[derive(Debug, thiserror::Error)]
enum TokenProblem {
    #[error("cannot be read: {0}")]
    Unreadable(#[from] std::io::Error),
    #[error("cannot be made: {0}")]
    Unwritable(std::io::Error),
    #[error("is not a file")]
    NoFile,
    #[error("belongs to another user: make your own")]
    OfAnotherUser,
    #[error("is accessible to other users: use chmod 600")]
    OpenToOthers,
    #[error("has {0} bytes: use {TOKEN_BYTES_MIN} to {TOKEN_BYTES_MAX}")]
    Length(usize),
    #[error("contains more than one word, or characters other than ASCII")]
    Characters,
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

impl Token {
    /// Reads a token from a file that only this user can read.
    pub fn load(path: &Path) -> Result<Token, TokenError> {
        Token::read(path, OFlags::empty()).map_err(|problem| TokenError { path: path.to_owned(), problem })
    }

    /// Reads the token of a run whose results are in this directory. The directory may belong to any user, so a link in it is not
    /// followed.
    pub fn beside(directory: &Path) -> Result<Token, TokenError> {
        let path = directory.join(RUN_TOKEN);
        Token::read(&path, OFlags::NOFOLLOW).map_err(|problem| TokenError { path, problem })
    }

    fn read(path: &Path, more: OFlags) -> Result<Token, TokenProblem> {
        // Opening a pipe must not wait for its writer.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY | more;
        let file = rustix::fs::open(path, flags, Mode::empty()).map_err(std::io::Error::from)?;
        let found = rustix::fs::fstat(&file).map_err(std::io::Error::from)?;
        if rustix::fs::FileType::from_raw_mode(found.st_mode) != rustix::fs::FileType::RegularFile {
            return Err(TokenProblem::NoFile);
        }
        if found.st_uid != rustix::process::geteuid().as_raw() {
            return Err(TokenProblem::OfAnotherUser);
        }
        if found.st_mode & 0o077 != 0 {
            return Err(TokenProblem::OpenToOthers);
        }
        let mut bytes = vec![0; TOKEN_BYTES_MAX + 2];
        let length = rustix::io::read(&file, &mut bytes).map_err(std::io::Error::from)?;
        let token = bytes[..length].trim_ascii();
        if token.len() < TOKEN_BYTES_MIN || token.len() > TOKEN_BYTES_MAX {
            return Err(TokenProblem::Length(token.len()));
        }
        if !token.iter().all(u8::is_ascii_graphic) {
            return Err(TokenProblem::Characters);
        }
        Ok(Token(token.to_owned()))
    }

    /// Returns the run's own token, and makes it unless another of its collectors has made it. `directory` is the output
    /// directory of the first node.
    pub fn of_run(directory: &Path) -> Result<Token, TokenError> {
        let path = directory.join(RUN_TOKEN);
        let made = ampere_owned::Directory::own(directory)
            .and_then(|directory| directory.create(RUN_TOKEN.as_ref(), TOKEN_MODE));
        let written = match made {
            Ok(mut file) => random_words().and_then(|words| file.write_all(words.as_bytes())),
            Err(why) if why.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
            Err(why) => Err(why),
        };
        written.map_err(|why| TokenError { path: path.clone(), problem: TokenProblem::Unwritable(why) })?;
        let begun = Instant::now();
        loop {
            match Token::beside(directory) {
                Err(TokenError { problem: TokenProblem::Length(_), .. }) if begun.elapsed() < WRITE_LIMIT => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                loaded => return loaded,
            }
        }
    }

    /// Returns the value of a request's `Authorization` header.
    pub fn authorization(&self) -> String {
        format!("Bearer {}", String::from_utf8_lossy(&self.0))
    }

    /// Returns the token's bytes, as the key of codes that prove knowing it.
    pub fn secret(&self) -> &[u8] {
        &self.0
    }

    #[cfg(test)]
    pub(crate) fn of(text: &str) -> Token {
        Token(text.as_bytes().to_vec())
    }

    /// Compares a value with the token. This takes the same time for every value of one length, so that timing reveals nothing
    /// about the token.
    fn is(&self, given: &[u8]) -> bool {
        let mut different = self.0.len() ^ given.len();
        for (at, byte) in given.iter().enumerate() {
            different |= usize::from(byte ^ self.0[at % self.0.len()]);
        }
        std::hint::black_box(different) == 0
    }
}

/// The reason why a request is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The token is missing or wrong (status 401).
    Token,
    /// The name in `Host` is not this node's (status 403).
    Host,
}

fn random_words() -> std::io::Result<String> {
    let mut bytes = [0; RANDOM_BYTES];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>() + "\n")
}

/// The conditions for answering requests.
#[derive(Clone, Default)]
pub struct Access {
    token: Option<Token>,
    /// The run's own token, for requests from other machines if no token is set.
    of_run: Arc<OnceLock<Token>>,
    /// This node's names, in lower case.
    names: Vec<String>,
    any_name: bool,
    challenges: Option<Challenges>,
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access")
            .field("token", &self.token)
            .field("names", &self.names)
            .finish_non_exhaustive()
    }
}

impl Access {
    /// Reads the token and the allowed names from the settings.
    pub fn load(config: &Config) -> Result<Access, TokenError> {
        let token = config.metrics.token_file.as_deref().map(Token::load).transpose()?;
        let mut names = own_names(&node_name(), &search_domains());
        names.extend(config.metrics.allowed_hosts.iter().map(|name| name.to_ascii_lowercase()));
        let any_name = names.iter().any(|name| name == "*");
        Ok(Access { token, of_run: Arc::default(), names, any_name, challenges: Challenges::begin() })
    }

    /// Returns the token of requests: the one that is set, or else the run's own, if it is known.
    pub fn token(&self) -> Option<&Token> {
        self.token.as_ref().or(self.of_run.get())
    }

    /// Whether a token is set, which every request must then carry.
    pub fn has_set_token(&self) -> bool {
        self.token.is_some()
    }

    /// Sets the run's own token, with which requests from other machines are answered.
    pub fn admit_with(&self, of_run: Token) {
        let _ = self.of_run.set(of_run);
    }

    /// Whether a request from this address must carry a token.
    pub fn wants_token(&self, from: Option<IpAddr>) -> bool {
        self.token.is_some() || from.is_some_and(|from| !from.to_canonical().is_loopback())
    }

    /// Returns a challenge, which ampere's own clients answer to prove that they know the token.
    pub fn challenge(&self) -> Option<String> {
        self.challenges.as_ref().map(Challenges::challenge)
    }

    /// Checks whether a request may be answered. Returns whether it came with the token. `from` is the client's address; `None`
    /// for a Unix socket. `host` is from the request; `None` if it names no host, which HTTP/1.0 allows, but browsers always do.
    pub fn check(
        &self,
        from: Option<Ends>,
        host: Option<&str>,
        authorization: Option<&[u8]>,
        path: &str,
    ) -> Result<bool, Refusal> {
        if !host.is_none_or(|host| self.has_name(host)) {
            return Err(Refusal::Host);
        }
        let is_right = authorization.zip(self.token()).is_some_and(|(value, token)| {
            let given = |scheme: &[u8]| {
                let (name, given) = value.split_at_checked(scheme.len())?;
                name.eq_ignore_ascii_case(scheme).then(|| given.trim_ascii())
            };
            let proved = |given: &[u8]| {
                let place = proof::place(from.map(|ends| ends.own));
                let given = std::str::from_utf8(given).unwrap_or_default();
                self.challenges.as_ref().is_some_and(|all| all.accept(token, given, &place, path))
            };
            given(b"Bearer ").is_some_and(|given| token.is(given))
                || given(format!("{} ", proof::SCHEME).as_bytes()).is_some_and(proved)
        });
        let may = is_right || !self.wants_token(from.map(|ends| ends.peer.ip()));
        if may { Ok(is_right) } else { Err(Refusal::Token) }
    }

    fn has_name(&self, host: &str) -> bool {
        let Some(name) = without_port(host) else { return false };
        let name = name.strip_suffix('.').unwrap_or(name);
        self.any_name
            || name.parse::<IpAddr>().is_ok()
            || self.names.iter().any(|own| own.eq_ignore_ascii_case(name))
    }
}

/// Returns the name in `name`, `name:80`, `1.2.3.4:80` or `[::1]:80`.
fn without_port(host: &str) -> Option<&str> {
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => host.split_at(host.find(':').unwrap_or(host.len())),
    };
    let port = port.strip_prefix(':').unwrap_or(port);
    port.bytes().all(|byte| byte.is_ascii_digit()).then_some(name)
}

/// Returns a node's names in lower case: the short one, the one with each of the search domains, and localhost.
fn own_names(node: &str, domains: &[String]) -> Vec<String> {
    let node = node.to_ascii_lowercase();
    let short = node.split('.').next().unwrap_or_default().to_owned();
    let mut names: Vec<String> = domains.iter().map(|domain| format!("{short}.{domain}")).collect();
    names.extend([short, node, "localhost".to_owned()]);
    names.retain(|name| !name.is_empty() && !name.starts_with('.'));
    names
}

fn search_domains() -> Vec<String> {
    let text = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let lines = text.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        matches!(words.next(), Some("search" | "domain")).then_some(words)
    });
    lines.flatten().map(|domain| domain.trim_matches('.').to_ascii_lowercase()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn access() -> Access {
        let names = own_names("Node7", &["cluster.example".to_owned()]);
        Access { names, ..Access::default() }
    }

    #[test]
    fn only_names_and_addresses_of_this_node_are_answered() {
        let access = access();
        for host in [
            "localhost",
            "LOCALHOST:9977",
            "localhost.",
            "127.0.0.1:9977",
            "10.1.2.3",
            "[::1]:9977",
            "[fe80::1]",
            "node7:1",
            "node7.cluster.example",
        ] {
            assert_eq!(access.check(None, Some(host), None, "/"), Ok(false), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "evil.example:9977",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "node7.evil.example",
            "node8",
            "[::1",
            "localhost:x",
            "user@localhost",
            "*",
        ] {
            assert_eq!(access.check(None, Some(host), None, "/"), Err(Refusal::Host), "{host}");
        }
        assert_eq!(access.check(None, None, None, "/"), Ok(false));
        let any = Access { any_name: true, ..access };
        assert_eq!(any.check(None, Some("evil.example"), None, "/"), Ok(false));
    }

    #[test]
    fn only_the_exact_token_is_accepted() {
        let access = Access { token: Some(Token(b"0123456789abcdef".to_vec())), ..access() };
        for given in ["Bearer 0123456789abcdef", "bearer  0123456789abcdef "] {
            assert_eq!(access.check(None, None, Some(given.as_bytes()), "/"), Ok(true), "{given}");
        }
        for given in [
            "",
            "Bearer",
            "Bearer ",
            "0123456789abcdef",
            "Bearer 0123456789abcde",
            "Bearer 0123456789abcdeg",
            "Bearer 0123456789abcdef0123456789abcdef",
            "Basic 0123456789abcdef",
        ] {
            assert_eq!(access.check(None, None, Some(given.as_bytes()), "/"), Err(Refusal::Token), "{given}");
        }
        assert_eq!(access.check(None, None, None, "/"), Err(Refusal::Token));
        assert_eq!(format!("{access:?}").find("0123"), None, "a token is not printed");
    }

    #[test]
    fn beyond_loopback_the_runs_own_token_is_asked_for_where_no_other_is_set() {
        let own = "10.0.0.1:9977".parse().unwrap();
        let from = |text: &str| Some(Ends { peer: SocketAddr::new(text.parse::<IpAddr>().unwrap(), 1), own });
        let access = access();
        for near in [None, from("127.0.0.1"), from("::1"), from("::ffff:127.0.0.1")] {
            assert_eq!(access.check(near, None, None, "/"), Ok(false), "{near:?}");
        }
        let far = from("10.0.0.7");
        assert_eq!(access.check(far, None, None, "/"), Err(Refusal::Token));
        assert_eq!(access.check(far, None, Some(b"Bearer "), "/"), Err(Refusal::Token), "there is none yet");
        let place = tempfile::tempdir().unwrap();
        let tokens: Vec<String> = std::thread::scope(|scope| {
            let make = || Token::of_run(place.path()).unwrap().authorization();
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(make)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(tokens.iter().all(|token| *token == tokens[0] && token.len() > 40), "all have the same one");
        access.admit_with(Token::of_run(place.path()).unwrap());
        assert_eq!(access.check(far, None, Some(tokens[0].as_bytes()), "/"), Ok(true));
        assert_eq!(access.check(far, None, None, "/"), Err(Refusal::Token));
        // Ampere's own clients prove that they know the token, and do not send it.
        let token = Token::of_run(place.path()).unwrap();
        let access = Access { challenges: Challenges::begin(), ..access };
        let given =
            proof::answer(&token, &access.challenge().unwrap(), &proof::place(Some(own)), "/nodes").unwrap();
        assert_eq!(access.check(far, None, Some(given.as_bytes()), "/nodes"), Ok(true));
        assert_eq!(access.check(far, None, Some(given.as_bytes()), "/summary.json"), Err(Refusal::Token));
    }

    #[test]
    fn the_token_next_to_results_is_not_a_link() {
        let place = tempfile::tempdir().unwrap();
        let (real, link) = (place.path().join("private"), place.path().join(RUN_TOKEN));
        std::fs::write(&real, "0123456789abcdef\n").unwrap();
        std::fs::set_permissions(&real, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        assert!(Token::beside(place.path()).is_err() && Token::load(&link).is_ok());
        std::fs::remove_file(&link).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &link,
            rustix::fs::FileType::Fifo,
            Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        assert!(Token::beside(place.path()).unwrap_err().to_string().contains("is not a file"));
    }

    #[test]
    fn a_token_file_must_be_a_private_file_with_one_word() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("token");
        let refused = |words: &str| {
            let why = Token::load(&path).unwrap_err().to_string();
            assert!(why.contains(words) && !why.contains('\n'), "{why}");
        };
        refused("cannot be read");
        std::fs::write(&path, "0123456789abcdef\n").unwrap();
        let mode = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        mode(0o644);
        refused("is accessible to other users");
        mode(0o600);
        assert_eq!(Token::load(&path).unwrap().authorization(), "Bearer 0123456789abcdef");
        for (content, words) in
            [("short", "has 5 bytes"), ("two words of a token", "more than one word"), ("", "has 0 bytes")]
        {
            std::fs::write(&path, content).unwrap();
            refused(words);
        }
        std::fs::write(&path, "x".repeat(TOKEN_BYTES_MAX + 1)).unwrap();
        refused("bytes: use");
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        refused("is not a file");
    }
}
