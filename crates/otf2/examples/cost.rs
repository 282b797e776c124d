//! Measures the cost of an event in nanoseconds, through this crate and through bare calls of the C library, in the same run:
//!
//! ```text
//! cargo run --release -p otf2 --example cost [MILLIONS OF EVENTS [LOCATIONS [DIRECTORY]]]
//! ```
//!
//! The events are enters and leaves, 10 ns apart, as in a program with small functions. Each figure is the best of three.

use otf2::*;
use otf2_sys as sys;
use std::ffi::{CString, c_void};
use std::ops::ControlFlow;
use std::path::Path;
use std::ptr::null_mut;
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let millions: u64 = arguments.next().map_or(Ok(20), |text| text.parse())?;
    let locations: u64 = arguments.next().map_or(Ok(4), |text| text.parse())?;
    let directory = arguments.next().unwrap_or_else(|| std::env::temp_dir().display().to_string());
    let each = millions * 1_000_000 / locations / 2;
    let events = each * locations * 2;
    println!("{events} events on {locations} locations in {directory}, ns per event:");
    let mut best = [f64::INFINITY; 5];
    for _ in 0..3 {
        let ours = tempfile::tempdir_in(&directory)?;
        let bare = tempfile::tempdir_in(&directory)?;
        let mut measure = |figure: usize, run: &mut dyn FnMut() -> Result<(), Error>| {
            let start = Instant::now();
            run()?;
            best[figure] = best[figure].min(start.elapsed().as_secs_f64() * 1e9 / events as f64);
            Ok::<(), Error>(())
        };
        measure(0, &mut || write(ours.path(), locations, each))?;
        measure(1, &mut || {
            write_bare(bare.path(), locations, each);
            Ok(())
        })?;
        let anchor = ours.path().join("traces.otf2");
        let mut trace = Trace::open(&anchor)?;
        measure(2, &mut || {
            let mut count = Count(0);
            let report = trace.read_events(&mut count)?;
            assert_eq!((count.0, report.delivered), (events, events));
            Ok(())
        })?;
        for (figure, merged) in [(3, true), (4, false)] {
            let reader = BareReader::open(&anchor, locations);
            measure(figure, &mut || {
                assert_eq!(reader.read(locations, merged), events);
                Ok(())
            })?;
        }
    }
    let [ours, bare, read, merged, local] = best;
    println!("write: {ours:.1}, bare {bare:.1}");
    println!("read in order of time: {read:.1}, bare {merged:.1} (bare, location by location: {local:.1})");
    Ok(())
}

fn definitions(locations: u64) -> Definitions {
    let mut definitions = Definitions::default();
    let node =
        definitions.system_tree_nodes.push(SystemTreeNode { name: "node".into(), ..Default::default() });
    let group = definitions.location_groups.push(LocationGroup {
        kind: LocationGroupType::Process,
        system_tree_parent: Some(node),
        ..Default::default()
    });
    for _ in 0..locations {
        definitions.locations.push(Location { group: Some(group), ..Default::default() });
    }
    for name in ["a", "b", "c"] {
        definitions.regions.push(Region { name: name.into(), ..Default::default() });
    }
    definitions
}

fn write(directory: &Path, locations: u64, each: u64) -> Result<(), Error> {
    let archive = ArchiveWriter::create(directory)?;
    for location in 0..locations {
        let mut writer = archive.event_writer(LocationRef(location))?;
        for i in 0..each {
            writer.enter(20 * i, RegionRef((i % 3) as u32))?;
            writer.leave(20 * i + 10, RegionRef((i % 3) as u32))?;
        }
        writer.close()?;
    }
    archive.finish(&definitions(locations))
}

struct Count(u64);

impl EventHandler for Count {
    fn enter(&mut self, _: LocationRef, _: u64, _: RegionRef) -> ControlFlow<()> {
        self.0 += 1;
        ControlFlow::Continue(())
    }
    fn leave(&mut self, _: LocationRef, _: u64, _: RegionRef) -> ControlFlow<()> {
        self.0 += 1;
        ControlFlow::Continue(())
    }
}

unsafe extern "C" fn pre_flush(
    _: *mut c_void,
    _: sys::OTF2_FileType,
    _: sys::OTF2_LocationRef,
    _: *mut c_void,
    _: bool,
) -> sys::OTF2_FlushType {
    sys::OTF2_FLUSH as sys::OTF2_FlushType
}

/// Writes like the examples of the library, with its own memory: it keeps 128 MiB before it writes.
fn write_bare(directory: &Path, locations: u64, each: u64) {
    let path = CString::new(directory.to_str().expect("a plain name")).expect("a plain name");
    let flush = sys::OTF2_FlushCallbacks { otf2_pre_flush: Some(pre_flush), otf2_post_flush: None };
    // SAFETY: all handles are used in the order that the library requires, and closed once; strings and callbacks outlive the
    // archive.
    unsafe {
        let archive = sys::OTF2_Archive_Open(
            path.as_ptr(),
            c"traces".as_ptr(),
            sys::OTF2_FILEMODE_WRITE as sys::OTF2_FileMode,
            1 << 20,
            4 << 20,
            sys::OTF2_SUBSTRATE_POSIX as sys::OTF2_FileSubstrate,
            sys::OTF2_COMPRESSION_NONE as sys::OTF2_Compression,
        );
        assert!(!archive.is_null());
        sys::OTF2_Archive_SetFlushCallbacks(archive, &flush, null_mut());
        sys::OTF2_Archive_SetSerialCollectiveCallbacks(archive);
        sys::OTF2_Archive_OpenEvtFiles(archive);
        for location in 0..locations {
            let writer = sys::OTF2_Archive_GetEvtWriter(archive, location);
            for i in 0..each {
                sys::OTF2_EvtWriter_Enter(writer, null_mut(), 20 * i, (i % 3) as u32);
                sys::OTF2_EvtWriter_Leave(writer, null_mut(), 20 * i + 10, (i % 3) as u32);
            }
            sys::OTF2_Archive_CloseEvtWriter(archive, writer);
        }
        sys::OTF2_Archive_CloseEvtFiles(archive);
        sys::OTF2_Archive_Close(archive);
    }
}

unsafe extern "C" fn count_merged(
    _: u64,
    _: u64,
    user_data: *mut c_void,
    _: *mut sys::OTF2_AttributeList,
    _: u32,
) -> sys::OTF2_CallbackCode {
    // SAFETY: registered with a u64.
    unsafe { *user_data.cast::<u64>() += 1 };
    sys::OTF2_CALLBACK_SUCCESS
}

unsafe extern "C" fn count_local(
    _: u64,
    _: u64,
    _: u64,
    user_data: *mut c_void,
    _: *mut sys::OTF2_AttributeList,
    _: u32,
) -> sys::OTF2_CallbackCode {
    // SAFETY: registered with a u64.
    unsafe { *user_data.cast::<u64>() += 1 };
    sys::OTF2_CALLBACK_SUCCESS
}

struct BareReader(*mut sys::OTF2_Reader);

impl BareReader {
    fn open(anchor: &Path, locations: u64) -> BareReader {
        let path = CString::new(anchor.to_str().expect("a plain name")).expect("a plain name");
        // SAFETY: as in write_bare.
        unsafe {
            let reader = sys::OTF2_Reader_Open(path.as_ptr());
            assert!(!reader.is_null());
            sys::OTF2_Reader_SetSerialCollectiveCallbacks(reader);
            for location in 0..locations {
                sys::OTF2_Reader_SelectLocation(reader, location);
            }
            sys::OTF2_Reader_OpenEvtFiles(reader);
            BareReader(reader)
        }
    }

    fn read(&self, locations: u64, merged: bool) -> u64 {
        let (mut count, mut read) = (0_u64, 0);
        let user_data: *mut c_void = (&raw mut count).cast();
        // SAFETY: as in write_bare; the count outlives the reading.
        unsafe {
            if merged {
                for location in 0..locations {
                    sys::OTF2_Reader_GetEvtReader(self.0, location);
                }
                let events = sys::OTF2_Reader_GetGlobalEvtReader(self.0);
                let callbacks = sys::OTF2_GlobalEvtReaderCallbacks_New();
                sys::OTF2_GlobalEvtReaderCallbacks_SetEnterCallback(callbacks, Some(count_merged));
                sys::OTF2_GlobalEvtReaderCallbacks_SetLeaveCallback(callbacks, Some(count_merged));
                sys::OTF2_Reader_RegisterGlobalEvtCallbacks(self.0, events, callbacks, user_data);
                sys::OTF2_Reader_ReadAllGlobalEvents(self.0, events, &mut read);
            } else {
                for location in 0..locations {
                    let events = sys::OTF2_Reader_GetEvtReader(self.0, location);
                    let callbacks = sys::OTF2_EvtReaderCallbacks_New();
                    sys::OTF2_EvtReaderCallbacks_SetEnterCallback(callbacks, Some(count_local));
                    sys::OTF2_EvtReaderCallbacks_SetLeaveCallback(callbacks, Some(count_local));
                    sys::OTF2_Reader_RegisterEvtCallbacks(self.0, events, callbacks, user_data);
                    sys::OTF2_Reader_ReadAllLocalEvents(self.0, events, &mut read);
                }
            }
        }
        count
    }
}

impl Drop for BareReader {
    fn drop(&mut self) {
        // SAFETY: opened in open, closed here only.
        unsafe { sys::OTF2_Reader_Close(self.0) };
    }
}
