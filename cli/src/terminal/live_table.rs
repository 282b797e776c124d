//! The live table at the bottom of the terminal while the command runs. If there is no terminal, a line is printed now and then.

use super::figures::{few, head_of_few, largest, unit};
use super::header::{device_words, job_words, progress};
use super::paint::put;
use super::screen::Screen;
use super::table::Drawn;
use crate::collector::announced::Announced;
use ampere_endpoint::token::Token;
use ampere_figures::nodes::job::Job;
use ampere_figures::snapshot::{RankFigures, Snapshot};
use ampere_model::text::{joules, printable, short};
use ampere_report::first::names::shorten;
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::Stylize;
use ratatui_core::text::Line;
use serde::de::DeserializeOwned;
use std::io::IsTerminal;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const TABLE_PERIOD: Duration = Duration::from_millis(500);
/// The times of lines in a batch job's output: the first after a second, then often in the first minute, then once per minute.
const FIRST_LINE: Duration = Duration::from_secs(1);
const LINE_PERIOD: Duration = Duration::from_secs(5);
const LATER_LINE_PERIOD: Duration = Duration::from_secs(60);
const FIRST_LINES_TIME: Duration = Duration::from_secs(60);
/// The path of the request for all nodes' figures.
pub const NODES: &str = "/nodes";
pub const ANSWER_LIMIT: Duration = Duration::from_secs(1);
/// The table of functions takes a third of the terminal, within these limits.
const ROWS_MIN: u16 = 6;
const ROWS_MAX: u16 = 16;
/// The number of other lines: the run and its devices above the functions, and the ranks below them.
const OTHER_ROWS: u16 = 3;
const NAME_CHARS_MAX: usize = 48;

pub struct LiveTable {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl LiveTable {
    /// Starts the table. `output` has the collector's address in `collector.json`. `token` is the one that requests must present.
    pub fn start(output: &Path, token: Option<Token>) -> LiveTable {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, directory) = (stop.clone(), output.to_owned());
        let announced = Announced::of(output);
        if let Some(Announced { url, .. }) = &announced {
            let metrics = if url.starts_with("http") { format!("{url}/metrics") } else { url.clone() };
            say!("ampere: live metrics at {metrics}, results in {}", output.display());
        } else {
            say!("ampere: no live metrics (see the notes of the summary), results in {}", output.display());
        }
        let thread = announced.and_then(|announced| {
            std::thread::Builder::new()
                .name("ampere-live".to_owned())
                .spawn(move || show(&directory, announced, token.as_ref(), &stopped))
                .ok()
        });
        LiveTable { stop, thread }
    }

    pub fn stop(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

fn show(output: &Path, mut announced: Announced, token: Option<&Token>, stop: &AtomicBool) {
    let rows = (Screen::terminal_lines() / 3).clamp(ROWS_MIN, ROWS_MAX);
    let mut screen = if std::io::stderr().is_terminal() { Screen::open(rows + OTHER_ROWS) } else { None };
    let begun = Instant::now();
    let period = |is_screen: bool| match is_screen {
        true => TABLE_PERIOD,
        false if begun.elapsed() < FIRST_LINES_TIME => LINE_PERIOD,
        false => LATER_LINE_PERIOD,
    };
    let mut next = begun + period(screen.is_some()).min(FIRST_LINE);
    loop {
        while Instant::now() < next && !stop.load(Ordering::Relaxed) {
            std::thread::park_timeout(next.saturating_duration_since(Instant::now()));
        }
        if stop.load(Ordering::Relaxed) {
            return;
        }
        next += period(screen.is_some());
        let Some(snapshot) = fetch::<Snapshot>(&announced, "/snapshot.json", token) else {
            // Another collector may have replaced it, with another address.
            announced = Announced::of(output).unwrap_or(announced);
            continue;
        };
        if snapshot.devices.is_empty() {
            continue;
        }
        match &mut screen {
            Some(screen) => screen.draw(|area| table(&snapshot, area)),
            None => say!("{}", line(&snapshot, fetch(&announced, NODES, token).as_ref())),
        }
    }
}

fn fetch<T: DeserializeOwned>(announced: &Announced, path: &str, token: Option<&Token>) -> Option<T> {
    serde_json::from_slice(&announced.ask(&announced.url, path, token, ANSWER_LIMIT).ok()?).ok()
}

/// Returns a line of the output. `job`: if the run has several nodes, their sum comes first, and the rest is marked as this
/// node's.
pub fn line(snapshot: &Snapshot, job: Option<&Job>) -> String {
    let unit = unit(snapshot);
    let top: Vec<String> = largest(snapshot, 3)
        .into_iter()
        .map(|(region, sum)| format!("{} {} {unit}", shorten(region, NAME_CHARS_MAX), joules(sum)))
        .collect();
    let of_job = job
        .filter(|job| job.nodes.len() > 1)
        .map_or_else(String::new, |job| format!("{}  on {}: ", job_words(job), printable(&snapshot.node)));
    format!(
        "ampere: {:>6.1} s  {of_job}{}  top: {}",
        snapshot.seconds,
        device_words(snapshot),
        top.join(", ")
    )
}

fn table(snapshot: &Snapshot, area: Rect) -> Buffer {
    let mut picture = Buffer::empty(area);
    let suppressed = snapshot.losses().records.suppressed_calls;
    let lag = snapshot.collector.lag_seconds;
    let title = format!(" ampere {}  {suppressed} suppressed  lag {lag:.1} s ", progress(snapshot));
    let functions = usize::from(area.height).saturating_sub(OTHER_ROWS.into());
    let notes = snapshot.notes.iter().take(functions / 2).map(|note| format!(" {}", printable(note)));
    let notes: Vec<Line> = notes.map(Line::from).collect();
    let few = few(snapshot, functions - notes.len());
    let has_ranks = snapshot.ranks.iter().any(RankFigures::is_numbered);
    let beside_others = snapshot.ranks.iter().filter(|process| !has_ranks || process.is_numbered());
    let running: Vec<String> = beside_others
        .take(8)
        .map(|r| {
            format!("{}: {}", short(&r.rank, NAME_CHARS_MAX), shorten(&r.current_region, NAME_CHARS_MAX))
        })
        .collect();
    let rows = Rect { y: area.y + 2, height: few.rows.len() as u16, ..area };
    few.draw(&mut picture, Drawn { area: rows, first: 0, selected: None, sort: None });
    let above = [
        Line::from(title).reversed(),
        Line::from(format!(" {}; functions: {}", device_words(snapshot), head_of_few(snapshot))),
    ];
    let below = notes.into_iter().chain([Line::from(format!(" now in  {}", running.join("  ")))]);
    above.iter().zip(area.y..).for_each(|(line, y)| put(&mut picture, 0, y, line));
    below.zip(rows.bottom()..).for_each(|(line, y)| put(&mut picture, 0, y, &line));
    picture
}
