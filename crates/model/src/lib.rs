//! The vocabulary of ampere: the terms of OTF2 and Score-P as types, without dependencies.
//!
//! The crates of ampere exchange these types. A handle (Score-P's word) is valid in its own process only; a reference
//! (OTF2's word) is valid in the whole trace.
//!
//! ```text
//! definition.rs      the definitions that a process writes
//! regions.rs         one number for each region of a run
//! metric.rs          the meaning of names and units of metrics
//! fortran.rs         the symbols of Fortran compilers
//! mpi_names.rs       the names of functions of MPI in lower case
//! filter.rs          Score-P's filter files
//! launcher.rs        a rank's place, from its launcher's variables
//! text.rs            names and messages as text for people
//! digits.rs          figures with few digits
//! numbers.rs         hash maps whose keys are small integers
//! order.rs           sorting, the largest first
//! sum.rs             sums; the sum of no figures is 0
//! counted.rs         the part of a node that a metric counts
//! counts.rs          what processes count by name: work, ranges
//! event.rs           events that the kernel counts in threads
//! time_namespace.rs  start times of processes in a time namespace
//! signature.rs       names of functions as demanglers write them
//! ```
//!
//! The names of recorded environment variables are below.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod counted;
mod counts;
mod definition;
pub mod digits;
mod event;
pub mod filter;
pub mod fortran;
pub mod launcher;
mod metric;
mod mpi_names;
pub mod numbers;
pub mod order;
pub mod regions;
pub mod signature;
mod sum;
pub mod text;
pub mod time_namespace;

pub use counts::{Counted, NOT_RECORDED};
pub use definition::{
    Clocks, Communicator, Definition, Device, GpuRecords, Location, LocationKind, Members, Process, Program,
    Quality, REPLAYED_HOST, Region, SAMPLED_HOST, StreamDevice,
};
pub use event::{CountedEvent, EventPart, NAMED_EVENTS};
pub use metric::{
    MetricValue, PowerSensor, Quantity, accelerator_of_gpu, cray_device, device_name, gpu_of_score_p_plugin,
    matches, power_sensor_of_name, quantity_of_name, quantity_of_unit,
};
pub use sum::sum;

/// Variables that restrict the GPUs that a process may use.
pub const VISIBLE_DEVICES: [&str; 4] =
    ["ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"];

/// The metric of the CPU time that other jobs use on a node: cumulative, in seconds.
pub const OTHER_JOBS_CPU_TIME: &str = "ampere::other_jobs_cpu_time";

/// Stands for a process of another MPI_COMM_WORLD among the members of a communicator that a process records. That process
/// records its own number, and the trace's writer puts both lists together.
pub const OF_ANOTHER_WORLD: u32 = u32::MAX;

/// A made-up variable of a sampled process: the nanoseconds of CPU time between two samples of a thread's stack.
pub const STACK_PERIOD: &str = "ampere::stack_period_ns";

/// A made-up variable of a sampled process: the names of the events that are counted with each sample, separated by commas. The
/// records of counts have the numbers of these names.
pub const STACK_EVENTS: &str = "ampere::stack_events";

/// The start of the names of the metrics with which a trace's locations record the counts of samples. The name of the event
/// follows.
pub const SAMPLED_EVENTS: &str = "ampere::sampled_events::";

/// A made-up variable of a process: the PCI addresses, separated by commas, of the GPUs on which the process has had queues of
/// AMD's driver or contexts of NVIDIA's. If it is empty, the process has not opened AMD's driver.
pub const QUEUES: &str = "ampere::queues";

/// Variables of launchers and MPI libraries that number the ranks of a node, from 0. The MPI library's own come first: under
/// `mpirun` in a Slurm job, Slurm's variable is that of the script.
pub const LOCAL_RANKS: [&str; 10] = [
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID",
    "MV2_COMM_WORLD_LOCAL_RANK",
    "MVP_COMM_WORLD_LOCAL_RANK",
    "PALS_LOCAL_RANKID",
    "PMI_LOCAL_RANK",
    "FLUX_TASK_LOCAL_ID",
    "JSM_NAMESPACE_LOCAL_RANK",
    "SLURM_LOCALID",
    "LOCAL_RANK",
];

/// The sources from which counters are read.
pub const COUNTER_SOURCES: [&str; 9] =
    ["rocm_smi", "amdsmi", "nvml", "cray_pm", "rapl", "perf", "hwmon", "custom", "estimate"];

/// Whether the launcher numbers this process as the first of its node, which prints messages for all. Without a launcher, every
/// process is the first.
pub fn is_first_of_node() -> bool {
    // MPICH sets only the rank in the job.
    let rank = LOCAL_RANKS.iter().chain(&["PMI_RANK"]).find_map(std::env::var_os);
    rank.is_none_or(|rank| rank == "0")
}

/// The variable with which a user switches ampere off in a process.
pub const ENV_DISABLE: &str = "AMPERE_DISABLE";

/// Whether the user has switched ampere off in this process.
pub fn is_switched_off() -> bool {
    std::env::var(ENV_DISABLE).is_ok_and(|value| switches_off(&value))
}

/// Whether this value of [`ENV_DISABLE`] switches ampere off.
pub fn switches_off(value: &str) -> bool {
    !value.is_empty() && value != "0"
}

/// The variable with the library that CUDA loads into each program.
pub const ENV_CUDA_INJECTION: &str = "CUDA_INJECTION64_PATH";

/// The name of ampere's own library for [`ENV_CUDA_INJECTION`].
pub const CUDA_LIBRARY: &str = "libampere_cuda.so";
/// The name of the library that sees the kernels of HIP.
pub const HIP_LIBRARY: &str = "libampere_hip.so";
/// The name of the library that sees the kernels of OpenCL.
pub const OPENCL_LIBRARY: &str = "libampere_opencl.so";
/// The names of the libraries that see kernels.
pub const GPU_LIBRARIES: [&str; 3] = [CUDA_LIBRARY, HIP_LIBRARY, OPENCL_LIBRARY];

/// A time in ticks of the node's event clock.
pub type Timestamp = u64;

/// Score-P's handle of a region, which is valid in one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RegionHandle(pub u32);

/// A region in a whole trace or run: two ranks' handles for the same region map to the same reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RegionRef(pub u32);

/// A location's number in its own process, as Score-P counts them (0 is the main thread).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LocalLocation(pub u32);
