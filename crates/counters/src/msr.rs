//! CPU packages' energy registers through msr-safe (github.com/LLNL/msr-safe), a kernel module with which an administrator lets
//! users read chosen registers: `/dev/cpu/N/msr_safe`. They are RAPL's counters, for nodes whose files in `/sys/class/powercap`
//! may not be read. The registers of Intel are described in its Software Developer's Manual (volume 3B, "RAPL Interfaces"),
//! those of AMD in its Processor Programming References.
//!
//! Only packages are read: the unit of the register for memory depends on the model of the processor.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::ReadError;
use crate::energy::Resolution;
use crate::file::{entries, text_of};

/// The addresses of two registers, for each vendor: the one with the units, and the one with a package's energy.
const INTEL: (u64, u64) = (0x606, 0x611);
const AMD: (u64, u64) = (0xc001_0299, 0xc001_029b);
/// The number of values of the energy register, which has 32 bits. After the last value it starts again at 0.
const VALUES: u64 = 1 << 32;

/// A package's register.
pub(crate) struct Register {
    file: File,
    pub path: PathBuf,
    address: u64,
    resolution: Resolution,
    pub resolution_joules: f64,
}

/// Opens the register of each package, on the first of its CPUs where that succeeds. Returns the packages' numbers with them.
pub(crate) fn open(root: &Path, is_amd: bool) -> Vec<(u32, Register)> {
    let mut found: Vec<(u32, Register)> = Vec::new();
    for (entry, folder) in entries(&root.join("sys/devices/system/cpu")) {
        let number = entry.strip_prefix("cpu").and_then(|number| number.parse::<u32>().ok());
        let package = text_of(&folder.join("topology/physical_package_id"));
        let (Some(cpu), Some(package)) = (number, package.and_then(|text| text.parse().ok())) else {
            continue;
        };
        if found.iter().any(|(known, _)| *known == package) {
            continue;
        }
        let path = root.join(format!("dev/cpu/{cpu}/msr_safe"));
        found.extend(Register::open(path, is_amd).map(|register| (package, register)));
    }
    found
}

impl Register {
    /// Returns `None` if the registers may not be read, or if the energy is 0.
    fn open(path: PathBuf, is_amd: bool) -> Option<Register> {
        let (units, address) = if is_amd { AMD } else { INTEL };
        let file = File::open(&path).ok()?;
        // Bits 12 to 8 are the power of two by which a joule is divided.
        let resolution_joules = 0.5f64.powi((register(&file, units).ok()? >> 8 & 0x1f) as i32);
        let resolution = Resolution::from_microjoules(resolution_joules * 1e6)?;
        let opened = Register { file, path, address, resolution, resolution_joules };
        opened.read().is_ok_and(|(raw, _)| raw > 0).then_some(opened)
    }

    /// Returns the counter's ticks and nanojoules. Allocates nothing.
    pub fn read(&self) -> Result<(u64, u64), ReadError> {
        let raw = register(&self.file, self.address).map_err(ReadError::Io)? % VALUES;
        Ok((raw, self.resolution.nanojoules(raw)))
    }

    /// Returns the nanojoules at which the counter starts again at 0.
    pub fn wraps_at_nanojoules(&self) -> u64 {
        self.resolution.nanojoules(VALUES)
    }
}

fn register(file: &File, address: u64) -> std::io::Result<u64> {
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, address)?;
    Ok(u64::from_le_bytes(bytes))
}
