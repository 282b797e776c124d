//! /metrics and its companions, on loopback. A thread of its own: a scrape never makes the collector's loop wait.

use crate::metrics::{CONTENT_TYPE, Latest, encode};
use crate::summary::Summary;
use crossbeam_channel::Sender;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::CONTENT_TYPE as CONTENT_TYPE_HEADER;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// Where the collector listens unless told otherwise.
pub const DEFAULT_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9977);
/// How many ports are tried when the wanted one is in use.
const TRIED_PORTS: u16 = 100;
const HEADER_LIMIT: Duration = Duration::from_secs(5);
const SUMMARY_LIMIT: Duration = Duration::from_secs(5);

/// Asks the collector's loop for a summary as of now.
pub type SummaryRequest = oneshot::Sender<Box<Summary>>;

pub struct Server {
    pub address: SocketAddr,
    /// Set when the wanted port was in use.
    pub note: Option<String>,
}

/// Binds the address, or the next free port, and serves until the process ends.
pub fn serve(
    wanted: SocketAddr,
    latest: Latest,
    summaries: Sender<SummaryRequest>,
) -> Result<Server, String> {
    let (listener, note) = bind(wanted)?;
    let address = listener.local_addr().map_err(|e| format!("no address to listen on: {e}"))?;
    listener.set_nonblocking(true).map_err(|e| format!("cannot listen on {address}: {e}"))?;
    std::thread::Builder::new()
        .name("ampere-http".to_owned())
        .spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            if let Ok(runtime) = runtime {
                runtime.block_on(accept(listener, latest, summaries));
            }
        })
        .map_err(|e| format!("cannot start the metrics server: {e}"))?;
    Ok(Server { address, note })
}

/// The address, or the next free port with a note that says so.
pub fn bind(wanted: SocketAddr) -> Result<(std::net::TcpListener, Option<String>), String> {
    let mut first_error = None;
    for step in 0..TRIED_PORTS {
        let Some(port) = wanted.port().checked_add(step) else { break };
        match std::net::TcpListener::bind(SocketAddr::new(wanted.ip(), port)) {
            Ok(listener) if step == 0 => return Ok((listener, None)),
            Ok(listener) => {
                let note = format!("port {} is in use; metrics are on port {port} instead", wanted.port());
                return Ok((listener, Some(note)));
            }
            Err(e) if e.kind() == std::io::ErrorKind::AddrInUse => first_error = first_error.or(Some(e)),
            // An address of another node, say, where one setting is for all of them: figures matter more than where.
            Err(e) if wanted != DEFAULT_ADDRESS => {
                let note = format!("cannot listen on {wanted}: {e}; metrics are on loopback instead");
                return bind(DEFAULT_ADDRESS).map(|(listener, _)| (listener, Some(note)));
            }
            Err(e) => {
                return Err(format!("cannot listen on {wanted}: {e}; choose another address with --listen"));
            }
        }
    }
    let why = first_error.map_or_else(|| "no port".to_owned(), |e| e.to_string());
    Err(format!(
        "cannot listen on {wanted} or the {TRIED_PORTS} ports after it: {why}; choose one with --listen"
    ))
}

async fn accept(listener: std::net::TcpListener, latest: Latest, summaries: Sender<SummaryRequest>) {
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    let local = tokio::task::LocalSet::new();
    local
        .run_until(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                };
                let (latest, summaries) = (latest.clone(), summaries.clone());
                tokio::task::spawn_local(async move {
                    let service = service_fn(move |request| {
                        let (latest, summaries) = (latest.clone(), summaries.clone());
                        async move { Ok::<_, Infallible>(answer(&request, &latest, &summaries).await) }
                    });
                    // A client that goes away or sends nonsense is its own problem.
                    let _ = http1::Builder::new()
                        .timer(TokioTimer::new())
                        .header_read_timeout(HEADER_LIMIT)
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        })
        .await;
}

async fn answer(
    request: &Request<Incoming>,
    latest: &Latest,
    summaries: &Sender<SummaryRequest>,
) -> Response<Full<Bytes>> {
    if request.method() != Method::GET {
        return reply(StatusCode::METHOD_NOT_ALLOWED, "text/plain", "only GET\n".to_owned());
    }
    match request.uri().path() {
        "/metrics" => match encode(latest.get()) {
            Ok(body) => reply(StatusCode::OK, CONTENT_TYPE, body),
            Err(_) => reply(StatusCode::INTERNAL_SERVER_ERROR, "text/plain", "cannot encode\n".to_owned()),
        },
        "/snapshot.json" => json(serde_json::to_string(&*latest.get())),
        "/summary.json" => {
            let (ask, told) = oneshot::channel();
            // Never waits: where the loop is busy with many of these, one more is refused.
            let asked = summaries.try_send(ask).is_ok();
            match tokio::time::timeout(SUMMARY_LIMIT, told).await {
                Ok(Ok(summary)) if asked => json(serde_json::to_string_pretty(&summary)),
                _ => reply(StatusCode::SERVICE_UNAVAILABLE, "text/plain", "the run is ending\n".to_owned()),
            }
        }
        "/" => {
            let index = "ampere\n/metrics        for Prometheus\n/summary.json   the summary as of now\n";
            reply(StatusCode::OK, "text/plain", index.to_owned())
        }
        _ => reply(StatusCode::NOT_FOUND, "text/plain", "there is /metrics and /summary.json\n".to_owned()),
    }
}

fn json(body: serde_json::Result<String>) -> Response<Full<Bytes>> {
    match body {
        Ok(body) => reply(StatusCode::OK, "application/json", body),
        Err(_) => reply(StatusCode::INTERNAL_SERVER_ERROR, "text/plain", "cannot encode\n".to_owned()),
    }
}

fn reply(status: StatusCode, kind: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE_HEADER, hyper::header::HeaderValue::from_static(kind));
    response
}
