//! Functions that a runtime makes while the program runs: Python (`-X perf`), Node.js, Java and Julia write the address and name
//! of each to `/tmp/perf-PID.map`, in the format of Linux' perf.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::foreign;
use crate::functions::{Function, FunctionId, Functions, Role};

/// The maximum number of bytes that are read from a process' map; no runtime writes as many.
const BYTES_MAX: u64 = 64 << 20;
/// The number of bytes that are read at a time.
const STEP_MAX: u64 = 8 << 20;
/// The maximum number of functions in the maps of all processes; any beyond this have no name.
const FUNCTIONS_MAX: usize = 1 << 18;
/// Only this many bytes of a line are used.
const LINE_BYTES_MAX: usize = 1 << 10;
/// The interval at which a map is checked for changes.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// The prefix of the names of Python functions; name and file follow.
const PYTHON: &str = "py::";
/// The maximum number of ancestors of a process whose maps are read.
const ANCESTORS_MAX: usize = 8;
/// The tolerance for time stamps of files, which are from the kernel's last tick.
const STAMP_NS: i64 = 50_000_000;
/// The maximum number of earlier states of a map's reading that are kept.
const BEFORE_MAX: usize = 8;
/// The number of last bytes that are compared to find out whether a file was only appended to.
const COMPARED_BYTES: usize = 64;

/// The maps of all processes.
#[derive(Default)]
pub(crate) struct Maps {
    processes: HashMap<u32, Map>,
    functions: HashMap<Arc<str>, FunctionId>,
    /// The number of functions of all processes, when it was last counted.
    lines: usize,
}

/// The functions of a process.
struct Map {
    /// The process' own functions, and those of the processes that it is a copy of, the nearest first.
    layers: Vec<Layer>,
    /// The time at which the map is checked again.
    next: Option<Instant>,
}

/// The functions that a process has written to its map.
#[derive(Clone)]
struct Layer {
    process: u32,
    /// The process' own pid in its namespace, once it is known.
    number: Option<u32>,
    /// The time of day at which the process began to execute its program. A file that was last written earlier belongs to
    /// another program.
    since: Option<i64>,
    /// The end and the name of each function, by its start.
    functions: Arc<BTreeMap<u64, (u64, Arc<str>)>>,
    read: ReadState,
    /// The last states of `read`, each with the time of day from which it was valid, the latest first.
    before: VecDeque<(i64, ReadState)>,
}

#[derive(Clone, Default)]
struct ReadState {
    /// The device and inode of the file.
    file: [u64; 2],
    /// The number of bytes that were read, up to the end of a line.
    bytes: u64,
    /// The last of these bytes.
    last: Vec<u8>,
    /// Whether the file is no longer read.
    is_given_up: bool,
}

impl Maps {
    /// Returns the function that the process' map has at this address. The caller has checked that no file that could be read has
    /// code there.
    pub(crate) fn at(&mut self, process: u32, address: u64, functions: &mut Functions) -> Option<FunctionId> {
        let name = self.name_at(process, address)?;
        let known = self.functions.get(&name).copied();
        Some(known.unwrap_or_else(|| {
            let id = functions.add(function(&name));
            self.functions.insert(name, id);
            id
        }))
    }

    /// Whether a function at this address is known.
    pub(crate) fn has(&mut self, process: u32, address: u64) -> bool {
        self.name_at(process, address).is_some()
    }

    fn name_at(&mut self, process: u32, address: u64) -> Option<Arc<str>> {
        let new = || Map::new(Layer::new(process, started(process)));
        let map = self.processes.entry(process).or_insert_with(new);
        let now = Instant::now();
        let is_due = map.next.is_none_or(|next| next <= now);
        if is_due {
            map.next = Some(now + CHECK_INTERVAL);
            let known = |map: &Map| map.layers.first().map_or(0, |own| own.functions.len());
            self.lines = self.processes.values().map(known).sum();
        }
        let map = self.processes.get_mut(&process)?;
        map.layers.iter_mut().find_map(|layer| {
            if is_due {
                // Most programs have no such map. A damaged map is read up to the damage.
                let path = layer.path_for(process);
                let room = FUNCTIONS_MAX.saturating_sub(self.lines) + layer.functions.len();
                let _ = layer.read_appended(path, room);
            }
            layer.at(address)
        })
    }

    /// Must be called when a process was forked, at this time of day.
    pub(crate) fn forked(&mut self, process: u32, parent: u32, at: i64) {
        let mut layers = vec![Layer::new(process, Some(at))];
        match self.processes.get(&parent) {
            Some(parent) => layers.extend(parent.layers.iter().take(ANCESTORS_MAX).cloned()),
            None => layers.push(Layer::new(parent, started(parent))),
        }
        self.processes.insert(process, Map { layers, next: None });
    }

    /// Must be called when a process has started to execute another program, at this time of day.
    pub(crate) fn executed(&mut self, process: u32, at: i64) {
        let own = self.processes.remove(&process).and_then(|map| map.layers.into_iter().next());
        let mut next = Layer::new(process, Some(at));
        if let Some(own) = own {
            // Lines that were read until then are not read again, unless the file is rewritten.
            next.number = own.number;
            let then = own.before.into_iter().find(|(read_at, _)| *read_at <= at);
            next.read = then.map(|(_, read)| read).unwrap_or_default();
        }
        self.processes.insert(process, Map::new(next));
    }

    /// Must be called when a process has ended.
    pub(crate) fn forget(&mut self, process: u32) {
        self.processes.remove(&process);
    }
}

impl Map {
    fn new(own: Layer) -> Map {
        Map { layers: vec![own], next: None }
    }
}

/// Returns the time of day at which a process started.
fn started(process: u32) -> Option<i64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let ticks: u64 = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()?;
    let after_boot = ticks as i64 * (1_000_000_000 / rustix::param::clock_ticks_per_second() as i64);
    Some(ns(ClockId::Realtime) - (ns(ClockId::Boottime) - after_boot))
}

fn ns(clock: ClockId) -> i64 {
    let time = clock_gettime(clock);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

impl Layer {
    fn new(process: u32, since: Option<i64>) -> Layer {
        Layer {
            process,
            number: None,
            since,
            functions: Arc::default(),
            read: ReadState::default(),
            before: VecDeque::new(),
        }
    }

    /// Returns the path of the map's file through the root directory of the process `viewer`. In a container, the directory and
    /// the pid differ.
    fn path_for(&mut self, viewer: u32) -> PathBuf {
        let number = *self.number.get_or_insert_with(|| {
            let status =
                std::fs::read_to_string(format!("/proc/{}/status", self.process)).unwrap_or_default();
            let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
            let own = numbers.and_then(|numbers| numbers.split_whitespace().last()?.parse().ok());
            own.unwrap_or(self.process)
        });
        PathBuf::from(format!("/proc/{viewer}/root/tmp/perf-{number}.map"))
    }

    fn at(&self, address: u64) -> Option<Arc<str>> {
        let (_, (end, name)) = self.functions.range(..=address).next_back()?;
        (address < *end).then(|| name.clone())
    }

    /// Reads the lines that have been appended, or all of a file that was rewritten, one part at a time. `room` is the maximum
    /// number of functions.
    fn read_appended(&mut self, path: PathBuf, room: usize) -> io::Result<()> {
        let (since, read) = (self.since, self.read.clone());
        let found = foreign::in_time(move || appended(&path, since, &read));
        let Some(found) = found else {
            self.read.is_given_up = true; // it is not tried again
            return Err(io::ErrorKind::TimedOut.into());
        };
        let Some((anew, bytes)) = found? else { return Ok(()) };
        if let Some(anew) = anew {
            (self.read, self.functions) = (anew, Arc::default());
        }
        // The last line may be incomplete.
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        let functions = Arc::make_mut(&mut self.functions);
        for line in bytes[..whole].split(|byte| *byte == b'\n') {
            if functions.len() >= room {
                self.read.is_given_up = true;
                break;
            }
            add(functions, &String::from_utf8_lossy(&line[..line.len().min(LINE_BYTES_MAX)]));
        }
        self.read.is_given_up |= whole == 0 && bytes.len() as u64 >= STEP_MAX; // a line without end
        self.read.add(&bytes[..whole]);
        self.before.push_front((ns(ClockId::Realtime), self.read.clone()));
        self.before.truncate(BEFORE_MAX);
        Ok(())
    }
}

/// Returns the bytes after those that were read, with a new state if the file was rewritten. `None` if there is nothing
/// to read.
fn appended(
    path: &Path,
    since: Option<i64>,
    read: &ReadState,
) -> io::Result<Option<(Option<ReadState>, Vec<u8>)>> {
    let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW;
    let mut file = std::fs::File::options().read(true).custom_flags(flags).open(path)?;
    let about = file.metadata()?;
    // Any user can make a file with this name.
    let is_ours = about.uid() == 0 || about.uid() == rustix::process::geteuid().as_raw();
    let written = about.mtime().saturating_mul(1_000_000_000).saturating_add(about.mtime_nsec());
    let is_earlier = since.is_some_and(|since| written.saturating_add(STAMP_NS) < since);
    if !about.is_file() || !is_ours || is_earlier {
        return Ok(None);
    }
    let is_same = read.is_of(&file, &about);
    let from = if is_same { read.bytes } else { 0 };
    if is_same && (read.is_given_up || about.size() <= from) || from >= BYTES_MAX {
        return Ok(None);
    }
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take((BYTES_MAX - from).min(STEP_MAX)).read_to_end(&mut bytes)?;
    let anew = (!is_same).then(|| ReadState { file: [about.dev(), about.ino()], ..ReadState::default() });
    Ok(Some((anew, bytes)))
}

impl ReadState {
    /// Whether a file still begins with the bytes that were read.
    fn is_of(&self, file: &std::fs::File, about: &std::fs::Metadata) -> bool {
        let mut last = vec![0; self.last.len()];
        self.file == [about.dev(), about.ino()]
            && about.size() >= self.bytes
            && file.read_exact_at(&mut last, self.bytes - self.last.len() as u64).is_ok()
            && last == self.last
    }

    fn add(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        self.last.extend(&bytes[bytes.len().saturating_sub(COMPARED_BYTES)..]);
        self.last.drain(..self.last.len().saturating_sub(COMPARED_BYTES));
    }
}

/// Adds a line `BEGIN SIZE NAME` with hexadecimal numbers. It replaces the functions that it overlaps.
fn add(functions: &mut BTreeMap<u64, (u64, Arc<str>)>, line: &str) {
    let parse = || {
        let (begin, rest) = line.split_once(' ')?;
        let (size, name) = rest.split_once(' ')?;
        let number = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok();
        let (begin, size) = (number(begin)?, number(size)?);
        Some((begin, begin.checked_add(size).filter(|end| *end > begin)?, name))
    };
    let Some((begin, end, name)) = parse() else { return };
    let before = functions.range(..begin).next_back().map(|(before, (until, _))| (*before, *until));
    let covered: Vec<u64> = functions.range(begin..end).map(|(at, _)| *at).collect();
    for at in before.filter(|(_, until)| *until > begin).map(|(at, _)| at).into_iter().chain(covered) {
        functions.remove(&at);
    }
    functions.insert(begin, (end, name.into()));
}

/// Returns a function by its name in a map: `py::name:/path/file.py` becomes `name (file.py)`, others are unchanged.
fn function(written: &str) -> Function {
    let python = written.strip_prefix(PYTHON).and_then(|rest| rest.rsplit_once(':'));
    let (name, file) = match python {
        Some((name, path)) => {
            let base = Path::new(path).file_name().unwrap_or_default().to_string_lossy();
            (format!("{name} ({base})"), path.to_owned())
        }
        None => (written.to_owned(), String::new()),
    };
    Function {
        name,
        canonical: written.to_owned(),
        module: Arc::from("//anon"),
        file,
        line: 0,
        role: if python.is_some() { Role::Python } else { Role::Any },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// A file, and its functions.
    struct Written {
        _directory: tempfile::TempDir,
        path: PathBuf,
        layer: Layer,
    }

    impl Written {
        fn new(text: &[u8]) -> Written {
            let directory = tempfile::tempdir().expect("a directory");
            let path = directory.path().join("map");
            std::fs::write(&path, text).expect("written");
            let mut written = Written { path, _directory: directory, layer: Layer::new(1, None) };
            written.read_appended();
            written
        }

        fn read_appended(&mut self) {
            self.layer.read_appended(self.path.clone(), FUNCTIONS_MAX).expect("read");
        }

        fn append(&mut self, text: &[u8]) {
            let mut file = std::fs::File::options().append(true).open(&self.path).expect("a file");
            file.write_all(text).expect("written");
            self.read_appended();
        }

        fn replace(&mut self, text: &[u8]) {
            std::fs::write(&self.path, text).expect("written");
            self.read_appended();
        }

        fn at(&self, address: u64) -> Option<String> {
            self.layer.at(address).map(|name| name.to_string())
        }
    }

    #[test]
    fn lines_are_read_as_they_are_written() {
        let mut map = Written::new(
            b"1000 20 py::work:/home/a b/train.py\nnonsense\n2000 0x10 JS:*loop /x.js:1:2\n3000 10 ha",
        );
        assert_eq!(map.at(0x101f).as_deref(), Some("py::work:/home/a b/train.py"));
        assert_eq!(map.at(0x1020), None);
        assert_eq!(map.at(0x2000).as_deref(), Some("JS:*loop /x.js:1:2"));
        assert_eq!(map.at(0x3000), None);
        let python = function("py::work:/home/a b/train.py");
        assert!(ampere_model::regions::is_python(&python.name));
        assert_eq!((python.name.as_str(), python.role), ("work (train.py)", Role::Python));
        // The rest of the line, and other code at an address that was used before.
        map.append(b"lf\n1010 2000 other\n");
        assert_eq!(map.at(0x1000), None);
        assert_eq!(map.at(0x2000).as_deref(), Some("other"));
        assert_eq!(map.at(0x300f).as_deref(), Some("other"));
    }

    #[test]
    fn the_newest_entry_of_an_address_counts() {
        let mut map = Written::new(b"1000 20 first\n");
        map.append(b"1000 20 second\n");
        assert_eq!(map.at(0x1008).as_deref(), Some("second"));
    }

    #[test]
    fn a_map_that_is_written_again_is_read_again() {
        for anew in [
            &b"2000 20 b\n"[..],
            b"2000 20 another_of_this_length\n",
            b"2000 20 b\n3000 20 c and a lot more than before\n",
        ] {
            let mut map = Written::new(b"1000 20 a_name_of_some_length_\n");
            map.replace(anew);
            assert_eq!((map.at(0x1000), map.at(0x2000).is_some()), (None, true), "{anew:?}");
        }
        let mut map = Written::new(b"1000 20 a\n");
        std::fs::remove_file(&map.path).expect("gone");
        map.replace(b"1000 20 b\n");
        assert_eq!(map.at(0x1000).as_deref(), Some("b"));
    }

    #[test]
    fn a_map_of_an_earlier_program_is_not_used() {
        let mut map = Written::new(b"");
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
        map.layer.since = Some(now.as_nanos() as i64 + 60_000_000_000);
        map.append(b"1000 20 old\n");
        assert_eq!(map.at(0x1000), None);
        map.layer.since = Some(now.as_nanos() as i64 - 60_000_000_000);
        map.append(b"2000 20 new\n");
        assert_eq!(map.at(0x2000).as_deref(), Some("new"));
    }

    #[test]
    fn the_names_of_a_program_do_not_apply_to_the_next_one() {
        let map = Written::new(b"1000 20 a\n");
        let (mut maps, path) = (Maps::default(), map.path.clone());
        maps.processes.insert(7, Map::new(map.layer.clone()));
        maps.executed(7, ns(ClockId::Realtime));
        maps.processes.get_mut(&7).expect("known").layers[0].since = None;
        let read_appended = |maps: &mut Maps| {
            let layer = &mut maps.processes.get_mut(&7).expect("known").layers[0];
            layer.read_appended(path.clone(), FUNCTIONS_MAX).expect("read");
            [0x1000, 0x2000].map(|address| layer.at(address).map(|name| name.to_string()))
        };
        assert_eq!(read_appended(&mut maps), [None, None]);
        std::fs::File::options()
            .append(true)
            .open(&path)
            .expect("a file")
            .write_all(b"2000 20 b\n")
            .expect("written");
        assert_eq!(read_appended(&mut maps), [None, Some("b".to_owned())]);
        std::fs::write(&path, b"1000 20 c\n").expect("written");
        assert_eq!(read_appended(&mut maps), [Some("c".to_owned()), None]);
    }

    #[test]
    fn a_forked_process_has_the_functions_of_its_parent_and_its_own() {
        let map = Written::new(b"1000 20 of_parent\n2000 20 of_parent\n");
        let mut maps = Maps::default();
        maps.processes.insert(7, Map::new(map.layer.clone()));
        maps.forked(8, 7, 0);
        maps.forked(9, 8, 0);
        let own = &mut maps.processes.get_mut(&9).expect("known").layers[0];
        add(Arc::make_mut(&mut own.functions), "2000 20 of_child");
        let names = [0x1000, 0x2000].map(|address| maps.name_at(9, address).map(|name| name.to_string()));
        assert_eq!(names, [Some("of_parent".to_owned()), Some("of_child".to_owned())]);
        maps.executed(9, 0);
        assert_eq!(maps.name_at(9, 0x1000), None);
    }

    #[test]
    fn a_link_is_not_followed() {
        let directory = tempfile::tempdir().expect("a directory");
        let (real, link) = (directory.path().join("real"), directory.path().join("link"));
        std::fs::write(&real, "1000 20 work\n").expect("written");
        std::os::unix::fs::symlink(&real, &link).expect("a link");
        let mut layer = Layer::new(1, None);
        assert!(layer.read_appended(link, FUNCTIONS_MAX).is_err());
        assert!(layer.functions.is_empty());
    }

    #[test]
    fn a_map_without_end_takes_little_memory() {
        let lines: String =
            (0..5000).map(|at| format!("{:x} 10 function_{at}\n", 0x10000 + at * 16)).collect();
        let mut map = Written::new(b"");
        std::fs::write(&map.path, lines + "9000000 10 " + &"x".repeat(1 << 20) + "\n").expect("written");
        map.layer.read_appended(map.path.clone(), 1000).expect("read");
        assert!(map.at(0x10000).is_some() && map.at(0x10000 + 999 * 16).is_some());
        map.layer.read_appended(map.path.clone(), 1000).expect("read");
        assert_eq!(
            (map.layer.functions.len(), map.layer.read.is_given_up),
            (1000, true),
            "it is not read again"
        );
        map.layer = Layer::new(1, None);
        map.layer.read_appended(map.path.clone(), 10_000).expect("read");
        assert_eq!(map.layer.functions.len(), 5001);
        assert!(map.at(0x900_0000).is_some_and(|name| name.len() <= LINE_BYTES_MAX));
        // A line that is longer than one step's bytes is never complete.
        std::fs::File::create(&map.path).and_then(|file| file.set_len(1 << 40)).expect("a file with a hole");
        map.layer = Layer::new(1, None);
        map.layer.read_appended(map.path.clone(), 1000).expect("read");
        assert_eq!((map.layer.functions.len(), map.layer.read.is_given_up), (0, true));
    }
}
