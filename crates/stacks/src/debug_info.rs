//! Debug information: the source lines of functions, and the functions that were inlined at an address.

use gimli::{Dwarf, EndianArcSlice, LittleEndian, SectionId};

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

pub(crate) struct DebugInfo {
    context: addr2line::Context<EndianArcSlice<LittleEndian>>,
    pub(crate) bytes: usize,
}

#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Inlined {
    pub(crate) symbol: String,
    pub(crate) file: String,
}

/// The maximum number of functions that are inlined into each other. More of them mean that the file is damaged.
const INLINED_MAX: usize = 256;

impl DebugInfo {
    /// Makes the tables. `section` returns the bytes of a section, which are empty if the file does not have it.
    pub(crate) fn new(section: impl Fn(&str) -> Vec<u8>) -> Option<DebugInfo> {
        let mut bytes = 0;
        let load = |id: SectionId| {
            let section = if SECTIONS.contains(&id) { section(id.name()) } else { Vec::new() };
            bytes += section.len();
            Ok::<_, gimli::Error>(EndianArcSlice::new(section.into(), LittleEndian))
        };
        let dwarf = Dwarf::load(load).ok()?;
        Some(DebugInfo { context: addr2line::Context::from_dwarf(dwarf).ok()?, bytes })
    }

    /// Returns the source file and line of an address.
    pub(crate) fn source(&self, address: u64) -> Option<(String, u32)> {
        let location = self.context.find_location(address).ok()??;
        Some((location.file?.to_owned(), location.line.unwrap_or(0)))
    }

    /// Returns the functions that were inlined at an address, innermost first, without the function that contains them.
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
