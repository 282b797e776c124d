//! Whose process is at the other end of a connection on this node.

use crate::serving::access::Ends;
use rustix::process::geteuid;
use std::io::{BufRead, BufReader, Read};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;

/// The kernel's lists of connections. More of them is not read: then the client is nobody that is known.
const LIST_BYTES_MAX: u64 = 16 << 20;
/// As whom the kernel shows users who have no number in this user namespace.
const OVERFLOW_UID: u32 = 65534;
/// In the lists, of a connection both of whose ends are open.
const ESTABLISHED: &str = "01";

/// Whether a client over loopback is this user's own process, or root's, who can read everything anyway.
pub(crate) fn is_own_user(ends: Ends) -> bool {
    let (from, here) = (canonical(ends.peer), canonical(ends.own));
    if !from.ip().is_loopback() {
        return false;
    }
    let found = ["/proc/net/tcp", "/proc/net/tcp6"].iter().find_map(|list| {
        let list = std::fs::File::open(list).ok()?;
        uid_in(BufReader::new(list.take(LIST_BYTES_MAX)), from, here)
    });
    found.is_some_and(is_trusted)
}

/// Whether the process at the other end of a Unix socket is this user's.
pub(crate) fn is_own_socket(socket: impl AsFd) -> bool {
    rustix::net::sockopt::socket_peercred(socket).is_ok_and(|peer| peer.uid.as_raw() == geteuid().as_raw())
}

fn is_trusted(uid: u32) -> bool {
    uid == 0 || uid == geteuid().as_raw() && uid != OVERFLOW_UID
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// The user of the socket at `from` that is connected to `here`. Of a socket that its process has closed, the kernel does not know
/// whose it was: it has no inode then.
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

/// How the lists write an address: in words of four bytes. An IPv4 address is also written as an IPv6 one.
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
            let stranger = Ends { peer: SocketAddr::new(peer.ip(), peer.port() ^ 1), ..ends };
            assert!(!is_own_user(stranger));
            drop(client);
            assert!(!is_own_user(ends), "nobody is there any more");
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
