//! Files that processes have mapped, and the functions in them.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::hash::{BuildHasherDefault, Hasher};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::debug_info::Inlined;
use crate::figures::UnnamedReason;
use crate::foreign;
use crate::functions::{Chain, Function, FunctionId, Functions, Role, demangle};
use crate::image::Image;
use crate::jit::Maps;
use crate::processes::{FileNumber, Mapping};
use crate::prologue::{CALL_BYTES, CODE_BYTES, Call, Prologue};
use crate::records::Mapped;
use crate::rules::{Context, Rule};
use crate::source::{Content, FileStatus, MappedFile, Source, build_id, own_vdso};
use crate::stack::{LaterParts, Registers, Stack};

/// The function and the unwind rule at an address of a file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) function: FunctionId,
    /// The functions that are inlined at the address.
    pub(crate) inlined: Chain,
    pub(crate) rule: Rule,
}

/// A fast hasher for addresses.
#[derive(Default)]
pub(crate) struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
    }
}

type ByAddress<T> = HashMap<u64, T, BuildHasherDefault<AddressHasher>>;

/// The file number of mappings that are not known.
pub(crate) const UNKNOWN_FILE: FileNumber = 0;
/// The maximum number of files that are distinguished. Later ones have the number `UNKNOWN_FILE`.
const FILES_MAX: usize = 1 << 14;
/// The maximum number of addresses of a file that are cached. A cache of this size is cleared.
const PLACES_MAX: usize = 1 << 16;
/// The maximum memory for the tables and symbols of all files.
const MEMORY_MAX: usize = 2 << 30;
/// The assumed size of an entry point without a symbol or table.
const ENTRY_BYTES: u64 = 64;

/// A mount namespace, a path in that namespace, a build id, and an inode.
type PathKey = (u64, Vec<u8>, Vec<u8>, [u64; 2]);

/// All files that processes have mapped.
pub(crate) struct Files {
    files: Vec<File>,
    numbers: HashMap<(Content, Vec<u8>), FileNumber>,
    room: usize,
    context: Context,
    /// The functions of code that is in no file.
    pub(crate) maps: Maps,
    /// Parts of stacks that were not copied.
    pub(crate) later: LaterParts,
    /// The status of the files at the paths of mapped files, cached for one fetch of records.
    seen: HashMap<PathKey, FileStatus>,
    /// The mount namespaces of processes, cached for one fetch of records.
    views: HashMap<u32, u64>,
    /// Whether memory that a process has mapped over a file contains the file's code, by the process and the memory's start.
    copies: HashMap<(u32, u64), bool>,
}

/// The number of bytes that are compared to find out whether code was copied.
const COMPARED_BYTES: u64 = 32;
/// The suffix that the kernel adds to the path of a removed file.
const DELETED: &[u8] = b" (deleted)";

impl Files {
    pub(crate) fn new() -> Files {
        let nowhere = File::new(Content::Memory, b"");
        Files {
            files: vec![nowhere],
            numbers: HashMap::new(),
            room: MEMORY_MAX,
            context: Context::new(),
            maps: Maps::default(),
            later: LaterParts::default(),
            seen: HashMap::new(),
            views: HashMap::new(),
            copies: HashMap::new(),
        }
    }

    /// Returns the number of a file that a process has mapped. `mapped_at` is the time of day of the mapping, in nanoseconds.
    /// Nothing is read from the file, except its build id if `mapped_at` is `None`.
    pub(crate) fn number(&mut self, mapped: &Mapped, process: u32, mapped_at: Option<i64>) -> FileNumber {
        let (path, is_file) = (mapped.path, mapped.path.starts_with(b"/") && !mapped.path.starts_with(b"//"));
        let at = Path::new(OsStr::from_bytes(path));
        let content = match is_file {
            true => {
                // A process that has ended is assumed to have had our view of the file system.
                let view = *self.views.entry(process).or_insert_with(|| mount_namespace(process));
                let key = (view, path.to_vec(), mapped.build_id.to_vec(), mapped.identity);
                let about = *self.seen.entry(key).or_insert_with_key(|(_, path, id, inode)| {
                    let path = PathBuf::from(OsStr::from_bytes(path));
                    let id = id.clone();
                    let inode = *inode;
                    foreign::in_time(move || FileStatus::of(process, &path, &id, inode)).unwrap_or_default()
                });
                Content::of(about, mapped.build_id, mapped_at)
            }
            false => Content::Memory,
        };
        let key = (content, path.to_vec());
        if let Some(number) = self.numbers.get(&key) {
            return *number;
        }
        // The kernel's list of mappings has no build ids.
        let known = (is_file && mapped_at.is_none()).then(|| {
            let path = at.to_owned();
            let content = key.0.clone();
            let address = mapped.start;
            let id = foreign::in_time(move || {
                let wanted = MappedFile { path: &path, content: &content, process, address, mapped_at };
                build_id(&Source::find(&wanted)?.reader()?)
            });
            let id = id.flatten()?;
            self.numbers.get(&(key.0.with(&id), key.1.clone())).copied()
        });
        if let Some(number) = known.flatten() {
            self.numbers.insert(key, number);
            return number;
        }
        if self.files.len() >= FILES_MAX {
            return UNKNOWN_FILE;
        }
        let number = self.files.len() as FileNumber;
        self.files.push(File { mapped_at, ..File::new(key.0.clone(), path) });
        self.numbers.insert(key, number);
        number
    }

    /// Whether a file's number stands for memory, whose code is in no file.
    pub(crate) fn is_memory(&self, number: FileNumber) -> bool {
        self.file(number).is_memory()
    }

    pub(crate) fn add_bytes(&mut self, bytes: Vec<u8>) -> FileNumber {
        let mut file = File::new(Content::Memory, b"");
        file.is_read = true;
        file.image = Image::read(Source::Memory(bytes), self.room).map(Box::new);
        self.files.push(file);
        self.files.len() as FileNumber - 1
    }

    /// Called when further records are fetched.
    pub(crate) fn fetch(&mut self) {
        self.later.fetch();
        self.seen.clear();
        self.views.clear();
    }

    /// Called when a process has ended, or executes another program.
    pub(crate) fn forget(&mut self, process: u32) {
        self.maps.forget(process);
        self.copies.retain(|(of, _), _| *of != process);
    }

    /// Returns the reason why code of a file has no names.
    pub(crate) fn unnamed_reason(&self, number: FileNumber) -> UnnamedReason {
        let file = self.file(number);
        match file.is_found {
            _ if number == UNKNOWN_FILE => UnnamedReason::Unmapped,
            _ if file.is_memory() || !file.path.starts_with('/') => UnnamedReason::Memory,
            false => UnnamedReason::Gone,
            true if file.image.is_some() => UnnamedReason::NoFunction,
            true => UnnamedReason::NotUnderstood,
        }
    }

    /// Returns the earlier mapping of the file whose code this memory contains, if it is a copy of that code.
    pub(crate) fn below(&mut self, mapping: &Mapping, address: u64, process: u32) -> Option<Mapping> {
        let below = mapping.of_file_below()?;
        if self.maps.has(process, address) {
            return None;
        }
        let key = (process, mapping.start);
        let is_copy = match self.copies.get(&key) {
            Some(known) => *known,
            None => {
                let is_copy = self.is_copy(&below, address, process).unwrap_or(false);
                self.copies.insert(key, is_copy);
                is_copy
            }
        };
        is_copy.then_some(below)
    }

    fn is_copy(&mut self, below: &Mapping, address: u64, process: u32) -> Option<bool> {
        let file = self.files.get_mut(below.file as usize)?;
        file.read_once(process, below.start, &mut self.room);
        let image = file.image.as_ref()?;
        let address = address & !(COMPARED_BYTES - 1);
        let in_file = image.code(image.address(below, address)?, COMPARED_BYTES)?;
        let mut in_memory = vec![0; in_file.len()];
        let memory = std::fs::File::open(format!("/proc/{process}/mem")).ok()?;
        memory.read_exact_at(&mut in_memory, address).ok()?;
        Some(in_memory == in_file)
    }

    fn file(&self, number: FileNumber) -> &File {
        self.files.get(number as usize).unwrap_or(&self.files[0])
    }

    pub(crate) fn path(&self, number: FileNumber) -> Arc<str> {
        self.file(number).path.clone()
    }

    pub(crate) fn has_image(&self, number: FileNumber) -> bool {
        self.file(number).image.is_some()
    }

    /// Whether this function stands for all code of a file whose function is not known.
    pub(crate) fn is_unknown(&self, number: FileNumber, function: FunctionId) -> bool {
        self.file(number).unknown == Some(function)
    }

    /// Returns what the function at an address has done to the stack so far, and the address at which the function begins.
    /// `is_exact`: the instruction at the address is the next one to be executed; otherwise it follows a
    /// call.
    pub(crate) fn prologue(
        &mut self,
        mapping: &Mapping,
        address: u64,
        is_exact: bool,
    ) -> Option<(u64, Prologue)> {
        let file = self.files.get_mut(mapping.file as usize)?;
        let image = file.image.as_ref()?;
        let in_file = image.address(mapping, address)?;
        let start = image.symbol(in_file)?.start;
        let code = file.codes.entry(start).or_insert_with(|| image.code_up_to(start, CODE_BYTES).into());
        let into = in_file - start + u64::from(!is_exact);
        Some((address - (in_file - start), Prologue::of(code, into)))
    }

    /// Returns the call instruction before an address of a process.
    pub(crate) fn call_before(&mut self, mapping: &Mapping, address: u64) -> Call {
        let Some(file) = self.files.get_mut(mapping.file as usize) else { return Call::None };
        let Some(image) = &file.image else { return Call::None };
        let Some(in_file) = image.address(mapping, address - 1).map(|before| before + 1) else {
            return Call::None;
        };
        if file.calls.len() >= PLACES_MAX {
            file.calls.clear();
        }
        let call = *file.calls.entry(in_file).or_insert_with(|| {
            let before = in_file.checked_sub(CALL_BYTES).and_then(|from| image.code(from, CALL_BYTES));
            let before = before.and_then(|bytes| bytes.try_into().ok());
            before.map_or(Call::None, |bytes| Call::before(in_file, &bytes))
        });
        match call {
            Call::Of(of) => Call::Of(of.wrapping_add(address.wrapping_sub(in_file))),
            call => call,
        }
    }

    pub(crate) fn has_tables(&self, number: FileNumber) -> bool {
        self.file(number).image.as_ref().is_some_and(|image| image.tables.is_some())
    }

    /// Returns the function and the rule at an address of a process. Reads the file if it has not been read yet.
    pub(crate) fn place(
        &mut self,
        mapping: &Mapping,
        address: u64,
        process: u32,
        functions: &mut Functions,
    ) -> Place {
        let number = if (mapping.file as usize) < self.files.len() { mapping.file } else { 0 };
        let file = &mut self.files[number as usize];
        file.read_once(process, address, &mut self.room);
        let Some(address) = file.image.as_ref().and_then(|image| image.address(mapping, address)) else {
            let may_be_made = file.image.is_none() || file.is_memory();
            let made = may_be_made.then(|| self.maps.at(process, address, functions)).flatten();
            let function = made.unwrap_or_else(|| file.unknown(functions));
            let is_python = functions.get(function).role == Role::Python;
            let rule = if is_python { Rule::of_python() } else { Rule::FramePointer };
            return Place { function, inlined: Chain::default(), rule };
        };
        if let Some(place) = file.places.get(&address) {
            return *place;
        }
        let tables = file.image.as_ref().and_then(|image| image.tables.as_ref());
        let rule = tables.map_or(Rule::FramePointer, |tables| tables.rule(address, &mut self.context));
        let function = file.function(address, functions);
        // Entry points have no caller, although often no table marks them as outermost.
        let role = functions.get(function).role;
        let is_start = rule == Rule::FramePointer && role == Role::Start;
        // If a function is left out, the functions that are inlined in it are left out, too.
        let inlined = if role == Role::Any { file.inlined(address, functions) } else { Chain::default() };
        let place = Place { function, inlined, rule: if is_start { Rule::Outermost } else { rule } };
        if file.places.len() >= PLACES_MAX {
            file.places.clear();
        }
        file.places.insert(address, place);
        place
    }

    /// Reads the table at an address of a process and unwinds with it.
    pub(crate) fn follow(
        &mut self,
        mapping: &Mapping,
        address: u64,
        registers: &mut Registers,
        stack: &Stack,
    ) -> Option<(u64, u64)> {
        let image = self.files.get(mapping.file as usize)?.image.as_ref()?;
        let address = image.address(mapping, address)?;
        image.tables.as_ref()?.step(address, &mut self.context, registers, stack)
    }
}

/// Returns the ID of a process' mount namespace; 0 if the process has ended.
fn mount_namespace(process: u32) -> u64 {
    std::fs::metadata(format!("/proc/{process}/ns/mnt")).map_or(0, |about| about.ino())
}

struct File {
    /// The path as bytes, and as text.
    at: PathBuf,
    path: Arc<str>,
    content: Content,
    mapped_at: Option<i64>,
    is_read: bool,
    is_found: bool,
    /// The content; `None` if it was not read, or cannot be read.
    image: Option<Box<Image>>,
    places: ByAddress<Place>,
    /// The first instructions of functions without unwind tables, and the calls before addresses on their stacks.
    codes: ByAddress<Box<[u8]>>,
    calls: ByAddress<Call>,
    functions: ByAddress<FunctionId>,
    inlined: HashMap<Inlined, FunctionId>,
    unknown: Option<FunctionId>,
    /// The function that stands for all functions without a symbol of the C library or the dynamic linker.
    unnamed: Option<FunctionId>,
}

impl File {
    fn new(content: Content, path: &[u8]) -> File {
        File {
            at: PathBuf::from(OsStr::from_bytes(path)),
            path: String::from_utf8_lossy(path.strip_suffix(DELETED).unwrap_or(path)).into(),
            content,
            mapped_at: None,
            is_read: false,
            is_found: false,
            image: None,
            places: ByAddress::default(),
            codes: ByAddress::default(),
            calls: ByAddress::default(),
            functions: ByAddress::default(),
            inlined: HashMap::new(),
            unknown: None,
            unnamed: None,
        }
    }

    /// Reads the file unless it was read before. `address` is one at which the process has mapped it.
    fn read_once(&mut self, process: u32, address: u64, room: &mut usize) {
        if self.is_read {
            return;
        }
        self.is_read = true;
        let at = self.at.clone();
        let content = self.content.clone();
        let mapped_at = self.mapped_at;
        let (path, left) = (self.path.clone(), *room);
        let read = move || {
            let source = match &*path {
                "[vdso]" => own_vdso().map(Source::Memory),
                _ => Source::find(&MappedFile { path: &at, content: &content, process, address, mapped_at }),
            };
            (source.is_some(), source.and_then(|source| Image::read(source, left)).map(Box::new))
        };
        (self.is_found, self.image) = foreign::in_time(read).unwrap_or_default();
        *room -= self.image.as_ref().map_or(0, |image| image.bytes()).min(*room);
    }

    /// Whether this is memory that a program has made, and not a file. Its name shows this, for example `//anon` or
    /// `/memfd:...`.
    fn is_memory(&self) -> bool {
        const MEMORY: [&str; 8] =
            ["//", "/memfd:", "[anon", "[heap]", "[stack", "/anon_hugepage", "/dev/zero", "/SYSV"];
        !self.content.has_build_id() && MEMORY.iter().any(|prefix| self.path.starts_with(prefix))
    }

    fn new_function(&self, name: String, canonical: String, role: Role) -> Function {
        Function { name, canonical, module: self.path.clone(), file: String::new(), line: 0, role }
    }

    fn unknown(&mut self, functions: &mut Functions) -> FunctionId {
        if let Some(unknown) = self.unknown {
            return unknown;
        }
        let id = functions.add(self.new_function("[unknown]".into(), String::new(), Role::Any));
        *self.unknown.insert(id)
    }

    fn function(&mut self, address: u64, functions: &mut Functions) -> FunctionId {
        let Some(image) = &self.image else { return self.unknown(functions) };
        let symbol = image.symbol(address);
        let by_table = || Some(image.tables.as_ref()?.range(address)?.start);
        let by_entry = || {
            let after = address.checked_sub(image.entry)?;
            (image.entry != 0 && after < ENTRY_BYTES).then_some(image.entry)
        };
        let start = match symbol.map(|symbol| symbol.start).or_else(by_table).or_else(by_entry) {
            Some(start) => start,
            None => return self.unknown(functions),
        };
        if let Some(id) = self.functions.get(&start) {
            return *id;
        }
        let base = Path::new(&*self.path).file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_c_library = ["libc.so", "libc-", "libc.musl", "libpthread", "ld-", "ld64."]
            .iter()
            .any(|prefix| base.starts_with(prefix));
        let is_entry = start == image.entry;
        let canonical = symbol.and_then(|symbol| image.name(symbol));
        let id = match canonical {
            Some(canonical) => {
                let role = match is_entry {
                    true => Role::Start,
                    false => Role::of(&canonical, is_c_library || image.is_static),
                };
                let source = image.debug_info.as_ref().and_then(|info| info.source(start));
                let (file, line) = source.unwrap_or_default();
                let function = self.new_function(demangle(&canonical), canonical, role);
                functions.add(Function { file, line, ..function })
            }
            // Addresses in these files mean nothing to a user, so all functions without a symbol share one name.
            None if is_c_library => {
                let all = self.new_function(base, String::new(), Role::Start);
                *self.unnamed.get_or_insert_with(|| functions.add(all))
            }
            None => {
                let role = if is_entry { Role::Start } else { Role::Any };
                functions.add(self.new_function(format!("{base}+{start:#x}"), String::new(), role))
            }
        };
        self.functions.insert(start, id);
        id
    }

    fn inlined(&mut self, address: u64, functions: &mut Functions) -> Chain {
        let info = self.image.as_ref().and_then(|image| image.debug_info.as_ref());
        let found = info.map_or_else(Vec::new, |info| info.inlined(address));
        let mut chain = Vec::with_capacity(found.len());
        for inlined in found {
            let known = self.inlined.get(&inlined).copied();
            chain.push(known.unwrap_or_else(|| {
                let function =
                    self.new_function(demangle(&inlined.symbol), inlined.symbol.clone(), Role::Any);
                let id = functions.add(Function { file: inlined.file.clone(), ..function });
                self.inlined.insert(inlined, id);
                id
            }));
        }
        functions.add_chain(chain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_outside_of_all_functions_is_not_called_unreadable() {
        let mut files = Files::new();
        let program = std::fs::read("/proc/self/exe").expect("this program");
        let number = files.add_bytes(program);
        let file = &mut files.files[number as usize];
        (file.is_found, file.path) = (true, "/a/program".into());
        assert_eq!(files.unnamed_reason(number), UnnamedReason::NoFunction);
        files.files[number as usize].image = None;
        assert_eq!(files.unnamed_reason(number), UnnamedReason::NotUnderstood);
    }

    #[test]
    fn code_of_an_unknown_mapping_is_not_called_made_at_run_time() {
        let mut files = Files::new();
        let mut number = |path: &str| {
            let path = path.as_bytes();
            let mapped = Mapped { start: 0, length: 1, offset: 0, identity: [0, 0], build_id: &[], path };
            files.number(&mapped, 0, None)
        };
        let memory = number("//anon");
        // Fills the table of files.
        let last = (0..FILES_MAX).map(|other| number(&format!("[{other}]"))).last().expect("a number");
        assert_eq!(files.unnamed_reason(memory), UnnamedReason::Memory);
        assert_eq!([last, UNKNOWN_FILE].map(|file| files.unnamed_reason(file)), [UnnamedReason::Unmapped; 2]);
    }
}
