//! The filter file that `SCOREP_FILTERING_FILE` names, as in Score-P: it lists functions that are not to be recorded. It applies
//! to functions that the compiler instrumented, not to MPI's.

use crate::messages::report;
use crate::symbols::Symbol;
use ampere_model::filter::{ENV_FILTER, Filter};
use std::ffi::CString;
use std::sync::OnceLock;

static FILTER: OnceLock<Filter> = OnceLock::new();

/// Reads the file, if one is named. A file that cannot be used is reported and filters nothing.
pub fn load() {
    let Some(path) = std::env::var_os(ENV_FILTER).filter(|path| !path.is_empty()) else { return };
    let read = std::fs::read_to_string(&path).map_err(|error| error.to_string());
    let filter = read.and_then(|text| Filter::parse(&text).map_err(|error| error.to_string()));
    match filter {
        Ok(filter) => drop(FILTER.set(filter)),
        Err(why) => {
            let shown = path.to_string_lossy();
            report(format_args!("all functions are recorded: {ENV_FILTER} is {shown}: {why}"));
        }
    }
}

/// Whether a function is not to be recorded.
pub fn excludes(symbol: &Symbol) -> bool {
    let names = (symbol.name.as_str(), symbol.canonical_name.as_str(), symbol.file.as_str());
    FILTER.get().is_some_and(|filter| filter.excludes(names, matches))
}

fn matches(pattern: &str, name: &str) -> bool {
    let (Ok(pattern), Ok(name)) = (CString::new(pattern), CString::new(name)) else { return false };
    // SAFETY: two strings that live during the call.
    unsafe { libc::fnmatch(pattern.as_ptr(), name.as_ptr(), 0) == 0 }
}
