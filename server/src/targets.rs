//! The file with which Prometheus finds a collector (`file_sd_configs`), written if `[metrics] targets` is set.

use ampere_collector::run_directory::files::RESULT_MODE;
use ampere_endpoint::listen::UNIX;
use serde_json::json;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// A file with this collector's address. Dropping it removes the file. The successor of a killed collector replaces the file.
#[derive(Debug)]
pub struct TargetFile(PathBuf);

/// The reason why the file was not written.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// The run is served on a socket, which Prometheus cannot read.
    #[error("Prometheus cannot find this run in {0}: it is served on a Unix socket")]
    Socket(PathBuf),
    /// The file cannot be written.
    #[error("Prometheus cannot find this run: cannot write {0}: {1}")]
    Write(PathBuf, std::io::Error),
}

impl TargetFile {
    /// Writes `directory/<run>-<node>.json`. `url` is the address of the metrics. `node` is the name under which other machines
    /// reach this node.
    ///
    /// The file has no labels: the run and its job are in `ampere_run_info`. Prometheus scrapes a target that is also in
    /// `static_configs` twice if the labels of the two differ.
    pub fn write(directory: &Path, url: &str, node: &str, run: &str) -> Result<TargetFile, TargetError> {
        if url.starts_with(UNIX) {
            return Err(TargetError::Socket(directory.to_owned()));
        }
        let file_name = |name: &str| name.replace(|c: char| !c.is_ascii_alphanumeric() && c != '-', "_");
        let path = directory.join(format!("{}-{}.json", file_name(run), file_name(node)));
        let path = std::path::absolute(&path).unwrap_or(path);
        let list = json!([{ "targets": [address(url, node)] }]);
        ampere_owned::make_all(directory, ampere_owned::DIRECTORY_MODE)
            .and_then(|()| ampere_owned::replace_named(&path, RESULT_MODE, |file| writeln!(file, "{list}")))
            .map_err(|why| TargetError::Write(path.clone(), why))?;
        Ok(TargetFile(path))
    }
}

impl Drop for TargetFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Returns host and port. A collector that listens on all addresses of its node is reached under the node's name.
fn address(url: &str, node: &str) -> String {
    let address = url.strip_prefix("http://").unwrap_or(url);
    match address.parse::<SocketAddr>() {
        Ok(listens) if listens.ip().is_unspecified() => format!("{node}:{}", listens.port()),
        _ => address.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_can_be_reached_by_other_nodes() {
        assert_eq!(address("http://127.0.0.1:9977", "node1"), "127.0.0.1:9977");
        assert_eq!(address("http://0.0.0.0:9978", "node1"), "node1:9978");
        assert_eq!(address("http://[::]:9978", "node1"), "node1:9978");
        assert_eq!(address("http://10.0.0.7:9977", "node1"), "10.0.0.7:9977");
    }

    #[test]
    fn the_file_is_there_as_long_as_the_guard() {
        let directory = tempfile::tempdir().expect("a directory");
        let targets = directory.path().join("targets");
        let file = TargetFile::write(&targets, "http://0.0.0.0:9977", "n 1/x", "s-run-1");
        let path = targets.join("s-run-1-n_1_x.json");
        assert_eq!(
            std::fs::read_to_string(&path).expect("it is written").trim(),
            r#"[{"targets":["n 1/x:9977"]}]"#
        );
        drop(file);
        assert!(!path.exists());
    }

    #[test]
    fn a_socket_and_an_unwritable_directory_are_errors() {
        let directory = tempfile::tempdir().expect("a directory");
        let of_socket = TargetFile::write(directory.path(), "unix:/tmp/s", "n", "r");
        assert!(matches!(of_socket, Err(TargetError::Socket(_))));
        let file = directory.path().join("file");
        std::fs::write(&file, "").expect("a file");
        let unwritable = TargetFile::write(&file, "http://127.0.0.1:1", "n", "r");
        assert!(matches!(unwritable, Err(TargetError::Write(..))));
    }
}
