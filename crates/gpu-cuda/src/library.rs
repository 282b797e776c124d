//! Finds and opens the libcupti that fits the program's CUDA.
//!
//! If the program has loaded a libcupti, as PyTorch does, that one is used. Otherwise this module looks for a libcupti with the
//! version of the program's CUDA runtime and then, because the runtime may be linked statically, for one with the version of the
//! driver or an older one. It may be next to the runtime, in CUDA's installation, among Python's packages, or where the loader
//! looks.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString, OsStr, OsString, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The oldest CUDA whose libcupti is looked for.
const MAJOR_MIN: u32 = 11;

/// The name of the library that was not found.
pub struct NotFound(pub String);

/// Opens libcupti and returns its handle.
pub fn open() -> Result<*mut c_void, NotFound> {
    let loaded = loaded_files();
    if let Some(here) = loaded.iter().find(|file| version_of("libcupti", file).is_some())
        && let Some(library) = open_file(here, libc::RTLD_NOLOAD)
    {
        return Ok(library);
    }
    let runtimes: Vec<u32> = loaded.iter().filter_map(|file| version_of("libcudart", file)).collect();
    let driver = driver_major();
    let mut majors = runtimes.clone();
    majors.extend((MAJOR_MIN..=driver).rev().filter(|major| !runtimes.contains(major)));
    let directories = directories(&loaded);
    for major in &majors {
        let file = directories.iter().flat_map(|directory| files_in(directory, *major));
        let by_loader = PathBuf::from(format!("libcupti.so.{major}"));
        if let Some(library) = file.chain([by_loader]).find_map(|file| open_file(&file, 0)) {
            return Ok(library);
        }
    }
    Err(NotFound(format!("libcupti.so.{}", majors.first().copied().unwrap_or(driver))))
}

fn open_file(file: &Path, flags: c_int) -> Option<*mut c_void> {
    let file = CString::new(file.as_os_str().as_bytes()).ok()?;
    let flags = libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_NODELETE | flags;
    // SAFETY: loading runs the constructors of NVIDIA's library.
    let library = unsafe { libc::dlopen(file.as_ptr(), flags) };
    (!library.is_null()).then_some(library)
}

/// Returns the files of all libraries that are loaded.
fn loaded_files() -> BTreeSet<PathBuf> {
    unsafe extern "C" fn take(info: *mut libc::dl_phdr_info, _: usize, files: *mut c_void) -> c_int {
        // SAFETY: the arguments are the loader's structure with its text, and the set that the call below passes.
        let (files, name) = unsafe { (&mut *files.cast::<BTreeSet<PathBuf>>(), (*info).dlpi_name) };
        if !name.is_null() {
            // SAFETY: as above.
            let name = unsafe { CStr::from_ptr(name) }.to_bytes();
            files.insert(PathBuf::from(OsStr::from_bytes(name)));
        }
        0
    }
    let mut files = BTreeSet::new();
    // SAFETY: the function has the required type and gets the set.
    unsafe { libc::dl_iterate_phdr(Some(take), std::ptr::from_mut(&mut files).cast()) };
    files
}

/// Returns the first number of a library's version: 13 for `libcudart.so.13.0.96` and `libcudart-0123abcd.so.13`.
fn version_of(library: &str, file: &Path) -> Option<u32> {
    let (name, version) = file.file_name()?.to_str()?.split_once(".so.")?;
    let is_it = name.strip_prefix(library)?.bytes().next().is_none_or(|byte| byte == b'-');
    is_it.then(|| version.split('.').next()?.parse().ok())?
}

/// Returns the driver's library, which has loaded this library.
pub fn driver() -> Option<*mut c_void> {
    // SAFETY: the library is loaded already.
    let driver = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
    (!driver.is_null()).then_some(driver)
}

/// Returns the first number of the driver's CUDA version.
fn driver_major() -> u32 {
    let mut version: c_int = 0;
    // SAFETY: this is a lookup by name.
    let found = driver().map(|driver| unsafe { libc::dlsym(driver, c"cuDriverGetVersion".as_ptr()) });
    if let Some(found) = found.filter(|found| !found.is_null()) {
        // SAFETY: the driver's function of this name has this type; it may be called before cuInit.
        unsafe {
            let get: unsafe extern "C" fn(*mut c_int) -> c_int = std::mem::transmute(found);
            get(&mut version);
        }
    }
    u32::try_from(version / 1000).unwrap_or(0).max(MAJOR_MIN)
}

/// Returns the files in a directory that are a libcupti of this version.
fn files_in(directory: &Path, major: u32) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> =
        entries.filter(|file| version_of("libcupti", file) == Some(major)).collect();
    files.sort();
    files
}

/// Returns the directories where a libcupti may be, the most likely ones first.
fn directories(loaded: &BTreeSet<PathBuf>) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = Vec::new();
    for runtime in loaded.iter().filter(|file| version_of("libcudart", file).is_some()) {
        let Some(here) = runtime.parent() else { continue };
        // In an installation of CUDA, the runtime is in `lib64`, which may be a link to `targets/x86_64-linux/lib`.
        all.push(here.to_owned());
        all.extend(["..", "../../.."].map(|up| here.join(up).join("extras/CUPTI/lib64")));
    }
    let packages: BTreeSet<PathBuf> = loaded.iter().filter_map(|file| packages_of(file)).collect();
    for packages in packages {
        all.push(packages.join("nvidia/cuda_cupti/lib"));
        all.extend((MAJOR_MIN..20).map(|major| packages.join(format!("nvidia/cu{major}/lib"))));
    }
    let variables = ["CUDA_HOME", "CUDA_PATH", "CUDA_ROOT"].into_iter().filter_map(std::env::var_os);
    let from_nvcc = std::env::var_os("PATH").and_then(|path| cuda_of_nvcc(&path));
    let usual = std::iter::once(PathBuf::from("/usr/local/cuda"));
    for cuda in variables.map(PathBuf::from).chain(from_nvcc).chain(usual) {
        all.extend(["extras/CUPTI/lib64", "lib64", "lib"].map(|below| cuda.join(below)));
    }
    all
}

/// Returns the directory of Python's packages that a library belongs to.
fn packages_of(file: &Path) -> Option<PathBuf> {
    let is_packages = |part: &Path| part.ends_with("site-packages") || part.ends_with("dist-packages");
    file.ancestors().find(|part| is_packages(part)).map(Path::to_owned)
}

/// Returns the installation of CUDA whose compiler is in PATH.
fn cuda_of_nvcc(path: &OsString) -> Option<PathBuf> {
    let nvcc = std::env::split_paths(path).map(|bin| bin.join("nvcc")).find(|nvcc| nvcc.is_file())?;
    let nvcc = std::fs::canonicalize(nvcc).ok()?;
    Some(nvcc.parent()?.parent()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_the_names_of_files() {
        let of = |file: &str| version_of("libcudart", Path::new(file));
        assert_eq!(of("/usr/local/cuda/lib64/libcudart.so.13.0.96"), Some(13));
        assert_eq!(of("torch/lib/libcudart-9335f6a2.so.12"), Some(12));
        for other in ["libcudart.so", "libcudart_static.so.12", "libcuda.so.1", "libcudart.so.x", ""] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    #[test]
    fn libcupti_is_looked_for_where_the_programs_cuda_is() {
        let loaded = BTreeSet::from(
            [
                "/opt/cuda-12/targets/x86_64-linux/lib/libcudart.so.12",
                "/venv/lib/python3.12/site-packages/jaxlib/libjax_common.so",
            ]
            .map(PathBuf::from),
        );
        let found = directories(&loaded);
        let at = |directory: &str| found.iter().position(|one| one == Path::new(directory));
        let expected = [
            "/opt/cuda-12/targets/x86_64-linux/lib",
            "/opt/cuda-12/targets/x86_64-linux/lib/../../../extras/CUPTI/lib64",
            "/venv/lib/python3.12/site-packages/nvidia/cuda_cupti/lib",
            "/venv/lib/python3.12/site-packages/nvidia/cu13/lib",
            "/usr/local/cuda/extras/CUPTI/lib64",
        ];
        let places: Vec<_> = expected.iter().map(|directory| at(directory)).collect();
        assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?} in {found:?}");
    }
}
