//! AMD GPUs' energy counters through librocm_smi64.

use crate::amd::{Accumulators, DEVICES_MAX, presence};
use crate::vendor::find::{self, Wanted};
use crate::{OpenErrors, Settings};

mod library;
mod status;

use library::{Library, Loaded};

pub(crate) const NAME: &str = "rocm_smi";

/// The newest versions come first, because an old library does not know a new GPU.
const LIBRARY: Wanted = Wanted {
    source: NAME,
    names: &[
        "librocm_smi64.so",
        "librocm_smi64.so.7",
        "librocm_smi64.so.6",
        "librocm_smi64.so.5",
        "librocm_smi64.so.1",
    ],
    advice: "there is an AMD GPU but no usable librocm_smi64.so; load a ROCm module, install rocm-smi-lib, or name \
             the file with AMPERE_ROCM_SMI_LIBRARY",
};

/// Opens all devices with a usable counter. Returns `None`, with notes, if there is none.
pub(crate) fn open(settings: &Settings, errors: &mut OpenErrors) -> Option<Accumulators<Library>> {
    // Without a GPU the real library must not be called: it prints, fails, and must not be called after that. A library that the
    // user has named is called regardless, because it may be a stand-in.
    if settings.rocm_smi_library.is_none()
        && let Some(reason) = presence::no_gpu(&settings.sys_root)
    {
        errors.absent(format!("{NAME}: {reason}"));
        return None;
    }
    let (loaded, path) = match find::load(settings.rocm_smi_library.as_deref(), &LIBRARY, Loaded::open) {
        Ok(found) => found,
        Err(error) => {
            errors.notes.push(error.to_string());
            return None;
        }
    };
    let library = match loaded.init() {
        Ok(library) => library,
        Err(error) => {
            errors.notes.push(format!(
                "rocm_smi: rsmi_init of {} failed with {error}: there may be no usable GPU. If there is one, check \
                 that the user is in the groups video and render and that no other user's /dev/shm/rocm_smi* is \
                 left over",
                path.display()
            ));
            return None;
        }
    };
    match library.device_count() {
        Ok(count) if count <= DEVICES_MAX => Accumulators::open(library, count, settings, errors),
        Ok(count) => {
            errors
                .notes
                .push(format!("rocm_smi: the library reports {count} devices, more than any node has"));
            None
        }
        Err(error) => {
            errors.notes.push(format!("rocm_smi: the devices cannot be counted: {error}"));
            None
        }
    }
}
