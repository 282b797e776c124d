//! Converts Score-P's region types and paradigms to OTF2's.

use otf2::{CollectiveOp, ParadigmType, RegionRole, Root};
use scorep_abi::{collective, paradigm as scorep_paradigm, region_type, root as scorep_root};

pub fn region_type_of(wanted: RegionRole) -> u8 {
    (0..=u8::MAX).find(|kind| role(*kind) == wanted).unwrap_or(u8::MAX)
}

/// Returns Score-P's constant for a paradigm.
pub fn paradigm_of(wanted: ParadigmType) -> u8 {
    (0..=u8::MAX).find(|kind| paradigm(*kind) == wanted).unwrap_or(u8::MAX)
}

pub fn role(kind: u8) -> RegionRole {
    match i32::from(kind) {
        region_type::FUNCTION => RegionRole::Function,
        region_type::LOOP => RegionRole::Loop,
        region_type::CODE | region_type::USER => RegionRole::Code,
        region_type::COLL_ONE2ALL => RegionRole::CollOne2All,
        region_type::COLL_ALL2ONE => RegionRole::CollAll2One,
        region_type::COLL_ALL2ALL => RegionRole::CollAll2All,
        region_type::COLL_OTHER => RegionRole::CollOther,
        region_type::POINT2POINT => RegionRole::Point2Point,
        region_type::PARALLEL => RegionRole::Parallel,
        region_type::SECTIONS => RegionRole::Sections,
        region_type::SECTION => RegionRole::Section,
        region_type::WORKSHARE => RegionRole::Workshare,
        region_type::SINGLE => RegionRole::Single,
        region_type::SINGLE_SBLOCK => RegionRole::SingleSblock,
        region_type::MASTER => RegionRole::Master,
        region_type::CRITICAL => RegionRole::Critical,
        region_type::CRITICAL_SBLOCK => RegionRole::CriticalSblock,
        region_type::ATOMIC => RegionRole::Atomic,
        region_type::BARRIER => RegionRole::Barrier,
        region_type::IMPLICIT_BARRIER => RegionRole::ImplicitBarrier,
        region_type::FLUSH => RegionRole::Flush,
        region_type::ORDERED => RegionRole::Ordered,
        region_type::ORDERED_SBLOCK => RegionRole::OrderedSblock,
        region_type::WRAPPER => RegionRole::Wrapper,
        region_type::TASK => RegionRole::Task,
        region_type::TASK_UNTIED => RegionRole::TaskUntied,
        region_type::TASK_WAIT => RegionRole::TaskWait,
        region_type::TASK_CREATE => RegionRole::TaskCreate,
        region_type::ARTIFICIAL => RegionRole::Artificial,
        region_type::RMA => RegionRole::Rma,
        region_type::THREAD_CREATE => RegionRole::ThreadCreate,
        region_type::THREAD_WAIT => RegionRole::ThreadWait,
        region_type::ALLOCATE => RegionRole::Allocate,
        region_type::DEALLOCATE => RegionRole::Deallocate,
        region_type::REALLOCATE => RegionRole::Reallocate,
        region_type::FILE_IO => RegionRole::FileIo,
        region_type::FILE_IO_METADATA => RegionRole::FileIoMetadata,
        region_type::KERNEL_LAUNCH => RegionRole::Wrapper,
        region_type::KERNEL => RegionRole::Function,
        _ => RegionRole::Unknown,
    }
}

/// Returns OTF2's constant for a paradigm of Score-P.
pub fn paradigm(kind: u8) -> ParadigmType {
    match i32::from(kind) {
        scorep_paradigm::MEASUREMENT => ParadigmType::MeasurementSystem,
        scorep_paradigm::USER => ParadigmType::User,
        scorep_paradigm::COMPILER => ParadigmType::Compiler,
        scorep_paradigm::SAMPLING => ParadigmType::Sampling,
        scorep_paradigm::MPI => ParadigmType::Mpi,
        scorep_paradigm::SHMEM => ParadigmType::Shmem,
        scorep_paradigm::OPENMP => ParadigmType::OpenMp,
        scorep_paradigm::PTHREAD => ParadigmType::Pthread,
        scorep_paradigm::CUDA => ParadigmType::Cuda,
        scorep_paradigm::OPENCL => ParadigmType::OpenCl,
        scorep_paradigm::OPENACC => ParadigmType::OpenAcc,
        scorep_paradigm::KOKKOS => ParadigmType::Kokkos,
        scorep_paradigm::HIP => ParadigmType::Hip,
        _ => ParadigmType::Unknown,
    }
}

/// Returns OTF2's collective operation; `None` if the number is not one of Score-P's.
pub fn collective_operation(kind: u32) -> Option<CollectiveOp> {
    let kind = i32::try_from(kind)
        .ok()
        .filter(|kind| collective::VALUES.1.iter().any(|(_, known)| *known == i64::from(*kind)))?;
    Some(match kind {
        collective::REDUCE_SCATTER_BLOCK => CollectiveOp::ReduceScatterBlock,
        collective::SCAN => CollectiveOp::Scan,
        collective::EXSCAN => CollectiveOp::Exscan,
        // All other operations have the same numbers.
        same => CollectiveOp::from_raw(same as u8),
    })
}

/// Returns Score-P's constant for a collective operation; `None` if it has none.
pub fn number_of_collective(wanted: CollectiveOp) -> Option<u32> {
    (0..=u8::MAX.into()).find(|kind| collective_operation(*kind) == Some(wanted))
}

/// Returns Score-P's number for a root; `None` if the root's rank is too large.
pub fn number_of_root(root: Root) -> Option<i32> {
    Some(match root {
        Root::None => scorep_root::NONE,
        Root::ThisProcess => scorep_root::THIS_PROCESS,
        Root::ThisGroup => scorep_root::THIS_GROUP,
        Root::Rank(rank) => rank.try_into().ok()?,
    })
}

/// Returns the root of a collective operation; `None` if the number is neither a rank nor one of Score-P's.
pub fn root(number: i32) -> Option<Root> {
    Some(match number {
        scorep_root::NONE => Root::None,
        scorep_root::THIS_PROCESS => Root::ThisProcess,
        scorep_root::THIS_GROUP => Root::ThisGroup,
        rank => Root::Rank(rank.try_into().ok()?),
    })
}
