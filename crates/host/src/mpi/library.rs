//! The MPI library behind the wrappers: its functions, and its idea of MPI_COMM_WORLD.

use std::ffi::{CStr, CString, c_int, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A handle of an MPI library outside of the global scope, such as one that a Python module loaded.
static HIDDEN: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

fn global(name: &CStr) -> *mut c_void {
    // SAFETY: a lookup by name in what the program shares.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}

/// A symbol of the MPI library, or null.
fn symbol(name: &CStr) -> *mut c_void {
    let found = global(name);
    if found.is_null() { hidden(name) } else { found }
}

/// A symbol of an MPI library that was loaded out of the global scope.
fn hidden(name: &CStr) -> *mut c_void {
    let mut handle = HIDDEN.load(Ordering::Acquire);
    if handle.is_null() {
        handle = search();
        if handle.is_null() {
            return null_mut();
        }
        HIDDEN.store(handle, Ordering::Release);
    }
    // SAFETY: an open handle, never closed.
    unsafe { libc::dlsym(handle, name.as_ptr()) }
}

/// Looks through every loaded object for one that has, or depends on, an MPI library.
fn search() -> *mut c_void {
    unsafe extern "C" fn collect(info: *mut libc::dl_phdr_info, _size: usize, names: *mut c_void) -> c_int {
        // SAFETY: the loader's structure, and the vector given below.
        let (info, names) = unsafe { (&*info, &mut *names.cast::<Vec<CString>>()) };
        if !info.dlpi_name.is_null() {
            // SAFETY: the loader's string, alive during the call.
            let name = unsafe { CStr::from_ptr(info.dlpi_name) };
            if !name.is_empty() {
                names.push(name.to_owned());
            }
        }
        0
    }
    let mut names: Vec<CString> = Vec::new();
    // SAFETY: `collect` gets the vector back as its last argument.
    unsafe { libc::dl_iterate_phdr(Some(collect), (&raw mut names).cast()) };
    for name in names {
        // SAFETY: only names an object that is loaded already; that keeps it from being unloaded.
        unsafe {
            let handle = libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
            if handle.is_null() {
                continue;
            }
            if !libc::dlsym(handle, c"PMPI_Init".as_ptr()).is_null() {
                return handle;
            }
            libc::dlclose(handle);
        }
    }
    null_mut()
}

/// Whether this process has had an MPI library from its start, so that MPI_Init can be expected.
pub fn is_loaded() -> bool {
    !global(c"PMPI_Init").is_null()
}

/// MPI_COMM_WORLD in the MPICH family.
const MPICH_WORLD: usize = 0x4400_0000;

/// MPI_COMM_WORLD, as an argument: the address of an object in Open MPI, a number in the MPICH family.
///
/// The object is looked up from the front of the global scope: a program that is not position-independent has its own copy of
/// it, which the library uses as well.
fn world() -> usize {
    let address = symbol(c"ompi_mpi_comm_world");
    if address.is_null() { MPICH_WORLD } else { address as usize }
}

/// What messages need of the library, once MPI is up.
pub struct Library {
    /// MPI_COMM_WORLD.
    pub world: usize,
    is_open_mpi: bool,
    type_size: OneOfComm,
    test_inter: OneOfComm,
    comm_size: OneOfComm,
    comm_rank: OneOfComm,
    comm_group: GroupOfComm,
    translate_ranks: TranslateRanks,
    group_free: FreeGroup,
}

type GroupOfComm = unsafe extern "C" fn(communicator: usize, group: *mut usize) -> c_int;
type TranslateRanks = unsafe extern "C" fn(
    group: usize,
    count: c_int,
    ranks: *const c_int,
    other: usize,
    others: *mut c_int,
) -> c_int;
type FreeGroup = unsafe extern "C" fn(group: *mut usize) -> c_int;

static LIBRARY: OnceLock<Library> = OnceLock::new();

/// MPI is up: looks up what messages need, if the plugin takes them.
pub fn prepare_for_messages() {
    if crate::plugin::wants_messages()
        && let Some(library) = Library::find()
    {
        let _ = LIBRARY.set(library);
    }
}

/// What a status says.
pub struct Received {
    /// Negative where nothing was received.
    pub source: c_int,
    pub tag: c_int,
    pub bytes: u64,
}

impl Library {
    /// `None`: nothing is to be recorded of messages.
    pub fn get() -> Option<&'static Library> {
        LIBRARY.get()
    }

    fn find() -> Option<Library> {
        let found = |name: &CStr| Some(symbol(name)).filter(|symbol| !symbol.is_null());
        let world = world();
        let of_comm = |name: &CStr| {
            // SAFETY: the functions asked for have this type at the level of the calling convention: a handle is a pointer or
            // a 32-bit number in the same register.
            found(name).map(|f| unsafe { std::mem::transmute::<*mut c_void, OneOfComm>(f) })
        };
        let (group, translate, free) =
            (found(c"PMPI_Comm_group")?, found(c"PMPI_Group_translate_ranks")?, found(c"PMPI_Group_free")?);
        // SAFETY: as above; a group is as large as a pointer at most.
        let (comm_group, translate_ranks, group_free) = unsafe {
            (
                std::mem::transmute::<*mut c_void, GroupOfComm>(group),
                std::mem::transmute::<*mut c_void, TranslateRanks>(translate),
                std::mem::transmute::<*mut c_void, FreeGroup>(free),
            )
        };
        Some(Library {
            world,
            is_open_mpi: world != MPICH_WORLD,
            type_size: of_comm(c"PMPI_Type_size")?,
            test_inter: of_comm(c"PMPI_Comm_test_inter")?,
            comm_size: of_comm(c"PMPI_Comm_size")?,
            comm_rank: of_comm(c"PMPI_Comm_rank")?,
            comm_group,
            translate_ranks,
            group_free,
        })
    }

    /// The size of so many elements.
    pub fn bytes(&self, count: c_int, datatype: usize) -> u64 {
        // Nothing may be of any type, and then also of none.
        if count <= 0 {
            return 0;
        }
        count as u64 * number(self.type_size, datatype).map_or(0, u64::from)
    }

    /// Size, own rank, and the members' ranks in MPI_COMM_WORLD, of which there are none for MPI_COMM_WORLD itself. `None`: it is an
    /// inter-communicator, or has members of another world.
    pub fn members(&self, communicator: usize) -> Option<(u32, u32, Vec<u32>)> {
        if number(self.test_inter, communicator) != Some(0) {
            return None;
        }
        let size = number(self.comm_size, communicator)?;
        let rank = number(self.comm_rank, communicator)?;
        if communicator == self.world {
            return Some((size, rank, Vec::new()));
        }
        let own: Vec<c_int> = (0..size as c_int).collect();
        let mut in_world = vec![-1; own.len()];
        let (mut group, mut all) = (0, 0);
        // SAFETY: live communicators; both arrays have that many elements; each group is freed once.
        unsafe {
            (self.comm_group)(communicator, &mut group);
            (self.comm_group)(self.world, &mut all);
            (self.translate_ranks)(group, size as c_int, own.as_ptr(), all, in_world.as_mut_ptr());
            (self.group_free)(&mut group);
            (self.group_free)(&mut all);
        }
        let ranks = in_world.into_iter().map(|rank| u32::try_from(rank).ok());
        Some((size, rank, ranks.collect::<Option<_>>()?))
    }

    /// The handle in an argument: the upper half of one of 32 bits may be anything.
    pub fn handle(&self, argument: usize) -> usize {
        if self.is_open_mpi { argument } else { argument as u32 as usize }
    }

    /// Whether this argument is MPI_STATUS_IGNORE.
    pub fn is_ignored(&self, status: usize) -> bool {
        status == usize::from(!self.is_open_mpi)
    }

    /// Whether this argument is MPI_IN_PLACE.
    pub fn is_in_place(&self, buffer: usize) -> bool {
        buffer == if self.is_open_mpi { 1 } else { usize::MAX }
    }

    /// A handle in an array of handles, or a single one.
    ///
    /// # Safety
    /// The address of an array that is longer.
    pub unsafe fn handle_in(&self, array: usize, at: usize) -> usize {
        // SAFETY: by this function's contract; Open MPI's handles are pointers, MPICH's are numbers of 32 bits.
        unsafe {
            match self.is_open_mpi {
                true => *(array as *const usize).add(at),
                false => *(array as *const u32).add(at) as usize,
            }
        }
    }

    /// What a status says, by the layouts of Open MPI and of MPICH's common ABI.
    ///
    /// # Safety
    /// The address of a status that MPI has filled in.
    pub unsafe fn received(&self, status: usize) -> Received {
        let status = status as *const c_int;
        // SAFETY: by this function's contract: source, tag, error, cancelled, and bytes of 64 bits; or the lower and upper half of
        // the bytes, of which the last bit is another's, source and tag.
        unsafe {
            match self.is_open_mpi {
                true => Received {
                    source: *status,
                    tag: *status.add(1),
                    bytes: status.add(4).cast::<u64>().read_unaligned(),
                },
                false => Received {
                    source: *status.add(2),
                    tag: *status.add(3),
                    bytes: u64::from(*status as u32) | (*status.add(1) as u32 as u64 >> 1) << 32,
                },
            }
        }
    }
}

/// What a function says of a handle.
fn number(of: OneOfComm, handle: usize) -> Option<u32> {
    let mut value = 0;
    // SAFETY: these functions take a live handle, which the program has just used, and the address of a number.
    let code = unsafe { of(handle, &mut value) };
    (code == 0).then(|| u32::try_from(value).ok())?
}

type OneFlag = unsafe extern "C" fn(flag: *mut c_int) -> c_int;
type OneOfComm = unsafe extern "C" fn(communicator: usize, value: *mut c_int) -> c_int;

fn flag(name: &CStr) -> Option<bool> {
    let function = symbol(name);
    if function.is_null() {
        return None;
    }
    let mut value = 0;
    // SAFETY: both functions asked for have this type in every MPI library, and may be called at any time.
    let code = unsafe { std::mem::transmute::<*mut c_void, OneFlag>(function)(&mut value) };
    (code == 0).then_some(value != 0)
}

/// Rank and size in MPI_COMM_WORLD, if MPI is up.
pub fn rank_and_size() -> Option<(c_int, c_int)> {
    if flag(c"PMPI_Initialized") != Some(true) || flag(c"PMPI_Finalized") != Some(false) {
        return None;
    }
    let of_world = |name: &CStr| {
        let function = symbol(name);
        let mut value = 0;
        // SAFETY: both functions asked for have this type at the level of the calling convention, in Open MPI (a
        // pointer) and in the MPICH family (a 32-bit number in the same register).
        let found = !function.is_null()
            && unsafe { std::mem::transmute::<*mut c_void, OneOfComm>(function)(world(), &mut value) == 0 };
        found.then_some(value)
    };
    Some((of_world(c"PMPI_Comm_rank")?, of_world(c"PMPI_Comm_size")?))
}
