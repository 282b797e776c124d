//! The HTTP server of the live page, /metrics, /summary.json, /nodes and the figures for ampere's own programs. It has a thread
//! of its own, so that a scrape never delays the collector's loop.
//!
//! The path of a request never names a file. A connection serves one request, so there is no pipelining. There are limits on the
//! size and time of a request's head, the time of a connection and the number of connections of each address.

use crate::events::{Events, Pages, Reader};
use crate::gather::{self, Gathering, gather};
use crate::metrics::encode;
use crate::text_format::{TextFormat, classic};
use ampere_collector::files_max;
use ampere_collector::serving::latest::Latest;
use ampere_endpoint::access::{Access, Ends, Refusal};
use ampere_endpoint::linger::{Scraper, Scrapers};
use ampere_endpoint::listen::{self, BindError, Bound, Listen, SocketFile};
use ampere_endpoint::peer;
use ampere_endpoint::proof;
use ampere_figures::nodes::gathered::Nodes;
use ampere_figures::nodes::job::Job;
use ampere_figures::nodes::report::NodeReport;
use ampere_figures::snapshot::Snapshot;
use ampere_figures::summary::Summary;
use ampere_report::page::Page;
use crossbeam_channel::Sender;
use http_body_util::{Either, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{self, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, oneshot};

/// The head of a request must arrive within this time and have at most HEAD_BYTES.
pub const HEAD_LIMIT: Duration = Duration::from_secs(5);
/// The limit while more than half of all connections are taken: silent clients then delay a scrape only for a moment.
const CROWDED_HEAD_LIMIT: Duration = Duration::from_millis(250);
const HEAD_BYTES: usize = 16 << 10;
const HEADERS_MAX: usize = 64;
/// A connection is closed after this time, even if it still waits for something.
const CONNECTION_LIMIT: Duration = Duration::from_secs(30);
/// Further connections wait in the kernel until one ends. At most an eighth of the files that may be open are connections.
const CONNECTIONS_MAX: usize = 128;
/// The time between a failed accept and the next one.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);
/// The time limit for a summary.
const SUMMARY_LIMIT: Duration = Duration::from_secs(5);
/// Making a summary takes time of the collector's loop, so a summary younger than this is sent again.
const SUMMARY_AGE: Duration = Duration::from_secs(1);

/// A request to the collector's loop, with the channel for its answer.
pub enum Wanted {
    Summary(oneshot::Sender<Box<Summary>>),
    /// Make the page, with the call paths of one rank or of all. The answer also has the CPU time that this took.
    Page(Option<usize>, oneshot::Sender<(Page, Duration)>),
    /// Add a line to the run's notes.
    Note(String),
}

pub struct Server {
    /// The address: `http://127.0.0.1:9977` or `unix:/path`.
    pub url: String,
    /// Notes for users about the address, one line each.
    pub notes: Vec<String>,
    /// The Prometheus servers that have scraped it.
    pub scrapers: Scrapers,
    /// The server's name while it lingers: see [`ampere_endpoint::linger`].
    pub lingers_as: String,
    /// The socket's file, which is removed with the server.
    _socket: Option<SocketFile>,
}

/// The reason why metrics are not served, as a message of one line.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// There is nothing to listen on.
    #[error(transparent)]
    Bind(#[from] BindError),
    #[error("cannot listen on {url}: {why}")]
    Listen { url: String, why: std::io::Error },
    /// The server's thread cannot be started.
    #[error("cannot start the metrics server: {0}")]
    Thread(std::io::Error),
}

/// Answers the requests of all connections.
pub struct Service {
    pub(crate) latest: Latest,
    pub(crate) summaries: Sender<Wanted>,
    pub(crate) access: Access,
    pub(crate) scrapers: Scrapers,
    /// The figures that were last encoded, and their text: for every user, and for those who may see everything.
    metrics: [Mutex<Option<(Figures, Bytes)>>; 2],
    /// The other nodes of the run.
    pub(crate) nodes: RefCell<Nodes>,
    summary: Mutex<SummaryCache>,
    pub(crate) pages: Pages,
}

/// The figures of this node, and those of all nodes if there are several.
type Figures = (Arc<Snapshot>, Option<Arc<Job>>);

#[derive(Default)]
struct SummaryCache {
    /// The last summary, and when it was made.
    last: Option<(Instant, Bytes)>,
    /// The summary that was requested from the loop, and the time of the request.
    asked: Option<(Instant, oneshot::Receiver<Box<Summary>>)>,
}

/// Listens on the wanted address, or on the next free port, and serves until the process ends. `gathering` is set on a run's
/// first node.
pub fn serve(
    wanted: &Listen,
    access: Access,
    latest: Latest,
    summaries: Sender<Wanted>,
    gathering: Option<Gathering>,
) -> Result<Server, ServeError> {
    let (bound, note) = listen::bind(wanted)?;
    let (url, lingers_as) = (bound.url(), bound.lingers_as());
    let mut notes: Vec<String> = note.into_iter().collect();
    if bound.is_open_to_others() {
        notes.push(format!(
            "metrics are on {url}, which other nodes can reach: clients with the token can read them"
        ));
    }
    // An address set by the user is left as it is; only the default may later be opened to the network.
    let may_open_on = match &bound {
        Bound::Tcp(_, address) if *wanted == Listen::default() => Some(*address),
        _ => None,
    };
    let (listener, socket) = match bound {
        Bound::Tcp(listener, _) => (listener.set_nonblocking(true).map(|()| Listener::Tcp(listener)), None),
        Bound::Unix(listener, file) => {
            (listener.set_nonblocking(true).map(|()| Listener::Unix(listener)), Some(file))
        }
    };
    let listener = listener.map_err(|why| ServeError::Listen { url: url.clone(), why })?;
    let scrapers = Scrapers::default();
    let known = scrapers.clone();
    std::thread::Builder::new()
        .name("ampere-http".to_owned())
        .spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            if let Ok(runtime) = runtime {
                let service = Rc::new(Service { scrapers: known, ..Service::new(latest, summaries, access) });
                let local = tokio::task::LocalSet::new();
                if let Some(of) = gathering {
                    local.spawn_local(gather(service.clone(), Gathering { may_open_on, ..of }));
                }
                runtime.block_on(local.run_until(accept(listener, service)));
            }
        })
        .map_err(ServeError::Thread)?;
    Ok(Server { url, notes, scrapers, lingers_as, _socket: socket })
}

enum Listener {
    Tcp(std::net::TcpListener),
    Unix(std::os::unix::net::UnixListener),
}

async fn accept(listener: Listener, service: Rc<Service>) {
    let listener = match listener {
        Listener::Tcp(listener) => return accept_on(listener, service).await,
        Listener::Unix(listener) => listener,
    };
    let places = Arc::new(Semaphore::new(connections_max()));
    let Ok(listener) = tokio::net::UnixListener::from_std(listener) else { return };
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => spawn_connection(stream, None, service.clone(), (place, head_limit(&places))),
            Err(_) => tokio::time::sleep(ACCEPT_AGAIN).await,
        }
    }
}

/// Serves on a further address.
pub(crate) async fn accept_on(listener: std::net::TcpListener, service: Rc<Service>) {
    let places = Arc::new(Semaphore::new(connections_max()));
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, peer)) => {
                // Without its own address, the server cannot find out the client's user.
                let Ok(own) = stream.local_addr() else { continue };
                let from = Some(Ends { peer, own });
                spawn_connection(stream, from, service.clone(), (place, head_limit(&places)));
            }
            Err(_) => tokio::time::sleep(ACCEPT_AGAIN).await,
        }
    }
}

fn connections_max() -> usize {
    CONNECTIONS_MAX.min(files_max() / 8)
}

/// Returns the time limit for the head of the next connection's request.
fn head_limit(places: &Semaphore) -> Duration {
    let is_crowded = places.available_permits() < connections_max() / 2;
    if is_crowded { CROWDED_HEAD_LIMIT } else { HEAD_LIMIT }
}

fn spawn_connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
    from: Option<Ends>,
    service: Rc<Service>,
    (place, head_limit): (OwnedSemaphorePermit, Duration),
) {
    tokio::task::spawn_local(async move {
        // Errors of a client that closes early or sends nonsense are ignored.
        let _ =
            tokio::time::timeout(CONNECTION_LIMIT, serve_connection(stream, from, service, head_limit)).await;
        drop(place);
    });
}

/// Serves one connection, whatever bytes arrive.
pub async fn serve_connection(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    from: Option<Ends>,
    service: Rc<Service>,
    head_limit: Duration,
) {
    let asked = Asked::default();
    // The connection may also be ended by its time limit, which drops all of this.
    let _stream = StreamEnd { asked: &asked, service: &service, from };
    let answer = service_fn(|request| {
        let (service, asked) = (&service, &asked);
        async move { Ok::<_, Infallible>(service.answer(&request, from, asked).await) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(head_limit)
        .max_buf_size(HEAD_BYTES)
        .max_headers(HEADERS_MAX)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), answer)
        .await;
    if let (Ok(()), Some((by, is_last))) = (served, asked.scrape.take()) {
        service.scrapers.answered(&by, Instant::now(), is_last);
    }
}

/// Ends the stream of events of a connection, if it has one, when the connection has ended.
struct StreamEnd<'a> {
    asked: &'a Asked,
    service: &'a Service,
    from: Option<Ends>,
}

impl Drop for StreamEnd<'_> {
    fn drop(&mut self) {
        if let Some(place) = self.asked.stream.take() {
            drop(place);
            self.service.stream_ended(self.from.map(|ends| ends.peer.ip()));
        }
    }
}

#[derive(Default)]
struct Asked {
    /// For a scrape: the scraper, and whether it gets the final figures.
    scrape: Cell<Option<(Scraper, bool)>>,
    /// For a stream of events: its permit.
    stream: Cell<Option<OwnedSemaphorePermit>>,
}

impl Service {
    /// Makes a service, which has no scrapers yet.
    pub fn new(latest: Latest, summaries: Sender<Wanted>, access: Access) -> Service {
        Service {
            latest,
            summaries,
            access,
            scrapers: Scrapers::default(),
            metrics: Default::default(),
            nodes: Default::default(),
            summary: Mutex::default(),
            pages: Default::default(),
        }
    }

    /// Returns the figures of all nodes; `None` for a run on one node.
    pub(crate) fn job(&self) -> Option<Arc<Job>> {
        let mut nodes = self.nodes.borrow_mut();
        (!nodes.is_empty()).then(|| nodes.job(|| NodeReport::of(&self.latest.look())))
    }

    /// Answers a request. All answers except the live page's stream of events are made by `answer_whole`.
    async fn answer(
        self: &Rc<Self>,
        request: &Request<Incoming>,
        from: Option<Ends>,
        asked: &Asked,
    ) -> Response<Either<Full<Bytes>, Events>> {
        let has_token = match self.admit(request, from) {
            Ok(has_token) => has_token,
            Err(refusal) => return (*refusal).map(Either::Left),
        };
        if request.uri().path() == "/events" {
            let Ok(rank) = rank_of(request) else { return bad_query().map(Either::Left) };
            let reader =
                Reader { address: from.map(|ends| ends.peer.ip()), sees_all: sees_all(has_token, from) };
            let Some((events, place)) = Events::open(self, rank, reader) else {
                let why = "too many pages are open already: close one\n";
                return text(StatusCode::SERVICE_UNAVAILABLE, why).map(Either::Left);
            };
            asked.stream.set(Some(place));
            let mut response = Response::new(Either::Right(events));
            add_headers(&mut response, "text/event-stream");
            let headers = response.headers_mut();
            // A proxy that collects or compresses an answer would delay each event until the next one.
            headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
            headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store, no-transform"));
            return response;
        }
        self.answer_whole(request, (from, has_token), &asked.scrape).await.map(Either::Left)
    }

    /// Returns whether a request came with the token, or the reason why it is not answered.
    fn admit(
        &self,
        request: &Request<Incoming>,
        from: Option<Ends>,
    ) -> Result<bool, Box<Response<Full<Bytes>>>> {
        let Ok(host) = host_of(request) else {
            return Err(text(StatusCode::BAD_REQUEST, "a request must name one host\n").into());
        };
        let authorization = request.headers().get(header::AUTHORIZATION).map(HeaderValue::as_bytes);
        let is_page = request.uri().path() == "/";
        let path = request.uri().path_and_query().map_or("", |path| path.as_str());
        let has_token = match self.access.check(from, host, authorization, path) {
            Err(Refusal::Host) => {
                return Err(text(
                    StatusCode::FORBIDDEN,
                    "this is not a name of this node: use its address, or set AMPERE_ALLOWED_HOSTS\n",
                )
                .into());
            }
            // A browser sends no token with its first request. The page contains no data, and asks for the token.
            Err(Refusal::Token) if is_page => false,
            Err(Refusal::Token) => {
                return Err(self.wants_token(
                    "a token is required: Authorization: Bearer, and the token in the collector's AMPERE_TOKEN_FILE, or in \
                     collector.token in the run's output directory\n",
                ).into());
            }
            Ok(has_token) => has_token,
        };
        match *request.method() {
            Method::GET => Ok(has_token),
            _ => {
                let mut refusal = text(StatusCode::METHOD_NOT_ALLOWED, "only GET\n");
                refusal.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET"));
                Err(refusal.into())
            }
        }
    }

    /// Returns the refusal of a request without a token, with a challenge that ampere's own clients answer.
    fn wants_token(&self, why: &'static str) -> Response<Full<Bytes>> {
        let mut refusal = text(StatusCode::UNAUTHORIZED, why);
        let headers = refusal.headers_mut();
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        let challenge = self.access.challenge().map(|challenge| format!("{} {challenge}", proof::SCHEME));
        if let Some(Ok(challenge)) = challenge.map(HeaderValue::try_from) {
            headers.append(header::WWW_AUTHENTICATE, challenge);
        }
        refusal
    }

    async fn answer_whole(
        &self,
        request: &Request<Incoming>,
        (from, has_token): (Option<Ends>, bool),
        scrape: &Cell<Option<(Scraper, bool)>>,
    ) -> Response<Full<Bytes>> {
        let address = from.map(|ends| ends.peer.ip());
        match request.uri().path() {
            "/metrics" => {
                let accept = request.headers().get_all(header::ACCEPT).iter();
                let format = TextFormat::wanted(accept.filter_map(|value| value.to_str().ok()));
                let (answer, is_last) = self.metrics(format, has_token, from).await;
                let agent = request.headers().get(header::USER_AGENT).map(HeaderValue::as_bytes);
                let agent = String::from_utf8_lossy(agent.unwrap_or_default()).into_owned();
                scrape.set(Some(((address, agent), is_last)));
                answer
            }
            "/snapshot.json" => {
                let snapshot = self.latest.fresh().await;
                let is_public = snapshot.job.is_none() && snapshot.notes.is_empty();
                match is_public || sees_all(has_token, from) {
                    true => json(serde_json::to_string(&*snapshot)),
                    false => json(serde_json::to_string(&snapshot.for_everybody())),
                }
            }
            "/summary.json" if sees_all(has_token, from) => self.summary().await,
            "/summary.json" => self.wants_token(
                "a summary has the command and notes, which only the run's user may see, or a client with a token\n",
            ),
            gather::PATH => {
                self.latest.refresh().await;
                // The first node's collector must get the final figures, too.
                let report = NodeReport::of(&self.latest.look());
                scrape.set(Some(((address, gather::PATH.to_owned()), report.is_last)));
                json(serde_json::to_string(&report))
            }
            "/nodes" => {
                self.latest.refresh().await;
                let job = self.nodes.borrow_mut().job(|| NodeReport::of(&self.latest.look()));
                json(serde_json::to_string(&*job))
            }
            "/page.json" => match rank_of(request) {
                Ok(rank) => match self.page(rank).await {
                    Some(page) if sees_all(has_token, from) => json(serde_json::to_string(&*page)),
                    Some(page) => json(serde_json::to_string(&page.for_everybody())),
                    None => {
                        text(StatusCode::SERVICE_UNAVAILABLE, "the collector is too busy at the moment\n")
                    }
                },
                Err(NoRank) => bad_query(),
            },
            "/" => {
                let page = ampere_report::live_page(self.access.wants_token(address));
                let mut page = reply(StatusCode::OK, "text/html; charset=utf-8", page);
                page.headers_mut().insert(header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
                page
            }
            _ => text(StatusCode::NOT_FOUND, "there is a page at /, /metrics, /summary.json and /nodes\n"),
        }
    }

    /// Returns the answer, and whether it contains the final figures. Not every user may see the command and the batch system's
    /// job.
    async fn metrics(
        &self,
        format: TextFormat,
        has_token: bool,
        from: Option<Ends>,
    ) -> (Response<Full<Bytes>>, bool) {
        let (snapshot, job) = (self.latest.fresh().await, self.job());
        let is_last = snapshot.is_last;
        let names_job = sees_all(has_token, from);
        let mut last = self.metrics[usize::from(names_job)].lock().await;
        let is_same = |of: &Figures| {
            Arc::ptr_eq(&of.0, &snapshot) && of.1.as_ref().map(Arc::as_ptr) == job.as_ref().map(Arc::as_ptr)
        };
        let body = match &*last {
            Some((of, body)) if is_same(of) => body.clone(),
            _ => match encode(snapshot.clone(), job.clone(), names_job) {
                Ok(body) => last.insert(((snapshot, job), Bytes::from(body))).1.clone(),
                Err(_) => return (text(StatusCode::INTERNAL_SERVER_ERROR, "cannot encode\n"), false),
            },
        };
        let body = match format {
            TextFormat::OpenMetrics => body,
            TextFormat::Classic => classic(&String::from_utf8_lossy(&body)).into(),
        };
        let mut answer = reply(StatusCode::OK, format.content_type(), body);
        answer.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept"));
        (answer, is_last)
    }

    async fn summary(&self) -> Response<Full<Bytes>> {
        let mut cache = self.summary.lock().await; // one request asks the loop, the others wait for the same summary
        if let Some((_, body)) = cache.last.as_ref().filter(|(made, _)| made.elapsed() < SUMMARY_AGE) {
            return reply(StatusCode::OK, "application/json", body.clone());
        }
        self.latest.refresh().await;
        // The loop may still be making a summary for a client that has closed its connection. The next client gets it.
        cache.asked.take_if(|(when, _)| when.elapsed() > SUMMARY_LIMIT);
        if cache.asked.is_none() {
            let (ask, answer) = oneshot::channel();
            // This does not wait. If the loop has too many requests already, it is busy or ending.
            if self.summaries.try_send(Wanted::Summary(ask)).is_err() {
                return run_is_ending();
            }
            cache.asked = Some((Instant::now(), answer));
        }
        let Some((_, answer)) = cache.asked.as_mut() else { return run_is_ending() };
        let answer = tokio::time::timeout(SUMMARY_LIMIT, answer).await;
        cache.asked = None;
        let Ok(Ok(summary)) = answer else { return run_is_ending() };
        let body = Bytes::from(ampere_report::json::text(&summary));
        let body = cache.last.insert((Instant::now(), body)).1.clone();
        reply(StatusCode::OK, "application/json", body)
    }
}

/// Whether a client may see the command, the job and notes. It may if it has the token, or if it is a process of this user or of
/// root. Only such a process can connect to a Unix socket with mode 0600 (`from` is `None`). For a connection over loopback the
/// kernel is asked for the user. That takes a moment, so it is done only without a token.
fn sees_all(has_token: bool, from: Option<Ends>) -> bool {
    has_token || from.is_none_or(peer::is_own_user)
}

/// Returns the rank that a page requests, by its index among the choices.
fn rank_of(request: &Request<Incoming>) -> Result<Option<usize>, NoRank> {
    let Some(query) = request.uri().query() else { return Ok(None) };
    let rank = query.strip_prefix("rank=").and_then(|rank| rank.parse().ok());
    rank.map(Some).ok_or(NoRank)
}

/// An error: a query is not a rank.
struct NoRank;

fn bad_query() -> Response<Full<Bytes>> {
    text(StatusCode::BAD_REQUEST, "a query must be rank= and a number\n")
}

fn run_is_ending() -> Response<Full<Bytes>> {
    text(StatusCode::SERVICE_UNAVAILABLE, "the run is ending\n")
}

/// Returns the host that a request names, if any; `Err` if it names several, or something that cannot be a name.
fn host_of(request: &Request<Incoming>) -> Result<Option<&str>, ()> {
    if let Some(authority) = request.uri().authority() {
        return Ok(Some(authority.as_str()));
    }
    let mut all = request.headers().get_all(header::HOST).iter();
    match (all.next(), all.next()) {
        (None, _) => Ok(None),
        (Some(host), None) => host.to_str().map(Some).map_err(drop),
        _ => Err(()),
    }
}

fn json(body: serde_json::Result<String>) -> Response<Full<Bytes>> {
    match body {
        Ok(body) => reply(StatusCode::OK, "application/json", body),
        Err(_) => text(StatusCode::INTERNAL_SERVER_ERROR, "cannot encode\n"),
    }
}

fn text(status: StatusCode, line: &'static str) -> Response<Full<Bytes>> {
    reply(status, "text/plain; charset=utf-8", line)
}

fn reply(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    add_headers(&mut response, kind);
    response
}

fn add_headers<B>(response: &mut Response<B>, kind: &'static str) {
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    // The names in the body come from an application, so a browser must not guess that the body is a page.
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
}

#[cfg(test)]
#[path = "http_tests.rs"]
mod tests;
