//! One number per region in a whole run: two ranks' handles for the same region are one region.

use ampere_model::{Region, RegionHandle, RegionRef};
use std::collections::HashMap;

#[derive(Debug, Default)]
pub struct Regions {
    all: Vec<Region>,
    by_content: HashMap<Key, RegionRef>,
}

/// What makes two regions the same.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Key {
    name: String,
    canonical_name: String,
    source_file: String,
    begin_line: u32,
    paradigm: u8,
}

impl Regions {
    pub fn add(&mut self, region: &Region) -> RegionRef {
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
        }
        found
    }

    /// For a handle that a process used and never defined.
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

    pub fn name(&self, region: RegionRef) -> &str {
        self.all.get(region.0 as usize).map_or("undefined region", |region| &region.name)
    }

    pub fn all(&self) -> &[Region] {
        &self.all
    }
}
