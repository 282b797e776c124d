//! The MPI library behind the wrappers: its functions, and its handle of MPI_COMM_WORLD.

use super::requests;
use crate::messages::report;
use ampere_model::OF_ANOTHER_WORLD;
use std::ffi::{CStr, CString, c_int, c_void};
use std::mem::transmute;
use std::ptr::{null, null_mut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// A handle of an MPI library outside of the global scope, such as one that a Python module loaded.
static HIDDEN: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

fn global(name: &CStr) -> *mut c_void {
    // SAFETY: this is a lookup by name in the global scope.
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
/// The value of MPI_WIN_NULL in the MPICH family.
const MPICH_NO_WINDOW: usize = 0x2000_0000;
/// The value of MPI_GROUP_NULL in the MPICH family.
const MPICH_NO_GROUP: usize = 0x0800_0000;
/// The value of MPI_COMM_WORLD in MPI's standard binary interface.
const ABI_WORLD: usize = 0x101;
/// The value of MPI_COMM_NULL in MPI's standard binary interface.
const ABI_NO_COMMUNICATOR: usize = 0x100;

/// The binary interfaces of MPI libraries: the types and values of handles, and the layout of statuses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Family {
    /// Open MPI, with the address of MPI_COMM_WORLD.
    OpenMpi(usize),
    /// MPICH, Intel MPI, Cray MPICH, MVAPICH and others.
    Mpich,
    /// The standard interface of MPI 5. Messages are not recorded with it.
    Abi,
    /// Any other interface. No function that takes a handle can be called.
    Unknown,
}

impl Family {
    /// Finds the family of the library by symbols that only that family has.
    ///
    /// Open MPI's world is searched for in the whole global scope, the program first: a program that is not position-independent
    /// has a copy of the object, which the library uses as well. The mpi.h of the MPICH family refers to the function
    /// MPIR_Dup_fn, so all libraries of the family have it.
    fn find() -> Family {
        // This comes first: Open MPI's library for the standard interface depends on one with the symbols of Open MPI's own.
        if is_named_abi() {
            return Family::Abi;
        }
        let world = symbol(c"ompi_mpi_comm_world");
        if !world.is_null() {
            Family::OpenMpi(world as usize)
        } else if !symbol(c"MPIR_Dup_fn").is_null() {
            Family::Mpich
        } else if abi_version().is_some_and(|major| major >= 1) {
            Family::Abi
        } else {
            Family::Unknown
        }
    }

    /// Returns MPI_COMM_WORLD, as an argument.
    fn world(self) -> Option<usize> {
        match self {
            Family::OpenMpi(world) => Some(world),
            Family::Mpich => Some(MPICH_WORLD),
            Family::Abi => Some(ABI_WORLD),
            Family::Unknown => None,
        }
    }

    /// Returns MPI_COMM_NULL, as an argument.
    fn null_communicator(self) -> Option<usize> {
        match self {
            Family::OpenMpi(_) => {
                Some(symbol(c"ompi_mpi_comm_null") as usize).filter(|address| *address != 0)
            }
            Family::Mpich => Some(MPICH_NO_COMMUNICATOR),
            Family::Abi => Some(ABI_NO_COMMUNICATOR),
            Family::Unknown => None,
        }
    }
}

/// Whether the functions belong to the library with the standard interface. The standard prescribes the name of that library.
fn is_named_abi() -> bool {
    let mut found =
        libc::Dl_info { dli_fname: null(), dli_fbase: null_mut(), dli_sname: null(), dli_saddr: null_mut() };
    // SAFETY: dladdr takes any address; the structure is ours.
    let is_found = unsafe { libc::dladdr(symbol(c"PMPI_Comm_rank"), &mut found) } != 0;
    if !is_found || found.dli_fname.is_null() {
        return false;
    }
    // SAFETY: the loader's own string; the library is not closed while MPI is in use.
    let path = unsafe { CStr::from_ptr(found.dli_fname) }.to_bytes();
    path.rsplit(|byte| *byte == b'/').next().is_some_and(|name| name.starts_with(b"libmpi_abi"))
}

/// Returns the major version of the standard interface that the library has; `None` if the library is older than that interface.
fn abi_version() -> Option<c_int> {
    type GetVersion = unsafe extern "C" fn(major: *mut c_int, minor: *mut c_int) -> c_int;
    let get = symbol(c"PMPI_Abi_get_version");
    if get.is_null() {
        return None;
    }
    let [mut major, mut minor] = [-1; 2];
    // SAFETY: the function has this type in every MPI library, and may be called at any time.
    let code = unsafe { transmute::<*mut c_void, GetVersion>(get)(&mut major, &mut minor) };
    (code == 0).then_some(major)
}

/// The functions of the MPI library that are needed to record messages. They are looked up when MPI has been initialized.
pub struct Library {
    /// The handle of MPI_COMM_WORLD.
    pub world: usize,
    is_open_mpi: bool,
    /// The number, in the run, of rank 0 of MPI_COMM_WORLD. It is not 0 in a program that MPI_Comm_spawn has started.
    first: u32,
    /// The number of calls that may have connected this process to those of another MPI_COMM_WORLD.
    connections: AtomicU32,
    null_communicator: usize,
    null_window: usize,
    null_group: usize,
    /// Open MPI's MPI_DATATYPE_NULL.
    null_datatype: usize,
    /// The request that Open MPI returns for every operation that completes at once; 0 in other libraries.
    complete_request: usize,
    type_size: HandleToNumber,
    test_inter: HandleToNumber,
    group_size: HandleToNumber,
    group_rank: HandleToNumber,
    comm_group: GetGroup,
    remote_group: GetGroup,
    win_group: GetGroup,
    translate_ranks: TranslateRanks,
    group_free: GroupFree,
    topologies: Topologies,
}

/// The functions that return a rank's neighbours.
struct Topologies {
    test: HandleToNumber,
    cart_dimensions: HandleToNumber,
    cart_shift: CartShift,
    graph_count: GraphCount,
    graph_neighbours: GraphNeighbours,
    dist_graph_counts: DistGraphCounts,
    dist_graph_neighbours: DistGraphNeighbours,
}

type CartShift = unsafe extern "C" fn(
    communicator: usize,
    dimension: c_int,
    distance: c_int,
    source: *mut c_int,
    destination: *mut c_int,
) -> c_int;
type GraphCount = unsafe extern "C" fn(communicator: usize, rank: c_int, count: *mut c_int) -> c_int;
type GraphNeighbours =
    unsafe extern "C" fn(communicator: usize, rank: c_int, count: c_int, neighbours: *mut c_int) -> c_int;
type DistGraphCounts = unsafe extern "C" fn(
    communicator: usize,
    sources: *mut c_int,
    destinations: *mut c_int,
    is_weighted: *mut c_int,
) -> c_int;
type DistGraphNeighbours = unsafe extern "C" fn(
    communicator: usize,
    source_count: c_int,
    sources: *mut c_int,
    source_weights: *mut c_int,
    destination_count: c_int,
    destinations: *mut c_int,
    destination_weights: *mut c_int,
) -> c_int;

impl Topologies {
    fn find() -> Option<Topologies> {
        let found = |name: &CStr| Some(symbol(name)).filter(|symbol| !symbol.is_null());
        // SAFETY: as for the functions of `Library`; the functions of these names have these types.
        unsafe {
            Some(Topologies {
                test: transmute::<*mut c_void, HandleToNumber>(found(c"PMPI_Topo_test")?),
                cart_dimensions: transmute::<*mut c_void, HandleToNumber>(found(c"PMPI_Cartdim_get")?),
                cart_shift: transmute::<*mut c_void, CartShift>(found(c"PMPI_Cart_shift")?),
                graph_count: transmute::<*mut c_void, GraphCount>(found(c"PMPI_Graph_neighbors_count")?),
                graph_neighbours: transmute::<*mut c_void, GraphNeighbours>(found(c"PMPI_Graph_neighbors")?),
                dist_graph_counts: transmute::<*mut c_void, DistGraphCounts>(found(
                    c"PMPI_Dist_graph_neighbors_count",
                )?),
                dist_graph_neighbours: transmute::<*mut c_void, DistGraphNeighbours>(found(
                    c"PMPI_Dist_graph_neighbors",
                )?),
            })
        }
    }
}

/// A rank's neighbours in a communicator, in the order of a collective's data. They may be MPI_PROC_NULL.
pub struct Neighbours {
    senders: Vec<c_int>,
    /// `None` if the receivers are the same ranks as the senders.
    receivers: Option<Vec<c_int>>,
}

impl Neighbours {
    /// Returns the ranks from which this rank gets data.
    pub fn senders(&self) -> &[c_int] {
        &self.senders
    }

    /// Returns the ranks that get data from this rank.
    pub fn receivers(&self) -> &[c_int] {
        self.receivers.as_deref().unwrap_or(&self.senders)
    }
}

/// A communicator as it is recorded.
pub struct Membership {
    /// The number of ranks in this process's group.
    pub size: u32,
    /// This process's rank in its group; 0 if it has none.
    pub rank: u32,
    /// The members' numbers in the run: their ranks in MPI_COMM_WORLD, unless MPI_Comm_spawn has started the program. The numbers
    /// of processes of another MPI_COMM_WORLD are not known here ([`OF_ANOTHER_WORLD`]). `None` stands for all ranks of an
    /// MPI_COMM_WORLD whose numbers start at 0.
    pub ranks: Option<Vec<u32>>,
    /// The other group of an inter-communicator.
    pub remote: Option<RemoteGroup>,
}

/// The other group of an inter-communicator, whose members are recorded together with those of this process's group.
#[derive(Clone, Copy)]
pub struct RemoteGroup {
    pub size: u32,
    /// The index of its rank 0 among all members.
    pub first: u32,
}

type GetGroup = unsafe extern "C" fn(of: usize, group: *mut usize) -> c_int;
type TranslateRanks = unsafe extern "C" fn(
    group: usize,
    count: c_int,
    ranks: *const c_int,
    other: usize,
    others: *mut c_int,
) -> c_int;
type GroupFree = unsafe extern "C" fn(group: *mut usize) -> c_int;

impl Membership {
    /// Returns the members of an inter-communicator whose remote group is `self`. The order of the groups is the same in
    /// all processes; `is_first` means that the remote group comes first.
    fn joined_with(self, own: Membership, is_first: bool) -> Option<Membership> {
        let (mut ranks, remote) = (own.ranks?, self.ranks?);
        let first = if is_first { 0 } else { own.size };
        ranks.splice((first as usize)..(first as usize), remote);
        Some(Membership { ranks: Some(ranks), remote: Some(RemoteGroup { size: self.size, first }), ..own })
    }
}

static LIBRARY: OnceLock<Library> = OnceLock::new();

/// Looks up the functions that are needed to record messages, if the plugin takes messages. MPI must be initialized.
/// `first` is the number, in the run, of rank 0 of MPI_COMM_WORLD.
pub fn prepare_for_messages(first: u32) {
    if crate::communication::is_wanted()
        && let Some(library) = Library::find(first)
    {
        requests::prepare();
        let _ = LIBRARY.set(library);
    }
}

/// The content of an MPI status.
#[derive(Default)]
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
        let family = Family::find();
        let is_open_mpi = match family {
            Family::OpenMpi(_) => true,
            Family::Mpich => false,
            Family::Abi | Family::Unknown => {
                report(format_args!(
                    "messages are not recorded: this MPI library has neither the ABI of Open MPI nor that of MPICH"
                ));
                return None;
            }
        };
        let handle_to_number = |name: &CStr| {
            // SAFETY: under the calling convention, these functions can be called with this type: a handle is a pointer or a
            // 32-bit number in the same register.
            found(name).map(|f| unsafe { transmute::<*mut c_void, HandleToNumber>(f) })
        };
        let get_group = |name: &CStr| {
            // SAFETY: as above; a group is at most as large as a pointer.
            found(name).map(|f| unsafe { transmute::<*mut c_void, GetGroup>(f) })
        };
        let (translate, free) = (found(c"PMPI_Group_translate_ranks")?, found(c"PMPI_Group_free")?);
        // SAFETY: as above.
        let (translate_ranks, group_free) = unsafe {
            (transmute::<*mut c_void, TranslateRanks>(translate), transmute::<*mut c_void, GroupFree>(free))
        };
        Some(Library {
            world: family.world()?,
            is_open_mpi,
            first,
            connections: AtomicU32::new(parent().is_some().into()),
            null_communicator: family.null_communicator()?,
            null_window: found(c"ompi_mpi_win_null").map_or(MPICH_NO_WINDOW, |address| address as usize),
            null_group: found(c"ompi_mpi_group_null").map_or(MPICH_NO_GROUP, |address| address as usize),
            null_datatype: found(c"ompi_mpi_datatype_null").map_or(0, |address| address as usize),
            complete_request: found(c"ompi_request_empty").map_or(0, |address| address as usize),
            type_size: handle_to_number(c"PMPI_Type_size")?,
            test_inter: handle_to_number(c"PMPI_Comm_test_inter")?,
            group_size: handle_to_number(c"PMPI_Group_size")?,
            group_rank: handle_to_number(c"PMPI_Group_rank")?,
            comm_group: get_group(c"PMPI_Comm_group")?,
            remote_group: get_group(c"PMPI_Comm_remote_group")?,
            win_group: get_group(c"PMPI_Win_get_group")?,
            translate_ranks,
            group_free,
            topologies: Topologies::find()?,
        })
    }

    /// Returns this rank's neighbours in a communicator; `None` if it has no topology.
    pub fn neighbours(&self, communicator: usize) -> Option<Neighbours> {
        if communicator == 0 || communicator == self.null_communicator {
            return None;
        }
        let [cartesian, graph] = if self.is_open_mpi { [1, 2] } else { [2, 1] };
        match number(self.topologies.test, communicator)? {
            kind if kind == cartesian => self.neighbours_in_grid(communicator),
            kind if kind == graph => self.neighbours_in_graph(communicator),
            3 => self.neighbours_in_dist_graph(communicator),
            _ => None,
        }
    }

    fn neighbours_in_grid(&self, communicator: usize) -> Option<Neighbours> {
        let dimensions = number(self.topologies.cart_dimensions, communicator)? as usize;
        let mut senders = vec![-1; 2 * dimensions];
        for (dimension, both) in (0..).zip(senders.chunks_exact_mut(2)) {
            let [source, destination] = both else { continue };
            // SAFETY: the communicator is a grid of these dimensions.
            unsafe { (self.topologies.cart_shift)(communicator, dimension, 1, source, destination) };
        }
        Some(Neighbours { senders, receivers: None })
    }

    fn neighbours_in_graph(&self, communicator: usize) -> Option<Neighbours> {
        let rank = self.membership(communicator)?.rank as c_int;
        let mut count = 0;
        // SAFETY: the communicator is a graph, and the array has the elements that are asked for.
        let senders = unsafe {
            (self.topologies.graph_count)(communicator, rank, &mut count);
            let mut senders = vec![-1; usize::try_from(count).ok()?];
            (self.topologies.graph_neighbours)(communicator, rank, count, senders.as_mut_ptr());
            senders
        };
        Some(Neighbours { senders, receivers: None })
    }

    fn neighbours_in_dist_graph(&self, communicator: usize) -> Option<Neighbours> {
        let mut sources = 0;
        let mut destinations = 0;
        let mut is_weighted = 0;
        // SAFETY: the communicator is a distributed graph, and the arrays have the elements that are asked for.
        unsafe {
            let Topologies { dist_graph_counts, dist_graph_neighbours, .. } = self.topologies;
            dist_graph_counts(communicator, &mut sources, &mut destinations, &mut is_weighted);
            let array = |count: c_int| Some(vec![-1; usize::try_from(count).ok()?]);
            let [mut senders, mut source_weights] = [array(sources)?, array(sources)?];
            let [mut receivers, mut weights] = [array(destinations)?, array(destinations)?];
            dist_graph_neighbours(
                communicator,
                sources,
                senders.as_mut_ptr(),
                source_weights.as_mut_ptr(),
                destinations,
                receivers.as_mut_ptr(),
                weights.as_mut_ptr(),
            );
            Some(Neighbours { senders, receivers: Some(receivers) })
        }
    }

    /// Returns the size, in bytes, of `count` elements of a datatype.
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

    /// Called before a call that may connect this process to those of another MPI_COMM_WORLD.
    pub fn connects(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the members of a communicator. `None` if it has members of another MPI_COMM_WORLD and it is not known which one.
    pub fn membership(&self, communicator: usize) -> Option<Membership> {
        if communicator == 0 || communicator == self.null_communicator {
            return None;
        }
        let own = self.members(self.comm_group, communicator)?;
        match number(self.test_inter, communicator)? {
            0 => Some(own),
            _ => {
                let remote = self.members(self.remote_group, communicator)?;
                let is_of_another_world = remote.ranks.as_ref()?.contains(&OF_ANOTHER_WORLD);
                let is_first = match is_of_another_world {
                    true => self.is_with_parents(communicator),
                    false => remote.ranks < own.ranks,
                };
                remote.joined_with(own, is_first)
            }
        }
    }

    /// Whether the remote group of an inter-communicator consists of processes that have started this program with
    /// MPI_Comm_spawn.
    fn is_with_parents(&self, communicator: usize) -> bool {
        let mut group = 0;
        let Some(parent) = parent() else { return false };
        // SAFETY: the program has just used the communicator, and the group is freed once.
        let ranks = unsafe {
            if (self.remote_group)(communicator, &mut group) != 0 {
                return false;
            }
            let ranks = self.translated(group, self.remote_group, parent);
            (self.group_free)(&mut group);
            ranks
        };
        ranks.is_some_and(|ranks| ranks.iter().all(|rank| *rank >= 0))
    }

    /// Returns the processes that share a window.
    pub fn membership_of_window(&self, window: usize) -> Option<Membership> {
        self.is_window(window).then(|| self.members(self.win_group, window))?
    }

    /// Returns the members of the group that `get_group` returns for a handle.
    fn members(&self, get_group: GetGroup, of: usize) -> Option<Membership> {
        let mut group = 0;
        // SAFETY: the program has just used the handle.
        if unsafe { get_group(of, &mut group) } != 0 {
            return None;
        }
        // This process has no rank in a remote group.
        let rank = number(self.group_rank, group).unwrap_or(0);
        let size = number(self.group_size, group);
        let is_world = of == self.world && self.first == 0;
        let in_world = if is_world { None } else { self.translated(group, self.comm_group, self.world) };
        // SAFETY: the group exists, and is freed once.
        unsafe { (self.group_free)(&mut group) };
        let size = size?;
        if is_world {
            return Some(Membership { size, rank, ranks: None, remote: None });
        }
        let number = |rank| u32::try_from(rank).map_or(OF_ANOTHER_WORLD, |rank| self.first + rank);
        let ranks: Vec<u32> = in_world?.into_iter().map(number).collect();
        let is_known = !ranks.contains(&OF_ANOTHER_WORLD) || self.connections.load(Ordering::Relaxed) <= 1;
        is_known.then_some(Membership { size, rank, ranks: Some(ranks), remote: None })
    }

    /// Returns the numbers of a group's processes in a window.
    pub fn ranks_in_window(&self, group: usize, window: usize) -> Option<Vec<c_int>> {
        let is_group = group != 0 && group != self.null_group;
        (is_group && self.is_window(window)).then(|| self.translated(group, self.win_group, window))?
    }

    fn is_window(&self, window: usize) -> bool {
        window != 0 && window != self.null_window
    }

    /// Returns the numbers of a group's processes in the group that `get_group` returns for a handle. They are negative for
    /// processes that are not in it.
    fn translated(&self, group: usize, get_group: GetGroup, of: usize) -> Option<Vec<c_int>> {
        let mut all = 0;
        let size = number(self.group_size, group)? as c_int;
        let own: Vec<c_int> = (0..size).collect();
        let mut ranks = vec![-1; own.len()];
        // SAFETY: the program has just used the handles; both arrays have `size` elements; the group is freed once.
        unsafe {
            if get_group(of, &mut all) != 0 {
                return None;
            }
            (self.translate_ranks)(group, size, own.as_ptr(), all, ranks.as_mut_ptr());
            (self.group_free)(&mut all);
        }
        Some(ranks)
    }

    /// Returns the handle in an argument. If handles have 32 bits, the upper half of the argument is undefined.
    pub fn handle(&self, argument: usize) -> usize {
        if self.is_open_mpi { argument } else { argument as u32 as usize }
    }

    /// Whether this argument is MPI_STATUS_IGNORE.
    pub fn is_ignored(&self, status: usize) -> bool {
        status == usize::from(!self.is_open_mpi)
    }

    /// Whether this root is MPI_ROOT, by which the root in an inter-communicator names itself.
    pub fn is_this_root(&self, root: c_int) -> bool {
        root == if self.is_open_mpi { -4 } else { -3 }
    }

    /// Whether this rank is MPI_PROC_NULL.
    pub fn is_proc_null(&self, rank: c_int) -> bool {
        rank == if self.is_open_mpi { -2 } else { -1 }
    }

    /// Whether a request is complete from the start: all such operations have the same handle.
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
    let code = unsafe { transmute::<*mut c_void, GetFlag>(function)(&mut value) };
    (code == 0).then_some(value != 0)
}

/// Returns the communicator with the processes that have started this program with MPI_Comm_spawn, if there are any.
fn parent() -> Option<usize> {
    type GetParent = unsafe extern "C" fn(parent: *mut usize) -> c_int;
    let get = symbol(c"PMPI_Comm_get_parent");
    let none = Family::find().null_communicator()?;
    if get.is_null() {
        return None;
    }
    let mut parent = 0;
    // SAFETY: the function has this type in every MPI library: a communicator is at most as large as a pointer.
    let code = unsafe { transmute::<*mut c_void, GetParent>(get)(&mut parent) };
    (code == 0 && parent != none).then_some(parent)
}

/// Returns the number of ranks that come before this process's MPI_COMM_WORLD in the run. In a program that MPI_Comm_spawn has
/// started, these are the ranks of its parent and, if the launcher numbers its jobs, of all jobs that were spawned before. In a
/// program that a launcher has started, the result is 0.
pub fn ranks_before(size: c_int) -> c_int {
    let count = symbol(c"PMPI_Comm_remote_size");
    let Some(parent) = parent().filter(|_| !count.is_null()) else { return 0 };
    // SAFETY: as for the other functions of a communicator.
    let parents = number(unsafe { transmute::<*mut c_void, HandleToNumber>(count) }, parent);
    let job = std::env::var("PMIX_NAMESPACE").unwrap_or_default();
    let others = crate::ranks::spawned_before(&job).saturating_mul(size.max(0) as u32);
    parents.unwrap_or(0).saturating_add(others).min(c_int::MAX as u32 / 2) as c_int
}

/// Rank and size in MPI_COMM_WORLD, if MPI is initialized and not finalized. If the library's family is unknown, the values
/// are those that the launcher has set in the environment.
pub fn rank_and_size() -> Option<(c_int, c_int)> {
    if flag(c"PMPI_Initialized") != Some(true) || flag(c"PMPI_Finalized") != Some(false) {
        return None;
    }
    let Some(world) = Family::find().world() else {
        let (rank, size) = ampere_model::launcher::rank_and_size(|name| std::env::var(name).ok())?;
        return Some((c_int::try_from(rank).ok()?, c_int::try_from(size).ok()?));
    };
    let in_world = |name: &CStr| {
        let function = symbol(name);
        let mut value = 0;
        // SAFETY: by the calling convention both functions that are looked up have this type: a handle is a pointer, or in the
        // MPICH family a 32-bit number in the same register.
        let found = !function.is_null()
            && unsafe { transmute::<*mut c_void, HandleToNumber>(function)(world, &mut value) == 0 };
        found.then_some(value)
    };
    Some((in_world(c"PMPI_Comm_rank")?, in_world(c"PMPI_Comm_size")?))
}
