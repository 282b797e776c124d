//! Where a run's collector is: its output directory has the address while the run goes on.

use ampere_collector::serving::access::Token;
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
        let answer = match client::get(url, path, token, limit) {
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
