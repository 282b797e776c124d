//! AMD GPUs' energy counters through libamd_smi, the successor of librocm_smi64. It reads the same accumulators from the same
//! driver, so only one of the two is opened: see [`crate::select`].

use crate::amd::{Accumulators, DEVICES_MAX, presence};
use crate::vendor::find::{self, Wanted};
use crate::{OpenErrors, Settings};

mod library;
mod status;

use library::{Library, Loaded};

pub(crate) const NAME: &str = "amdsmi";

const LIBRARY: Wanted = Wanted {
    source: NAME,
    names: &["libamd_smi.so", "libamd_smi.so.26", "libamd_smi.so.25", "libamd_smi.so.24", "libamd_smi.so.23"],
    advice: "there is an AMD GPU but no usable libamd_smi.so; load a ROCm module, install amd-smi-lib, or name the \
             file with AMPERE_AMDSMI_LIBRARY",
};

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
                "amdsmi: {function} of {} failed with {error}: no GPU that may be used? If there is one, check that \
                 the driver amdgpu is loaded and that the user is in the groups video and render",
                path.display()
            ));
            None
        }
    }
}
