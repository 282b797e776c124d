//! Connects to Unix sockets without waiting.

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Connects to a socket. Fails if the server cannot accept the connection at once: a blocking `connect` could wait forever.
pub fn connect_at_once(path: &Path) -> std::io::Result<UnixStream> {
    connect_to(&SocketAddrUnix::new(path)?)
}

/// Like [`connect_at_once`], for an address that need not be a path.
pub fn connect_to(address: &SocketAddrUnix) -> std::io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, address)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}
