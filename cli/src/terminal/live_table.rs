//! The live table: at the bottom of the terminal while the command runs, or elsewhere a line now and then.

use super::screen::Screen;
use crate::collector::announced::Announced;
use ampere_collector::serving::access::Token;
use ampere_collector::serving::client;
use ampere_collector::serving::snapshot::Snapshot;
use ampere_model::order::largest_first;
use ampere_model::text::{joules, printable, short};
use ampere_report::text::bar;
use std::collections::{BTreeMap, HashSet};
use std::io::IsTerminal;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const TABLE_PERIOD: Duration = Duration::from_millis(500);
/// A line in a batch job's output: often in the first minute, then once in each.
const LINE_PERIOD: Duration = Duration::from_secs(5);
const LATER_LINE_PERIOD: Duration = Duration::from_secs(60);
const OFTEN: Duration = Duration::from_secs(60);
pub const ANSWER_LIMIT: Duration = Duration::from_secs(1);
/// Functions in the table: a third of the terminal, within these.
const LEAST_ROWS: u16 = 6;
const MOST_ROWS: u16 = 16;
const LONGEST_NAME: usize = 80;

pub struct LiveTable {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl LiveTable {
    /// `output` has the collector's address in `collector.json`. `token`: what it asks of requests.
    pub fn start(output: &Path, token: Option<Token>) -> LiveTable {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, directory) = (stop.clone(), output.to_owned());
        let url = Announced::of(output).map(|announced| announced.url);
        if let Some(url) = &url {
            let metrics = if url.starts_with("http") { format!("{url}/metrics") } else { url.clone() };
            say!("ampere: live metrics at {metrics}, results in {}", output.display());
        } else {
            say!("ampere: no live metrics (the summary's notes say why), results in {}", output.display());
        }
        let thread = url.and_then(|url| {
            std::thread::Builder::new()
                .name("ampere-live".to_owned())
                .spawn(move || show(&directory, url, token.as_ref(), &stopped))
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

fn show(output: &Path, mut url: String, token: Option<&Token>, stop: &AtomicBool) {
    let rows = (Screen::terminal_lines() / 3).clamp(LEAST_ROWS, MOST_ROWS);
    let mut screen = if std::io::stderr().is_terminal() { Screen::open(rows + 3) } else { None };
    let begun = Instant::now();
    let period = |is_screen: bool| match is_screen {
        true => TABLE_PERIOD,
        false if begun.elapsed() < OFTEN => LINE_PERIOD,
        false => LATER_LINE_PERIOD,
    };
    let mut next = Instant::now() + period(screen.is_some());
    loop {
        while Instant::now() < next && !stop.load(Ordering::Relaxed) {
            std::thread::park_timeout(next.saturating_duration_since(Instant::now()));
        }
        if stop.load(Ordering::Relaxed) {
            return;
        }
        next += period(screen.is_some());
        let Some(snapshot) = fetch(&url, token) else {
            // Another collector may have taken its place.
            url = Announced::of(output).map_or(url, |announced| announced.url);
            continue;
        };
        if snapshot.devices.is_empty() {
            continue;
        }
        match &mut screen {
            Some(screen) => screen.draw(&table(&snapshot, usize::from(rows))),
            None => say!("{}", line(&snapshot)),
        }
    }
}

fn fetch(url: &str, token: Option<&Token>) -> Option<Snapshot> {
    serde_json::from_slice(&client::get(url, "/snapshot.json", token, ANSWER_LIMIT).ok()?).ok()
}

/// (region, joules over all ranks and devices), most first. Devices that are contained in others are left out: the others
/// count their joules.
fn by_region(snapshot: &Snapshot) -> Vec<(&str, f64)> {
    let mut sums: BTreeMap<&str, f64> = BTreeMap::new();
    for row in &snapshot.threads_energy {
        *sums.entry(&row.region).or_insert(0.0) += row.joules;
    }
    let by_rank = if sums.is_empty() { &snapshot.region_energy[..] } else { &[] };
    let topmost: HashSet<&str> = snapshot.topmost().map(|device| device.device.as_str()).collect();
    for row in by_rank.iter().filter(|row| topmost.contains(row.device.as_str())) {
        *sums.entry(&row.region).or_insert(0.0) += row.joules;
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    largest_first(&mut sums, |(_, joules)| *joules);
    sums
}

/// A word where the joules are not measured.
fn quality(energy: &str) -> &str {
    if energy == "measured" { "" } else { energy }
}

fn device_words(snapshot: &Snapshot) -> String {
    let words = snapshot.devices.iter().map(|d| {
        let watts = d.watts.map_or_else(|| "-".to_owned(), |watts| format!("{:.0}", watts.max(0.0)));
        let name = printable(&d.device);
        format!("{name} {} J {watts} W {}", joules(d.joules), printable(quality(&d.energy)))
            .trim_end()
            .to_owned()
    });
    let busy = snapshot.collector.node_cpu.filter(|cpu| cpu.seconds > 0.0).map(|cpu| {
        let cores = |busy: f64| busy / cpu.seconds;
        format!("{:.1} of {:.1} busy cores", cores(cpu.own_busy_seconds), cores(cpu.node_busy_seconds))
    });
    words.chain(busy).collect::<Vec<_>>().join(", ")
}

pub fn line(snapshot: &Snapshot) -> String {
    let top: Vec<String> = by_region(snapshot)
        .into_iter()
        .take(3)
        .map(|(region, sum)| format!("{} {} J", short(region, LONGEST_NAME), joules(sum)))
        .collect();
    format!("ampere: {:>6.1} s  {}  top: {}", snapshot.seconds, device_words(snapshot), top.join(", "))
}

pub fn table(snapshot: &Snapshot, functions: usize) -> Vec<String> {
    let total: f64 = snapshot.topmost().map(|d| d.joules).sum();
    let events: u64 = snapshot.ranks.iter().map(|r| r.events).sum();
    let suppressed: u64 = snapshot.ranks.iter().map(|r| r.suppressed_calls).sum();
    let mut rows = vec![
        format!(
            "\x1b[7m ampere {:>7.1} s  {} ranks  {events} events  {suppressed} suppressed  lag {:.1} s \x1b[0m",
            snapshot.seconds,
            snapshot.ranks.len(),
            snapshot.collector.lag_seconds
        ),
        format!(" {}", device_words(snapshot)),
    ];
    let notes: Vec<String> =
        snapshot.notes.iter().take(functions / 2).map(|note| format!(" {}", printable(note))).collect();
    for (region, sum) in by_region(snapshot).into_iter().take(functions - notes.len()) {
        let share = if total > 0.0 { 100.0 * sum / total } else { 0.0 };
        rows.push(format!(
            " {:>10} J {share:>5.1}%  {:<24}  {}",
            joules(sum),
            bar(sum, total),
            short(region, LONGEST_NAME)
        ));
    }
    rows.extend(notes);
    let running: Vec<String> = snapshot
        .ranks
        .iter()
        .take(8)
        .map(|r| format!("{}: {}", short(&r.rank, LONGEST_NAME), short(&r.current_region, LONGEST_NAME)))
        .collect();
    rows.push(format!(" now in  {}", running.join("  ")));
    rows
}
