//! Where /metrics is served: an address, or a socket in the file system that is its user's alone.

use crate::serving::linger;
use rustix::fs::Mode;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, Instant};

/// Where the collector listens unless told otherwise.
pub const DEFAULT_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9977);
/// How many ports are tried when the wanted one is in use.
const TRIED_PORTS: u16 = 100;
/// What a socket's name begins with, where an address could stand.
pub const UNIX: &str = "unix:";
/// So soon a process that ends has closed its port.
const CLOSE_LIMIT: Duration = Duration::from_secs(1);
/// Linux has no room for a longer path of a socket.
const LONGEST_SOCKET_PATH: usize = 107;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    Tcp(SocketAddr),
    /// An absolute path.
    Unix(PathBuf),
}

impl Default for Listen {
    fn default() -> Listen {
        Listen::Tcp(DEFAULT_ADDRESS)
    }
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Listen, String> {
        let wrong = || {
            format!(
                "{text:?} is no address to listen on: write AMPERE_LISTEN (or --listen) like 127.0.0.1:9977, or like \
                 unix:/run/user/1000/ampere.sock"
            )
        };
        match text.strip_prefix(UNIX) {
            Some(path) if path.starts_with('/') && path.len() <= LONGEST_SOCKET_PATH => {
                Ok(Listen::Unix(PathBuf::from(path)))
            }
            Some(_) => Err(wrong()),
            None => text.parse().map(Listen::Tcp).map_err(|_| wrong()),
        }
    }
}

/// As [`FromStr`] reads it.
impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Listen::Tcp(address) => address.fmt(f),
            Listen::Unix(path) => write!(f, "{UNIX}{}", path.display()),
        }
    }
}

/// What listens. A socket's file goes with it.
#[derive(Debug)]
pub enum Bound {
    Tcp(TcpListener, SocketAddr),
    Unix(UnixListener, SocketFile),
}

/// Removed when it goes, if it is still the same file.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    inode: u64,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if std::fs::symlink_metadata(&self.path).is_ok_and(|found| found.ino() == self.inode) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl Bound {
    /// What clients are told.
    pub fn url(&self) -> String {
        match self {
            Bound::Tcp(_, address) => format!("http://{address}"),
            Bound::Unix(_, file) => format!("{UNIX}{}", file.path.display()),
        }
    }

    /// By what it is found when it lingers ([`linger`]).
    pub fn lingers_as(&self) -> String {
        match self {
            Bound::Tcp(_, address) => linger::name_of_port(address.port()),
            Bound::Unix(_, file) => linger::name_of_socket(&file.path),
        }
    }

    /// Whether other machines may reach it.
    pub fn is_open_to_others(&self) -> bool {
        matches!(self, Bound::Tcp(_, address) if !address.ip().is_loopback())
    }
}

/// What is wanted or, of an address, the next free port, or else loopback; with a note where it is not what was wanted.
pub fn bind(wanted: &Listen) -> Result<(Bound, Option<String>), String> {
    match wanted {
        Listen::Tcp(address) => bind_address(*address),
        Listen::Unix(path) => bind_socket(path).map(|bound| (bound, None)),
    }
}

fn bind_address(wanted: SocketAddr) -> Result<(Bound, Option<String>), String> {
    let mut first_error = None;
    for step in 0..TRIED_PORTS {
        let Some(port) = wanted.port().checked_add(step) else { break };
        match bind_port(SocketAddr::new(wanted.ip(), port)) {
            Ok(listener) => {
                let address = listener.local_addr().map_err(|e| format!("no address to listen on: {e}"))?;
                let note = (step > 0)
                    .then(|| format!("port {} is in use; metrics are on port {port} instead", wanted.port()));
                return Ok((Bound::Tcp(listener, address), note));
            }
            Err(e) if e.kind() == std::io::ErrorKind::AddrInUse => first_error = first_error.or(Some(e)),
            // An address of another node, say, where one setting is for all of them: figures matter more than where.
            Err(e) if wanted != DEFAULT_ADDRESS => {
                let note = format!("cannot listen on {wanted}: {e}; metrics are on loopback instead");
                return bind_address(DEFAULT_ADDRESS).map(|(bound, _)| (bound, Some(note)));
            }
            Err(e) => {
                return Err(format!("cannot listen on {wanted}: {e}; choose another address with --listen"));
            }
        }
    }
    let why = first_error.map_or_else(|| "no port".to_owned(), |e| e.to_string());
    Err(format!(
        "cannot listen on {wanted} or the {TRIED_PORTS} ports after it: {why}; choose one with --listen"
    ))
}

/// A collector whose run is over, and that serves on for who has yet to see its final figures, leaves.
fn bind_port(address: SocketAddr) -> std::io::Result<TcpListener> {
    let begun = Instant::now();
    let mut bound = TcpListener::bind(address);
    let in_use = |bound: &std::io::Result<TcpListener>| {
        bound.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::AddrInUse)
    };
    if in_use(&bound) && linger::has_left(&linger::name_of_port(address.port())) {
        while in_use(&bound) && begun.elapsed() < CLOSE_LIMIT {
            std::thread::sleep(Duration::from_millis(1));
            bound = TcpListener::bind(address);
        }
    }
    bound
}

/// Never loopback instead: who wants a socket wants nobody else to read.
fn bind_socket(path: &Path) -> Result<Bound, String> {
    let refuse =
        |why: String| format!("cannot listen on {UNIX}{}: {why}; choose another path", path.display());
    if let Ok(found) = std::fs::symlink_metadata(path) {
        if !found.file_type().is_socket() {
            return Err(refuse("there is a file that is no socket".to_owned()));
        }
        linger::has_left(&linger::name_of_socket(path));
        if UnixStream::connect(path).is_ok() {
            return Err(refuse("another collector serves there".to_owned()));
        }
        // One that was killed has left it.
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(refuse(error.to_string()));
            }
            _ => {}
        }
    }
    // From its first moment on it is ours alone.
    let before = rustix::process::umask(Mode::from_raw_mode(0o177));
    let bound = UnixListener::bind(path);
    rustix::process::umask(before);
    let listener = bound.map_err(|e| refuse(e.to_string()))?;
    let made = std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
        .and_then(|()| std::fs::symlink_metadata(path))
        .map_err(|e| refuse(e.to_string()))?;
    Ok(Bound::Unix(listener, SocketFile { path: path.to_owned(), inode: made.ino() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_sockets_are_told_apart() {
        for text in ["127.0.0.1:9977", "[::1]:80", "0.0.0.0:1", "unix:/run/ampere.sock"] {
            assert_eq!(text.parse::<Listen>().unwrap().to_string(), text);
        }
        let long = format!("unix:/{}", "x".repeat(200));
        for text in ["", "9977", "localhost", "unix:", "unix:ampere.sock", "unix", &long] {
            let why = text.parse::<Listen>().unwrap_err();
            assert!(why.contains("is no address") && !why.contains('\n'), "{why}");
        }
    }

    #[test]
    fn a_socket_is_its_users_alone_and_goes() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("a.sock");
        let wanted = Listen::Unix(path.clone());
        let (bound, note) = bind(&wanted).unwrap();
        assert_eq!((bound.url(), note), (wanted.to_string(), None));
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert!(bind(&wanted).unwrap_err().contains("another collector"));
        drop(bound);
        assert!(!path.exists());
        // What a killed one has left is taken over; what is no socket stays.
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists() && bind(&wanted).is_ok());
        std::fs::write(&path, "mine").unwrap();
        assert!(bind(&wanted).unwrap_err().contains("no socket"));
        assert!(path.exists());
    }
}
