//! Functions that a runtime makes while the program runs: Python (`-X perf`), Node.js, Java and Julia write where each is, and its
//! name, into `/tmp/perf-PID.map`, as Linux' perf wants it.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::foreign;
use crate::functions::{Function, FunctionId, Functions, Role};

/// Bytes of a process' map that are read: no runtime writes so much.
const BYTES_MAX: u64 = 64 << 20;
/// Bytes of it that are read at a time.
const STEP_MAX: u64 = 8 << 20;
/// Functions of all processes' maps that are known at a time; later ones have no name.
const LINES_MAX: usize = 1 << 18;
/// Bytes of a function's name.
const NAME_MAX: usize = 1 << 10;
/// So often it is looked whether a map has grown.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// At the begin of the names of Python's functions: name and file follow.
const PYTHON: &str = "py::";

/// The maps of all processes.
#[derive(Default)]
pub(crate) struct Maps {
    maps: HashMap<u32, Map>,
    /// Of all of them.
    lines: usize,
}

#[derive(Default)]
struct Map {
    /// By where they begin: where they end, and which they are.
    functions: BTreeMap<u64, (u64, FunctionId)>,
    /// So much of the file was read, up to the end of a line.
    read: u64,
    /// When it is looked at again.
    next: Option<Instant>,
}

impl Maps {
    /// The function at an address of a process, which is in no file.
    pub(crate) fn at(&mut self, process: u32, address: u64, functions: &mut Functions) -> Option<FunctionId> {
        let map = self.maps.entry(process).or_default();
        if let Some(function) = map.at(address) {
            return Some(function);
        }
        let now = Instant::now();
        if map.next.is_some_and(|next| now < next) {
            return None;
        }
        map.next = Some(now + LOOK_AGAIN);
        // A program without such a map is the usual case; a damaged map ends where it is damaged.
        let before = map.functions.len();
        let room = LINES_MAX.saturating_sub(self.lines - before);
        let _ = map.read_on(path_of(process), room, functions);
        self.lines = self.lines - before + map.functions.len();
        map.at(address)
    }

    /// The process has ended, or executes another program.
    pub(crate) fn forget(&mut self, process: u32) {
        self.lines -= self.maps.remove(&process).map_or(0, |map| map.functions.len());
    }
}

/// As the process sees it: in a container its directory and its number are others.
fn path_of(process: u32) -> PathBuf {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    let number =
        numbers.and_then(|numbers| numbers.split_whitespace().last()?.parse().ok()).unwrap_or(process);
    PathBuf::from(format!("/proc/{process}/root/tmp/perf-{number}.map"))
}

/// What a map has behind what was read.
fn appended(path: &Path, from: u64) -> io::Result<Vec<u8>> {
    let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW;
    let mut file = std::fs::File::options().read(true).custom_flags(flags).open(path)?;
    let about = file.metadata()?;
    // Anybody can make a file of this name.
    let is_ours = about.uid() == 0 || about.uid() == rustix::process::geteuid().as_raw();
    let mut bytes = Vec::new();
    if about.is_file() && is_ours && about.size() > from {
        file.seek(SeekFrom::Start(from))?;
        file.take(BYTES_MAX.saturating_sub(from).min(STEP_MAX)).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

impl Map {
    fn at(&self, address: u64) -> Option<FunctionId> {
        let (_, (end, function)) = self.functions.range(..=address).next_back()?;
        (address < *end).then_some(*function)
    }

    /// Reads what has been appended, a part at a time. `room`: functions that it can have.
    fn read_on(&mut self, path: PathBuf, room: usize, functions: &mut Functions) -> io::Result<()> {
        let from = self.read;
        if from >= BYTES_MAX {
            return Ok(());
        }
        let appended = foreign::in_time(move || appended(&path, from));
        let Some(appended) = appended else {
            self.read = BYTES_MAX; // it is not waited for again
            return Err(io::ErrorKind::TimedOut.into());
        };
        let appended = appended?;
        for line in appended.split_inclusive(|byte| *byte == b'\n') {
            // The last line may still be written.
            let Some(line) = line.strip_suffix(b"\n") else { break };
            self.read += line.len() as u64 + 1;
            if self.functions.len() >= room {
                self.read = BYTES_MAX; // no more of it is read
                break;
            }
            self.add(&String::from_utf8_lossy(&line[..line.len().min(NAME_MAX)]), functions);
        }
        if self.read == from && appended.len() as u64 >= STEP_MAX {
            self.read = BYTES_MAX; // a line without end
        }
        Ok(())
    }

    /// A line: `BEGIN SIZE NAME`, in hexadecimal numbers. What it overlaps is no more.
    fn add(&mut self, line: &str, functions: &mut Functions) {
        let parse = || {
            let (begin, rest) = line.split_once(' ')?;
            let (size, name) = rest.split_once(' ')?;
            let number = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok();
            let (begin, size) = (number(begin)?, number(size)?);
            Some((begin, begin.checked_add(size).filter(|end| *end > begin)?, name))
        };
        let Some((begin, end, name)) = parse() else { return };
        let before = self.functions.range(..begin).next_back().map(|(before, (until, _))| (*before, *until));
        let covered: Vec<u64> = self.functions.range(begin..end).map(|(at, _)| *at).collect();
        for at in before.filter(|(_, until)| *until > begin).map(|(at, _)| at).into_iter().chain(covered) {
            self.functions.remove(&at);
        }
        let function = functions.add(function(name));
        self.functions.insert(begin, (end, function));
    }
}

/// `py::name:/path/file.py` is the function `name (file.py)`, others are what they are called.
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

    #[test]
    fn lines_are_read_as_they_are_written() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("map");
        let mut file = std::fs::File::create(&path).expect("a file");
        let (mut map, mut functions) = (Map::default(), Functions::new());
        let name_at = |map: &Map, functions: &Functions, address| {
            map.at(address).map(|id| (functions.get(id).name.clone(), functions.get(id).role == Role::Python))
        };
        file.write_all(
            b"1000 20 py::work:/home/a b/train.py\nnonsense\n2000 0x10 JS:*loop /x.js:1:2\n3000 10 ha",
        )
        .expect("written");
        map.read_on(path.clone(), 100, &mut functions).expect("read");
        assert_eq!(name_at(&map, &functions, 0x101f), Some(("work (train.py)".to_owned(), true)));
        assert_eq!(name_at(&map, &functions, 0x1020), None);
        assert_eq!(name_at(&map, &functions, 0x2000), Some(("JS:*loop /x.js:1:2".to_owned(), false)));
        assert_eq!(name_at(&map, &functions, 0x3000), None);
        // The rest of the line, and other code where there was some.
        file.write_all(b"lf\n1010 2000 other\n").expect("written");
        map.read_on(path.clone(), 100, &mut functions).expect("read");
        assert_eq!(name_at(&map, &functions, 0x1000), None);
        assert_eq!(name_at(&map, &functions, 0x2000), Some(("other".to_owned(), false)));
        assert_eq!(name_at(&map, &functions, 0x300f), Some(("other".to_owned(), false)));
    }

    #[test]
    fn a_link_is_not_followed() {
        let directory = tempfile::tempdir().expect("a directory");
        let (real, link) = (directory.path().join("real"), directory.path().join("link"));
        std::fs::write(&real, "1000 20 work\n").expect("written");
        std::os::unix::fs::symlink(&real, &link).expect("a link");
        let mut map = Map::default();
        assert!(map.read_on(link, 100, &mut Functions::new()).is_err());
        assert!(map.functions.is_empty());
    }

    #[test]
    fn a_map_without_end_takes_little_memory() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("map");
        let lines: String =
            (0..5000).map(|at| format!("{:x} 10 function_{at}\n", 0x10000 + at * 16)).collect();
        std::fs::write(&path, lines + "9000000 10 " + &"x".repeat(1 << 20) + "\n").expect("written");
        let (mut map, mut functions) = (Map::default(), Functions::new());
        map.read_on(path.clone(), 1000, &mut functions).expect("read");
        assert!(map.at(0x10000).is_some() && map.at(0x10000 + 999 * 16).is_some());
        assert_eq!((map.functions.len(), map.read), (1000, BYTES_MAX));
        map.read_on(path.clone(), 1000, &mut functions).expect("read");
        assert_eq!(map.functions.len(), 1000, "it is not read again");
        let mut map = Map::default();
        map.read_on(path, 10_000, &mut functions).expect("read");
        let long = map.at(0x900_0000).map(|id| functions.get(id).name.len());
        assert!(map.functions.len() == 5001 && long.is_some_and(|bytes| bytes <= NAME_MAX));
        // A line that is longer than what is read at a time is never whole.
        let endless = directory.path().join("endless");
        std::fs::File::create(&endless).and_then(|file| file.set_len(1 << 40)).expect("a file with a hole");
        let mut map = Map::default();
        map.read_on(endless, 1000, &mut functions).expect("read");
        assert_eq!((map.functions.len(), map.read), (0, BYTES_MAX));
    }
}
