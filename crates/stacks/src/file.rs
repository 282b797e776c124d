//! A file's segments, unwind tables and symbols.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use object::LittleEndian as LE;
use object::elf;
use object::pod;

use crate::foreign;
use crate::functions::{Chain, Function, FunctionId, Functions, Role, demangle};
use crate::jit::Maps;
use crate::lines::{self, Inlined, Lines};
use crate::processes::{FileNumber, Mapping};
use crate::records::Mapped;
use crate::rules::{Context, Rule, Tables};
use crate::stack::{Registers, Stack};

/// What is known of an address of a file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) function: FunctionId,
    /// What is inlined in the function there.
    pub(crate) inlined: Chain,
    pub(crate) rule: Rule,
}

/// Hashes addresses, which only need to be spread.
#[derive(Default)]
pub(crate) struct Spread(u64);

impl Hasher for Spread {
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

type ByAddress<T> = HashMap<u64, T, BuildHasherDefault<Spread>>;

/// So many files are told apart; all later ones are one, of which nothing is known.
const FILES_MAX: usize = 1 << 14;
/// So many addresses of a file are kept; then it begins anew.
const PLACES_MAX: usize = 1 << 16;
/// What all files' tables and symbols together can take.
const ROOM: usize = 2 << 30;
const SECTION_MAX: u64 = 512 << 20;
/// More debug information of a file is not read: samples would be lost meanwhile.
const DEBUG_MAX: u64 = 64 << 20;
const SYMBOLS_MAX: u64 = 4 << 20;
const SECTIONS_MAX: u64 = 1 << 16;
/// An entry point without a symbol or table is not longer.
const ENTRY_BYTES: u64 = 64;
const NAME_MAX: usize = 1 << 12;

/// All files that a process has mapped.
pub(crate) struct Files {
    files: Vec<File>,
    numbers: HashMap<([u64; 2], Vec<u8>), FileNumber>,
    room: usize,
    context: Context,
    /// Of code that is in no file.
    pub(crate) maps: Maps,
}

impl Files {
    pub(crate) fn new() -> Files {
        let nowhere = File::new([0; 2], b"");
        Files {
            files: vec![nowhere],
            numbers: HashMap::new(),
            room: ROOM,
            context: Context::new(),
            maps: Maps::default(),
        }
    }

    /// The number of a file, which is not read yet.
    pub(crate) fn number(&mut self, mapped: &Mapped) -> FileNumber {
        let key = (mapped.identity, mapped.path.to_vec());
        if let Some(number) = self.numbers.get(&key) {
            return *number;
        }
        if self.files.len() >= FILES_MAX {
            return 0;
        }
        let number = self.files.len() as FileNumber;
        self.files.push(File::new(mapped.identity, mapped.path));
        self.numbers.insert(key, number);
        number
    }

    /// A file of these bytes.
    pub(crate) fn add_bytes(&mut self, bytes: Vec<u8>) -> FileNumber {
        let mut file = File::new([0; 2], b"");
        file.is_read = true;
        file.image = Image::read(Source::Memory(bytes), self.room).map(Box::new);
        self.files.push(file);
        self.files.len() as FileNumber - 1
    }

    fn file(&self, number: FileNumber) -> &File {
        self.files.get(number as usize).unwrap_or(&self.files[0])
    }

    pub(crate) fn path(&self, number: FileNumber) -> Arc<str> {
        self.file(number).path.clone()
    }

    pub(crate) fn has_tables(&self, number: FileNumber) -> bool {
        self.file(number).image.as_ref().is_some_and(|image| image.tables.is_some())
    }

    /// The function and the rule at an address of a process. The file is read if it was not yet.
    pub(crate) fn place(
        &mut self,
        mapping: &Mapping,
        address: u64,
        process: u32,
        functions: &mut Functions,
    ) -> Place {
        let number = if (mapping.file as usize) < self.files.len() { mapping.file } else { 0 };
        let file = &mut self.files[number as usize];
        file.read_once(process, &mut self.room);
        let Some(address) = file.image.as_ref().and_then(|image| image.address(mapping, address)) else {
            let made = file.is_memory().then(|| self.maps.at(process, address, functions)).flatten();
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
        // Entry points have no caller, and often no table that says so.
        let role = functions.get(function).role;
        let is_start = rule == Rule::FramePointer && role == Role::Start;
        // Of functions that are left out, so is what is inlined in them.
        let inlined = if role == Role::Any { file.inlined(address, functions) } else { Chain::default() };
        let place = Place { function, inlined, rule: if is_start { Rule::Outermost } else { rule } };
        if file.places.len() >= PLACES_MAX {
            file.places.clear();
        }
        file.places.insert(address, place);
        place
    }

    /// Reads the table at an address of a process, and does what it says.
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

struct File {
    path: Arc<str>,
    identity: [u64; 2],
    is_read: bool,
    /// `None`: it was not read, or cannot be.
    image: Option<Box<Image>>,
    places: ByAddress<Place>,
    /// By where they begin.
    functions: ByAddress<FunctionId>,
    inlined: HashMap<Inlined, FunctionId>,
    unknown: Option<FunctionId>,
    /// Of the C library and the dynamic linker: all functions without a symbol.
    unnamed: Option<FunctionId>,
}

impl File {
    fn new(identity: [u64; 2], path: &[u8]) -> File {
        File {
            path: String::from_utf8_lossy(path).into(),
            identity,
            is_read: false,
            image: None,
            places: ByAddress::default(),
            functions: ByAddress::default(),
            inlined: HashMap::new(),
            unknown: None,
            unnamed: None,
        }
    }

    fn read_once(&mut self, process: u32, room: &mut usize) {
        if self.is_read {
            return;
        }
        self.is_read = true;
        let (path, identity, left) = (self.path.clone(), self.identity, *room);
        let read = move || {
            let source = match &*path {
                "[vdso]" => own_vdso().map(Source::Memory),
                path if path.starts_with('/') && !path.starts_with("//") => {
                    Source::of_file(path, identity, process)
                }
                _ => None,
            };
            source.and_then(|source| Image::read(source, left)).map(Box::new)
        };
        self.image = foreign::in_time(read).flatten();
        *room -= self.image.as_ref().map_or(0, |image| image.bytes()).min(*room);
    }

    /// Whether it is memory that a program has made, and no file: `//anon`, `/memfd:...` or `[anon:...]`.
    fn is_memory(&self) -> bool {
        ["//", "/memfd:", "[anon"].iter().any(|prefix| self.path.starts_with(prefix))
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
                let source = image.lines.as_ref().and_then(|lines| lines.source(start));
                let (file, line) = source.unwrap_or_default();
                let function = self.new_function(demangle(&canonical), canonical, role);
                functions.add(Function { file, line, ..function })
            }
            // Their addresses tell a reader nothing.
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

    /// The functions that were inlined at an address.
    fn inlined(&mut self, address: u64, functions: &mut Functions) -> Chain {
        let lines = self.image.as_ref().and_then(|image| image.lines.as_ref());
        let found = lines.map_or_else(Vec::new, |lines| lines.inlined(address));
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

/// Where a file's bytes are.
enum Source {
    /// Opened again for each function's name: it is not kept open.
    Path(PathBuf, [u64; 3]),
    Memory(Vec<u8>),
}

fn open(path: &Path) -> io::Result<(std::fs::File, [u64; 3])> {
    let file = std::fs::File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let about = file.metadata()?;
    match about.is_file() {
        true => Ok((file, [about.dev(), about.ino(), about.size()])),
        false => Err(io::ErrorKind::InvalidInput.into()),
    }
}

impl Source {
    /// The file at a path as the process sees it. `None`: it is gone, or another one is there.
    fn of_file(path: &str, [device, number]: [u64; 2], process: u32) -> Option<Source> {
        let [in_process, here] = [PathBuf::from(format!("/proc/{process}/root{path}")), PathBuf::from(path)];
        let identity_of = |path: &Path| Some(open(path).ok()?.1);
        // The process' view goes with it; it is needed where the file is another one here, or not there.
        let (path, identity) = match (identity_of(&in_process), identity_of(&here)) {
            (Some(in_process_is), here_is) if here_is != Some(in_process_is) => (in_process, in_process_is),
            (_, here_is) => (here, here_is?),
        };
        let of_kernel = u64::from(libc::major(identity[0])) << 32 | u64::from(libc::minor(identity[0]));
        // Stacked file systems have devices of their own.
        let is_other = of_kernel == device && identity[1] != number;
        (!is_other).then_some(Source::Path(path, identity))
    }

    /// Takes a step that reads it. A file may be one that never answers.
    fn in_time<T: Send + 'static>(
        &self,
        step: impl FnOnce(&Source) -> Option<T> + Send + 'static,
    ) -> Option<T> {
        match self {
            Source::Memory(_) => step(self),
            Source::Path(path, identity) => {
                let source = Source::Path(path.clone(), *identity);
                foreign::in_time(move || step(&source)).flatten()
            }
        }
    }

    fn reader(&self) -> Option<Reader<'_>> {
        match self {
            Source::Memory(bytes) => Some(Reader::Memory(bytes)),
            Source::Path(path, identity) => {
                let (file, found) = open(path).ok()?;
                (found == *identity).then_some(Reader::File(file, found[2]))
            }
        }
    }
}

/// Reads parts of a file.
enum Reader<'a> {
    Memory(&'a [u8]),
    File(std::fs::File, u64),
}

impl Reader<'_> {
    fn bytes(&self) -> u64 {
        match self {
            Reader::Memory(bytes) => bytes.len() as u64,
            Reader::File(_, bytes) => *bytes,
        }
    }

    /// `None`: the file does not have so much, or it is too much.
    fn read(&self, offset: u64, length: u64) -> Option<Vec<u8>> {
        let end = offset.checked_add(length)?;
        if end > self.bytes() || length > SECTION_MAX {
            return None;
        }
        match self {
            Reader::Memory(bytes) => Some(bytes[offset as usize..end as usize].to_vec()),
            Reader::File(file, _) => {
                let mut bytes = vec![0; length as usize];
                file.read_exact_at(&mut bytes, offset).ok()?;
                Some(bytes)
            }
        }
    }

    /// A table whose entries have one form.
    fn table<T: pod::Pod + Clone>(&self, offset: u64, count: u64) -> Option<Vec<T>> {
        let bytes = self.read(offset, count.checked_mul(size_of::<T>() as u64)?)?;
        let (entries, _) = pod::slice_from_bytes::<T>(&bytes, count as usize).ok()?;
        Some(entries.to_vec())
    }
}

/// What the kernel maps into all processes alike.
fn own_vdso() -> Option<Vec<u8>> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let line = maps.lines().find(|line| line.ends_with("[vdso]"))?;
    let (start, end) = line.split_whitespace().next()?.split_once('-')?;
    let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
    let mut bytes = vec![0; usize::try_from(end.checked_sub(start)?).ok()?];
    std::fs::File::open("/proc/self/mem").ok()?.read_exact_at(&mut bytes, start).ok()?;
    Some(bytes)
}

struct Segment {
    offset: u64,
    bytes: u64,
    address: u64,
}

struct Symbol {
    start: u64,
    bytes: u32,
    name: u32,
}

/// What is known of a file that was read.
struct Image {
    source: Source,
    /// Those that can be executed.
    segments: Vec<Segment>,
    entry: u64,
    /// A program without a dynamic loader.
    is_static: bool,
    tables: Option<Tables>,
    /// In the order of addresses.
    symbols: Vec<Symbol>,
    /// Where in the file the symbols' names are.
    names_at: u64,
    lines: Option<Lines>,
}

impl Image {
    /// Memory that is used.
    fn bytes(&self) -> usize {
        let lines = self.lines.as_ref().map_or(0, |lines| lines.bytes);
        self.tables.as_ref().map_or(0, Tables::bytes) + self.symbols.len() * size_of::<Symbol>() + lines
    }

    /// The file's own address for a process'. `None`: no segment of the file is mapped there.
    fn address(&self, mapping: &Mapping, address: u64) -> Option<u64> {
        const PAGE: u64 = 4096;
        let offset = address.checked_sub(mapping.start)?.checked_add(mapping.offset)?;
        let is_in = |segment: &&Segment| {
            offset >= segment.offset & !(PAGE - 1) && offset < segment.offset.saturating_add(segment.bytes)
        };
        let segment = self.segments.iter().find(is_in)?;
        Some(offset.wrapping_sub(segment.offset).wrapping_add(segment.address))
    }

    fn symbol(&self, address: u64) -> Option<&Symbol> {
        let after = self.symbols.partition_point(|symbol| symbol.start <= address);
        let symbol = self.symbols.get(after.checked_sub(1)?)?;
        (address - symbol.start < u64::from(symbol.bytes)).then_some(symbol)
    }

    fn name(&self, symbol: &Symbol) -> Option<String> {
        let at = self.names_at.checked_add(symbol.name.into())?;
        self.source.in_time(move |source| Image::name_at(source, at))
    }

    fn name_at(source: &Source, at: u64) -> Option<String> {
        let reader = source.reader()?;
        let bytes = reader.read(at, (NAME_MAX as u64).min(reader.bytes().checked_sub(at)?))?;
        let name = bytes.split(|byte| *byte == 0).next().filter(|name| !name.is_empty())?;
        Some(String::from_utf8_lossy(name).into_owned())
    }

    /// `None`: it is no file that this machine executes, or a damaged one.
    fn read(source: Source, room: usize) -> Option<Image> {
        let reader = source.reader()?;
        let header: elf::FileHeader64<LE> = reader.table(0, 1)?.pop()?;
        let is_elf64 = header.e_ident.magic == elf::ELFMAG
            && header.e_ident.class == elf::ELFCLASS64
            && header.e_ident.data == elf::ELFDATA2LSB;
        if !is_elf64 {
            return None;
        }
        let count = u64::from(header.e_phnum.get(LE));
        let segments: Vec<elf::ProgramHeader64<LE>> = reader.table(header.e_phoff.get(LE), count)?;
        let is_code = |segment: &&elf::ProgramHeader64<LE>| {
            segment.p_type.get(LE) == elf::PT_LOAD && segment.p_flags.get(LE).0 & elf::PF_X.0 != 0
        };
        let is_static = !segments.iter().any(|segment| segment.p_type.get(LE) == elf::PT_INTERP);
        let code = segments.iter().filter(is_code).map(|segment| Segment {
            offset: segment.p_offset.get(LE),
            bytes: segment.p_filesz.get(LE),
            address: segment.p_vaddr.get(LE),
        });
        let mut image = Image {
            segments: code.collect(),
            entry: header.e_entry.get(LE),
            is_static: is_static && header.e_entry.get(LE) != 0,
            tables: None,
            symbols: Vec::new(),
            names_at: 0,
            lines: None,
            source: Source::Memory(Vec::new()),
        };
        let sections = Sections::read(&reader, &header).unwrap_or_default();
        image.tables = sections.tables(&reader, room);
        (image.symbols, image.names_at) = sections.symbols(&reader, room).unwrap_or_default();
        image.lines = sections.lines(&reader, room);
        drop(reader);
        image.source = source;
        Some(image)
    }
}

#[derive(Default)]
struct Sections {
    headers: Vec<elf::SectionHeader64<LE>>,
    names: Vec<u8>,
}

impl Sections {
    fn read(reader: &Reader, header: &elf::FileHeader64<LE>) -> Option<Sections> {
        let at = header.e_shoff.get(LE);
        let first: elf::SectionHeader64<LE> = reader.table(at, 1)?.pop()?;
        // Where there are more than fit, the first section says how many.
        let count = match header.e_shnum.get(LE) {
            0 => first.sh_size.get(LE),
            count => count.into(),
        };
        let names = match header.e_shstrndx.get(LE) {
            elf::SHN_XINDEX => first.sh_link.get(LE) as usize,
            index => index.0.into(),
        };
        let headers: Vec<elf::SectionHeader64<LE>> = reader.table(at, count.min(SECTIONS_MAX))?;
        let names = headers.get(names)?;
        let names = reader.read(names.sh_offset.get(LE), names.sh_size.get(LE))?;
        Some(Sections { headers, names })
    }

    fn find(&self, name: &[u8]) -> Option<&elf::SectionHeader64<LE>> {
        self.headers.iter().find(|header| {
            let found = self.names.get(header.sh_name.get(LE) as usize..);
            found.is_some_and(|found| found.strip_prefix(name).is_some_and(|rest| rest.first() == Some(&0)))
        })
    }

    fn tables(&self, reader: &Reader, room: usize) -> Option<Tables> {
        let text = self.find(b".text").map_or(0, |text| text.sh_addr.get(LE));
        [(&b".eh_frame"[..], false), (b".debug_frame", true)].into_iter().find_map(|(name, is_debug)| {
            let section = self.find(name)?;
            let flags = section.sh_flags.get(LE);
            let is_plain = section.sh_type.get(LE) != elf::SHT_NOBITS && flags.0 & elf::SHF_COMPRESSED.0 == 0;
            let size = section.sh_size.get(LE);
            if !is_plain || size > room as u64 / 2 {
                return None;
            }
            let bytes = reader.read(section.sh_offset.get(LE), size)?;
            Tables::new(bytes, is_debug, section.sh_addr.get(LE), text)
        })
    }

    /// The functions of the table of symbols, or of the dynamic linker's, and where their names are.
    fn symbols(&self, reader: &Reader, room: usize) -> Option<(Vec<Symbol>, u64)> {
        [elf::SHT_SYMTAB, elf::SHT_DYNSYM].into_iter().find_map(|kind| {
            let section = self.headers.iter().find(|header| header.sh_type.get(LE) == kind)?;
            let names = self.headers.get(section.sh_link.get(LE) as usize)?;
            let symbols = self.symbols_of(reader, section, room)?;
            (!symbols.is_empty()).then_some((symbols, names.sh_offset.get(LE)))
        })
    }

    /// The debug information, if it is not compressed, nor too much.
    fn lines(&self, reader: &Reader, room: usize) -> Option<Lines> {
        self.find(b".debug_info")?;
        let all = lines::SECTIONS.iter().filter_map(|section| self.find(section.name().as_bytes()));
        let is_plain = |header: &elf::SectionHeader64<LE>| {
            header.sh_type.get(LE) != elf::SHT_NOBITS
                && header.sh_flags.get(LE).0 & elf::SHF_COMPRESSED.0 == 0
        };
        let bytes = all.clone().fold(0, |sum: u64, header| sum.saturating_add(header.sh_size.get(LE)));
        if !all.clone().all(is_plain) || bytes > DEBUG_MAX.min(room as u64 / 4) {
            return None;
        }
        Lines::new(|name| {
            let section = self.find(name.as_bytes());
            let bytes =
                section.and_then(|section| reader.read(section.sh_offset.get(LE), section.sh_size.get(LE)));
            bytes.unwrap_or_default()
        })
    }

    /// Where the section of code ends that an address is in.
    fn end_of_code(&self, address: u64) -> u64 {
        let ranges =
            self.headers.iter().filter(|header| header.sh_flags.get(LE).0 & elf::SHF_EXECINSTR.0 != 0).map(
                |header| {
                    header.sh_addr.get(LE)..header.sh_addr.get(LE).saturating_add(header.sh_size.get(LE))
                },
            );
        ranges
            .filter(|range| range.contains(&address))
            .map(|range| range.end)
            .next()
            .unwrap_or(address.saturating_add(1))
    }

    fn is_code(&self, section: elf::SymbolSection) -> bool {
        // Sections whose number does not fit are believed.
        section == elf::SHN_XINDEX
            || (self.headers.get(usize::from(section.0)))
                .is_some_and(|header| header.sh_flags.get(LE).0 & elf::SHF_EXECINSTR.0 != 0)
    }

    fn symbols_of(
        &self,
        reader: &Reader,
        section: &elf::SectionHeader64<LE>,
        room: usize,
    ) -> Option<Vec<Symbol>> {
        const PART: u64 = 1 << 14;
        let count = section.sh_size.get(LE) / size_of::<elf::Sym64<LE>>() as u64;
        if count > SYMBOLS_MAX || count as usize * size_of::<Symbol>() > room / 2 {
            return None;
        }
        // With how much each is wanted among others at its address.
        let mut found: Vec<(u8, Symbol)> = Vec::new();
        let mut done = 0;
        while done < count {
            let part = PART.min(count - done);
            let at = section.sh_offset.get(LE).checked_add(done * size_of::<elf::Sym64<LE>>() as u64)?;
            let symbols: Vec<elf::Sym64<LE>> = reader.table(at, part)?;
            done += part;
            found.extend(symbols.iter().filter_map(|symbol| {
                let (kind, binding) = (symbol.st_type(), symbol.st_bind());
                let is_function = matches!(kind, elf::STT_FUNC | elf::STT_GNU_IFUNC)
                    || kind == elf::STT_NOTYPE && binding == elf::STB_GLOBAL;
                let (start, name) = (symbol.st_value.get(LE), symbol.st_name.get(LE));
                let is_there = start != 0 && name != 0 && self.is_code(symbol.st_shndx.get(LE));
                let bytes = symbol.st_size.get(LE).min(u32::MAX.into()) as u32;
                let rank = u8::from(bytes == 0) * 4 + (3 - binding_rank(binding));
                (is_function && is_there).then_some((rank, Symbol { start, bytes, name }))
            }));
        }
        found.sort_unstable_by_key(|(rank, symbol)| (symbol.start, *rank, symbol.name));
        found.dedup_by_key(|(_, symbol)| symbol.start);
        let mut symbols: Vec<Symbol> = found.into_iter().map(|(_, symbol)| symbol).collect();
        // Those of assemblers often have no size: they go on until the next one, or their section's end.
        for index in 0..symbols.len() {
            let start = symbols[index].start;
            if symbols[index].bytes == 0 {
                let next = symbols.get(index + 1).map_or(u64::MAX, |next| next.start);
                symbols[index].bytes = (self.end_of_code(start).min(next) - start).min(1 << 20) as u32;
            }
        }
        Some(symbols)
    }
}

fn binding_rank(binding: elf::SymbolBind) -> u8 {
    match binding {
        elf::STB_GLOBAL => 3,
        elf::STB_WEAK => 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All that is done with a file: it is read, all its functions are named, all rules are made and followed.
    fn use_all(bytes: Vec<u8>) -> usize {
        let Some(image) = Image::read(Source::Memory(bytes), ROOM) else { return 0 };
        let mut context = Context::new();
        let mapping = Mapping { start: 0x10000, end: u64::MAX, offset: 0, file: 0 };
        let words = [0x41; 512];
        let stack = Stack::new(0x7000, &words, true);
        let mut named = 0;
        for address in (0x10000..0x20000).step_by(13) {
            let Some(address) = image.address(&mapping, address) else { continue };
            named += usize::from(image.symbol(address).and_then(|symbol| image.name(symbol)).is_some());
            if let Some(tables) = &image.tables {
                tables.rule(address, &mut context);
                let mut registers = Registers::new(&[0x7010; crate::machine::RECORDED.len()]);
                tables.step(address, &mut context, &mut registers, &stack);
            }
        }
        named
    }

    #[test]
    fn damaged_files_do_no_harm() {
        let good = own_vdso().expect("a vDSO");
        assert!(use_all(good.clone()) > 10);
        for cut in (0..good.len()).step_by(97) {
            use_all(good[..cut].to_vec());
        }
        let mut random = 88172645463325252_u64;
        for _ in 0..3000 {
            let mut bytes = good.clone();
            for _ in 0..8 {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                // Half of the damage is in headers, where it does most.
                let within = if random & 1 == 0 { bytes.len() } else { 512.min(bytes.len()) };
                let at = (random >> 8) as usize % within;
                bytes[at] = (random >> 56) as u8;
            }
            use_all(bytes);
        }
    }

    #[test]
    fn a_file_that_says_it_is_huge_takes_no_memory() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("huge");
        let mut bytes = own_vdso().expect("a vDSO");
        let header: &elf::FileHeader64<LE> = pod::from_bytes(&bytes).unwrap().0;
        let (at, count) = (header.e_shoff.get(LE) as usize, usize::from(header.e_shnum.get(LE)));
        for section in 0..count {
            // Its size.
            let field = at + section * 64 + 32;
            bytes[field..field + 8].copy_from_slice(&(1_u64 << 40).to_le_bytes());
        }
        std::fs::write(&path, &bytes).unwrap();
        std::fs::File::options().write(true).open(&path).unwrap().set_len(1 << 42).unwrap();
        let identity = open(&path).unwrap().1;
        let image = Image::read(Source::Path(path, identity), ROOM).expect("segments are known");
        assert!(image.tables.is_none() && image.symbols.is_empty());
    }
}
