//! Finds a run's collector: while the run lasts, its output directory has the collector's address.

use ampere_collector::run_directory::output::foreign_run;
use ampere_endpoint::announcement::Announcement;
use ampere_endpoint::client::{self, Secret};
use ampere_endpoint::token::Token;
use ampere_model::text::printable;
use ampere_ring::process::is_this_node;
use anyhow::{Context, bail};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The maximum number of a node's addresses that are tried.
const ADDRESSES_MAX: usize = 4;

/// The collector of the run in a directory.
pub struct Announced {
    directory: PathBuf,
    pub url: String,
    node: String,
    run: String,
    /// The node's addresses, if the collector listens on all of them.
    addresses: Vec<IpAddr>,
    /// Whether the announcement was written by a collector of this user.
    is_own: bool,
}

impl Announced {
    /// Reads the announcement in a run's output directory. Returns `None` if there is none, as before and after the run.
    pub fn of(directory: &Path) -> Option<Announced> {
        let Announcement { url, node, run, addresses, is_own } = Announcement::read(directory)?;
        let [url, node, run] = [url, node, run].map(|word| printable(&word));
        Some(Announced { directory: directory.to_owned(), url, node, run, addresses, is_own })
    }

    /// Returns the token that was made for a run on several nodes. It is in the output directory of the first node. Other nodes
    /// have their results in a directory below that one.
    fn token_of_run(&self) -> Option<Token> {
        let mut directories = self.directory.ancestors().take(2);
        directories.find_map(|directory| Token::of_results(directory).ok())
    }

    /// Returns the URLs to try, the best first. A collector of another node that listens on all addresses is tried at
    /// that node's name and addresses.
    fn urls(&self, is_here: bool) -> Vec<String> {
        let wildcard = ["http://0.0.0.0:", "http://[::]:"].iter().find_map(|any| self.url.strip_prefix(any));
        match wildcard.filter(|_| !is_here).and_then(|port| port.parse().ok()) {
            Some(port) => {
                let addresses = self.addresses.iter().take(ADDRESSES_MAX);
                let addresses =
                    addresses.map(|address| format!("http://{}", SocketAddr::new(*address, port)));
                std::iter::once(format!("http://{}:{port}", self.node)).chain(addresses).collect()
            }
            None => vec![self.url.clone()],
        }
    }

    /// Sends a request to one of the collector's addresses. If the announcement was written by another user, no token is used. If
    /// it is this user's, the token itself is not sent, only a proof of knowing it, because another process may have taken over
    /// the port.
    pub fn ask(
        &self,
        url: &str,
        path: &str,
        token: Option<&Token>,
        limit: Duration,
    ) -> Result<Vec<u8>, client::Error> {
        let of_run = self.token_of_run().filter(|_| self.is_own && token.is_none());
        let token = token.filter(|_| self.is_own).or(of_run.as_ref());
        client::get(url, path, token.map_or(Secret::None, Secret::Proved), limit)
    }

    /// Sends a request to the collector. It is an error if something else answers at that address, for example the collector of
    /// another run on this node. `run_of` returns the run's id in an answer.
    pub fn get<T>(
        &self,
        path: &str,
        token: Option<&Token>,
        limit: Duration,
        run_of: impl Fn(&T) -> &str,
    ) -> anyhow::Result<T>
    where
        T: serde::de::DeserializeOwned,
    {
        let node = &self.node;
        let is_here = is_this_node(node);
        let urls = self.urls(is_here);
        let is_local = |host: &str| ["127.", "[::1]"].iter().any(|local| host.starts_with(local));
        if !is_here && urls[0].strip_prefix("http://").is_none_or(is_local) {
            bail!(
                "its collector can be reached only on {node} ({}): run this command there, or start the run with a --listen address that other nodes can reach",
                self.url
            );
        }
        let advice = || {
            let directory = self.directory.display();
            if let Some(owner) = ampere_owned::other_owner(&self.directory) {
                return foreign_run(&self.directory, owner);
            }
            match is_here {
                true => format!("if the run was killed, ampere recover {directory} finishes it"),
                false => format!("if the run was killed, ampere recover {directory} on {node} finishes it"),
            }
        };
        let is_reached = |answer: &Result<_, _>| !matches!(answer, Err(client::Error::Unreachable { .. }));
        let mut answers = urls.iter().map(|url| (url, self.ask(url, path, token, limit)));
        let (mut url, mut answer) = answers.next().context("no address")?;
        // If the node's name cannot be resolved here, its announced addresses are used.
        if !is_reached(&answer)
            && let Some(reached) = answers.find(|(_, answer)| is_reached(answer))
        {
            (url, answer) = reached;
        }
        let answer = match answer {
            Err(why @ client::Error::Unreachable { .. }) => bail!("{why}: {}", advice()),
            Err(client::Error::WantsToken { .. }) if !self.is_own => bail!(
                "the run in {} belongs to another user, and its collector requires a token; no token is sent to another user's collector",
                self.directory.display()
            ),
            answer => answer?,
        };
        let answer: T = serde_json::from_slice(&answer).with_context(|| {
            format!("the program that answers at {url} is not a collector of this version of ampere")
        })?;
        let run = printable(run_of(&answer)); // a collector that has just started has no id yet
        if !self.run.is_empty() && !run.is_empty() && run != self.run {
            bail!("the collector at {url} belongs to another run: {}", advice());
        }
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ampere_endpoint::token::RUN_TOKEN;
    use std::io::{Read, Write};
    use std::os::unix::fs::PermissionsExt;

    const TOKEN: &str = "0123456789abcdef0123";

    /// Answers requests with these answers, and returns the requests.
    fn serve(answers: Vec<&'static str>) -> (String, std::thread::JoinHandle<Vec<String>>) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let asked = std::thread::spawn(move || {
            let answer = |answer: &str| {
                let (mut stream, _) = listener.accept().expect("a request");
                let mut request = vec![0; 4096];
                let length = stream.read(&mut request).expect("a request");
                stream.write_all(answer.as_bytes()).expect("an answer");
                String::from_utf8_lossy(&request[..length]).to_lowercase()
            };
            answers.into_iter().map(answer).collect()
        });
        (url, asked)
    }

    fn announce(directory: &Path, url: &str) -> Announced {
        let json = serde_json::json!({ "url": url, "node": ampere_ring::process::node_name(), "run": "r" });
        std::fs::write(directory.join("collector.json"), json.to_string()).expect("a file");
        Announced::of(directory).expect("a collector")
    }

    fn token_in(directory: &Path) {
        let token = directory.join(RUN_TOKEN);
        std::fs::write(&token, format!("{TOKEN}\n")).expect("a token");
        std::fs::set_permissions(&token, PermissionsExt::from_mode(0o600)).expect("chmod");
    }

    const REFUSAL: &str =
        "HTTP/1.1 401 No\r\nWWW-Authenticate: Bearer\r\nWWW-Authenticate: Ampere 5-ab\r\n\r\n";
    const ANSWER: &str = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n\"r\"";

    #[test]
    fn the_token_of_a_run_is_proved_and_never_sent() {
        let output = tempfile::tempdir().expect("a directory");
        let of_node = output.path().join("n1");
        std::fs::create_dir(&of_node).expect("a directory");
        token_in(output.path());
        let (url, asked) = serve(vec![REFUSAL, ANSWER]);
        let announced = announce(&of_node, &url);
        let answer: String =
            announced.get("/x", None, Duration::from_secs(5), |run: &String| run).expect("r");
        assert_eq!(answer, "r");
        let requests = asked.join().expect("requests");
        assert!(!requests[0].contains("authorization"), "{requests:?}");
        assert!(requests[1].contains("authorization: ampere 5-ab "), "{requests:?}");
        assert!(requests.iter().all(|request| !request.contains(TOKEN)), "{requests:?}");
    }

    #[test]
    fn an_address_that_another_user_announced_gets_neither_a_token_nor_a_proof() {
        let output = tempfile::tempdir().expect("a directory");
        token_in(output.path());
        let (url, asked) = serve(vec![REFUSAL]);
        let announced = Announced { is_own: false, ..announce(output.path(), &url) };
        let token = Token::of_results(output.path()).expect("a token");
        let why = announced.get("/x", Some(&token), Duration::from_secs(5), |run: &String| run).unwrap_err();
        assert!(why.to_string().contains("belongs to another user"), "{why}");
        let requests = asked.join().expect("a request");
        assert!(!requests[0].contains("authorization") && requests.len() == 1, "{requests:?}");
    }
}
