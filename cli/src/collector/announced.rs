//! Where a run's collector is: its output directory has the address while the run goes on.

use ampere_collector::serving::access::{RUN_TOKEN, Token};
use ampere_collector::serving::client;
use ampere_model::text::printable;
use ampere_ring::process::node_name;
use anyhow::{Context, bail};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The contents of `collector.json`.
pub struct Announced {
    directory: PathBuf,
    pub url: String,
    node: String,
    run: String,
}

impl Announced {
    /// `None` without such a file, as before the run and after it.
    pub fn of(directory: &Path) -> Option<Announced> {
        let text = std::fs::read(directory.join("collector.json")).ok()?;
        let json: serde_json::Value = serde_json::from_slice(&text).ok()?;
        let word = |name: &str| Some(printable(json.get(name)?.as_str()?));
        Some(Announced {
            directory: directory.to_owned(),
            url: word("url")?,
            node: word("node").unwrap_or_default(),
            run: word("run").unwrap_or_default(),
        })
    }

    /// The token that was made for a run of several nodes, each of which has its results in the first one's output directory
    /// or below it.
    fn token_of_run(&self) -> Option<Token> {
        let mut directories = self.directory.ancestors().take(2);
        directories.find_map(|directory| Token::load(&directory.join(RUN_TOKEN)).ok())
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
        // "Any address" means any of its own node.
        let wildcard = ["http://0.0.0.0:", "http://[::]:"].iter().find_map(|any| self.url.strip_prefix(any));
        let url = match wildcard.filter(|_| !is_here) {
            Some(port) => &format!("http://{node}:{port}"),
            None => &self.url,
        };
        let is_local = |host: &str| ["127.", "[::1]"].iter().any(|local| host.starts_with(local));
        if !is_here && url.strip_prefix("http://").is_none_or(is_local) {
            bail!(
                "its collector answers on {node} alone ({url}): ask there, or have it serve with --listen where it can be reached"
            );
        }
        let advice = || {
            let directory = self.directory.display();
            match is_here {
                true => format!("if the run was killed, ampere recover {directory} finishes it"),
                false => format!("if the run was killed, ampere recover {directory} on {node} finishes it"),
            }
        };
        let of_run = self.token_of_run().filter(|_| token.is_none());
        let answer = match client::get(url, path, token.or(of_run.as_ref()), limit) {
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
