//! Debug information: where in the source a function begins, and which functions the compiler has inlined at an address.

use gimli::{Dwarf, EndianArcSlice, LittleEndian, SectionId};

/// The sections that are read.
pub(crate) const SECTIONS: [SectionId; 10] = [
    SectionId::DebugAbbrev,
    SectionId::DebugAddr,
    SectionId::DebugAranges,
    SectionId::DebugInfo,
    SectionId::DebugLine,
    SectionId::DebugLineStr,
    SectionId::DebugRanges,
    SectionId::DebugRngLists,
    SectionId::DebugStr,
    SectionId::DebugStrOffsets,
];

/// What a file's debug information says.
pub(crate) struct Lines {
    context: addr2line::Context<EndianArcSlice<LittleEndian>>,
    /// Memory that is used.
    pub(crate) bytes: usize,
}

/// A function that was inlined.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Inlined {
    pub(crate) symbol: String,
    /// Its source file.
    pub(crate) file: String,
}

/// So many functions are inlined into each other at most; more are damage.
const INLINED_MAX: usize = 256;

impl Lines {
    /// `section`: the bytes of a section, none where the file does not have it.
    pub(crate) fn new(section: impl Fn(&str) -> Vec<u8>) -> Option<Lines> {
        let mut bytes = 0;
        let load = |id: SectionId| {
            let section = if SECTIONS.contains(&id) { section(id.name()) } else { Vec::new() };
            bytes += section.len();
            Ok::<_, gimli::Error>(EndianArcSlice::new(section.into(), LittleEndian))
        };
        let dwarf = Dwarf::load(load).ok()?;
        Some(Lines { context: addr2line::Context::from_dwarf(dwarf).ok()?, bytes })
    }

    /// The source file and line of an address.
    pub(crate) fn source(&self, address: u64) -> Option<(String, u32)> {
        let location = self.context.find_location(address).ok()??;
        Some((location.file?.to_owned(), location.line.unwrap_or(0)))
    }

    /// The functions that were inlined at an address, innermost first, without the one that they are in.
    pub(crate) fn inlined(&self, address: u64) -> Vec<Inlined> {
        let mut all = Vec::new();
        let Ok(mut frames) = self.context.find_frames(address).skip_all_loads() else { return all };
        while let Ok(Some(frame)) = frames.next()
            && all.len() <= INLINED_MAX
        {
            let symbol = frame.function.and_then(|function| Some(function.raw_name().ok()?.into_owned()));
            let file = frame.location.and_then(|location| location.file).unwrap_or_default().to_owned();
            all.push(Inlined { symbol: symbol.unwrap_or_default(), file });
        }
        all.pop();
        all.retain(|inlined| !inlined.symbol.is_empty());
        all
    }
}
