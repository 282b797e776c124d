//! Connections to sockets that do not wait.

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Connects to a socket whose server accepts at once. It is an error if the server does not accept, because `connect` would wait
/// forever.
pub fn connect_at_once(path: &Path) -> std::io::Result<UnixStream> {
    connect_to(&SocketAddrUnix::new(path)?)
}

/// Connects to a socket with any kind of name in the same way.
pub fn connect_to(address: &SocketAddrUnix) -> std::io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, address)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}
