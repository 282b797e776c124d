//! AMD GPUs' energy counters through libamd_smi, the successor of librocm_smi64. It reads the same accumulators from the same
//! driver, so only one of the two is opened: see [`crate::select`]. ROCm 10 has only this library.

use crate::amd::{Accumulators, DEVICES_MAX, presence};
use crate::vendor::find::{self, Wanted};
use crate::{OpenErrors, Settings};

mod library;
mod status;

use library::{Library, Loaded};

pub(crate) const NAME: &str = "amdsmi";

/// File names, the newest first: ROCm 7 has 26, and ROCm 10 has 27. The plain name is a link for compilers.
const NAMES: [&str; 14] = [
    "libamd_smi.so.35",
    "libamd_smi.so.34",
    "libamd_smi.so.33",
    "libamd_smi.so.32",
    "libamd_smi.so.31",
    "libamd_smi.so.30",
    "libamd_smi.so.29",
    "libamd_smi.so.28",
    "libamd_smi.so.27",
    "libamd_smi.so.26",
    "libamd_smi.so",
    "libamd_smi.so.25",
    "libamd_smi.so.24",
    "libamd_smi.so.23",
];
/// The number of names at the start of [`NAMES`] that belong to ROCm 7 and later.
const NAMES_SINCE_ROCM_7: usize = 10;

const LIBRARY: Wanted = Wanted {
    source: NAME,
    names: &NAMES,
    advice: "there is an AMD GPU but no usable libamd_smi.so; load a ROCm module, install amd-smi-lib, or name the \
             file with AMPERE_AMDSMI_LIBRARY",
};

/// Whether this library is to be preferred to librocm_smi64: it is of ROCm 7 or later, and the user has named neither. It is
/// loaded, but not called.
pub(crate) fn is_preferred(settings: &Settings) -> bool {
    let since_rocm_7 = Wanted { names: NAMES.split_at(NAMES_SINCE_ROCM_7).0, ..LIBRARY };
    settings.amdsmi_library.is_none()
        && settings.rocm_smi_library.is_none()
        && presence::no_gpu(&settings.sys_root).is_none()
        && find::load(None, &since_rocm_7, Loaded::open).is_ok()
}

/// Opens all devices with a usable counter. Returns `None`, with notes, if there is none.
pub(crate) fn open(settings: &Settings, errors: &mut OpenErrors) -> Option<Accumulators<Library>> {
    // As for rocm_smi, the library is not called without a GPU, unless the user has named the file.
    if settings.amdsmi_library.is_none()
        && let Some(reason) = presence::no_gpu(&settings.sys_root)
    {
        errors.absent(format!("{NAME}: {reason}"));
        return None;
    }
    let (loaded, path) = match find::load(settings.amdsmi_library.as_deref(), &LIBRARY, Loaded::open) {
        Ok(found) => found,
        Err(error) => {
            errors.notes.push(error.to_string());
            return None;
        }
    };
    match loaded.init() {
        Ok(library) => {
            let count = library.handles().min(DEVICES_MAX);
            Accumulators::open(library, count, settings, errors)
        }
        Err((function, error)) => {
            errors.notes.push(format!(
                "amdsmi: {function} of {} failed with {error}: there may be no usable GPU. If there is one, check that \
                 the driver amdgpu is loaded and that the user is in the groups video and render",
                path.display()
            ));
            None
        }
    }
}
