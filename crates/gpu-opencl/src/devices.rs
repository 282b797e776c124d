//! Finds what identifies a device: its PCI address and its UUID, never its number.

use crate::abi::{self, Handle, clGetDeviceInfo};
use ampere_gpu::Device;

const CL_DEVICE_VENDOR_ID: u32 = 0x1001;
const CL_DEVICE_NAME: u32 = 0x102B;
/// The extension cl_khr_pci_bus_info defines this.
const CL_DEVICE_PCI_BUS_INFO: u32 = 0x410F;
/// The extension cl_khr_device_uuid defines this.
const CL_DEVICE_UUID: u32 = 0x106A;
/// The extension cl_nv_device_attribute_query defines this.
const CL_DEVICE_PCI_BUS_ID_NV: u32 = 0x4008;
const CL_DEVICE_PCI_SLOT_ID_NV: u32 = 0x4009;
const CL_DEVICE_PCI_DOMAIN_ID_NV: u32 = 0x400A;
/// The extension cl_amd_device_attribute_query defines this.
const CL_DEVICE_TOPOLOGY_AMD: u32 = 0x4037;
const TOPOLOGY_PCIE: u32 = 1;

const NVIDIA: u32 = 0x10DE;

/// AMD's `cl_device_topology_amd` for PCI Express.
#[repr(C)]
#[derive(Clone, Copy)]
struct Topology {
    kind: u32,
    unused: [u8; 17],
    bus: u8,
    device: u8,
    function: u8,
}

/// Asks OpenCL for the PCI address, the UUID and the model of a device.
pub fn describe(device: Handle) -> Device {
    let number = |what| abi::property::<u32>(clGetDeviceInfo, device, what);
    let is_nvidia = number(CL_DEVICE_VENDOR_ID) == Some(NVIDIA);
    let uuid = abi::property::<[u8; 16]>(clGetDeviceInfo, device, CL_DEVICE_UUID);
    Device {
        pci: pci(device).unwrap_or_default(),
        // Only NVML uses this UUID; other vendors' counter libraries use a different format, so it could not be matched.
        uuid: uuid.filter(|_| is_nvidia).map(|uuid| ampere_gpu::nvml_uuid(&uuid)).unwrap_or_default(),
        model: String::from_utf8_lossy(&abi::text(clGetDeviceInfo, device, CL_DEVICE_NAME)).into_owned(),
    }
}

fn pci(device: Handle) -> Option<String> {
    let number = |what| abi::property::<u32>(clGetDeviceInfo, device, what);
    if let Some([domain, bus, slot, function]) =
        abi::property::<[u32; 4]>(clGetDeviceInfo, device, CL_DEVICE_PCI_BUS_INFO)
    {
        return Some(address(domain, bus, slot, function));
    }
    if let (Some(bus), Some(slot)) = (number(CL_DEVICE_PCI_BUS_ID_NV), number(CL_DEVICE_PCI_SLOT_ID_NV)) {
        return Some(address(number(CL_DEVICE_PCI_DOMAIN_ID_NV).unwrap_or(0), bus, slot, 0));
    }
    let topology: Topology = abi::property(clGetDeviceInfo, device, CL_DEVICE_TOPOLOGY_AMD)?;
    (topology.kind == TOPOLOGY_PCIE)
        .then(|| address(0, topology.bus.into(), topology.device.into(), topology.function.into()))
}

/// Returns the address as the counters' sources write it.
fn address(domain: u32, bus: u32, slot: u32, function: u32) -> String {
    format!("{domain:04x}:{bus:02x}:{slot:02x}.{function:x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_as_counters_have_them() {
        assert_eq!(address(0, 0xc1, 0, 0), "0000:c1:00.0");
        assert_eq!(size_of::<Topology>(), 24);
    }
}
