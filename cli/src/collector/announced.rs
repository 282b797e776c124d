//! Where a run's collector is: its output directory has the address while the run goes on.

use ampere_collector::run_directory::output::foreign_run;
use ampere_collector::serving::access::{RUN_TOKEN, Token};
use ampere_collector::serving::client;
use ampere_model::text::printable;
use ampere_ring::process::node_name;
use anyhow::{Context, bail};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// More bytes the file cannot have.
const BYTES_MAX: u64 = 1 << 20;
/// Addresses of a node that are tried.
const MOST_ADDRESSES: usize = 4;

/// The contents of `collector.json`.
pub struct Announced {
    directory: PathBuf,
    pub url: String,
    node: String,
    run: String,
    /// Of its node, where it listens on all of them.
    addresses: Vec<IpAddr>,
}

impl Announced {
    /// `None` without such a file, as before the run and after it.
    pub fn of(directory: &Path) -> Option<Announced> {
        let text = ampere_owned::read(&directory.join("collector.json"), BYTES_MAX).ok()?;
        let json: serde_json::Value = serde_json::from_slice(&text).ok()?;
        let word = |name: &str| Some(printable(json.get(name)?.as_str()?));
        Some(Announced {
            directory: directory.to_owned(),
            url: word("url")?,
            node: word("node").unwrap_or_default(),
            run: word("run").unwrap_or_default(),
            addresses: serde_json::from_value(json["addresses"].clone()).unwrap_or_default(),
        })
    }

    /// The token that was made for a run of several nodes, each of which has its results in the first one's output directory
    /// or below it.
    fn token_of_run(&self) -> Option<Token> {
        let mut directories = self.directory.ancestors().take(2);
        directories.find_map(|directory| Token::load(&directory.join(RUN_TOKEN)).ok())
    }

    /// Where it is asked, the best first. "Any address" means any of its own node.
    fn urls(&self, is_here: bool) -> Vec<String> {
        let wildcard = ["http://0.0.0.0:", "http://[::]:"].iter().find_map(|any| self.url.strip_prefix(any));
        match wildcard.filter(|_| !is_here).and_then(|port| port.parse().ok()) {
            Some(port) => {
                let addresses = self.addresses.iter().take(MOST_ADDRESSES);
                let addresses =
                    addresses.map(|address| format!("http://{}", SocketAddr::new(*address, port)));
                std::iter::once(format!("http://{}:{port}", self.node)).chain(addresses).collect()
            }
            None => vec![self.url.clone()],
        }
    }

    /// Asks the collector. What answers at that address may be another one, mostly another run's on this node: an error.
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
        let is_here = *node == node_name();
        let urls = self.urls(is_here);
        let is_local = |host: &str| ["127.", "[::1]"].iter().any(|local| host.starts_with(local));
        if !is_here && urls[0].strip_prefix("http://").is_none_or(is_local) {
            bail!(
                "its collector answers on {node} alone ({}): ask there, or have it serve with --listen where it can be reached",
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
        let of_run = self.token_of_run().filter(|_| token.is_none());
        let is_reached = |answer: &Result<_, _>| !matches!(answer, Err(client::Error::Unreachable { .. }));
        let token = token.or(of_run.as_ref());
        let mut answers = urls.iter().map(|url| (url, client::get(url, path, token, limit)));
        let (mut url, mut answer) = answers.next().context("no address")?;
        // A name that is not known here is of a node whose addresses are.
        if !is_reached(&answer)
            && let Some(reached) = answers.find(|(_, answer)| is_reached(answer))
        {
            (url, answer) = reached;
        }
        let answer = match answer {
            Err(why @ client::Error::Unreachable { .. }) => bail!("{why}: {}", advice()),
            answer => answer?,
        };
        let answer: T = serde_json::from_slice(&answer)
            .with_context(|| format!("what answers at {url} is no collector of this ampere"))?;
        let run = printable(run_of(&answer)); // not known yet just after its start
        if !self.run.is_empty() && !run.is_empty() && run != self.run {
            bail!("what answers at {url} is another run: {}", advice());
        }
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_token_of_a_run_is_passed_on_also_from_another_nodes_results() {
        let output = tempfile::tempdir().expect("a directory");
        let of_node = output.path().join("n1");
        std::fs::create_dir(&of_node).expect("a directory");
        let token = output.path().join(RUN_TOKEN);
        std::fs::write(&token, "0123456789abcdef0123\n").expect("a token");
        std::fs::set_permissions(&token, PermissionsExt::from_mode(0o600)).expect("chmod");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let json = serde_json::json!({ "url": url, "node": node_name(), "run": "r" });
        std::fs::write(of_node.join("collector.json"), json.to_string()).expect("a file");
        let asked = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a request");
            let mut request = vec![0; 4096];
            let length = stream.read(&mut request).expect("a request");
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n\"r\"").expect("an answer");
            String::from_utf8_lossy(&request[..length]).into_owned()
        });
        let announced = Announced::of(&of_node).expect("a collector");
        let answer: String =
            announced.get("/x", None, Duration::from_secs(5), |run: &String| run).expect("r");
        assert_eq!(answer, "r");
        let request = asked.join().expect("a request").to_lowercase();
        assert!(request.contains("authorization: bearer 0123456789abcdef0123"), "{request}");
    }
}
