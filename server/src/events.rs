//! Sends the page to each browser once a second, or more slowly if the browser reads more slowly. Nothing is queued for a browser
//! that has stopped reading. A stream ends after 25 seconds, before its connection would be closed, and the page requests the
//! next one.

use crate::http::{Service, Wanted};
use ampere_collector::serving::page;
use ampere_endpoint::linger::PAGE;
use ampere_report::page::{Page, State, Tables};
use hyper::body::{Body, Bytes, Frame};
use std::cell::RefCell;
use std::collections::HashMap;
use std::convert::Infallible;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, oneshot};

/// The duration of a stream. It ends before its connection is closed, because a browser reports a closed connection as an error.
const LENGTH: Duration = Duration::from_secs(25);
/// If a page does not request its next stream within this time, it counts as closed.
const NEXT_LIMIT: Duration = Duration::from_secs(5);
/// The period with which a page is sent.
const PERIOD: Duration = Duration::from_secs(1);
/// A page that was made for another reader is used again while it is younger than this.
const PAGE_AGE: Duration = Duration::from_millis(900);
/// The time spent on the page's tables is at most the collector's time divided by this. With very many call paths, they are made
/// less often.
const TIME_DIVISOR: u32 = 100;
/// The maximum number of ranks with pages of their own at the same time, because each of these takes its part of the collector's
/// time.
const RANKS_MAX: usize = 8;
/// The time limit for an answer of the collector's loop.
const LOOP_LIMIT: Duration = Duration::from_secs(5);
/// The maximum number of streams at once; it leaves connections for Prometheus.
const STREAMS_MAX: usize = 32;

/// The pages that are currently shown.
pub(crate) struct Pages {
    /// The latest page of each chosen rank.
    made: Mutex<HashMap<Option<usize>, Made>>,
    places: Arc<Semaphore>,
    /// The ends of streams that ended while the run continued, and whose pages have not requested the next stream yet.
    between_streams: RefCell<Vec<Instant>>,
}

struct Made {
    at: Instant,
    /// The time until which the page's tables are not made again.
    until: Instant,
    page: Arc<Page>,
}

impl Default for Pages {
    fn default() -> Pages {
        let places = Arc::new(Semaphore::new(STREAMS_MAX));
        Pages { made: Mutex::default(), places, between_streams: RefCell::default() }
    }
}

impl Service {
    /// Returns the current page, or the last one if the run has ended; `None` if the collector is too busy at the moment.
    pub(crate) async fn page(&self, rank: Option<usize>) -> Option<Arc<Page>> {
        let page = self.page_of_this_node(rank).await?;
        Some(self.job().map_or_else(|| page.clone(), |job| Arc::new(page.with_job(&job))))
    }

    async fn page_of_this_node(&self, rank: Option<usize>) -> Option<Arc<Page>> {
        let last = &self.latest.page;
        if let Some(page) = last.get() {
            return Some(page);
        }
        self.latest.refresh().await;
        let mut made = self.pages.made.lock().await; // one request asks the loop, the others wait for the same page
        made.retain(|_, made| made.until > Instant::now());
        if let Some(Made { at, page, .. }) = made.get(&rank) {
            let age = at.elapsed();
            return Some(if age < PAGE_AGE {
                page.clone()
            } else {
                Arc::new(page::refreshed(page, &self.latest.get(), age))
            });
        }
        if rank.is_some() && made.keys().flatten().count() >= RANKS_MAX {
            return None;
        }
        let (ask, answer) = oneshot::channel();
        self.summaries.try_send(Wanted::Page(rank, ask)).ok()?;
        tokio::select! {
            answer = tokio::time::timeout(LOOP_LIMIT, answer) => {
                let (page, took) = answer.ok()?.ok()?;
                let (page, at) = (Arc::new(page), Instant::now());
                let until = at + PAGE_AGE.max(TIME_DIVISOR * took);
                made.insert(rank, Made { at, until, page: page.clone() });
                Some(page)
            }
            page = last.wait() => page,
        }
    }

    /// Records that a stream has ended. After the end of the run, all pages have the final figures once there is no stream left
    /// and no page is about to request the next one. Then the collector no longer waits for pages.
    pub(crate) fn stream_ended(&self, from: Option<IpAddr>) {
        let mut between = self.pages.between_streams.borrow_mut();
        between.retain(|ended| ended.elapsed() < NEXT_LIMIT);
        let are_all_closed = self.pages.places.available_permits() == STREAMS_MAX && between.is_empty();
        if self.latest.page.get().is_some() && are_all_closed {
            self.scrapers.answered(&(from, PAGE.to_owned()), Instant::now(), true);
        }
    }
}

/// A stream of server-sent events.
pub(crate) struct Events(Pin<Box<dyn Future<Output = Next>>>);

/// The reader of a stream of events.
#[derive(Clone, Copy)]
pub(crate) struct Reader {
    /// The reader's address; `None` if it came through a Unix socket.
    pub address: Option<IpAddr>,
    /// Whether the reader may also see the command, the job and notes.
    pub sees_all: bool,
}

/// An event, and the source of the next one; `None` if the stream has ended.
type Next = Option<(Bytes, Source)>;

/// The source of the next event of a stream.
struct Source {
    service: Rc<Service>,
    rank: Option<usize>,
    reader: Reader,
    due: Instant,
    end: Instant,
    seen: Option<Arc<Tables>>,
    is_first: bool,
    has_ended: bool,
}

impl Events {
    /// Opens a stream, with a permit that is returned when its connection has ended; `None` if there are too many streams
    /// already.
    pub fn open(
        service: &Rc<Service>,
        rank: Option<usize>,
        reader: Reader,
    ) -> Option<(Events, OwnedSemaphorePermit)> {
        let place = service.pages.places.clone().try_acquire_owned().ok()?;
        service.pages.between_streams.borrow_mut().pop();
        let (service, due) = (service.clone(), Instant::now());
        let source = Source {
            service,
            rank,
            reader,
            due,
            end: due + LENGTH,
            seen: None,
            is_first: true,
            has_ended: false,
        };
        Some((Events(Box::pin(source.next())), place))
    }
}

impl Source {
    async fn next(mut self) -> Next {
        if self.has_ended {
            return None;
        }
        if Instant::now() > self.end {
            self.service.pages.between_streams.borrow_mut().push(Instant::now());
            return None;
        }
        tokio::time::sleep_until(self.due.into()).await;
        self.due = Instant::now() + PERIOD;
        let event = match self.service.page(self.rank).await {
            Some(page) if self.reader.sees_all => self.event(&page),
            Some(page) => self.event(&Arc::new(page.for_everybody())),
            None => Bytes::from_static(b": the collector is too busy at the moment\n\n"),
        };
        Some((event, self))
    }

    fn event(&mut self, page: &Arc<Page>) -> Bytes {
        self.has_ended = page.state != State::Running;
        self.service.scrapers.answered(&(self.reader.address, PAGE.to_owned()), Instant::now(), false);
        let is_whole = std::mem::take(&mut self.is_first) || self.has_ended;
        let json = if is_whole {
            serde_json::to_string(&**page)
        } else {
            serde_json::to_string(&page.update(self.seen.as_ref()))
        };
        self.seen.clone_from(&page.tables);
        json.map_or_else(|_| Bytes::new(), |json| Bytes::from(format!("data:{json}\n\n")))
    }
}

impl Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.as_mut().poll(context).map(|next| {
            let (event, source) = next?;
            self.0 = Box::pin(source.next());
            Some(Ok(Frame::data(event)))
        })
    }
}
