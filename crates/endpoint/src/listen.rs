//! Where /metrics is served: an address, or a socket in the file system that only its user can reach.
//!
//! Any user can occupy ports and names, but no user can make the start of listening take longer than [`LIMIT`].

use crate::connect::connect_at_once;
use crate::{linger, peer};
use rustix::fs::Mode;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, Instant};

/// The address on which the collector listens by default.
pub const DEFAULT_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9977);
/// The address on which the collectors of a run's other nodes listen by default, so that the first node's collector can reach
/// them.
pub const NETWORK_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 9977);
/// The number of ports that are tried, with the wanted one as the first.
const TRIED_PORTS: u16 = 100;
/// The prefix of a socket's path, in place of an address.
pub const UNIX: &str = "unix:";
/// The longest time to wait for other collectors to leave or end, for all ports together.
const LIMIT: Duration = Duration::from_secs(1);
/// The word that means, in place of an address, that nothing is served.
const OFF: &str = "off";
/// Linux limits the path of a socket to this many bytes.
const SOCKET_PATH_MAX: usize = 107;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    Tcp(SocketAddr),
    /// The absolute path of a socket.
    Unix(PathBuf),
    /// The collector does not listen at all.
    Off,
}

/// The text is neither an address nor a socket's path.
#[derive(Debug, thiserror::Error)]
#[error(
    "{0:?} is not an address to listen on: write AMPERE_LISTEN (or --listen) like 127.0.0.1:9977, like \
     unix:/run/user/1000/ampere.sock, or off"
)]
pub struct NoAddress(String);

/// The reason why the collector cannot listen, as a message of one line.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Nothing is to be served.
    #[error("--listen off, or AMPERE_LISTEN=off, asks for that")]
    Off,
    /// The system refuses the address.
    #[error("cannot listen on {address}: {why}; choose another address with --listen")]
    Address { address: SocketAddr, why: std::io::Error },
    /// All ports that were tried are in use.
    #[error("cannot listen on {first} or the {} ports after it: {why}; choose one with --listen", TRIED_PORTS - 1)]
    NoFreePort { first: SocketAddr, why: String },
    /// The socket cannot be made.
    #[error("cannot listen on {UNIX}{}: {why}; choose another path", .path.display())]
    Socket { path: PathBuf, why: String },
}

impl Default for Listen {
    fn default() -> Listen {
        Listen::Tcp(DEFAULT_ADDRESS)
    }
}

impl FromStr for Listen {
    type Err = NoAddress;

    fn from_str(text: &str) -> Result<Listen, NoAddress> {
        let wrong = || NoAddress(text.to_owned());
        if text == OFF {
            return Ok(Listen::Off);
        }
        match text.strip_prefix(UNIX) {
            Some(path) if path.starts_with('/') && path.len() <= SOCKET_PATH_MAX => {
                Ok(Listen::Unix(PathBuf::from(path)))
            }
            Some(_) => Err(wrong()),
            None => text.parse().map(Listen::Tcp).map_err(|_| wrong()),
        }
    }
}

impl Listen {
    /// Whether other machines may reach it.
    pub fn is_open_to_others(&self) -> bool {
        matches!(self, Listen::Tcp(address) if !address.ip().is_loopback())
    }
}

/// Writes the address as [`FromStr`] reads it.
impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Listen::Tcp(address) => address.fmt(f),
            Listen::Unix(path) => write!(f, "{UNIX}{}", path.display()),
            Listen::Off => f.write_str(OFF),
        }
    }
}

/// A listener that is bound to its address or socket.
#[derive(Debug)]
pub enum Bound {
    Tcp(TcpListener, SocketAddr),
    /// A socket, whose file is removed with it.
    Unix(UnixListener, SocketFile),
}

/// A socket's file. Dropping this removes it, if it is still the same file.
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
    /// Returns the address in the form of `collector.json`: `http://127.0.0.1:9977` or `unix:/path`.
    pub fn url(&self) -> String {
        match self {
            Bound::Tcp(_, address) => format!("http://{address}"),
            Bound::Unix(_, file) => format!("{UNIX}{}", file.path.display()),
        }
    }

    /// Returns the abstract name of the socket of a lingering collector: see [`linger`].
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

/// Listens at the wanted address. If the port is in use, the next free one is used. If the system refuses the address, for
/// example because it is another node's, the default one is used. In both cases the second value is a note about it.
pub fn bind(wanted: &Listen) -> Result<(Bound, Option<String>), BindError> {
    let until = Instant::now() + LIMIT;
    match wanted {
        Listen::Tcp(address) => bind_address(*address, until),
        Listen::Unix(path) => bind_socket(path, until).map(|bound| (bound, None)),
        Listen::Off => Err(BindError::Off),
    }
}

/// Returns this node's IPv4 addresses except loopback. It is not known which of a node's many IPv6 addresses others can reach.
pub fn own_addresses() -> Vec<IpAddr> {
    addresses_in(&std::fs::read_to_string("/proc/net/fib_trie").unwrap_or_default())
}

/// Returns the node's addresses from the kernel's tree of routes, in which a line `/32 host LOCAL` follows each of them.
fn addresses_in(routes: &str) -> Vec<IpAddr> {
    let mut found = Vec::new();
    let mut last = None;
    for line in routes.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("|-- ") {
            last = address.parse::<IpAddr>().ok();
        } else if line == "/32 host LOCAL" {
            found.extend(last.filter(|ip| !ip.is_loopback() && !found.contains(ip)));
        }
    }
    found
}

fn bind_address(wanted: SocketAddr, until: Instant) -> Result<(Bound, Option<String>), BindError> {
    let refuse = |why| BindError::Address { address: wanted, why };
    let mut first_error = None;
    for step in 0..TRIED_PORTS {
        let Some(port) = wanted.port().checked_add(step) else { break };
        match bind_port(SocketAddr::new(wanted.ip(), port), until) {
            Ok(listener) => {
                let address = listener.local_addr().map_err(refuse)?;
                let note = (step > 0)
                    .then(|| format!("port {} is in use; metrics are on port {port} instead", wanted.port()));
                return Ok((Bound::Tcp(listener, address), note));
            }
            Err(e) if e.kind() == std::io::ErrorKind::AddrInUse => first_error = first_error.or(Some(e)),
            // The address may belong to another node, in settings that all nodes share. Then this node serves on loopback.
            Err(e) if wanted != DEFAULT_ADDRESS => {
                let (bound, _) = bind_address(DEFAULT_ADDRESS, until)?;
                let note = format!("cannot listen on {wanted}: {e}; metrics are on {} instead", bound.url());
                return Ok((bound, Some(note)));
            }
            Err(e) => return Err(refuse(e)),
        }
    }
    let why = first_error.map_or_else(|| "no port".to_owned(), |e| e.to_string());
    Err(BindError::NoFreePort { first: wanted, why })
}

/// Binds a port. A collector that only lingers on it is asked to leave.
fn bind_port(address: SocketAddr, until: Instant) -> std::io::Result<TcpListener> {
    let mut bound = TcpListener::bind(address);
    let in_use = |bound: &std::io::Result<TcpListener>| {
        bound.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::AddrInUse)
    };
    if in_use(&bound) && linger::ask_to_leave(&linger::name_of_port(address.port()), until) {
        while in_use(&bound) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
            bound = TcpListener::bind(address);
        }
    }
    bound
}

/// Binds a socket. There is no fallback to loopback, because users choose a socket to keep others from reading.
fn bind_socket(path: &Path, until: Instant) -> Result<Bound, BindError> {
    let refuse = |why: String| BindError::Socket { path: path.to_owned(), why };
    if let Ok(found) = std::fs::symlink_metadata(path) {
        if !found.file_type().is_socket() {
            return Err(refuse("there is a file that is not a socket".to_owned()));
        }
        if found.uid() != rustix::process::geteuid().as_raw() {
            return Err(refuse("there is a socket of another user".to_owned()));
        }
        linger::ask_to_leave(&linger::name_of_socket(path), until);
        match connect_at_once(path) {
            Ok(server) if peer::is_own_socket(&server) => {
                return Err(refuse("another collector serves there".to_owned()));
            }
            Ok(_) => return Err(refuse("another user's program serves there".to_owned())),
            Err(why) if why.kind() == std::io::ErrorKind::WouldBlock => {
                return Err(refuse("the program that serves there does not answer".to_owned()));
            }
            Err(_) => {}
        }
        // A killed collector has left this file.
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(refuse(error.to_string()));
            }
            _ => {}
        }
    }
    // No other user may connect, not even before the mode is set.
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
    fn addresses_and_sockets_are_distinguished() {
        for text in ["127.0.0.1:9977", "[::1]:80", "0.0.0.0:1", "unix:/run/ampere.sock", "off"] {
            assert_eq!(text.parse::<Listen>().unwrap().to_string(), text);
        }
        let long = format!("unix:/{}", "x".repeat(200));
        for text in ["", "9977", "localhost", "unix:", "unix:ampere.sock", "unix", &long] {
            let why = text.parse::<Listen>().unwrap_err().to_string();
            assert!(why.contains("is not an address") && !why.contains('\n'), "{why}");
        }
    }

    #[test]
    fn own_addresses_are_those_that_the_kernel_routes_to_itself() {
        const ROUTES: &str = "Main:\n  +-- 0.0.0.0/0 3 0 4\n     |-- 0.0.0.0\n        /0 universe UNICAST\nLocal:\n  +-- 0.0.0.0/0 3 0 5\n     \
            |-- 127.0.0.1\n        /32 host LOCAL\n     +-- 10.1.2.0/24 2 0 2\n        |-- 10.1.2.0\n           /24 link UNICAST\n        \
            |-- 10.1.2.7\n           /32 host LOCAL\n        |-- 10.1.2.255\n           /32 link BROADCAST\n     |-- 10.1.2.7\n        \
            /32 host LOCAL\n";
        assert_eq!(addresses_in(ROUTES), ["10.1.2.7".parse::<IpAddr>().unwrap()]);
    }

    #[test]
    fn a_socket_is_private_and_is_removed_at_the_end() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("a.sock");
        let wanted = Listen::Unix(path.clone());
        let (bound, note) = bind(&wanted).unwrap();
        assert_eq!((bound.url(), note), (wanted.to_string(), None));
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert!(bind(&wanted).unwrap_err().to_string().contains("another collector"));
        drop(bound);
        assert!(!path.exists());
        // The socket of a killed collector is replaced, but a file that is not a socket is kept.
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists() && bind(&wanted).is_ok());
        std::fs::write(&path, "mine").unwrap();
        assert!(bind(&wanted).unwrap_err().to_string().contains("not a socket"));
        assert!(path.exists());
    }
}
