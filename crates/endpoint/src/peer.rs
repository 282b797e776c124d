//! Finds the user whose process is at the other end of a connection on this node.

use crate::access::Ends;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};
use rustix::process::geteuid;
use std::io::{BufRead, BufReader, Read};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;

/// The maximum number of bytes that are read from the kernel's lists of connections. A client beyond that part of the list counts
/// as unknown.
const LIST_BYTES_MAX: u64 = 16 << 20;
/// The user ID that the kernel shows for users without an ID in this user namespace.
const OVERFLOW_UID: u32 = 65534;
/// The code in the lists for the state of a connection whose two ends are open.
const ESTABLISHED: &str = "01";

/// Whether a client over loopback is a process of this user, or of root, who can read everything anyway.
pub fn is_own_user(ends: Ends) -> bool {
    let (from, here) = (canonical(ends.peer), canonical(ends.own));
    if !from.ip().is_loopback() {
        return false;
    }
    // Some kernels and containers provide only the lists.
    let found = match uid_asked(from, here) {
        Asked::User(uid) => uid,
        Asked::NoAnswer => ["/proc/net/tcp", "/proc/net/tcp6"].iter().find_map(|list| {
            let list = std::fs::File::open(list).ok()?;
            uid_in(BufReader::new(list.take(LIST_BYTES_MAX)), from, here)
        }),
    };
    found.is_some_and(is_trusted)
}

/// The kernel's answer about a connection.
enum Asked {
    /// The user of the socket; `None` if it has been closed.
    User(Option<u32>),
    NoAnswer,
}

/// Numbers of sock_diag(7): the kind of message, the flag of a request, the protocol, and the sizes of the header and a question.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const REQUEST: u16 = 1;
const TCP: u8 = 6;
const HEADER_BYTES: usize = 16;
const QUESTION_BYTES: usize = HEADER_BYTES + 56;
/// The offsets of the connection's state, its ports, the socket's user and its inode in an answer.
const STATE_AT: usize = HEADER_BYTES + 1;
const PORTS_AT: usize = HEADER_BYTES + 4;
const UID_AT: usize = HEADER_BYTES + 64;
const INODE_AT: usize = HEADER_BYTES + 68;

/// Asks the kernel for one connection, which is faster than reading its lists.
fn uid_asked(from: SocketAddr, here: SocketAddr) -> Asked {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let ask = || {
        let kernel =
            socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, Some(netlink::SOCK_DIAG)).ok()?;
        send(&kernel, &question(from, here), SendFlags::empty()).ok()?;
        let mut answer = [0; 512];
        let (_, length) = recv(&kernel, &mut answer[..], RecvFlags::empty()).ok()?;
        let answer = answer.get(..length)?;
        let word = |at: usize| Some(u32::from_ne_bytes(answer.get(at..at + 4)?.try_into().ok()?));
        let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
        let is_same = answer.get(PORTS_AT..PORTS_AT + 4)? == ports(from, here);
        if kind != SOCK_DIAG_BY_FAMILY || !is_same {
            return None;
        }
        // As in the lists, an established connection's state is 1.
        let uid = word(UID_AT)?;
        let inode = word(INODE_AT)?;
        let state = answer[STATE_AT];
        Some((state == 1 && inode != 0).then_some(uid))
    };
    ask().map_or(Asked::NoAnswer, Asked::User)
}

fn ports(from: SocketAddr, here: SocketAddr) -> [u8; 4] {
    let [[a, b], [c, d]] = [from, here].map(|address| address.port().to_be_bytes());
    [a, b, c, d]
}

/// Makes a message that asks for the socket at `from` that is connected to `here`: `nlmsghdr` and `inet_diag_req_v2`.
fn question(from: SocketAddr, here: SocketAddr) -> [u8; QUESTION_BYTES] {
    let mut all = [0; QUESTION_BYTES];
    let mut put = |at: usize, bytes: &[u8]| all[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &(QUESTION_BYTES as u32).to_ne_bytes());
    put(4, &SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    put(6, &REQUEST.to_ne_bytes());
    let family = if from.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    put(HEADER_BYTES, &[family.as_raw() as u8, TCP]);
    put(HEADER_BYTES + 4, &u32::MAX.to_ne_bytes()); // in any state
    put(HEADER_BYTES + 8, &ports(from, here));
    for (at, address) in [(HEADER_BYTES + 12, from), (HEADER_BYTES + 28, here)] {
        match address.ip() {
            IpAddr::V4(ip) => put(at, &ip.octets()),
            IpAddr::V6(ip) => put(at, &ip.octets()),
        }
    }
    put(QUESTION_BYTES - 8, &[0xff; 8]); // with any cookie
    all
}

/// Whether the process at the other end of a Unix socket belongs to this user.
pub fn is_own_socket(socket: impl AsFd) -> bool {
    rustix::net::sockopt::socket_peercred(socket).is_ok_and(|peer| peer.uid.as_raw() == geteuid().as_raw())
}

fn is_trusted(uid: u32) -> bool {
    uid == 0 || uid == geteuid().as_raw() && uid != OVERFLOW_UID
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Returns the user of the socket at `from` that is connected to `here`. After its process has closed the socket, it has no
/// inode, and the kernel no longer knows the user.
fn uid_in(list: impl BufRead, from: SocketAddr, here: SocketAddr) -> Option<u32> {
    let wanted = forms(from).into_iter().zip(forms(here));
    let wanted: Vec<(String, String)> = wanted.collect();
    for line in list.lines().skip(1) {
        let line = line.ok()?;
        let mut words = line.split_ascii_whitespace().skip(1);
        let (Some(local), Some(remote), Some(state)) = (words.next(), words.next(), words.next()) else {
            continue;
        };
        if state != ESTABLISHED || !wanted.iter().any(|(from, here)| local == from && remote == here) {
            continue;
        }
        let (uid, inode) = (words.nth(3)?, words.nth(1)?);
        return uid.parse().ok().filter(|_| inode != "0");
    }
    None
}

/// Returns the forms of an address in the lists, in words of four bytes. An IPv4 address is also written as an IPv6 one.
fn forms(address: SocketAddr) -> Vec<String> {
    let words = |bytes: &[u8]| -> String {
        bytes
            .chunks(4)
            .map(|word| format!("{:08X}", u32::from_ne_bytes(word.try_into().unwrap_or_default())))
            .collect()
    };
    let port = address.port();
    let of_ipv6 = |ip: std::net::Ipv6Addr| format!("{}:{port:04X}", words(&ip.octets()));
    match address.ip() {
        IpAddr::V4(ip) => vec![format!("{}:{port:04X}", words(&ip.octets())), of_ipv6(ip.to_ipv6_mapped())],
        IpAddr::V6(ip) => vec![of_ipv6(ip)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn the_user_at_the_other_end_is_known_as_long_as_the_connection_is_open() {
        for (listens, connects) in [
            ("127.0.0.1:0", "127.0.0.1"),
            ("[::1]:0", "::1"),
            ("[::]:0", "127.0.0.1"),
            ("[::]:0", "::ffff:127.0.0.1"),
        ] {
            let Ok(listener) = TcpListener::bind(listens) else { continue }; // no IPv6 here
            let port = listener.local_addr().unwrap().port();
            let client = TcpStream::connect((connects.parse::<IpAddr>().unwrap(), port)).unwrap();
            let (served, peer) = listener.accept().unwrap();
            let ends = Ends { peer, own: served.local_addr().unwrap() };
            assert_eq!(is_own_user(ends), geteuid().as_raw() != OVERFLOW_UID, "{connects}");
            // Both ways must have the same result.
            let (from, here) = (canonical(peer), canonical(ends.own));
            let listed = ["/proc/net/tcp", "/proc/net/tcp6"]
                .iter()
                .find_map(|list| uid_in(BufReader::new(std::fs::File::open(list).ok()?), from, here));
            assert_eq!(listed, Some(geteuid().as_raw()), "{connects}");
            if let Asked::User(uid) = uid_asked(from, here) {
                assert_eq!(uid, listed, "{connects}");
            }
            let stranger = Ends { peer: SocketAddr::new(peer.ip(), peer.port() ^ 1), ..ends };
            assert!(!is_own_user(stranger));
            drop(client);
            assert!(!is_own_user(ends), "the client has gone");
        }
    }

    #[test]
    fn a_line_of_the_kernels_list_is_understood() {
        const LIST: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   0: \
            0100007F:26F9 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 77 1\n   1: 0100007F:D431 \
            0100007F:26F9 01 00000000:00000000 00:00000000 00000000  1001        0 78 1\n   2: 0100007F:D432 0100007F:26F9 01 \
            00000000:00000000 00:00000000 00000000     0        0 0 1\n   3: 0100007F:D433 0100007F:26F9 06 00000000:00000000 \
            03:00000000 00000000     0        0 0 1\n";
        let here = "127.0.0.1:9977".parse().unwrap();
        let uid = |port| uid_in(LIST.as_bytes(), SocketAddr::new([127, 0, 0, 1].into(), port), here);
        assert_eq!((uid(0xD431), uid(0xD432), uid(0xD433), uid(0xD434)), (Some(1001), None, None, None));
        assert_eq!(
            uid_in(&LIST.as_bytes()[..150], SocketAddr::new([127, 0, 0, 1].into(), 0xD431), here),
            None
        );
    }
}
