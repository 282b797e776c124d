//! The live table at the bottom of the terminal while the command runs. If there is no terminal, a line is printed at intervals.

use super::figures::{digits, few, head_of_few, largest, pending_words, unit};
use super::header::{device_words, device_words_in, fitting, job_words, progress};
use super::paint::put;
use super::screen::{Screen, is_taken};
use super::table::DrawOptions;
use crate::collector::announced::Announced;
use ampere_endpoint::token::Token;
use ampere_figures::nodes::job::Job;
use ampere_figures::snapshot::{RankFigures, Snapshot};
use ampere_model::text::{first_words, joules, printable, short};
use ampere_report::first::names::shorten;
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::Stylize;
use ratatui_core::text::Line;
use serde::de::DeserializeOwned;
use std::io::IsTerminal;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
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
    /// `None` if lines are printed instead.
    screen: Arc<Mutex<Option<Screen>>>,
    thread: Option<JoinHandle<()>>,
}

impl LiveTable {
    /// Starts the table. `output` has the collector's address in `collector.json`. `token` is the one that requests must present.
    pub fn start(output: &Path, token: Option<Token>) -> LiveTable {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, directory) = (stop.clone(), output.to_owned());
        let announced = Announced::of(output);
        if let Some(Announced { url, .. }) = &announced {
            let place =
                if url.starts_with("http") { format!("page at {url}/") } else { format!("metrics at {url}") };
            say!("ampere: live {place}, results in {}", output.display());
        } else {
            say!("ampere: no live metrics (see the notes of the summary), results in {}", output.display());
        }
        let rows = (Screen::terminal_lines() / 3).clamp(ROWS_MIN, ROWS_MAX);
        let screen = std::io::stderr().is_terminal().then(|| Screen::open(rows + OTHER_ROWS)).flatten();
        let screen = Arc::new(Mutex::new(screen));
        let drawn = screen.clone();
        let thread = announced.and_then(|announced| {
            std::thread::Builder::new()
                .name("ampere-live".to_owned())
                .spawn(move || show(&directory, announced, token.as_ref(), &drawn, &stopped))
                .ok()
        });
        LiveTable { stop, screen, thread }
    }

    /// Restores the terminal. Nothing is drawn while the returned value exists.
    pub fn hide(&self) -> impl Sized {
        let mut screen = self.screen.lock().unwrap_or_else(PoisonError::into_inner);
        screen.iter_mut().for_each(Screen::close);
        screen
    }

    pub fn stop(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

fn show(
    output: &Path,
    mut announced: Announced,
    token: Option<&Token>,
    screen: &Mutex<Option<Screen>>,
    stop: &AtomicBool,
) {
    let is_screen = screen.lock().is_ok_and(|screen| screen.is_some());
    let begun = Instant::now();
    let period = || match is_screen {
        true => TABLE_PERIOD,
        false if begun.elapsed() < FIRST_LINES_TIME => LINE_PERIOD,
        false => LATER_LINE_PERIOD,
    };
    let mut next = begun + period().min(FIRST_LINE);
    loop {
        while Instant::now() < next && !stop.load(Ordering::Relaxed) {
            std::thread::park_timeout(next.saturating_duration_since(Instant::now()));
        }
        if stop.load(Ordering::Relaxed) {
            return;
        }
        next = (next + period()).max(Instant::now()); // this process may have been stopped for a long time
        let Some(snapshot) = fetch::<Snapshot>(&announced, "/snapshot.json", token) else {
            // Another collector, with another address, may have replaced the one that was asked.
            announced = Announced::of(output).unwrap_or(announced);
            continue;
        };
        if snapshot.devices.is_empty() {
            continue;
        }
        if is_screen {
            let mut screen = screen.lock().unwrap_or_else(PoisonError::into_inner);
            screen.iter_mut().for_each(|screen| screen.draw(|area| table(&snapshot, area)));
        } else if !is_taken() {
            say!("{}", line(&snapshot, fetch(&announced, NODES, token).as_ref()));
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
    let largest = largest(snapshot, 3);
    let top = largest
        .iter()
        .map(|(name, sum)| format!("{} {} {unit}", shorten(name, NAME_CHARS_MAX), joules(*sum)));
    let top: Vec<String> = top.collect();
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
    let width = usize::from(area.width);
    let [time, processes, events] = progress(snapshot);
    let suppressed = if suppressed > 0 { format!("{suppressed} suppressed") } else { String::new() };
    let pending = pending_words(snapshot).unwrap_or_default();
    let parts =
        [format!("ampere {time}"), processes, pending, suppressed, format!("behind by {lag:.1} s"), events];
    let title = format!(" {} ", fitting(&parts, "  ", width.saturating_sub(2)));
    let functions = usize::from(area.height).saturating_sub(OTHER_ROWS.into());
    let notes = snapshot
        .notes
        .iter()
        .take(functions / 2)
        .map(|note| format!(" {}", first_words(note, usize::from(area.width).max(2) - 1)));
    let notes: Vec<Line> = notes.map(Line::from).collect();
    let few = few(snapshot, functions - notes.len());
    let has_ranks = snapshot.ranks.iter().any(RankFigures::is_rank);
    let listed = snapshot.ranks.iter().filter(|process| !has_ranks || process.is_rank());
    let running: Vec<String> = listed
        .take(8)
        .map(|r| {
            format!("{}: {}", short(r.shown(), NAME_CHARS_MAX), shorten(&r.current_region, NAME_CHARS_MAX))
        })
        .collect();
    let rows = Rect { y: area.y + 2, height: few.rows.len() as u16, ..area };
    few.draw(
        &mut picture,
        DrawOptions { area: rows, first: 0, selected: None, sort: None, digits: digits(snapshot) },
    );
    let head = format!("; {}", head_of_few(snapshot));
    let devices = device_words_in(snapshot, width.saturating_sub(1 + head.chars().count()));
    let above = [Line::from(title).reversed(), Line::from(format!(" {devices}{head}"))];
    let running = fitting(&running, "  ", width.saturating_sub(" now in  ".len()));
    let below = notes.into_iter().chain([Line::from(format!(" now in  {running}"))]);
    above.iter().zip(area.y..).for_each(|(line, y)| put(&mut picture, 0, y, line));
    below.zip(rows.bottom()..).for_each(|(line, y)| put(&mut picture, 0, y, &line));
    picture
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terminal::paint::text;
    use ampere_figures::snapshot::{CollectorFigures, DeviceFigures, KernelEnergy, RegionEnergy};
    use ampere_figures::summary::NodeCpu;

    /// The first lines of the result divide the joules in the same way.
    #[test]
    fn the_joules_of_gpus_are_those_of_kernels_as_soon_as_one_has_ended() {
        let device = |name: &str, kind: &str| DeviceFigures {
            device: name.to_owned(),
            kind: kind.to_owned(),
            joules: 100.0,
            ..DeviceFigures::default()
        };
        let row = |device: &str, region: &str, joules| RegionEnergy {
            device: device.to_owned(),
            region: region.to_owned(),
            joules,
            ..RegionEnergy::default()
        };
        let mut snapshot = Snapshot {
            devices: vec![device("cpu", "cpu"), device("GPU-0", "gpu")],
            region_energy: vec![row("GPU-0", "hipEventSynchronize", 90.0), row("cpu", "setup", 20.0)],
            ..Snapshot::default()
        };
        let shown = |snapshot: &Snapshot| text(&table(snapshot, Rect { x: 0, y: 0, width: 80, height: 9 }));
        let before = shown(&snapshot);
        assert!(!before.contains("wait for kernels"), "{before}");
        snapshot.devices[1].division.pending_joules_kernels = 60.0;
        assert!(shown(&snapshot).contains("60.0 J wait for kernels to end"), "{}", shown(&snapshot));
        assert!(
            before.contains("hipEventSynchronize") && before.contains("; functions: J, of total"),
            "{before}"
        );
        let kernel =
            |joules| KernelEnergy { device: "GPU-0".to_owned(), kernel: "heavy_kernel".to_owned(), joules };
        snapshot.kernel_energy = vec![kernel(80.0)];
        let rows = shown(&snapshot);
        let words = |name: &str| -> Vec<&str> {
            rows.lines().find(|line| line.contains(name)).expect(name).split_whitespace().collect()
        };
        assert_eq!(words("heavy_kernel")[..3], ["80.00", "J", "40.0%"], "{rows}");
        assert_eq!(words("setup")[..3], ["20.00", "J", "10.0%"], "{rows}");
        assert!(!rows.contains("hipEventSynchronize"), "{rows}");
        assert!(rows.contains("; kernels, functions: J, of total"), "{rows}");
        let line = line(&snapshot, None);
        assert!(line.ends_with("top: heavy_kernel 80.00 J, setup 20.00 J"), "{line}");
    }

    #[test]
    fn parts_that_do_not_fit_are_left_out_and_no_figure_is_cut() {
        let device = DeviceFigures {
            device: "node".to_owned(),
            energy: "estimated".to_owned(),
            joules: 706.123,
            watts: Some(104.2),
            ..DeviceFigures::default()
        };
        let cpu =
            NodeCpu { seconds: 1.0, own_busy_seconds: 0.9, node_busy_seconds: 2.0, ..NodeCpu::default() };
        let rank = |number: u32| RankFigures {
            rank: number.to_string(),
            current_region: "a_function_with_a_long_name".to_owned(),
            ..RankFigures::default()
        };
        let snapshot = Snapshot {
            seconds: 6.25,
            devices: vec![device.clone(), DeviceFigures { device: "GPU-0".to_owned(), ..device }],
            region_energy: vec![RegionEnergy {
                region: "work".to_owned(),
                joules: 5.0,
                ..RegionEnergy::default()
            }],
            ranks: vec![rank(0), rank(1), rank(2)],
            notes: vec!["no energy counter was found: energy is estimated from CPU time".to_owned()],
            collector: CollectorFigures { node_cpu: Some(cpu), ..CollectorFigures::default() },
            ..Snapshot::default()
        };
        let lines = |width| -> Vec<String> {
            let picture = table(&snapshot, Rect { x: 0, y: 0, width, height: 9 });
            text(&picture).lines().map(|line| line.trim_end().to_owned()).collect()
        };
        for width in 60..=200 {
            let lines = lines(width);
            assert!(lines[0].ends_with(" s") || lines[0].ends_with(" events"), "{width}: {lines:#?}");
            assert!(lines[1].ends_with("; functions: J, of total"), "{width}: {lines:#?}");
            let now = lines.iter().find(|line| line.starts_with(" now in  ")).expect("a line");
            assert!(now.ends_with("a_function_with_a_long_name"), "{width}: {lines:#?}");
        }
        assert_eq!(
            lines(80)[1],
            " node 706 J 104 W estimated, GPU-0 706 J 104 W estimated; functions: J, of total"
        );
    }
}
