//! Joins the archives of a run's nodes: the archive of the first node takes in the others. Event files are moved unchanged; the
//! definitions of their locations map their numbers and times to those of the joined archive.
//!
//! All new files are written next to the archive, into a directory that then gets the name [`BEGUN`] in one step, together with a
//! plan of which file goes where. Any process that finds this directory carries out the plan, even if another one is doing so or
//! was killed while doing so. More nodes can be added at any time, because the joined archive is an ordinary one.
//!
//! ```text
//! mod.rs   the files        clocks.rs   the times
//! ```

mod clocks;
#[cfg(test)]
mod tests;

use ampere_owned::Directory;
use clocks::Clock;
use otf2::{ArchiveWriter, Definitions, GroupType, JoinedDefinitions, LocalDefinitions, LocationRef, Trace};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

const ANCHOR: &str = "traces.otf2";
const DEFINITIONS: &str = "traces.def";
const LOCATIONS: &str = "traces";
const PLAN: &str = "plan.json";
/// The directory of a joined archive that is complete, and whose files are to be moved to their places.
const BEGUN: &str = ".ampere-joined";
/// The prefix of the directory in which a joined archive is being written; the name of the writing process follows.
const WRITING: &str = ".ampere-joining-";

pub struct NodeTrace {
    pub directory: PathBuf,
    /// Pairs of ticks of the node's clock and nanoseconds since 1970, read at the start and the end of its run.
    pub clock: Vec<[u64; 2]>,
}

/// The reason why archives could not be joined. Archives that have not been joined are unchanged.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// An archive cannot be read, or the joined one cannot be written.
    #[error(transparent)]
    Archive(#[from] otf2::Error),
    /// An operation on a file of an archive failed.
    #[error("cannot {doing} {}: {why}", path.display())]
    File {
        /// The attempted action, as one verb.
        doing: &'static str,
        path: PathBuf,
        /// The error of the operating system.
        why: io::Error,
    },
}

impl JoinError {
    fn of(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> JoinError {
        move |why| JoinError::File { doing, path: path.to_owned(), why }
    }
}

/// The plan: the files to move, and their destinations.
#[derive(Serialize, Deserialize)]
struct Plan {
    /// The definitions that the joined archive was made from.
    made_from: Identity,
    nodes: Vec<Moves>,
}

#[derive(Serialize, Deserialize)]
struct Moves {
    /// The node's directory, below the first node's.
    node: String,
    /// Each location's number in the node's archive and in the joined one.
    locations: Vec<(u64, u64)>,
}

/// Identifies one version of a file.
#[derive(PartialEq, Serialize, Deserialize)]
struct Identity {
    inode: u64,
    bytes: u64,
    changed: (i64, i64),
}

impl Identity {
    fn of(path: &Path) -> Result<Identity, JoinError> {
        let data = path.symlink_metadata().map_err(JoinError::of("read", path))?;
        Ok(Identity { inode: data.ino(), bytes: data.len(), changed: (data.mtime(), data.mtime_nsec()) })
    }
}

/// Moves the archives of `others`, which are in directories right below the first one's, into that one.
///
/// # Errors
/// The reason why the archives could not be joined.
pub fn join(first: &NodeTrace, others: &[NodeTrace]) -> Result<(), JoinError> {
    carry_out(&first.directory)?;
    if !is_own(&first.directory) {
        return Ok(());
    }
    let (directory, _held) = hold(&first.directory)?;
    let directory = &directory;
    remove_left_over(directory);
    let writing = directory.join(format!("{WRITING}{}", ampere_ring::process::own_name()));
    let written = write(first, others, &writing).and_then(|()| {
        let begun = directory.join(BEGUN);
        ampere_owned::rename(&writing, &begun).map_err(JoinError::of("make", &begun))
    });
    if let Err(why) = written {
        let _ = ampere_owned::remove_tree(&writing);
        // Another process was faster.
        return if directory.join(BEGUN).exists() { carry_out(directory) } else { Err(why) };
    }
    carry_out(directory)
}

/// Returns the names of the nodes in an archive.
///
/// # Errors
/// The archive cannot be read.
pub fn nodes_of(anchor: &Path) -> Result<BTreeSet<String>, otf2::Error> {
    let trace = Trace::open(anchor)?;
    let nodes = trace.definitions().system_tree_nodes.values().filter(|node| node.class_name == "node");
    Ok(nodes.map(|node| node.name.clone()).collect())
}

/// Removes directories that killed processes of this node have left.
fn remove_left_over(directory: &Path) {
    let is_left = |name: &str| name.strip_prefix(WRITING).is_some_and(ampere_ring::process::is_gone);
    let _ = ampere_owned::remove_left(directory, is_left);
}

/// Writes the joined archive except for the events.
fn write(first: &NodeTrace, others: &[NodeTrace], writing: &Path) -> Result<(), JoinError> {
    let made_from = Identity::of(&first.directory.join(DEFINITIONS))?;
    let definitions_of =
        |node: &NodeTrace| Ok(Trace::open_with_strings(&node.directory.join(ANCHOR))?.definitions().clone());
    let whole = definitions_of(first).map_err(JoinError::Archive)?;
    let mut clock = Clock::of(&whole.clock, &first.clock);
    let mut taken = processes_of(&whole);
    let mut joined = JoinedDefinitions::new(whole);
    let made = ampere_owned::make(writing, ampere_owned::PRIVATE_MODE);
    let made = made.and_then(|()| Directory::own_alone(writing)).map_err(JoinError::of("make", writing))?;
    let archive = ArchiveWriter::create(&made.through_proc())?;
    archive.set_creator(concat!("ampere ", env!("CARGO_PKG_VERSION")))?;
    let mut nodes = Vec::new();
    for node in others {
        let other = definitions_of(node).map_err(JoinError::Archive)?;
        let clock_offsets = clock.take_in(&Clock::of(&other.clock, &node.clock));
        let (new, is_one_world) = new_numbers(&other, &taken);
        let added = joined.add(&other, |location| renumbered(location, &new), is_one_world);
        taken.extend(added.locations.iter().map(|(_, location)| location.0 & PROCESS_BITS));
        for (own, new) in &added.locations {
            let local = LocalDefinitions { clock_offsets: clock_offsets.clone(), ..added.local.clone() };
            archive.define(*new, other.locations.get(*own).map_or(0, |location| location.events), local)?;
        }
        let name = node.directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let locations = added.locations.iter().map(|(own, new)| (own.0, new.0)).collect();
        nodes.push(Moves { node: name, locations });
    }
    joined.whole().clock = clock.properties();
    archive.finish(joined.whole())?;
    let (plan, path) = (Plan { made_from, nodes }, writing.join(PLAN));
    let text = serde_json::to_vec(&plan).map_err(io::Error::from);
    let written = text.and_then(|text| ampere_owned::create(&path, 0o600)?.write_all(&text));
    written.map_err(JoinError::of("write", &path))
}

/// Returns the lower halves of locations' numbers, which are ranks if all processes have one.
fn processes_of(definitions: &Definitions) -> HashSet<u64> {
    definitions.locations.iter().map(|(location, _)| location.0 & PROCESS_BITS).collect()
}

/// The bits of a location's number that are those of its process.
const PROCESS_BITS: u64 = u32::MAX as u64;

/// Returns new numbers for the processes of the other archive whose numbers are taken, and whether its MPI ranks belong to the
/// same MPI_COMM_WORLD. If the ranks belong to several programs, they may have the same numbers, and all processes of the other
/// archive get new ones. Within one world, ranks keep their numbers, because their order is that of the world. Processes without
/// a rank may have the same number on every node.
fn new_numbers(other: &Definitions, taken: &HashSet<u64>) -> (HashMap<u64, u64>, bool) {
    let lists = other.groups.values().filter(|group| group.kind == GroupType::CommLocations);
    let mut ranks = lists.flat_map(|list| &list.members).map(|location| location & PROCESS_BITS);
    let is_one_world = !ranks.any(|rank| taken.contains(&rank));
    let own: BTreeSet<u64> = processes_of(other).into_iter().collect();
    let free = taken.iter().chain(&own).max().map_or(0, |last| last + 1)..;
    let moved = own.into_iter().filter(|number| !is_one_world || taken.contains(number));
    (moved.zip(free).collect(), is_one_world)
}

fn renumbered(location: LocationRef, new: &HashMap<u64, u64>) -> LocationRef {
    let number = location.0 & PROCESS_BITS;
    LocationRef((location.0 & !PROCESS_BITS) | new.get(&number).copied().unwrap_or(number))
}

/// Moves the files of a complete joined archive to their places. Does nothing if there is none.
///
/// # Errors
/// The reason why that is not possible. The call can be repeated.
pub fn carry_out(directory: &Path) -> Result<(), JoinError> {
    if !is_own(directory) || directory.join(BEGUN).symlink_metadata().is_err() {
        return Ok(());
    }
    let (directory, _held) = hold(directory)?;
    let directory = &directory;
    let (begun, _begun_held) = match ampere_owned::hold(&directory.join(BEGUN)) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(()),
        held => held.map_err(JoinError::of("open", &directory.join(BEGUN)))?,
    };
    let path = begun.join(PLAN);
    // The plan is trusted only if no other user can have written it.
    let read = Directory::own_alone(&begun).and_then(|_| ampere_owned::open_own(&path));
    let plan: Plan = match read {
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(()),
        read => {
            let text = read
                .and_then(|file| serde_json::from_reader(io::BufReader::new(file)).map_err(io::Error::from));
            text.map_err(JoinError::of("read", &path))?
        }
    };
    // The order matters: once the definitions are in place, they are no longer in the directory of the plan.
    let is_plan_current = Identity::of(&directory.join(DEFINITIONS)).is_ok_and(|now| now == plan.made_from);
    if begun.join(DEFINITIONS).exists() {
        if !is_plan_current {
            // Another process was faster, and nothing has been moved.
            return remove(&begun);
        }
        plan.nodes.iter().try_for_each(|moves| move_locations(directory, &begun, moves))?;
        rename(&begun.join(DEFINITIONS), &directory.join(DEFINITIONS))?;
    }
    rename(&begun.join(ANCHOR), &directory.join(ANCHOR))?;
    for node in plan.nodes.iter().filter_map(|moves| directory_of(directory, moves)) {
        let _ = ampere_owned::remove_file(&node.join(DEFINITIONS));
        let _ = ampere_owned::remove_flat(&node.join(LOCATIONS));
    }
    remove(&begun)
}

fn move_locations(directory: &Path, begun: &Path, moves: &Moves) -> Result<(), JoinError> {
    let Some(node) = directory_of(directory, moves) else { return Ok(()) };
    // From here on, the node's directory is no longer an archive.
    let _ = ampere_owned::remove_file(&node.join(ANCHOR));
    let file = |of: &Path, location: u64, kind: &str| of.join(LOCATIONS).join(format!("{location}.{kind}"));
    for &(own, new) in &moves.locations {
        rename(&file(&node, own, "evt"), &file(directory, new, "evt"))?;
        rename(&file(begun, new, "def"), &file(directory, new, "def"))?;
    }
    Ok(())
}

/// Returns the directory's path without links, and a handle: while that exists, the path leads to the same directory.
fn hold(directory: &Path) -> Result<(PathBuf, ampere_owned::Held), JoinError> {
    ampere_owned::hold(directory).map_err(JoinError::of("open", directory))
}

/// Whether a directory belongs to this user. Files of other users are left unchanged.
fn is_own(directory: &Path) -> bool {
    Directory::own(directory).is_ok()
}

/// Returns a node's directory; `None` if it would be outside of the first one.
fn directory_of(directory: &Path, moves: &Moves) -> Option<PathBuf> {
    let mut parts = Path::new(&moves.node).components();
    let is_below = matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None));
    is_below.then(|| directory.join(&moves.node))
}

/// Renames a file. A file that does not exist has already been moved.
fn rename(from: &Path, to: &Path) -> Result<(), JoinError> {
    match ampere_owned::rename(from, to) {
        Err(why) if why.kind() != io::ErrorKind::NotFound => Err(JoinError::of("move the trace to", to)(why)),
        _ => Ok(()),
    }
}

fn remove(directory: &Path) -> Result<(), JoinError> {
    match ampere_owned::remove_tree(directory) {
        Err(why) if why.kind() != io::ErrorKind::NotFound => Err(JoinError::of("remove", directory)(why)),
        _ => Ok(()),
    }
}
