//! Finds the name, source file and line of a function by its address.
//!
//! Names come from the ELF symbol table (static functions included), lines from the debug information. Both are read from an
//! object's file when the first address in it is looked up. This is never done on the event path.

use crate::alloc;
use addr2line::gimli::{Dwarf, EndianSlice, LittleEndian, SectionId};
use ampere_model::text::Bounded;
use cpp_demangle::DemangleOptions;
use memmap2::Mmap;
use object::read::elf::ElfFile64;
use object::{Object as _, ObjectSection as _, ObjectSymbol as _, SymbolKind};
use std::borrow::Cow;
use std::ffi::{CStr, OsStr, c_int, c_void};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};

/// A function's name and position in the source.
pub struct Symbol {
    /// The demangled name of the function.
    pub name: String,
    pub canonical_name: String,
    /// The source file, empty if it is not known.
    pub file: String,
    /// The line, 0 if it is not known.
    pub line: u32,
}

/// A loaded object: the program or a shared library.
struct Object {
    /// The difference between an address in memory and the same address in the file.
    base: usize,
    path: PathBuf,
}

type File = ElfFile64<'static, object::LittleEndian>;
type Lines = addr2line::Context<EndianSlice<'static, LittleEndian>>;

/// An object with the contents of its file, which are kept until the program ends.
struct Module {
    object: Object,
    file: &'static [u8],
    /// The object's functions, sorted by address.
    functions: Vec<Function>,
    lines: Option<Lines>,
    /// The size of the file with its compressed sections expanded.
    bytes: usize,
}

struct Function {
    address: u64,
    size: u64,
    is_local: bool,
    /// The range of the name in the file.
    name: Range<usize>,
}

static MODULES: Mutex<Vec<Module>> = Mutex::new(Vec::new());

/// Debug information is not read from larger files: it would take seconds of the program's time.
const DEBUG_FILE_SIZE_MAX: usize = 2 << 30;
/// The memory for reading an object is at most this multiple of its size, plus a constant. Whether it is free is checked first,
/// because a failed allocation would abort the process.
const MEMORY_FACTOR: usize = 4;
const MEMORY_MORE: usize = 8 << 20;

/// An address, and the object that contains it.
pub struct Place {
    address: usize,
    object: Option<Object>,
}

/// Finds the object of an address. Takes the loader's lock for a moment: the caller must hold no lock that code under the
/// loader's lock, such as a library's constructor, may wait for.
pub fn locate(address: usize) -> Place {
    let mut search = Search { address, found: None };
    // SAFETY: `visit` gets `search` back as its last argument.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
    Place { address, object: search.found }
}

pub fn resolve(place: Place) -> Symbol {
    let Place { address, object: Some(object) } = place else { return nameless(place.address) };
    let Ok(mut modules) = MODULES.lock() else { return nameless(address) };
    // The path is compared as well: another library may be mapped where one was closed.
    let is_same = |module: &Module| module.object.base == object.base && module.object.path == object.path;
    let position = modules.iter().position(is_same).unwrap_or_else(|| {
        modules.push(Module::read(object));
        modules.len() - 1
    });
    modules[position].symbol(address)
}

/// Returns the symbol of an address that is in no known object.
fn nameless(address: usize) -> Symbol {
    unknown(Path::new(""), address)
}

/// Returns the symbol of an address without a function, with a name like `program+0x1234`.
fn unknown(path: &Path, offset: usize) -> Symbol {
    let object = path.file_name().unwrap_or_default().to_string_lossy();
    let name = format!("{object}+{offset:#x}");
    Symbol { canonical_name: name.clone(), name, file: String::new(), line: 0 }
}

/// Returns the functions of an object's file. The list is empty if there is no memory for it.
fn functions_in(bytes: &[u8], file: &File) -> Vec<Function> {
    let symbols = || {
        file.symbols()
            .chain(file.dynamic_symbols())
            .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.address() != 0)
            .filter_map(|symbol| {
                let name = symbol.name().ok().filter(|name| !name.is_empty())?;
                let start = name.as_ptr().addr().checked_sub(bytes.as_ptr().addr())?;
                Some(Function {
                    address: symbol.address(),
                    size: symbol.size(),
                    is_local: symbol.is_local(),
                    name: start..start + name.len(),
                })
            })
    };
    let mut functions = Vec::new();
    if functions.try_reserve_exact(symbols().count()).is_err() {
        return Vec::new();
    }
    functions.extend(symbols());
    // If an address has several names, the shortest global one is kept.
    let rank = |f: &Function| (f.address, f.is_local, f.name.len());
    functions.sort_unstable_by(|a, b| {
        (rank(a), bytes.get(a.name.clone())).cmp(&(rank(b), bytes.get(b.name.clone())))
    });
    functions.dedup_by_key(|function| function.address);
    functions
}

/// Returns the size of the file with its compressed sections expanded.
fn size_when_read(bytes: &[u8], file: &File) -> usize {
    let compressed = file.sections().filter_map(|section| section.compressed_file_range().ok());
    let more = compressed.filter(|range| range.format != object::CompressionFormat::None);
    let more = more.fold(0u64, |sum, range| sum.saturating_add(range.uncompressed_size));
    bytes.len().saturating_add(usize::try_from(more).unwrap_or(usize::MAX))
}

/// Returns the debug information that maps addresses to lines.
fn lines(file: &File) -> Option<Lines> {
    let section = |id: SectionId| -> Result<_, object::Error> {
        let bytes = file.section_by_name(id.name()).map(|section| section.uncompressed_data()).transpose()?;
        let bytes = match bytes.unwrap_or_default() {
            Cow::Borrowed(bytes) => bytes,
            Cow::Owned(expanded) => expanded.leak(),
        };
        Ok(EndianSlice::new(bytes, LittleEndian))
    };
    Lines::from_dwarf(Dwarf::load(section).ok()?).ok()
}

impl Module {
    fn read(object: Object) -> Module {
        let mut module = Module { object, file: &[], functions: Vec::new(), lines: None, bytes: 0 };
        let Ok(file) = std::fs::File::open(&module.object.path) else { return module };
        module.bytes = file.metadata().map_or(usize::MAX, |about| about.len() as usize);
        if !module.has_room() {
            return module;
        }
        // SAFETY: the file is a loaded object, and overwriting one in place would break the program itself.
        let Ok(bytes) = (unsafe { Mmap::map(&file) }) else { return module };
        module.file = Box::leak(Box::new(bytes));
        let Ok(file) = File::parse(module.file) else { return module };
        module.functions = functions_in(module.file, &file);
        module.bytes = size_when_read(module.file, &file);
        if module.file.len() < DEBUG_FILE_SIZE_MAX && module.has_room() {
            module.lines = lines(&file);
        }
        module
    }

    fn has_room(&self) -> bool {
        alloc::has_room(self.bytes.saturating_mul(MEMORY_FACTOR).saturating_add(MEMORY_MORE))
    }

    /// Returns the linker's name of the function at an address in the file.
    fn name(&self, offset: u64) -> Option<&str> {
        let after = self.functions.partition_point(|function| function.address <= offset);
        let function = &self.functions[after.checked_sub(1)?];
        let is_in = offset == function.address || offset - function.address < function.size;
        let name = self.file.get(function.name.clone()).filter(|_| is_in)?;
        std::str::from_utf8(name).ok()
    }

    fn symbol(&self, address: usize) -> Symbol {
        let offset = (address - self.object.base) as u64;
        let mut symbol = match self.name(offset) {
            Some(name) => Symbol {
                name: demangle(name),
                canonical_name: name.to_string(),
                file: String::new(),
                line: 0,
            },
            None => unknown(&self.object.path, offset as usize),
        };
        // Debug information is read lazily, so memory is checked at each use.
        let lines = self.lines.as_ref().filter(|_| self.has_room());
        let location = lines.and_then(|lines| lines.find_location(offset).ok().flatten());
        if let Some(location) = location {
            symbol.file = location.file.unwrap_or_default().to_string();
            symbol.line = location.line.unwrap_or(0);
        }
        symbol
    }
}

/// Returns the program's file. It is looked up once, because the kernel no longer provides it when the main thread has ended.
pub fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let mut headers = 0_usize;
        // SAFETY: `store_headers` gets `headers` back as its last argument.
        unsafe { libc::dl_iterate_phdr(Some(store_headers), (&raw mut headers).cast()) };
        // If the program was started as an argument of its loader, /proc/self/exe is the loader.
        let file = mapped_file(headers).or_else(|| std::fs::read_link("/proc/self/exe").ok());
        file.unwrap_or_else(|| "/proc/self/exe".into())
    })
}

/// Stores the address of the first object's headers: the program's.
unsafe extern "C" fn store_headers(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    headers: *mut c_void,
) -> c_int {
    // SAFETY: the loader's structure is valid during the call, and `headers` is the number that `program` gave.
    unsafe { *headers.cast::<usize>() = (*info).dlpi_phdr as usize };
    1
}

/// Returns the file that is mapped at an address, if it is still there.
fn mapped_file(address: usize) -> Option<PathBuf> {
    let maps = std::fs::read("/proc/self/maps").ok()?;
    let is_within = |line: &[u8]| {
        let range = String::from_utf8_lossy(line.split(|byte| *byte == b' ').next().unwrap_or_default());
        let ends =
            range.split_once('-').map(|ends| [ends.0, ends.1].map(|end| usize::from_str_radix(end, 16)));
        matches!(ends, Some([Ok(start), Ok(end)]) if (start..end).contains(&address))
    };
    let line = maps.split(|byte| *byte == b'\n').find(|line| is_within(line))?;
    let path = &line[line.iter().position(|byte| *byte == b'/')?..];
    let file = PathBuf::from(OsStr::from_bytes(path));
    Some(file).filter(|file| file.is_file())
}

struct Search {
    address: usize,
    found: Option<Object>,
}

/// Stops at the object whose segments contain the address, and stores it.
unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _size: usize, search: *mut c_void) -> c_int {
    // SAFETY: the loader's structure is valid during the call, and `search` is the one that `locate` gave.
    let (info, search) = unsafe { (&*info, &mut *search.cast::<Search>()) };
    if info.dlpi_phdr.is_null() {
        return 0;
    }
    // SAFETY: the loader's array has this number of headers.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    for header in headers.iter().filter(|header| header.p_type == libc::PT_LOAD) {
        let start = info.dlpi_addr as usize + header.p_vaddr as usize;
        let end = start + header.p_memsz as usize;
        if (start..end).contains(&search.address) {
            // SAFETY: the loader's string, which is empty for the program itself.
            let name = if info.dlpi_name.is_null() { c"" } else { unsafe { CStr::from_ptr(info.dlpi_name) } };
            let path = if name.is_empty() {
                program().to_owned()
            } else {
                PathBuf::from(OsStr::from_bytes(name.to_bytes()))
            };
            search.found = Some(Object { base: info.dlpi_addr as usize, path });
            return 1;
        }
    }
    0
}

/// Demangles C++ and Rust names; other names are not changed.
pub fn demangle(name: &str) -> String {
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        return format!("{rust:#}");
    }
    if name.starts_with("_Z") {
        // Each substitution can double the length of a name.
        let mut text = Bounded { text: String::new(), bytes_max: 1 << 14 };
        let demangled = cpp_demangle::Symbol::new(name)
            .is_ok_and(|symbol| symbol.structured_demangle(&mut text, &DemangleOptions::default()).is_ok());
        return if demangled { text.text } else { name.to_string() };
    }
    name.to_string()
}
