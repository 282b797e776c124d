//! Asks each of the run's other nodes for its report: once a second, or less often if there are many nodes, so that the work of a
//! second has a limit. Each node is asked independently of the others, with limits on time and length, so that a slow, dead or
//! hostile node does not delay the others.

use super::find::{self, Found};
use crate::http::{Service, Wanted, accept_on};
use ampere_collector::run_directory::output::Output;
use ampere_endpoint::client;
use ampere_endpoint::listen::own_addresses;
use ampere_endpoint::proof;
use ampere_endpoint::token::Token;
use ampere_figures::nodes::report::{BYTES_MAX, NodeReport, Refused};
use ampere_model::text::short;
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::task::{JoinHandle, JoinSet};

/// The period with which a node is asked, if there are few nodes.
const PERIOD: Duration = Duration::from_secs(1);
/// The maximum number of nodes that are asked per second, so that each of a thousand nodes is asked four times per minute.
const ASKED_PER_SECOND_MAX: usize = 64;
/// Requests that are due within this time are sent together, which costs less than waking up for each.
const TOGETHER: Duration = Duration::from_millis(200);
/// The time limit for an answer, including the connection.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);
/// A node that does not answer is asked less and less often; this is the longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(16);
/// After this number of failures in a row a node counts as gone, and a note gives the reason.
const FAILURES_MAX: u32 = 4;
/// The maximum number of requests at the same time: to nodes that answer, and to nodes that do not.
const AT_ONCE: usize = 64;
const FAILING_AT_ONCE: usize = 16;
/// The maximum number of notes about nodes.
const NOTES_MAX: usize = 10;
/// The time at the start of a run in which nodes are searched for more often.
const START_TIME: Duration = Duration::from_secs(60);
/// The period of these searches, and that of later ones.
const START_SEARCH_PERIOD: Duration = Duration::from_secs(1);
const SEARCH_PERIOD: Duration = Duration::from_secs(5);

/// The run whose nodes are gathered.
pub struct Gathering {
    /// The output directory of the first node.
    pub output: Output,
    pub run: String,
    pub node: String,
    /// The address on which this collector listens, if it may also listen on the network as soon as there are other nodes.
    pub may_open_on: Option<SocketAddr>,
}

/// The reason why a node has not reported, as a message of one line.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("{0}")]
    Unreachable(#[from] find::Unreachable),
    #[error("its collector does not answer ({0})")]
    Silent(String),
    #[error("its collector refuses the run's token")]
    Token,
    #[error("{0}")]
    Refused(#[from] Refused),
}

/// The state of asking one node.
struct Asked {
    /// The addresses to try, in this order.
    places: Result<Vec<SocketAddr>, find::Unreachable>,
    /// The time of the next request.
    due: Instant,
    /// The number of requests in a row that have failed.
    failures: u32,
    /// Whether an answer is awaited.
    is_asked: bool,
    has_ended: bool,
}

type Answer = (String, Result<(NodeReport, SocketAddr), Failure>);

/// The nodes that are asked.
struct Gatherer {
    service: Rc<Service>,
    of: Gathering,
    token: Option<Token>,
    nodes: BTreeMap<String, Asked>,
    answers: JoinSet<Answer>,
    notes: usize,
}

/// Gathers reports while the collector serves.
pub(crate) async fn gather(service: Rc<Service>, of: Gathering) {
    let begun = Instant::now();
    let (nodes, answers) = Default::default();
    let mut gatherer = Gatherer { service, of, token: None, nodes, answers, notes: 0 };
    let mut search: Option<JoinHandle<Vec<Found>>> = None;
    let mut next_search = begun;
    loop {
        if search.is_none() && next_search <= Instant::now() {
            search = Some(gatherer.search());
        }
        let due = gatherer.ask_those_due();
        let wake = if search.is_some() { due } else { due.min(next_search) };
        tokio::select! {
            found = async { search.as_mut().expect("it is some").await }, if search.is_some() => {
                search = None;
                let period = if begun.elapsed() < START_TIME { START_SEARCH_PERIOD } else { SEARCH_PERIOD };
                next_search = Instant::now() + period;
                let found: Vec<Found> = found.into_iter().flatten().collect();
                if !found.is_empty() && gatherer.token.is_none() {
                    gatherer.open();
                }
                found.into_iter().for_each(|found| gatherer.take_found(found));
            }
            Some(answer) = gatherer.answers.join_next(), if !gatherer.answers.is_empty() => {
                let mut next = Some(answer);
                while let Some(answer) = next {
                    answer.into_iter().for_each(|(name, answer)| gatherer.take_answer(&name, answer));
                    next = gatherer.answers.try_join_next();
                }
            }
            () = tokio::time::sleep_until(wake.into()) => {}
        }
    }
}

impl Gatherer {
    /// Searches for nodes, in a thread of its own, because a network file system may be slow.
    fn search(&self) -> JoinHandle<Vec<Found>> {
        let is_fine = |node: &&Asked| node.has_ended || node.failures == 0 && node.places.is_ok();
        let known = self.nodes.iter().filter(|(_, node)| is_fine(node)).map(|(name, _)| name.clone());
        let known: BTreeSet<String> = known.collect();
        let (directory, run) = (self.of.output.directory.clone(), self.of.run.clone());
        tokio::task::spawn_blocking(move || find::nodes(&directory, &run, &known))
    }

    fn take_found(&mut self, found: Found) {
        let mut nodes = self.service.nodes.borrow_mut();
        nodes.add(&found.name);
        if let Some((joules, is_final)) = found.summary {
            nodes.take_summary(&found.name, joules, is_final);
        }
        if let Err(why) = &found.places {
            nodes.note_problem(&found.name, &why.to_string(), false);
        }
        drop(nodes);
        let has_ended = found.summary.is_some_and(|(_, is_final)| is_final);
        // The first requests are spread over time.
        let due = Instant::now() + PERIOD * self.nodes.len() as u32 / ASKED_PER_SECOND_MAX as u32;
        let first = Asked { places: found.places.clone(), due, failures: 0, is_asked: false, has_ended };
        let node = self.nodes.entry(found.name).or_insert(first);
        (node.places, node.has_ended) = (found.places, has_ended);
    }

    /// Starts to listen on the network, with the token, because there are other nodes.
    fn open(&mut self) {
        let access = &self.service.access;
        if !access.has_set_token() {
            match Token::of_run(&self.of.output.directory) {
                Ok(token) => access.admit_with(token),
                Err(why) => return self.note(format!("the run's other nodes cannot be asked: {why}")),
            }
        }
        self.token = access.token().cloned();
        let Some(listens) = self.of.may_open_on else { return };
        let addresses = own_addresses();
        for address in &addresses {
            let bound = std::net::TcpListener::bind(SocketAddr::new(*address, listens.port()));
            if let Ok(listener) = bound.and_then(|bound| bound.set_nonblocking(true).map(|()| bound)) {
                tokio::task::spawn_local(accept_on(listener, self.service.clone()));
            }
        }
        let (output, url) = (&self.of.output, format!("http://0.0.0.0:{}", listens.port()));
        if !addresses.is_empty() && output.announced().is_some() {
            let _ = output.announce(&url, &self.of.node, &self.of.run);
        }
    }

    /// Returns the time between two requests to one node.
    fn period(&self) -> Duration {
        PERIOD.max(PERIOD * self.nodes.len() as u32 / ASKED_PER_SECOND_MAX as u32)
    }

    /// Sends the requests that are due. Returns the time when the next one is due.
    fn ask_those_due(&mut self) -> Instant {
        let now = Instant::now();
        let mut next = now + PERIOD;
        let is_due = |node: &Asked| !node.is_asked && !node.has_ended && node.due <= now;
        let until = if self.nodes.values().any(is_due) { now + TOGETHER } else { now };
        let is_failing = |node: &Asked| node.failures > 0;
        let mut asked = [false, true].map(|failing| {
            self.nodes.values().filter(|node| node.is_asked && is_failing(node) == failing).count()
        });
        for (name, node) in self.nodes.iter_mut().filter(|(_, node)| !node.is_asked && !node.has_ended) {
            let Ok(places) = &node.places else { continue };
            let failing = is_failing(node);
            let most = if failing { FAILING_AT_ONCE } else { AT_ONCE };
            if node.due > until {
                next = next.min(node.due);
            } else if asked[usize::from(failing)] < most {
                asked[usize::from(failing)] += 1;
                node.is_asked = true;
                let question = ask(places.clone(), self.token.clone());
                let (name, run) = (name.clone(), self.of.run.clone());
                self.answers.spawn_local(async move {
                    let answer = question.await.and_then(|(text, place)| {
                        Ok((checked(NodeReport::read(&text)?, &name, &run)?, place))
                    });
                    (name, answer)
                });
            }
        }
        next
    }

    fn take_answer(&mut self, name: &str, answer: Result<(NodeReport, SocketAddr), Failure>) {
        let (now, period) = (Instant::now(), self.period());
        let Some(node) = self.nodes.get_mut(name) else { return };
        node.is_asked = false;
        let taken = answer.and_then(|(report, place)| {
            // The address that answered is tried first from now on.
            node.places = Ok(std::iter::once(place)
                .chain(node.places.iter().flatten().copied().filter(|at| *at != place))
                .collect());
            let has_begun = !report.run.is_empty();
            if has_begun {
                self.service.nodes.borrow_mut().take(name, &report, now)?;
            }
            Ok(report.is_last)
        });
        match taken {
            Ok(is_last) => {
                (node.failures, node.due, node.has_ended) = (0, node.due.max(now - period) + period, is_last)
            }
            Err(why) => {
                node.failures += 1;
                node.due = now + (period * 2u32.pow(node.failures.min(5) - 1)).min(PAUSE_MAX.max(period));
                let is_gone = node.failures >= FAILURES_MAX;
                let is_new = node.failures == FAILURES_MAX;
                let why = why.to_string();
                self.service.nodes.borrow_mut().note_problem(name, &why, is_gone);
                if is_new {
                    let name = short(name, 64);
                    self.note(format!("node {name}: {why}; the job's sums contain its last figures"));
                }
            }
        }
    }

    /// Adds a note. There are only a few notes, because the page and /nodes show the reason for each node.
    fn note(&mut self, line: String) {
        self.notes += 1;
        if self.notes <= NOTES_MAX {
            let _ = self.service.summaries.try_send(Wanted::Note(line));
        }
    }
}

/// Checks that a report belongs to this run and node.
fn checked(report: NodeReport, name: &str, run: &str) -> Result<NodeReport, Refused> {
    if !report.run.is_empty() && report.run != run {
        return Err(Refused::OtherRun);
    }
    if ampere_collector::run_directory::files::file_name(&report.node) != name {
        return Err(Refused::OtherNode);
    }
    Ok(report)
}

/// Tries the addresses until one answers.
async fn ask(places: Vec<SocketAddr>, token: Option<Token>) -> Result<(Vec<u8>, SocketAddr), Failure> {
    let mut failure = Failure::Unreachable(find::Unreachable::NoAddress);
    for place in places {
        let answer = tokio::time::timeout(ANSWER_LIMIT, ask_at(place, token.as_ref())).await;
        let answer = answer.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()));
        match answer.map(|text| client::body_of(text, &format!("http://{place}"), PATH)) {
            Ok(Ok(body)) => return Ok((body, place)),
            Ok(Err(client::Error::WantsToken { .. })) => failure = Failure::Token,
            Ok(Err(client::Error::Refused { status, .. })) if status.contains(" 404 ") => {
                failure = Refused::Version("an older one".to_owned()).into();
            }
            Ok(Err(_)) => failure = Refused::Nonsense.into(),
            Err(why) if why.kind() == ErrorKind::InvalidData => failure = Refused::Nonsense.into(),
            Err(why) => failure = Failure::Silent(why.kind().to_string()),
        }
    }
    Err(failure)
}

/// The path at which a node serves its report.
pub const PATH: &str = "/node.json";

/// Asks at one address. The token itself is not sent, because another user's program may be listening there. If a token is
/// required, the request is repeated with a proof that this collector knows it.
async fn ask_at(place: SocketAddr, token: Option<&Token>) -> std::io::Result<Vec<u8>> {
    let answer = exchange(place, None).await?;
    let proof = token.and_then(|token| client::proof_for(&answer, token, &proof::place(Some(place)), PATH));
    match proof {
        Some(proof) => exchange(place, Some(&proof)).await,
        None => Ok(answer),
    }
}

/// Sends the request, and reads the whole answer.
async fn exchange(place: SocketAddr, authorization: Option<&str>) -> std::io::Result<Vec<u8>> {
    let stream = TcpStream::connect(place).await?;
    let request = client::request(PATH, authorization);
    let mut rest = request.as_bytes();
    while !rest.is_empty() {
        stream.writable().await?;
        match stream.try_write(rest) {
            Ok(count) => rest = &rest[count..],
            Err(why) if why.kind() == ErrorKind::WouldBlock => {}
            Err(why) => return Err(why),
        }
    }
    let (mut answer, mut part) = (Vec::new(), [0; 4096]);
    loop {
        stream.readable().await?;
        match stream.try_read(&mut part) {
            Ok(0) => return Ok(answer),
            Ok(count) => answer.extend_from_slice(&part[..count]),
            Err(why) if why.kind() == ErrorKind::WouldBlock => {}
            Err(why) => return Err(why),
        }
        if answer.len() > BYTES_MAX {
            return Err(ErrorKind::InvalidData.into());
        }
    }
}
