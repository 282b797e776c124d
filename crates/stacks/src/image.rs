//! Reads an ELF file: segments, unwind tables, symbols, debug information.

use object::LittleEndian as LE;
use object::elf;

use crate::debug_info::{self, DebugInfo};
use crate::processes::Mapping;
use crate::rules::Tables;
use crate::source::{Reader, Source};

/// Larger debug information is not read, because samples would be lost while it is read.
const DEBUG_MAX: u64 = 64 << 20;
const SYMBOLS_MAX: u64 = 4 << 20;
const SECTIONS_MAX: u64 = 1 << 16;
const NAME_MAX: usize = 1 << 12;
/// Names of symbols up to this size are kept in memory, because the file may be replaced while its program runs. Those of larger
/// tables are read from the file when they are needed.
const NAMES_MAX: u64 = 4 << 20;

struct Segment {
    offset: u64,
    bytes: u64,
    address: u64,
}

pub(crate) struct Symbol {
    pub(crate) start: u64,
    bytes: u32,
    name: u32,
}

/// Where the names of symbols are.
enum Names {
    InFile(u64),
    Here(Vec<u8>),
}

impl Names {
    /// Returns the names of a section, which are read if they are small enough.
    fn of(section: &elf::SectionHeader64<LE>, reader: &Reader) -> Names {
        let (at, bytes) = (section.sh_offset.get(LE), section.sh_size.get(LE));
        let kept = (bytes <= NAMES_MAX).then(|| reader.read(at, bytes)).flatten();
        kept.map_or(Names::InFile(at), Names::Here)
    }

    fn bytes(&self) -> usize {
        match self {
            Names::InFile(_) => 0,
            Names::Here(names) => names.len(),
        }
    }
}

/// The contents of a file that was read.
pub(crate) struct Image {
    source: Source,
    /// The executable segments.
    segments: Vec<Segment>,
    pub(crate) entry: u64,
    /// Whether the file is a program without a dynamic loader.
    pub(crate) is_static: bool,
    pub(crate) tables: Option<Tables>,
    /// The symbols in the order of addresses.
    symbols: Vec<Symbol>,
    names: Names,
    pub(crate) debug_info: Option<DebugInfo>,
}

impl Image {
    pub(crate) fn bytes(&self) -> usize {
        let lines = self.debug_info.as_ref().map_or(0, |info| info.bytes);
        self.tables.as_ref().map_or(0, Tables::bytes)
            + self.symbols.len() * size_of::<Symbol>()
            + self.names.bytes()
            + lines
    }

    /// Converts an address of a process to one of the file. `None` if no segment of the file is mapped there.
    pub(crate) fn address(&self, mapping: &Mapping, address: u64) -> Option<u64> {
        let page = rustix::param::page_size() as u64;
        let offset = address.checked_sub(mapping.start)?.checked_add(mapping.offset)?;
        let is_in = |segment: &&Segment| {
            offset >= segment.offset & !(page - 1) && offset < segment.offset.saturating_add(segment.bytes)
        };
        let segment = self.segments.iter().find(is_in)?;
        Some(offset.wrapping_sub(segment.offset).wrapping_add(segment.address))
    }

    pub(crate) fn symbol(&self, address: u64) -> Option<&Symbol> {
        let after = self.symbols.partition_point(|symbol| symbol.start <= address);
        let symbol = self.symbols.get(after.checked_sub(1)?)?;
        (address - symbol.start < u64::from(symbol.bytes)).then_some(symbol)
    }

    pub(crate) fn name(&self, symbol: &Symbol) -> Option<String> {
        let of_file;
        let names = match &self.names {
            Names::Here(names) => names.get(symbol.name as usize..)?,
            Names::InFile(at) => {
                let at = at.checked_add(symbol.name.into())?;
                of_file = self.source.in_time(move |source| {
                    let reader = source.reader()?;
                    reader.read(at, (NAME_MAX as u64).min(reader.bytes().checked_sub(at)?))
                })?;
                &of_file[..]
            }
        };
        let names = &names[..names.len().min(NAME_MAX)];
        let name = names.split(|byte| *byte == 0).next().filter(|name| !name.is_empty())?;
        Some(String::from_utf8_lossy(name).into_owned())
    }

    pub(crate) fn code(&self, address: u64, bytes: u64) -> Option<Vec<u8>> {
        let segment = self.segments.iter().find(|segment| {
            address
                .checked_sub(segment.address)
                .is_some_and(|into| into.saturating_add(bytes) <= segment.bytes)
        })?;
        let at = segment.offset.checked_add(address - segment.address)?;
        self.source.in_time(move |source| source.reader()?.read(at, bytes))
    }

    /// Returns the bytes at an address of the file, or fewer if there are fewer.
    pub(crate) fn code_up_to(&self, address: u64, bytes: u64) -> Vec<u8> {
        (1..=8).rev().find_map(|eighths| self.code(address, bytes * eighths / 8)).unwrap_or_default()
    }

    /// Reads a file. `None` if it is not an ELF file with 64 bits and little-endian numbers, or if it is damaged.
    pub(crate) fn read(source: Source, room: usize) -> Option<Image> {
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
            names: Names::InFile(0),
            debug_info: None,
            source: Source::Memory(Vec::new()),
        };
        let sections = Sections::read(&reader, &header).unwrap_or_default();
        image.tables = sections.tables(&reader, room);
        if let Some((symbols, names)) = sections.symbols(&reader, room) {
            (image.symbols, image.names) = (symbols, names);
        }
        image.debug_info = sections.debug_info(&reader, room);
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
        // If the number of sections does not fit into the header, it is in the first section.
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

    /// Returns the functions in the symbol table or in the dynamic symbol table, and where their names are.
    fn symbols(&self, reader: &Reader, room: usize) -> Option<(Vec<Symbol>, Names)> {
        [elf::SHT_SYMTAB, elf::SHT_DYNSYM].into_iter().find_map(|kind| {
            let section = self.headers.iter().find(|header| header.sh_type.get(LE) == kind)?;
            let names = self.headers.get(section.sh_link.get(LE) as usize)?;
            let symbols = self.symbols_of(reader, section, room)?;
            (!symbols.is_empty()).then(|| (symbols, Names::of(names, reader)))
        })
    }

    /// Returns the debug information, if it is neither compressed nor too large.
    fn debug_info(&self, reader: &Reader, room: usize) -> Option<DebugInfo> {
        self.find(b".debug_info")?;
        let all = debug_info::SECTIONS.iter().filter_map(|section| self.find(section.name().as_bytes()));
        let is_plain = |header: &elf::SectionHeader64<LE>| {
            header.sh_type.get(LE) != elf::SHT_NOBITS
                && header.sh_flags.get(LE).0 & elf::SHF_COMPRESSED.0 == 0
        };
        let bytes = all.clone().fold(0, |sum: u64, header| sum.saturating_add(header.sh_size.get(LE)));
        if !all.clone().all(is_plain) || bytes > DEBUG_MAX.min(room as u64 / 4) {
            return None;
        }
        DebugInfo::new(|name| {
            let section = self.find(name.as_bytes());
            let bytes =
                section.and_then(|section| reader.read(section.sh_offset.get(LE), section.sh_size.get(LE)));
            bytes.unwrap_or_default()
        })
    }

    /// Returns the end of the code section that contains an address.
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
        // A section whose number does not fit is assumed to have code.
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
        // Each symbol with its rank among others at the same address: a smaller rank is preferred.
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
        // Assemblers often give symbols no size: these extend to the next symbol, or to the end of their section.
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
    use crate::rules::Context;
    use crate::source::{open, own_vdso};
    use crate::stack::{Registers, Stack};
    use object::pod;

    const ROOM: usize = 2 << 30;

    /// Does everything with a file: reads it, names all functions, makes and follows all rules.
    fn use_all(bytes: Vec<u8>) -> usize {
        let Some(image) = Image::read(Source::Memory(bytes), ROOM) else { return 0 };
        let mut context = Context::new();
        let mapping = Mapping::new(0x10000..u64::MAX, 0, 0);
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
                // Half of the damage is in headers, where it has the largest effect.
                let within = if random & 1 == 0 { bytes.len() } else { 512.min(bytes.len()) };
                let at = (random >> 8) as usize % within;
                bytes[at] = (random >> 56) as u8;
            }
            use_all(bytes);
        }
    }

    #[test]
    fn a_file_that_claims_to_be_huge_takes_no_memory() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("huge");
        let mut bytes = own_vdso().expect("a vDSO");
        let header: &elf::FileHeader64<LE> = pod::from_bytes(&bytes).unwrap().0;
        let (at, count) = (header.e_shoff.get(LE) as usize, usize::from(header.e_shnum.get(LE)));
        for section in 0..count {
            // The size of the file.
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
