//! The MPI library behind the wrappers: its functions, and its handle of MPI_COMM_WORLD.

use super::requests;
use std::ffi::{CStr, CString, c_int, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A handle of an MPI library outside of the global scope, such as one that a Python module loaded.
static HIDDEN: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

fn global(name: &CStr) -> *mut c_void {
    // SAFETY: a lookup by name in the global scope.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}

/// Returns a symbol of the MPI library; null if there is none.
fn symbol(name: &CStr) -> *mut c_void {
    let found = global(name);
    if found.is_null() { hidden(name) } else { found }
}

/// Returns a symbol of an MPI library that was loaded outside of the global scope.
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

/// Searches all loaded objects for one that is, or depends on, an MPI library. Returns a handle, or null.
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
        // SAFETY: RTLD_NOLOAD returns only objects that are loaded already; the handle keeps them from being unloaded.
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

/// The value of MPI_COMM_WORLD in the MPICH family.
const MPICH_WORLD: usize = 0x4400_0000;
/// The value of MPI_COMM_NULL in the MPICH family.
const MPICH_NO_COMMUNICATOR: usize = 0x0400_0000;

/// MPI_COMM_WORLD, as an argument: the address of an object in Open MPI, a number in the MPICH family.
///
/// The object is searched for in the whole global scope, the program first: a program that is not position-independent has a copy
/// of the object, which the library uses as well.
fn world() -> usize {
    let address = symbol(c"ompi_mpi_comm_world");
    if address.is_null() { MPICH_WORLD } else { address as usize }
}

/// MPI_COMM_NULL.
fn null_communicator() -> usize {
    let address = symbol(c"ompi_mpi_comm_null");
    if address.is_null() { MPICH_NO_COMMUNICATOR } else { address as usize }
}

/// The functions of the library that recording messages needs, once MPI is initialized.
pub struct Library {
    /// The handle of MPI_COMM_WORLD.
    pub world: usize,
    is_open_mpi: bool,
    /// The number, in the run, of rank 0 of MPI_COMM_WORLD. It is not 0 in a program that MPI_Comm_spawn has started.
    first: u32,
    null_communicator: usize,
    /// Open MPI's MPI_DATATYPE_NULL.
    null_datatype: usize,
    /// The request that Open MPI returns for every operation that completes at once; 0 in other libraries.
    complete_request: usize,
    type_size: HandleToNumber,
    test_inter: HandleToNumber,
    comm_size: HandleToNumber,
    comm_rank: HandleToNumber,
    comm_group: CommGroup,
    translate_ranks: TranslateRanks,
    group_free: GroupFree,
}

/// A communicator as it is recorded.
pub struct Membership {
    pub size: u32,
    /// This process's rank in the communicator.
    pub rank: u32,
    /// The members' numbers, which are their ranks in MPI_COMM_WORLD unless MPI_Comm_spawn has started them; `None` for all ranks
    /// of MPI_COMM_WORLD if their numbers start at 0.
    pub ranks: Option<Vec<u32>>,
}

type CommGroup = unsafe extern "C" fn(communicator: usize, group: *mut usize) -> c_int;
type TranslateRanks = unsafe extern "C" fn(
    group: usize,
    count: c_int,
    ranks: *const c_int,
    other: usize,
    others: *mut c_int,
) -> c_int;
type GroupFree = unsafe extern "C" fn(group: *mut usize) -> c_int;

static LIBRARY: OnceLock<Library> = OnceLock::new();

/// Looks up the functions that recording messages needs, if the plugin takes messages. MPI must be initialized. `first` is the
/// number of the first rank.
pub fn prepare_for_messages(first: u32) {
    if crate::communication::is_wanted()
        && let Some(library) = Library::find(first)
    {
        requests::prepare();
        let _ = LIBRARY.set(library);
    }
}

/// The content of an MPI status.
pub struct Received {
    /// The sender's rank; negative if nothing was received.
    pub source: c_int,
    pub tag: c_int,
    pub bytes: u64,
    pub is_cancelled: bool,
}

impl Library {
    /// Returns the library, or `None` if messages are not recorded.
    pub fn get() -> Option<&'static Library> {
        LIBRARY.get()
    }

    fn find(first: u32) -> Option<Library> {
        let found = |name: &CStr| Some(symbol(name)).filter(|symbol| !symbol.is_null());
        let world = world();
        let handle_to_number = |name: &CStr| {
            // SAFETY: under the calling convention, these functions can be called with this type: a handle is a pointer or a
            // 32-bit number in the same register.
            found(name).map(|f| unsafe { std::mem::transmute::<*mut c_void, HandleToNumber>(f) })
        };
        let (group, translate, free) =
            (found(c"PMPI_Comm_group")?, found(c"PMPI_Group_translate_ranks")?, found(c"PMPI_Group_free")?);
        // SAFETY: as above; a group is at most as large as a pointer.
        let (comm_group, translate_ranks, group_free) = unsafe {
            (
                std::mem::transmute::<*mut c_void, CommGroup>(group),
                std::mem::transmute::<*mut c_void, TranslateRanks>(translate),
                std::mem::transmute::<*mut c_void, GroupFree>(free),
            )
        };
        Some(Library {
            world,
            is_open_mpi: world != MPICH_WORLD,
            first,
            null_communicator: null_communicator(),
            null_datatype: found(c"ompi_mpi_datatype_null").map_or(0, |address| address as usize),
            complete_request: found(c"ompi_request_empty").map_or(0, |address| address as usize),
            type_size: handle_to_number(c"PMPI_Type_size")?,
            test_inter: handle_to_number(c"PMPI_Comm_test_inter")?,
            comm_size: handle_to_number(c"PMPI_Comm_size")?,
            comm_rank: handle_to_number(c"PMPI_Comm_rank")?,
            comm_group,
            translate_ranks,
            group_free,
        })
    }

    /// Returns the size of `count` elements of a datatype.
    pub fn bytes(&self, count: i64, datatype: usize) -> u64 {
        // Without elements, the datatype may be invalid. MPI must report an invalid datatype as an error of the program's call,
        // and not of a call here.
        if count <= 0 || !self.is_datatype(datatype) {
            return 0;
        }
        count as u64 * number(self.type_size, datatype).map_or(0, u64::from)
    }

    /// Whether an argument can be a datatype: it is not MPI_DATATYPE_NULL. In the MPICH family, the upper bits of a handle show
    /// its kind.
    fn is_datatype(&self, datatype: usize) -> bool {
        match self.is_open_mpi {
            true => datatype != 0 && datatype != self.null_datatype,
            false => datatype as u32 >> 30 != 0 && datatype as u32 >> 26 & 0xf == 3,
        }
    }

    /// Returns the members of a communicator. `None` if it is an inter-communicator or has members of another
    /// MPI_COMM_WORLD.
    pub fn membership(&self, communicator: usize) -> Option<Membership> {
        if communicator == 0 || communicator == self.null_communicator {
            return None;
        }
        if number(self.test_inter, communicator) != Some(0) {
            return None;
        }
        let size = number(self.comm_size, communicator)?;
        let rank = number(self.comm_rank, communicator)?;
        if communicator == self.world {
            let numbers = (self.first > 0).then(|| (self.first..self.first + size).collect());
            return Some(Membership { size, rank, ranks: numbers });
        }
        let own: Vec<c_int> = (0..size as c_int).collect();
        let mut in_world = vec![-1; own.len()];
        let (mut group, mut all) = (0, 0);
        // SAFETY: the communicators exist; both arrays have `size` elements; each group is freed once.
        unsafe {
            (self.comm_group)(communicator, &mut group);
            (self.comm_group)(self.world, &mut all);
            (self.translate_ranks)(group, size as c_int, own.as_ptr(), all, in_world.as_mut_ptr());
            (self.group_free)(&mut group);
            (self.group_free)(&mut all);
        }
        let ranks = in_world.into_iter().map(|rank| Some(self.first + u32::try_from(rank).ok()?));
        Some(Membership { size, rank, ranks: Some(ranks.collect::<Option<_>>()?) })
    }

    /// Returns the handle in an argument. If handles have 32 bits, the upper half of the argument is undefined.
    pub fn handle(&self, argument: usize) -> usize {
        if self.is_open_mpi { argument } else { argument as u32 as usize }
    }

    /// Whether this argument is MPI_STATUS_IGNORE.
    pub fn is_ignored(&self, status: usize) -> bool {
        status == usize::from(!self.is_open_mpi)
    }

    /// Whether this rank is MPI_PROC_NULL.
    pub fn is_proc_null(&self, rank: c_int) -> bool {
        rank == if self.is_open_mpi { -2 } else { -1 }
    }

    /// Whether a request is complete from the start: all such operations share one handle.
    pub fn is_complete(&self, request: usize) -> bool {
        request != 0 && request == self.complete_request
    }

    /// Returns the size of a status.
    pub fn status_bytes(&self) -> usize {
        if self.is_open_mpi { 24 } else { 20 }
    }

    /// Whether this argument is MPI_IN_PLACE.
    pub fn is_in_place(&self, buffer: usize) -> bool {
        buffer == if self.is_open_mpi { 1 } else { usize::MAX }
    }

    /// Returns the handle at an index of an array of handles.
    ///
    /// # Safety
    /// `array` is the address of an array that has more than `at` handles.
    pub unsafe fn handle_in(&self, array: usize, at: usize) -> usize {
        // SAFETY: by this function's contract; Open MPI's handles are pointers, MPICH's are numbers of 32 bits.
        unsafe {
            match self.is_open_mpi {
                true => *(array as *const usize).add(at),
                false => *(array as *const u32).add(at) as usize,
            }
        }
    }

    /// Returns the content of a status, by the layouts of Open MPI and of MPICH's common ABI.
    ///
    /// # Safety
    /// `status` is the address of a status that MPI has filled in.
    pub unsafe fn received(&self, status: usize) -> Received {
        let status = status as *const c_int;
        // SAFETY: by this function's contract. Open MPI's fields are source, tag, error, cancelled, and the bytes in 64 bits.
        // MPICH's are the lower half of the bytes; the upper half shifted left by one, with the cancelled flag in bit 0; source;
        // tag.
        unsafe {
            match self.is_open_mpi {
                true => Received {
                    source: *status,
                    tag: *status.add(1),
                    bytes: status.add(4).cast::<u64>().read_unaligned(),
                    is_cancelled: *status.add(3) != 0,
                },
                false => Received {
                    source: *status.add(2),
                    tag: *status.add(3),
                    bytes: u64::from(*status as u32) | (*status.add(1) as u32 as u64 >> 1) << 32,
                    is_cancelled: *status.add(1) & 1 != 0,
                },
            }
        }
    }
}

/// Returns the number that a function returns for a handle.
fn number(function: HandleToNumber, handle: usize) -> Option<u32> {
    let mut value = 0;
    // SAFETY: these functions take a valid handle, which the program has just used, and the address of a number.
    let code = unsafe { function(handle, &mut value) };
    (code == 0).then(|| u32::try_from(value).ok())?
}

type GetFlag = unsafe extern "C" fn(flag: *mut c_int) -> c_int;
type HandleToNumber = unsafe extern "C" fn(handle: usize, value: *mut c_int) -> c_int;

fn flag(name: &CStr) -> Option<bool> {
    let function = symbol(name);
    if function.is_null() {
        return None;
    }
    let mut value = 0;
    // SAFETY: both functions that are looked up have this type in every MPI library, and may be called at any time.
    let code = unsafe { std::mem::transmute::<*mut c_void, GetFlag>(function)(&mut value) };
    (code == 0).then_some(value != 0)
}

/// Returns the number of ranks that come before this process's MPI_COMM_WORLD in the run. In a program that MPI_Comm_spawn has
/// started, these are the ranks of its parent and, if the launcher numbers its jobs, of all jobs that were spawned before. In a
/// program that a launcher has started, the result is 0.
pub fn ranks_before(size: c_int) -> c_int {
    type GetParent = unsafe extern "C" fn(parent: *mut usize) -> c_int;
    let (get, count) = (symbol(c"PMPI_Comm_get_parent"), symbol(c"PMPI_Comm_remote_size"));
    if get.is_null() || count.is_null() {
        return 0;
    }
    let mut parent = 0;
    // SAFETY: the function has this type in every MPI library: a communicator is at most as large as a pointer.
    let code = unsafe { std::mem::transmute::<*mut c_void, GetParent>(get)(&mut parent) };
    if code != 0 || parent == null_communicator() {
        return 0;
    }
    // SAFETY: as for the other functions of a communicator.
    let parents = number(unsafe { std::mem::transmute::<*mut c_void, HandleToNumber>(count) }, parent);
    let job = std::env::var("PMIX_NAMESPACE").unwrap_or_default();
    let others = crate::ranks::spawned_before(&job).saturating_mul(size.max(0) as u32);
    parents.unwrap_or(0).saturating_add(others).min(c_int::MAX as u32 / 2) as c_int
}

/// Rank and size in MPI_COMM_WORLD, if MPI is initialized and not finalized.
pub fn rank_and_size() -> Option<(c_int, c_int)> {
    if flag(c"PMPI_Initialized") != Some(true) || flag(c"PMPI_Finalized") != Some(false) {
        return None;
    }
    let in_world = |name: &CStr| {
        let function = symbol(name);
        let mut value = 0;
        // SAFETY: by the calling convention both functions that are looked up have this type, in Open MPI (a pointer) and in the
        // MPICH family (a 32-bit number in the same register).
        let found = !function.is_null()
            && unsafe {
                std::mem::transmute::<*mut c_void, HandleToNumber>(function)(world(), &mut value) == 0
            };
        found.then_some(value)
    };
    Some((in_world(c"PMPI_Comm_rank")?, in_world(c"PMPI_Comm_size")?))
}
