//! `ampere run --work-from`: counts units of work that the command prints.
//!
//! The command writes into pipes. Their bytes are passed on unchanged to where the output goes without the option. If that is a
//! terminal, the command writes to another terminal of the same size, so that it prints the same. If standard output and
//! standard error are the same file, the command also has one file for both, so that their order is kept.

use ampere_model::Counted;
use ampere_ring::Session;
use ampere_ring::work::{WorkTable, is_amount};
use anyhow::Context;
use regex::bytes::Regex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::fstat;
use rustix::io::Errno;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{OptionalActions, isatty, tcgetattr, tcgetwinsize, tcsetattr, tcsetwinsize};
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// The name of the work if the option gives none.
const NAME: &str = "work";
/// The part of a line beyond this length is not searched.
const LINE_BYTES_MAX: usize = 64 << 10;
/// The interval between checks of whether the size of the terminal has changed, in nanoseconds.
const SIZE_PERIOD: i64 = 250_000_000;

/// One option: the name of the work, and the expression whose first group is the number of units.
#[derive(Clone, Debug)]
pub struct WorkFrom {
    name: String,
    expression: Regex,
}

/// Parses, for clap, `[NAME=]REGEX`.
pub fn work_from(text: &str) -> Result<WorkFrom, String> {
    let is_name = |name: &str| name.chars().all(|c| c.is_alphanumeric() || " _-./".contains(c));
    let named = text.split_once('=').filter(|(name, _)| !name.trim().is_empty() && is_name(name));
    // `steps=(\d+)` may be meant as a whole, for lines like `steps=7`. As a named expression, it would count every number.
    if let Some((name, group)) = named.filter(|(_, group)| is_only_group(group)) {
        return Err(format!(
            "it has no text next to the number, and so matches every number: write {}={name}={group} for lines such as {name}=7",
            name.trim()
        ));
    }
    let (name, expression) = named.unwrap_or((NAME, text));
    let expression = Regex::new(expression).map_err(|why| why.to_string())?;
    if expression.captures_len() < 2 {
        return Err(r"it has no group for the number, such as (\S+)".to_owned());
    }
    Ok(WorkFrom { name: name.trim().to_owned(), expression })
}

/// Whether an expression consists of one group and blanks.
fn is_only_group(expression: &str) -> bool {
    let group = expression.trim().strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
    group.is_some_and(|inside| !inside.contains(['(', ')']))
}

/// Copies the command's output.
pub struct Copying {
    /// The descriptors to which the command writes, for standard output and standard error; `None` for one that is closed.
    ends: [Option<OwnedFd>; 2],
    threads: Vec<JoinHandle<Vec<Found>>>,
    has_ended: Arc<AtomicBool>,
    wanted: Vec<WorkFrom>,
}

/// The numbers of matches of an expression.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Found {
    /// Matches whose group is a finite number above 0.
    amounts: u64,
    /// Matches whose group is anything else.
    others: u64,
}

/// One stream of the command: the descriptor from which it is read, and the descriptor to which its bytes are copied.
struct Stream {
    from: OwnedFd,
    to: OwnedFd,
    is_terminal: bool,
}

impl Copying {
    /// Starts to copy the output of a command that will be started.
    pub fn start(wanted: &[WorkFrom], session: &Session) -> anyhow::Result<Copying> {
        let table = Arc::new(WorkTable::open_or_create(session).context("cannot count work")?);
        let mut copying = Copying {
            ends: [None, None],
            threads: Vec::new(),
            has_ended: Arc::default(),
            wanted: wanted.to_vec(),
        };
        let (out, error) = (rustix::stdio::stdout(), rustix::stdio::stderr());
        let is_one = is_same(out, error);
        for (at, target) in [out, error].into_iter().enumerate() {
            if at == 1 && is_one {
                copying.ends[1] = copying.ends[0].as_ref().map(OwnedFd::try_clone).transpose()?;
            } else if fstat(target).is_ok() {
                let (stream, end) = Stream::to(target).context("cannot copy the command's output")?;
                copying.ends[at] = Some(end);
                let wanted = wanted.to_vec();
                let table = table.clone();
                let has_ended = copying.has_ended.clone();
                let copy = move || stream.copy(Matcher::new(wanted, table), &has_ended);
                copying
                    .threads
                    .push(std::thread::Builder::new().name("ampere-output".to_owned()).spawn(copy)?);
            }
        }
        Ok(copying)
    }

    /// Lets a command write into these streams.
    pub fn redirect(&self, command: &mut Command) {
        let [out, error] = [0, 1].map(|at| self.ends[at].as_ref().and_then(|end| end.try_clone().ok()));
        out.into_iter().for_each(|end| _ = command.stdout(Stdio::from(end)));
        error.into_iter().for_each(|end| _ = command.stderr(Stdio::from(end)));
    }

    /// Closes this process' copies of the descriptors to which the command writes, once the command has them. So a stream ends
    /// when its writers do.
    pub fn release(&mut self) {
        self.ends = [None, None];
    }

    /// Copies the rest after the command has ended. Returns a note for each expression that has found no number.
    pub fn finish(mut self) -> Vec<String> {
        self.release();
        self.has_ended.store(true, Ordering::Relaxed);
        let mut sums = vec![Found::default(); self.wanted.len()];
        for found in self.threads.into_iter().filter_map(|thread| thread.join().ok()) {
            for (sum, found) in sums.iter_mut().zip(found) {
                (sum.amounts, sum.others) = (sum.amounts + found.amounts, sum.others + found.others);
            }
        }
        let notes = self.wanted.iter().zip(sums).filter(|(_, found)| found.amounts == 0);
        let words = |(wanted, found): (&WorkFrom, Found)| match found.others {
            0 => format!("--work-from: no line of the output matched {}", wanted.expression),
            _ => format!("--work-from: what {} matched is no finite number above 0", wanted.expression),
        };
        notes.map(words).collect()
    }
}

/// Whether two descriptors refer to the same file.
fn is_same(one: BorrowedFd, other: BorrowedFd) -> bool {
    let file = |fd| fstat(fd).map(|stat| (stat.st_dev, stat.st_ino)).ok();
    file(one).is_some_and(|known| Some(known) == file(other))
}

impl Stream {
    /// Makes a stream whose bytes go to this descriptor. Returns it with the descriptor to which the command writes.
    fn to(target: BorrowedFd) -> io::Result<(Stream, OwnedFd)> {
        let to = target.try_clone_to_owned()?;
        if !isatty(target) {
            let (from, end) = io::pipe()?;
            return Ok((Stream { from: from.into(), to, is_terminal: false }, end.into()));
        }
        let from = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        grantpt(&from)?;
        unlockpt(&from)?;
        let name = ptsname(&from, Vec::new())?;
        let path = std::ffi::OsStr::from_bytes(name.as_bytes());
        let open = OpenOptions::new().read(true).write(true).custom_flags(NOCTTY).open(path)?;
        let end = OwnedFd::from(open);
        // This terminal does not convert line ends, because the terminal to which the bytes are copied does.
        let mut settings = tcgetattr(target)?;
        settings.output_modes &= !rustix::termios::OutputModes::OPOST;
        tcsetattr(&end, OptionalActions::Now, &settings)?;
        tcsetwinsize(&end, tcgetwinsize(target)?)?;
        Ok((Stream { from, to, is_terminal: true }, end))
    }

    /// Copies until all writers have ended, or until the command has ended and its output has been copied. If the output cannot
    /// be written any more, the command notices that at its next write.
    fn copy(self, mut matcher: Matcher, has_ended: &AtomicBool) -> Vec<Found> {
        let mut buffer = vec![0; 64 << 10];
        loop {
            // This is read before the poll, so that a last round copies everything that was written before the command's end.
            let is_last = has_ended.load(Ordering::Relaxed);
            let wait = Timespec { tv_sec: 0, tv_nsec: if is_last { 0 } else { SIZE_PERIOD } };
            let mut from = [PollFd::new(&self.from, PollFlags::IN)];
            match poll(&mut from, Some(&wait)) {
                Ok(0) if is_last => break,
                Ok(0) | Err(Errno::INTR) => {
                    self.follow_size();
                    continue;
                }
                _ => {}
            }
            match rustix::io::read(&self.from, &mut buffer) {
                Ok(0) => break,
                Ok(count) if write_all(&self.to, &buffer[..count]) => matcher.take(&buffer[..count]),
                Err(Errno::INTR | Errno::AGAIN) => {}
                // Reading from a terminal fails if its writers have ended.
                Ok(_) | Err(_) => break,
            }
        }
        matcher.finish()
    }

    fn follow_size(&self) {
        if self.is_terminal
            && let (Ok(size), Ok(known)) = (tcgetwinsize(&self.to), tcgetwinsize(&self.from))
            && (size.ws_row, size.ws_col) != (known.ws_row, known.ws_col)
        {
            let _ = tcsetwinsize(&self.from, size);
        }
    }
}

/// The terminal must not become this process' controlling terminal.
const NOCTTY: i32 = rustix::fs::OFlags::NOCTTY.bits() as i32;

/// Writes everything. Returns `false` if that is impossible.
fn write_all(to: &OwnedFd, mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        match rustix::io::write(to, bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => _ = poll(&mut [PollFd::new(to, PollFlags::OUT)], None),
            Err(_) => return false,
        }
    }
    true
}

/// Searches the lines of a stream.
struct Matcher {
    wanted: Vec<WorkFrom>,
    table: Arc<WorkTable>,
    line: Vec<u8>,
    found: Vec<Found>,
}

impl Matcher {
    fn new(wanted: Vec<WorkFrom>, table: Arc<WorkTable>) -> Matcher {
        let found = vec![Found::default(); wanted.len()];
        Matcher { wanted, table, line: Vec::new(), found }
    }

    fn take(&mut self, mut bytes: &[u8]) {
        // Progress is often printed with carriage returns and no line ends.
        while let Some(end) = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            self.add(&bytes[..end]);
            self.search();
            bytes = &bytes[end + 1..];
        }
        self.add(bytes);
    }

    fn add(&mut self, bytes: &[u8]) {
        let room = LINE_BYTES_MAX - self.line.len();
        self.line.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    fn search(&mut self) {
        for (wanted, found) in self.wanted.iter().zip(&mut self.found) {
            for group in wanted.expression.captures_iter(&self.line).filter_map(|all| all.get(1)) {
                let number =
                    std::str::from_utf8(group.as_bytes()).ok().and_then(|text| text.trim().parse().ok());
                match number.filter(|units| is_amount(*units)) {
                    Some(units) => {
                        found.amounts += 1;
                        match self.table.row(Counted::Work, &wanted.name, false) {
                            Some(row) => row.add(units),
                            None => self.table.leave_out(),
                        }
                    }
                    None => found.others += 1,
                }
            }
        }
        self.line.clear();
    }

    fn finish(mut self) -> Vec<Found> {
        self.search();
        self.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_in_front_of_an_equals_sign_and_an_expression_has_a_group() {
        let parsed = |text: &str| work_from(text).map(|of| (of.name, of.expression.to_string()));
        assert_eq!(parsed(r"steps=Steps: (\d+)"), Ok(("steps".to_owned(), r"Steps: (\d+)".to_owned())));
        assert_eq!(parsed(r"Steps: (\d+)"), Ok(("work".to_owned(), r"Steps: (\d+)".to_owned())));
        assert_eq!(parsed(r"(\d+)=x"), Ok(("work".to_owned(), r"(\d+)=x".to_owned())));
        let twice = (r"steps=(\d+)".to_owned(), "steps".to_owned());
        assert_eq!(parsed(r"steps=steps=(\d+)"), Ok((twice.1, twice.0)));
        for wrong in ["steps", "steps=(", "a=b", "", r"steps=(\d+)", r"Iterations = (\S+)"] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn each_match_of_a_line_adds_however_the_bytes_arrive() {
        let place = tempfile::tempdir().unwrap();
        let session = Session::open_or_create_in(place.path()).unwrap();
        let table = Arc::new(WorkTable::open_or_create(&session).unwrap());
        let wanted = [r"a=a(\S+)", r"b=b (\d+)", r"none=x(\d)"].map(|text| work_from(text).unwrap());
        let text = b"a1.5 a2 anan ab\rb 3\nb 4\xff a1e3 \n\n".iter().chain(&[b'z'; LINE_BYTES_MAX + 1]);
        let text: Vec<u8> = text.chain(b"b 9\nb 2").copied().collect();
        for piece in [1, 7, text.len()] {
            let mut matcher = Matcher::new(wanted.to_vec(), table.clone());
            text.chunks(piece).for_each(|bytes| matcher.take(bytes));
            let found =
                matcher.finish().iter().map(|found| [found.amounts, found.others]).collect::<Vec<_>>();
            assert_eq!(found, [[3, 2], [3, 0], [0, 0]], "in pieces of {piece}");
        }
        let totals: Vec<(String, f64)> = table.totals().into_iter().collect();
        assert_eq!(
            totals,
            [("ampere::work::a".to_owned(), 3.0 * 1003.5), ("ampere::work::b".to_owned(), 3.0 * 9.0)]
        );
    }
}
