//! From an address to a function's name, source file and line.
//!
//! Names come from the ELF symbol table (static functions included), lines from the debug information, both read from the
//! object's file at the first address that lies in it. Never on the event path.

use addr2line::Loader;
use object::{Object, ObjectSymbol, SymbolKind};
use std::ffi::{CStr, OsStr, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// What is known of a function.
pub struct Symbol {
    /// Demangled.
    pub name: String,
    /// As the linker knows it.
    pub canonical_name: String,
    /// Empty when unknown.
    pub file: String,
    /// 0 when unknown.
    pub line: u32,
}

/// A loaded object: the program or a shared library.
struct Module {
    start: usize,
    end: usize,
    /// What to subtract from an address to get the file's own.
    base: usize,
    path: PathBuf,
    /// Functions by address.
    functions: Vec<(u64, u64, Box<str>)>,
    lines: Option<Loader>,
}

struct Modules(Vec<Module>);

// SAFETY: used only under the mutex; `Loader` has caches without locks, but nothing tied to a thread.
unsafe impl Send for Modules {}

static MODULES: Mutex<Modules> = Mutex::new(Modules(Vec::new()));

/// Debug information larger than this is not read: it would take seconds of the program's time.
const DEBUG_FILE_SIZE_MAX: u64 = 2 << 30;

/// Everything there is to know about the function at this address.
pub fn resolve(address: usize) -> Symbol {
    let Ok(mut modules) = MODULES.lock() else { return unknown(Path::new(""), address) };
    let position = modules.0.iter().position(|module| (module.start..module.end).contains(&address));
    let module = match position {
        Some(position) => &modules.0[position],
        None => match Module::containing(address) {
            Some(module) => {
                modules.0.push(module);
                let last = modules.0.len() - 1;
                &modules.0[last]
            }
            None => return unknown(Path::new(""), address),
        },
    };
    module.symbol(address)
}

/// What can be said without looking.
pub fn nameless(address: usize) -> Symbol {
    unknown(Path::new(""), address)
}

/// `program+0x1234`.
fn unknown(path: &Path, offset: usize) -> Symbol {
    let object = path.file_name().unwrap_or_default().to_string_lossy();
    let name = format!("{object}+{offset:#x}");
    Symbol { canonical_name: name.clone(), name, file: String::new(), line: 0 }
}

impl Module {
    fn containing(address: usize) -> Option<Module> {
        let mut search = Search { address, found: None };
        // SAFETY: `visit` gets `search` back as its last argument.
        unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
        let (start, end, base, path) = search.found?;
        let mut module = Module { start, end, base, path, functions: Vec::new(), lines: None };
        module.read();
        Some(module)
    }

    fn read(&mut self) {
        let Ok(file) = std::fs::File::open(&self.path) else { return };
        // SAFETY: the file is a loaded object: overwriting one in place breaks the program itself.
        let Ok(bytes) = (unsafe { memmap2::Mmap::map(&file) }) else { return };
        if let Ok(file) = object::File::parse(&*bytes) {
            let mut functions: Vec<(u64, u64, bool, Box<str>)> = file
                .symbols()
                .chain(file.dynamic_symbols())
                .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.address() != 0)
                .filter_map(|symbol| {
                    let name = symbol.name().ok().filter(|name| !name.is_empty())?;
                    Some((symbol.address(), symbol.size(), symbol.is_local(), name.into()))
                })
                .collect();
            // Of several names for one address, a global one, and of those the shortest.
            functions.sort_by(|a, b| (a.0, a.2, a.3.len(), &a.3).cmp(&(b.0, b.2, b.3.len(), &b.3)));
            functions.dedup_by_key(|function| function.0);
            self.functions =
                functions.into_iter().map(|(address, size, _, name)| (address, size, name)).collect();
        }
        if (bytes.len() as u64) < DEBUG_FILE_SIZE_MAX {
            self.lines = Loader::new(&self.path).ok();
        }
    }

    fn symbol(&self, address: usize) -> Symbol {
        let offset = (address - self.base) as u64;
        let after = self.functions.partition_point(|function| function.0 <= offset);
        let name = after
            .checked_sub(1)
            .map(|index| &self.functions[index])
            .and_then(|(start, size, name)| (offset == *start || offset < start + size).then_some(name));
        let mut symbol = match name {
            Some(name) => Symbol {
                name: demangle(name),
                canonical_name: name.to_string(),
                file: String::new(),
                line: 0,
            },
            None => unknown(&self.path, offset as usize),
        };
        let location = self.lines.as_ref().and_then(|lines| lines.find_location(offset).ok().flatten());
        if let Some(location) = location {
            symbol.file = location.file.unwrap_or_default().to_string();
            symbol.line = location.line.unwrap_or(0);
        }
        symbol
    }
}

struct Search {
    address: usize,
    found: Option<(usize, usize, usize, PathBuf)>,
}

/// Keeps the object whose segments hold the address.
unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _size: usize, search: *mut c_void) -> c_int {
    // SAFETY: the loader's structure, alive during the call, and the search given in `containing`.
    let (info, search) = unsafe { (&*info, &mut *search.cast::<Search>()) };
    if info.dlpi_phdr.is_null() {
        return 0;
    }
    // SAFETY: the loader's array of so many headers.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    for header in headers.iter().filter(|header| header.p_type == libc::PT_LOAD) {
        let start = info.dlpi_addr as usize + header.p_vaddr as usize;
        let end = start + header.p_memsz as usize;
        if (start..end).contains(&search.address) {
            // SAFETY: the loader's string; empty for the program itself.
            let name = if info.dlpi_name.is_null() { c"" } else { unsafe { CStr::from_ptr(info.dlpi_name) } };
            let path = if name.is_empty() {
                std::fs::read_link("/proc/self/exe").unwrap_or_else(|_| "/proc/self/exe".into())
            } else {
                PathBuf::from(OsStr::from_bytes(name.to_bytes()))
            };
            search.found = Some((start, end, info.dlpi_addr as usize, path));
            return 1;
        }
    }
    0
}

/// A name as a person would write it: C++ and Rust are decoded, everything else is left as it is.
fn demangle(name: &str) -> String {
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        return format!("{rust:#}");
    }
    if name.starts_with("_Z") {
        let decoded = cpp_demangle::Symbol::new(name).ok().and_then(|symbol| symbol.demangle().ok());
        return decoded.unwrap_or_else(|| name.to_string());
    }
    name.to_string()
}
