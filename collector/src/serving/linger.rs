//! Who scrapes, and how long the endpoint stays for it when the run is over.
//!
//! Prometheus asks when it is time to: what was spent since it last did so would be missing from what it stores. So the collector
//! stays until each scraper has seen the final figures, for twice the scraper's usual interval at most. By then the results are
//! written, and nobody waits for it: neither the application nor `ampere run`. Nor does another collector, which is to serve on the same
//! port: it asks this one to leave, over a socket in Linux's abstract namespace, which belongs to the network namespace as ports do.

use std::net::IpAddr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Prometheus takes a series for ended that it has not seen for five minutes, so that nobody scrapes less often.
const LONGEST_INTERVAL: Duration = Duration::from_secs(300);
/// Of a scraper that has come once, the interval is not known: it is taken for the time in which it did not come again.
const LONGEST_UNKNOWN_INTERVAL: Duration = Duration::from_secs(60);
const MOST_SCRAPERS: usize = 16;
const LOOK_PERIOD: Duration = Duration::from_millis(10);
/// How long a collector is waited for that was asked to leave.
const LEAVE_LIMIT: Duration = Duration::from_secs(1);
/// Linux has no room for a longer name; its beginning takes some of it.
const LONGEST_NAME: usize = 80;

/// Address, where it has one, and what it calls itself: two servers that scrape the same run are two.
pub type Scraper = (Option<IpAddr>, String);

struct Scrapes {
    by: Scraper,
    first: Instant,
    last: Instant,
    count: u32,
    has_seen_last: bool,
}

impl Scrapes {
    /// Until when it may come. `end`: of the run.
    fn expected_until(&self, end: Instant) -> Instant {
        let interval = match self.count {
            0 | 1 => end.saturating_duration_since(self.last).min(LONGEST_UNKNOWN_INTERVAL),
            many => (self.last - self.first) / (many - 1),
        };
        self.last + 2 * interval.min(LONGEST_INTERVAL)
    }
}

/// All scrapers of a run.
#[derive(Clone, Default)]
pub struct Scrapers(Arc<Mutex<Vec<Scrapes>>>);

impl Scrapers {
    fn all(&self) -> MutexGuard<'_, Vec<Scrapes>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One of them has its answer. `is_last`: the final figures were in it.
    pub fn answered(&self, by: &Scraper, at: Instant, is_last: bool) {
        let mut all = self.all();
        if let Some(known) = all.iter_mut().find(|known| known.by == *by) {
            (known.last, known.count) = (at, known.count.saturating_add(1));
            known.has_seen_last |= is_last;
        } else if all.len() < MOST_SCRAPERS {
            let by = by.clone();
            all.push(Scrapes { by, first: at, last: at, count: 1, has_seen_last: is_last });
        }
    }

    /// Until when somebody may come who has not seen the final figures. `end`: of the run.
    pub fn awaited_until(&self, end: Instant) -> Option<Instant> {
        self.all().iter().filter(|of| !of.has_seen_last).map(|of| of.expected_until(end)).max()
    }
}

/// Returns when nobody is awaited any more, another collector wants the address, or somebody says `stop`. `address`: as
/// [`name_of_port`] or [`name_of_socket`] have it. The socket that is returned is to be closed after the server's.
pub fn linger(scrapers: &Scrapers, address: &str, end: Instant, stop: &AtomicBool) -> Option<UnixStream> {
    let is_awaited = || scrapers.awaited_until(end).is_some_and(|until| Instant::now() < until);
    if !is_awaited() {
        return None;
    }
    let listener =
        SocketAddr::from_abstract_name(address).and_then(|name| UnixListener::bind_addr(&name)).ok()?;
    listener.set_nonblocking(true).ok()?;
    while is_awaited() && !stop.load(Ordering::Relaxed) {
        if let Ok((asks, _)) = listener.accept() {
            return Some(asks);
        }
        std::thread::sleep(LOOK_PERIOD);
    }
    None
}

/// Asks a collector that lingers to leave. Returns whether there was one, which has left by now.
pub fn has_left(address: &str) -> bool {
    let stream = SocketAddr::from_abstract_name(address).and_then(|name| UnixStream::connect_addr(&name));
    let Ok(mut stream) = stream else { return false };
    let _ = stream.set_read_timeout(Some(LEAVE_LIMIT));
    // It says nothing: its end is waited for.
    std::io::Read::read(&mut stream, &mut [0]).is_ok()
}

/// What a collector of this user's that lingers is found by.
pub fn name_of_port(port: u16) -> String {
    format!("ampere-{}-{port}", rustix::process::geteuid().as_raw())
}

pub fn name_of_socket(path: &Path) -> String {
    let path = path.to_string_lossy();
    let from = path.char_indices().map(|(at, _)| at).find(|at| path.len() - at <= LONGEST_NAME);
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
        // Another server, more often.
        (0..99).for_each(|n| scrapers.answered(&by(2), begin + n * second, false));
        scrapers.answered(&by(1), begin + 101 * second, true);
        assert_eq!(scrapers.awaited_until(end), Some(begin + 100 * second));
        scrapers.answered(&by(2), begin + 102 * second, true);
        assert_eq!(scrapers.awaited_until(end), None);
        // Of one that came once, nothing is known but that it did not come again for so long.
        scrapers.answered(&by(3), begin + 95 * second, false);
        assert_eq!(scrapers.awaited_until(end), Some(begin + 105 * second));
        scrapers.answered(&by(4), begin, false);
        assert_eq!(scrapers.awaited_until(end), Some(begin + 120 * second));
    }

    #[test]
    fn who_lingers_leaves_when_it_is_asked() {
        let path = std::env::temp_dir().join(format!("{}-{}.sock", "x".repeat(100), std::process::id()));
        let name = name_of_socket(&path);
        assert!(!has_left(&name), "there is none");
        let scrapers = Scrapers::default();
        let now = Instant::now();
        scrapers.answered(&by(1), now - Duration::from_secs(60), false);
        scrapers.answered(&by(1), now, false);
        let other = name.clone();
        // Its socket is closed when it is over, as when its process ends.
        let lingers =
            std::thread::spawn(move || drop(linger(&scrapers, &other, now, &AtomicBool::new(false))));
        while !has_left(&name) {
            assert!(now.elapsed() < Duration::from_secs(10), "it was not found");
        }
        lingers.join().unwrap();
    }
}
