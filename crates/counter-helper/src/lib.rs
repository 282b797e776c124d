//! Passes energy counters that only root may open to the members of a group, on nodes where an administrator has set this up.
//!
//! systemd listens on a Unix socket that only root and the group may connect to, and starts the helper for each connection, with
//! the connection as its standard input. The helper opens the counters for reading, sends their descriptors, and ends. It
//! receives nothing: a client cannot choose a file. The client then reads the counters itself, as often as it needs to.
//!
//! Each message is the name of a zone below `/sys/class/powercap`, with the descriptor of its file `energy_uj`. A message without
//! a descriptor is the reason why there are none.

use rustix::cmsg_space;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, getsockname, recvmsg,
    sendmsg, socket_with,
};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The path of the socket, without the leading `/`.
const SOCKET: &str = "run/ampere-counters.sock";
/// The folder of the counters, without the leading `/`.
const COUNTERS: &str = "sys/class/powercap";
const COUNTER_FILE: &str = "energy_uj";
/// The counters' zones have names that begin with this.
pub const ZONE_PREFIX: &str = "intel-rapl:";
/// The maximum number of counters that are passed.
const COUNTERS_MAX: usize = 256;
/// The maximum length of a message.
const MESSAGE_BYTES_MAX: usize = 256;
/// The time for which a client waits for each message.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);
/// The permission bits of a file for users who are neither its owner nor in its group.
const OTHERS: u32 = 0o007;

/// The reason why the helper passes no counters.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    #[error(
        "standard input is not a connection to a Unix socket: systemd starts this program (ampere-counters.socket)"
    )]
    NoConnection,
    #[error("{} is open to all users: set SocketMode=0660 in ampere-counters.socket", .0.display())]
    OpenToAll(PathBuf),
    #[error("there are no counters in {}", .0.display())]
    NoCounters(PathBuf),
    #[error("the client does not receive: {0}")]
    Send(#[source] io::Error),
}

/// The reason why a client has no counters.
#[derive(Debug, thiserror::Error)]
pub enum NoAnswer {
    /// The node has no helper.
    #[error("the node has no helper")]
    Absent,
    #[error("only root and members of the group of {} may ask for them", .0.display())]
    Stranger(PathBuf),
    #[error("{} does not belong to root", .0.display())]
    NotRoot(PathBuf),
    #[error("the helper answered: {0}")]
    Refused(String),
    #[error("{}: {source}", .path.display())]
    Io { path: PathBuf, source: io::Error },
}

/// Sends the counters below `root` to the client of this connection.
///
/// # Errors
/// A [`Refusal`], which the client has received, too.
pub fn serve(connection: impl AsFd, root: &Path) -> Result<(), Refusal> {
    let served = check(&connection).and_then(|()| send_counters(&connection, root));
    if let Err(why) = &served {
        // If the client is gone, nobody needs the reason.
        let _ = send(&connection, why.to_string().as_bytes(), None);
    }
    served
}

/// Checks that only root and one group may connect to the socket. The kernel has then checked that the client may.
fn check(connection: impl AsFd) -> Result<(), Refusal> {
    let address = getsockname(connection).ok().and_then(|address| SocketAddrUnix::try_from(address).ok());
    let path = address.as_ref().and_then(SocketAddrUnix::path_bytes).filter(|path| !path.is_empty());
    let path =
        path.map(|path| PathBuf::from(std::ffi::OsStr::from_bytes(path))).ok_or(Refusal::NoConnection)?;
    let mode = path.symlink_metadata().map_err(|_| Refusal::NoConnection)?.permissions().mode();
    if mode & OTHERS == 0 { Ok(()) } else { Err(Refusal::OpenToAll(path)) }
}

fn send_counters(connection: impl AsFd, root: &Path) -> Result<(), Refusal> {
    let folder = root.join(COUNTERS);
    let zones = std::fs::read_dir(&folder).into_iter().flatten().flatten();
    let names = zones.filter_map(|zone| zone.file_name().into_string().ok());
    let names = names.filter(|name| name.starts_with(ZONE_PREFIX)).take(COUNTERS_MAX);
    let counters = names.filter_map(|name| {
        let file = File::open(folder.join(&name).join(COUNTER_FILE)).ok()?;
        Some((name, file))
    });
    let mut is_any = false;
    for (name, file) in counters {
        send(&connection, name.as_bytes(), Some(&file)).map_err(Refusal::Send)?;
        is_any = true;
    }
    if is_any { Ok(()) } else { Err(Refusal::NoCounters(folder)) }
}

fn send(connection: impl AsFd, text: &[u8], file: Option<&File>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = file.map(|file| [file.as_fd()]);
    if let Some(descriptors) = &descriptors {
        control.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    let text = &text[..text.len().min(MESSAGE_BYTES_MAX)];
    // A client that does not read must not keep a process of root waiting.
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    sendmsg(connection, &[IoSlice::new(text)], &mut control, flags)?;
    Ok(())
}

/// Asks the helper of the node for its counters. Returns the open files `energy_uj` by the names of their zones.
///
/// # Errors
/// A [`NoAnswer`] if there is no helper, if this user may not ask, or if the helper has no counters.
pub fn request(root: &Path) -> Result<BTreeMap<String, File>, NoAnswer> {
    let path = root.join(SOCKET);
    let failed = |source: Errno| match source {
        Errno::NOENT | Errno::CONNREFUSED => NoAnswer::Absent,
        Errno::ACCESS => NoAnswer::Stranger(path.clone()),
        source => NoAnswer::Io { path: path.clone(), source: source.into() },
    };
    let address = SocketAddrUnix::new(&path).map_err(failed)?;
    let connection = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
    let connection = connection.map_err(failed)?;
    for of in [Timeout::Send, Timeout::Recv] {
        set_socket_timeout(&connection, of, Some(ANSWER_LIMIT)).map_err(failed)?;
    }
    connect(&connection, &address).map_err(failed)?;
    if !socket_peercred(&connection).map_err(failed)?.uid.is_root() {
        return Err(NoAnswer::NotRoot(path));
    }
    let mut counters = BTreeMap::new();
    while counters.len() < COUNTERS_MAX {
        let mut text = [0; MESSAGE_BYTES_MAX];
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let parts = &mut [IoSliceMut::new(&mut text)];
        let received = recvmsg(&connection, parts, &mut control, RecvFlags::CMSG_CLOEXEC).map_err(failed)?;
        let has_all = !received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC);
        if received.bytes == 0 {
            break;
        }
        let descriptors = control.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        });
        let file = descriptors.flatten().next().map(File::from);
        let text = String::from_utf8_lossy(&text[..received.bytes]).into_owned();
        match file.filter(|_| has_all) {
            Some(file) => _ = counters.insert(text, file),
            None => return Err(NoAnswer::Refused(text)),
        }
    }
    Ok(counters)
}
