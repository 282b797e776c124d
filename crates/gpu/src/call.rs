//! Which calls of CUDA and HIP are recorded.

/// The kinds of calls that are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallKind {
    /// Launches kernels.
    Launch,
    /// Copies or fills memory, often with a kernel.
    Transfer,
    /// Synchronises, or allocates or frees memory.
    Other,
}

impl CallKind {
    /// Returns the kind of a function, by its name without the prefix (`cuda`, `cu` or `hip`); `None` if it is not recorded.
    pub fn of(function: &str) -> Option<CallKind> {
        let begins = |starts: &[&str]| starts.iter().any(|start| function.starts_with(start));
        let is_launch =
            function.contains("Launch") && !function.contains("Graph") && !begins(&["LaunchHostFunc"]);
        if is_launch || begins(&["GraphLaunch"]) {
            Some(CallKind::Launch)
        } else if begins(&["Memcpy", "Memset", "MemPrefetch", "DrvMemcpy"]) {
            Some(CallKind::Transfer)
        } else if function.contains("Synchronize")
            || begins(&["Malloc", "Free", "HostMalloc", "HostAlloc", "HostFree"])
            || begins(&["ExtMalloc", "MemAlloc", "MemFree"])
        {
            Some(CallKind::Other)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launches_transfers_waits_and_memory_are_recorded_and_nothing_else() {
        let launches = "LaunchKernel_v7000 LaunchKernel_ptsz_v13000 LaunchKernelEx LaunchKernel_spt LaunchKernelExC \
            ExtLaunchKernel ModuleLaunchKernel ExtModuleLaunchKernel LaunchCooperativeKernel \
            LaunchCooperativeKernelMultiDevice GraphLaunch GraphLaunch_v10000 GraphLaunch_spt";
        let transfers = "Memcpy Memcpy2DAsync_ptsz_v7000 Memcpy2DToArray MemcpyHtoD_v2 MemsetD8_v2 MemsetD32Async \
            DrvMemcpy3D MemPrefetchAsync_v12020";
        let others = "DeviceSynchronize StreamSynchronize_v3020 StreamSynchronize_spt CtxSynchronize Malloc \
            MallocAsync_v11020 Free FreeHost HostMalloc HostAlloc_v3020 HostFree MemFree_v2 ExtMallocWithFlags";
        let not_recorded = "GetLastError SetDevice GetDevice_v3020 MemGetInfo_v2 FuncGetAttributes_v3020 CtxGetCurrent \
            LaunchHostFunc LaunchHostFunc_v2 GraphAddMemcpyNode GraphAddKernelNode GraphKernelNodeSetParams \
            DrvGraphAddMemcpyNode EventRecord GetDeviceFlags";
        let table = [
            (launches, Some(CallKind::Launch)),
            (transfers, Some(CallKind::Transfer)),
            (others, Some(CallKind::Other)),
            (not_recorded, None),
        ];
        for (names, expected) in table {
            names.split_whitespace().for_each(|name| assert_eq!(CallKind::of(name), expected, "{name}"));
        }
    }
}
