//! Numbers the regions of a run: handles of different ranks for the same region get the same number.

use crate::fortran::demangle;
use crate::mpi_names;
use crate::{Region, RegionHandle, RegionRef};
use std::collections::HashMap;

/// The regions of a run, each once.
#[derive(Debug, Default)]
pub struct Regions {
    all: Vec<Region>,
    by_content: HashMap<Key, RegionRef>,
    /// For each region, the first one of its name.
    of_name: Vec<RegionRef>,
    by_name: HashMap<String, RegionRef>,
}

/// The properties that make two regions the same.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Key {
    name: String,
    canonical_name: String,
    source_file: String,
    begin_line: u32,
    paradigm: u8,
}

impl Regions {
    /// Returns the reference of a process' region, and makes it if no process has defined the region yet. A procedure of a
    /// Fortran module gets the name that it has in Fortran; the measurement system has demangled names of C++, but
    /// not those of Fortran.
    pub fn add(&mut self, region: &Region) -> RegionRef {
        let Some(name) = demangle(&region.name) else { return self.add_as_named(region) };
        let mut shown = Region { name, ..region.clone() };
        if shown.canonical_name.is_empty() {
            shown.canonical_name.clone_from(&region.name);
        }
        self.add_as_named(&shown)
    }

    fn add_as_named(&mut self, region: &Region) -> RegionRef {
        let key = Key {
            name: region.name.clone(),
            canonical_name: region.canonical_name.clone(),
            source_file: region.source_file.clone(),
            begin_line: region.begin_line,
            paradigm: region.paradigm,
        };
        let next = RegionRef(self.all.len() as u32);
        let found = *self.by_content.entry(key).or_insert(next);
        if found == next {
            self.all.push(region.clone());
            self.of_name.push(*self.by_name.entry(region.name.clone()).or_insert(next));
        }
        found
    }

    /// Returns the first region of the same name. Figures distinguish regions only by name, so functions of one name, such as
    /// static ones of several files, count as one. In the trace they are separate.
    pub fn first_of_same_name(&self, region: RegionRef) -> RegionRef {
        self.of_name.get(region.0 as usize).copied().unwrap_or(region)
    }

    /// Adds a region for a handle that a process used and never defined.
    pub fn add_unknown(&mut self, handle: u32) -> RegionRef {
        self.add(&Region {
            handle: RegionHandle(handle),
            name: format!("undefined region {handle}"),
            canonical_name: String::new(),
            source_file: String::new(),
            begin_line: 0,
            end_line: 0,
            region_type: 0,
            paradigm: 0,
        })
    }

    /// Returns the region's name, or `undefined region` if there is no such region.
    pub fn name(&self, region: RegionRef) -> &str {
        self.all.get(region.0 as usize).map_or("undefined region", |region| &region.name)
    }

    /// Returns all regions, in the order of their references.
    pub fn all(&self) -> &[Region] {
        &self.all
    }
}

/// Whether a function belongs to MPI, by its name.
pub fn is_mpi(name: &str) -> bool {
    let fortran = name.strip_prefix("mpi_").or_else(|| name.strip_prefix("pmpi_"));
    name.starts_with("MPI_") || name.starts_with("PMPI_") || fortran.is_some_and(mpi_names::has)
}

/// Whether a function was sampled in a Python program. Its file follows its name: `work (train.py)`, or
/// `_find_spec (<frozen importlib._bootstrap>)`.
pub fn is_python(name: &str) -> bool {
    let file = name.rsplit_once(" (").and_then(|(_, file)| file.strip_suffix(')'));
    file.is_some_and(|file| file.ends_with(".py") || (file.starts_with('<') && file.ends_with('>')))
}
