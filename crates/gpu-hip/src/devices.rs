//! The GPUs, as rocprofiler-sdk describes them.

use crate::abi::{AGENT_GPU, AGENT_INFO_0, AGENT_SIZE_WITH_UUID, Agent, SUCCESS, Status};
use crate::library::Library;
use ampere_gpu::Device;
use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_void};

/// A GPU, or a part of a GPU that the driver shows as a GPU of its own.
#[derive(Clone, Debug)]
pub(crate) struct Gpu {
    /// The GPU's name in locations, by the driver's numbering of all GPUs of the node, including those that this process may
    /// not use.
    pub name: String,
    pub device: Device,
}

/// Returns the GPUs by their agents' numbers.
pub(crate) fn gpus(library: &Library) -> HashMap<u64, Gpu> {
    let mut found = HashMap::new();
    // SAFETY: `collect` gets the map that it expects, and is called before this call returns.
    unsafe { (library.agents)(AGENT_INFO_0, collect, size_of::<Agent>(), (&raw mut found).cast()) };
    found
}

unsafe extern "C" fn collect(
    version: c_int,
    agents: *const *const c_void,
    count: usize,
    data: *mut c_void,
) -> Status {
    if version != AGENT_INFO_0 || agents.is_null() {
        return SUCCESS;
    }
    // SAFETY: by the interface, `count` pointers to agents, which live as long as rocprofiler-sdk does; the map of `gpus`.
    let (agents, found) = unsafe {
        (
            std::slice::from_raw_parts(agents.cast::<*const Agent>(), count),
            &mut *data.cast::<HashMap<u64, Gpu>>(),
        )
    };
    for &agent in agents {
        // SAFETY: as above; the size is the first field.
        if agent.is_null() || unsafe { (*agent).size } < size_of::<Agent>() as u64 {
            continue;
        }
        // SAFETY: as above, and the structure has all fields.
        let fields = unsafe { &*agent };
        if fields.agent_type == AGENT_GPU {
            // SAFETY: as above; an agent of this size ends with the UUID.
            let uuid = (fields.size >= AGENT_SIZE_WITH_UUID)
                .then(|| unsafe { agent.add(1).cast::<u64>().read_unaligned() });
            found.insert(fields.id.0, described(fields, uuid.unwrap_or(0)));
        }
    }
    SUCCESS
}

/// Describes a GPU or a part of one. All parts of a GPU have its PCI address, and so its counter.
fn described(agent: &Agent, uuid: u64) -> Gpu {
    let (bus, device) = (agent.location >> 8 & 0xff, agent.location >> 3 & 0x1f);
    Gpu {
        name: format!("gpu{}", agent.number_in_type),
        device: Device {
            pci: format!("{:04x}:{bus:02x}:{device:02x}.0", agent.domain),
            uuid: if uuid == 0 { String::new() } else { format!("GPU-{uuid:016x}") },
            model: text(agent.product_name),
        },
    }
}

/// Returns a C string of rocprofiler-sdk; empty if it is null.
fn text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: by the interface, not null means a C string that lives as long as the agent.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(location: u32, number: i32) -> Agent {
        // SAFETY: zero is a value of all fields.
        let zero = unsafe { std::mem::zeroed::<Agent>() };
        Agent {
            agent_type: AGENT_GPU,
            location,
            domain: 2,
            number_in_type: number,
            product_name: c"MI300A".as_ptr(),
            ..zero
        }
    }

    #[test]
    fn the_parts_of_a_gpu_have_its_pci_address() {
        let whole = described(&agent(0xc1 << 8, 0), 0xa705_64cc_cd47_836c);
        assert_eq!(whole.device.pci, "0002:c1:00.0");
        assert_eq!(whole.device.uuid, "GPU-a70564cccd47836c");
        assert_eq!(whole.device.model, "MI300A");
        let part = described(&agent(0xc1 << 8 | 5, 5), 0);
        assert_eq!((part.device.pci.as_str(), part.device.uuid.as_str()), ("0002:c1:00.0", ""));
        assert_eq!((whole.name.as_str(), part.name.as_str()), ("gpu0", "gpu5"));
    }
}
