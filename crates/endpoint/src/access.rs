//! Decides which HTTP requests are answered: those whose `Host` is a name or an address of this node. If a token is set, they
//! must also carry it. If none is set, requests from other machines must carry the run's own token, which is made by the first
//! collector that needs it.
//!
//! The name is checked because of browsers: a web page may make its own name resolve to 127.0.0.1 (DNS rebinding) to read a local
//! server's answers. Its requests carry that name as `Host`. Addresses cannot be rebound, so they are allowed.

use crate::proof::{self, Challenges};
use crate::token::{Token, TokenError};
use ampere_ring::process::node_name;
use ampere_settings::Config;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};

/// The two ends of a connection over TCP.
#[derive(Clone, Copy, Debug)]
pub struct Ends {
    pub peer: SocketAddr,
    pub own: SocketAddr,
}

/// The reason why a request is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The token is missing or wrong (status 401).
    Token,
    /// The name in `Host` is not this node's (status 403).
    Host,
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

    /// Sets the run's own token, which requests from other machines must carry.
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

/// Returns a node's names in lower case: its name, the short one, the short one with each of the search domains, and localhost.
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
        let access = Access { token: Some(Token::of("0123456789abcdef")), ..access() };
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
    fn requests_from_other_machines_need_the_runs_own_token_if_none_is_set() {
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
}
