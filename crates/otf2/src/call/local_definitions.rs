//! OTF2's writer of a location's own definitions.

use super::{check, failure, forget_message};
use crate::error::Otf2Error;
use crate::local::LocalDefinitions;
use otf2_sys as sys;

/// The value for the standard deviation of a clock offset, which is not known.
const NOT_KNOWN: f64 = 0.0;

/// # Safety
/// The writer must be open.
pub(super) unsafe fn write(
    writer: *mut sys::OTF2_DefWriter,
    definitions: &LocalDefinitions,
) -> Result<(), Otf2Error> {
    let LocalDefinitions { clock_offsets, strings, attributes, regions, metrics, comms } = definitions;
    let tables = [
        (sys::OTF2_MAPPING_STRING, strings),
        (sys::OTF2_MAPPING_ATTRIBUTE, attributes),
        (sys::OTF2_MAPPING_REGION, regions),
        (sys::OTF2_MAPPING_METRIC, metrics),
        (sys::OTF2_MAPPING_COMM, comms),
    ];
    let is_mapping = |table: &[u32]| table.iter().zip(0..).any(|(of_archive, own)| *of_archive != own);
    for (kind, table) in tables.into_iter().filter(|(_, table)| is_mapping(table)) {
        forget_message();
        // SAFETY: the table is only read; the map is used only if not null, and freed once, after its last use.
        unsafe {
            let map = sys::OTF2_IdMap_CreateFromUint32Array(table.len() as u64, table.as_ptr(), true);
            if map.is_null() {
                return Err(failure(sys::OTF2_ERROR_MEM_FAULT));
            }
            let written =
                check(sys::OTF2_DefWriter_WriteMappingTable(writer, kind as sys::OTF2_MappingType, map));
            sys::OTF2_IdMap_Free(map);
            written?;
        }
    }
    for (time, offset) in clock_offsets {
        // SAFETY: see the function's contract.
        check(unsafe { sys::OTF2_DefWriter_WriteClockOffset(writer, *time, *offset, NOT_KNOWN) })?;
    }
    Ok(())
}
