//! Finds the wrapper of a function by its name.

use super::call::{PROFILING, Variant};
use super::table::{self, FUNCTIONS};
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use super::trampoline;
use super::{DIRECT, TARGETS};
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::Ordering;

/// Returns the wrapper of the MPI function with this name; null if there is none. `target` is the real function, which the
/// wrapper calls.
pub fn wrapper(name: &[u8], target: *mut c_void) -> *mut c_void {
    let Some((function, variant)) = named(name) else { return null_mut() };
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    let wrapper = trampoline::WRAPPERS[function][variant] as *mut c_void;
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let wrapper = null_mut();
    let symbol = variant << 10 | function;
    let before = TARGETS[symbol].swap(target, Ordering::AcqRel);
    let direct = DIRECT[symbol].load(Ordering::Relaxed);
    if !direct.is_null() && direct == before {
        DIRECT[symbol].store(target, Ordering::Release);
    }
    wrapper
}

/// Returns the function and the variant of a symbol's name.
fn named(name: &[u8]) -> Option<(usize, usize)> {
    let is_c = name.starts_with(b"MPI") || name.starts_with(b"PMPI");
    let profiling = name.strip_prefix(if is_c { b"P" } else { b"p" });
    let public = profiling.unwrap_or(name);
    let more = profiling.map_or(0, |_| PROFILING);
    let [standard, extension]: [&[u8]; 2] = if is_c { [b"MPI_", b"MPIX_"] } else { [b"mpi_", b"mpix_"] };
    let find = |name: &[u8], of: fn(&table::Row) -> &'static str| {
        // Open MPI 4 has MPI 4's persistent collectives as extensions: MPIX_Barrier_init.
        let extended = || name.strip_prefix(extension).filter(|stem| stem.ends_with(b"_init"));
        let stem = name.strip_prefix(standard).or_else(extended)?;
        FUNCTIONS.binary_search_by(|row| of(row).as_bytes()[standard.len()..].cmp(stem)).ok()
    };
    if is_c {
        return find(public, |row| row.name).map(|function| (function, more + Variant::C as usize));
    }
    let tails: [(&[u8], Variant); 3] =
        [(b"_f08_", Variant::F08), (b"__", Variant::FortranTwo), (b"_", Variant::Fortran)];
    tails.into_iter().find_map(|(tail, variant)| {
        let function = find(public.strip_suffix(tail)?, |row| row.lower)?;
        Some((function, more + variant as usize))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_found_in_every_variant() {
        for (at, row) in FUNCTIONS.iter().enumerate() {
            let names = [
                row.name.to_owned(),
                format!("{}_", row.lower),
                format!("{}__", row.lower),
                format!("{}_f08_", row.lower),
                format!("P{}", row.name),
                format!("p{}_", row.lower),
                format!("p{}__", row.lower),
                format!("p{}_f08_", row.lower),
            ];
            for (variant, name) in names.iter().enumerate() {
                assert_eq!(named(name.as_bytes()), Some((at, variant)), "{name}");
            }
        }
        let extensions =
            ["MPIX_Barrier_init", "PMPIX_Barrier_init", "mpix_barrier_init_", "pmpix_barrier_init_f08_"];
        for name in extensions {
            let standard = name.replacen(['X', 'x'], "", 1);
            assert!(
                named(name.as_bytes()).is_some_and(|found| named(standard.as_bytes()) == Some(found)),
                "{name}"
            );
        }
        for name in [
            "MPIX_Send",
            "mpix_grequest_start_",
            "MPIX_",
            "MPI_Wtime",
            "mpi_send",
            "MPI_Send_",
            "PPMPI_Send",
            "mpi_send___",
            "P",
            "MPI_",
            "",
        ] {
            assert_eq!(named(name.as_bytes()), None, "{name}");
        }
    }

    #[test]
    fn each_name_has_a_wrapper_of_its_own() {
        let target = std::ptr::dangling_mut();
        let wrappers = ["MPI_Barrier", "PMPI_Barrier", "mpi_barrier_", "MPI_Bcast"]
            .map(|name| wrapper(name.as_bytes(), target));
        let different: std::collections::HashSet<_> = wrappers.into_iter().collect();
        assert!(different.len() == 4 && !different.contains(&null_mut()));
        assert!(wrapper(b"MPI_Nothing", target).is_null());
    }
}
