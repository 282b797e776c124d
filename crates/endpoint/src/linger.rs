//! Records which Prometheus servers scrape, and decides how long the collector keeps serving them after the run.
//!
//! Prometheus scrapes at its own intervals, so the energy after its last scrape would be missing in its database. So the
//! collector keeps serving until each scraper has seen the final figures, for at most twice the scraper's usual interval. By then
//! the results are written, and neither the application nor `ampere run` waits for it. Another collector that needs the same port
//! does not wait either: it asks this one to leave, over a socket in Linux's abstract namespace. That namespace, like ports,
//! belongs to the network namespace. Any user can take such a name, and connect to it, so both ends check the other one's user.

use crate::connect::connect_to;
use crate::peer;
use rustix::net::SocketAddrUnix;
use std::net::IpAddr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The longest interval of scrapes. For Prometheus, a series that it has not seen for five minutes has ended, so no server
/// scrapes less often.
const INTERVAL_MAX: Duration = Duration::from_secs(300);
/// The interval of a scraper that has scraped only once is unknown. The time since then is used instead, up to this limit.
const UNKNOWN_INTERVAL_MAX: Duration = Duration::from_secs(60);
/// The `User-Agent` of the live page in a [`Scraper`].
pub const PAGE: &str = "ampere's page";
/// The shortest interval that is assumed for pages. All pages at the same address are one scraper, so their mean interval is
/// shorter than that of each of them, and on a busy machine a page needs seconds for its next request.
const PAGE_INTERVAL_MIN: Duration = Duration::from_secs(5);
const SCRAPERS_MAX: usize = 16;
/// The period with which a lingering collector checks whether it may end.
const CHECK_PERIOD: Duration = Duration::from_millis(10);
/// Linux limits a name to 107 bytes; the prefix takes some of them.
const NAME_CHARS_MAX: usize = 80;

/// A scraper's address, if it has one, and its `User-Agent`, which distinguishes two servers on one machine.
pub type Scraper = (Option<IpAddr>, String);

struct Scrapes {
    by: Scraper,
    first: Instant,
    last: Instant,
    count: u32,
    has_seen_last: bool,
}

impl Scrapes {
    /// Returns the latest time of its next scrape. `end` is the end of the run.
    fn expected_until(&self, end: Instant) -> Instant {
        let interval = match self.count {
            0 | 1 => end.saturating_duration_since(self.last).min(UNKNOWN_INTERVAL_MAX),
            many => (self.last - self.first) / (many - 1),
        };
        let least = if self.by.1 == PAGE { PAGE_INTERVAL_MIN } else { Duration::ZERO };
        self.last + 2 * interval.clamp(least, INTERVAL_MAX)
    }
}

#[derive(Clone, Default)]
pub struct Scrapers(Arc<Mutex<Vec<Scrapes>>>);

impl Scrapers {
    fn all(&self) -> MutexGuard<'_, Vec<Scrapes>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a scraper received an answer. `is_last`: the answer had the final figures.
    pub fn answered(&self, by: &Scraper, at: Instant, is_last: bool) {
        let mut all = self.all();
        if let Some(known) = all.iter_mut().find(|known| known.by == *by) {
            (known.last, known.count) = (at, known.count.saturating_add(1));
            known.has_seen_last |= is_last;
        } else if all.len() < SCRAPERS_MAX {
            let by = by.clone();
            all.push(Scrapes { by, first: at, last: at, count: 1, has_seen_last: is_last });
        }
    }

    /// Returns the latest time at which a scraper that has not seen the final figures is expected; `None` if there is none. `end`
    /// is the end of the run.
    pub fn awaited_until(&self, end: Instant) -> Option<Instant> {
        self.all().iter().filter(|of| !of.has_seen_last).map(|of| of.expected_until(end)).max()
    }
}

/// Waits until all scrapers have seen the final figures or are overdue, another collector wants the address, or `stop` is set.
/// `address`: from [`name_of_port`] or [`name_of_socket`]. Keep the returned socket open until the server's is closed: its end
/// shows the other collector that the address is free.
pub fn linger(scrapers: &Scrapers, address: &str, end: Instant, stop: &AtomicBool) -> Option<UnixStream> {
    let is_awaited = || scrapers.awaited_until(end).is_some_and(|until| Instant::now() < until);
    if !is_awaited() {
        return None;
    }
    // If the name cannot be taken, other collectors cannot ask this one to leave, and use the next port.
    let listener = SocketAddr::from_abstract_name(address).and_then(|name| UnixListener::bind_addr(&name));
    let listener = listener.and_then(|listener| listener.set_nonblocking(true).map(|()| listener)).ok();
    while is_awaited() && !stop.load(Ordering::Relaxed) {
        if let Some(Ok((asks, _))) = listener.as_ref().map(UnixListener::accept)
            && peer::is_own_socket(&asks)
        {
            return Some(asks);
        }
        std::thread::sleep(CHECK_PERIOD);
    }
    None
}

/// Asks this user's lingering collector to leave, and waits until it has left, at most until `until`. Returns whether it has
/// left.
pub fn ask_to_leave(address: &str, until: Instant) -> bool {
    let stream = SocketAddrUnix::new_abstract_name(address.as_bytes())
        .map_err(Into::into)
        .and_then(|name| connect_to(&name));
    let Ok(mut stream) = stream else { return false };
    let limit = until.saturating_duration_since(Instant::now());
    if limit.is_zero() || !peer::is_own_socket(&stream) || stream.set_read_timeout(Some(limit)).is_err() {
        return false;
    }
    // The other collector sends nothing. The read ends when it closes the socket, at the latest when its process ends.
    std::io::Read::read(&mut stream, &mut [0]).is_ok()
}

/// Returns the abstract name of this user's collector that lingers on a port.
pub fn name_of_port(port: u16) -> String {
    format!("ampere-{}-{port}", rustix::process::geteuid().as_raw())
}

/// Returns the abstract name of this user's collector that lingers on a socket.
pub fn name_of_socket(path: &Path) -> String {
    let path = path.to_string_lossy();
    let from = path.char_indices().map(|(at, _)| at).find(|at| path.len() - at <= NAME_CHARS_MAX);
    format!("ampere-{}-{}", rustix::process::geteuid().as_raw(), &path[from.unwrap_or(0)..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by(number: u8) -> Scraper {
        (Some(IpAddr::from([10, 0, 0, number])), "Prometheus".to_owned())
    }

    #[test]
    fn a_scraper_is_awaited_for_twice_its_interval_until_it_has_seen_the_final_figures() {
        let (begin, second) = (Instant::now(), Duration::from_secs(1));
        let scrapers = Scrapers::default();
        let end = begin + 100 * second;
        assert_eq!(scrapers.awaited_until(end), None);
        (0..10).for_each(|n| scrapers.answered(&by(1), begin + 10 * n * second, false));
        assert_eq!(scrapers.awaited_until(end), Some(begin + 110 * second));
        // Another server scrapes more often.
        (0..99).for_each(|n| scrapers.answered(&by(2), begin + n * second, false));
        scrapers.answered(&by(1), begin + 101 * second, true);
        assert_eq!(scrapers.awaited_until(end), Some(begin + 100 * second));
        scrapers.answered(&by(2), begin + 102 * second, true);
        assert_eq!(scrapers.awaited_until(end), None);
        // For a server that has scraped once, the time since then is used as the interval.
        scrapers.answered(&by(3), begin + 95 * second, false);
        assert_eq!(scrapers.awaited_until(end), Some(begin + 105 * second));
        scrapers.answered(&by(4), begin, false);
        assert_eq!(scrapers.awaited_until(end), Some(begin + 120 * second));
    }

    #[test]
    fn a_lingering_collector_leaves_when_another_asks() {
        let path = std::env::temp_dir().join(format!("{}-{}.sock", "x".repeat(100), std::process::id()));
        let name = name_of_socket(&path);
        let ask = |name: &str| ask_to_leave(name, Instant::now() + Duration::from_secs(1));
        assert!(!ask(&name), "none lingers yet");
        let scrapers = Scrapers::default();
        let now = Instant::now();
        scrapers.answered(&by(1), now - Duration::from_secs(60), false);
        scrapers.answered(&by(1), now, false);
        let other = name.clone();
        // Dropping the returned socket closes it, as the end of a process does.
        let lingers =
            std::thread::spawn(move || drop(linger(&scrapers, &other, now, &AtomicBool::new(false))));
        while !ask(&name) {
            assert!(now.elapsed() < Duration::from_secs(10), "it was not found");
        }
        lingers.join().unwrap();
    }

    #[test]
    fn an_owner_of_a_name_that_never_answers_is_waited_for_only_up_to_the_limit() {
        let path = std::env::temp_dir().join(format!("silent-{}.sock", std::process::id()));
        let name = name_of_socket(&path);
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        rustix::net::listen(&listener, 4).unwrap(); // a short queue, so that few sockets fill it
        let begun = Instant::now();
        assert!(
            !ask_to_leave(&name, begun + Duration::from_millis(200)),
            "the owner accepts the connection and never answers"
        );
        // Nothing accepts connections, so there is finally no room for another one.
        let name_of = SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap();
        let waiting: Vec<UnixStream> =
            std::iter::from_fn(|| connect_to(&name_of).ok()).take(10_000).collect();
        assert!(waiting.len() < 10_000 && !ask_to_leave(&name, Instant::now() + Duration::from_millis(200)));
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
        // The lingering collector continues without the name.
        let scrapers = Scrapers::default();
        let stop = AtomicBool::new(false);
        let now = Instant::now();
        scrapers.answered(&by(1), now - Duration::from_millis(50), false);
        scrapers.answered(&by(1), now, false);
        assert!(
            linger(&scrapers, &name, now, &stop).is_none() && now.elapsed() >= Duration::from_millis(100)
        );
        drop(listener);
    }
}
