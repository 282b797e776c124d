//! Checks which GPU runtimes this node has, and whether ampere can see their kernels without Score-P.

use super::findings::{Check, Group};
use super::score_p::load;
use crate::installation::{Installation, Runtime};
use ampere_model::ENV_CUDA_INJECTION;
use std::path::Path;

/// The file name of a library, and a function that it exports.
type Library = (&'static str, &'static str);

/// Returns a runtime's name, the versions of its own library, and the versions of the library through which its kernels are
/// seen. Newer versions come first, and the first one that can be loaded is used.
fn libraries(runtime: Runtime) -> (&'static str, &'static [Library], &'static [Library]) {
    match runtime {
        Runtime::Cuda => (
            "CUDA",
            &[("libcuda.so.1", "cuInit")],
            &[("libcupti.so.13", "cuptiActivityEnable"), ("libcupti.so.12", "cuptiActivityEnable")],
        ),
        Runtime::Hip => (
            "HIP",
            &[
                ("libamdhip64.so.7", "hipInit"),
                ("libamdhip64.so.6", "hipInit"),
                ("libamdhip64.so.5", "hipInit"),
            ],
            &[
                ("librocprofiler-sdk.so.1", "rocprofiler_create_context"),
                ("librocprofiler-sdk.so.0", "rocprofiler_create_context"),
            ],
        ),
        // OpenCL's loader itself opens ampere's library, as a layer.
        Runtime::OpenCl => ("OpenCL", &[("libOpenCL.so.1", "clGetPlatformIDs")], &[]),
    }
}

/// Checks each runtime. `own_program` is ampere itself: its `ampere probe` loads the libraries in another process.
pub fn check(own_program: &Path, installation: Option<&Installation>) -> Vec<Check> {
    let mut group = Group::new("GPU kernels");
    for runtime in Runtime::ALL {
        check_runtime(runtime, own_program, installation, &mut group);
    }
    if group.checks.is_empty() {
        group.ok("runtimes", "this node has neither CUDA, HIP nor OpenCL");
    }
    group.checks
}

fn check_runtime(
    runtime: Runtime,
    own_program: &Path,
    installation: Option<&Installation>,
    group: &mut Group,
) {
    let (name, runtime_libraries, tracing_libraries) = libraries(runtime);
    let find = |all: &[Library]| {
        all.iter().find_map(|(file, function)| Some((*file, load(own_program, file, function).ok()?)))
    };
    let Some((file, path)) = find(runtime_libraries) else { return };
    let advice = |text: &str| Some(text.to_owned());
    let Some(ours) = installation.and_then(|installation| installation.gpu_library(runtime)) else {
        let found = format!("{file}; kernels are not seen: {} is not installed", runtime.library());
        return group.note(name, found, advice("build or install all of ampere"));
    };
    match runtime {
        Runtime::OpenCl if !path.as_deref().is_some_and(has_layers) => group.note(
            name,
            format!("{file} opens no layers: kernels are not seen"),
            advice("use ocl-icd 2.3 or later, or Khronos' loader"),
        ),
        Runtime::OpenCl => group.ok(name, format!("{file} opens layers: kernels are seen")),
        _ => match find(tracing_libraries) {
            Some((interface, _)) => group.ok(name, format!("{file}, {interface}: kernels are seen")),
            None => group.note(
                name,
                format!(
                    "{file}; the loader does not find {}: kernels are seen if the program has it",
                    tracing_libraries[0].0
                ),
                None,
            ),
        },
    }
    let other = std::env::var(ENV_CUDA_INJECTION).ok().filter(|other| !other.is_empty());
    if let Some(other) = other.filter(|other| runtime == Runtime::Cuda && Path::new(other) != ours) {
        group.note(
            ENV_CUDA_INJECTION,
            format!("CUDA loads {other} instead of ampere's library: kernels are not seen"),
            advice("unset it to see them"),
        );
    }
}

/// Whether this file of OpenCL's loader contains the name of the variable that lists layers, so that it can open layers.
fn has_layers(loader: &Path) -> bool {
    let variable = b"OPENCL_LAYERS";
    std::fs::read(loader).is_ok_and(|bytes| bytes.windows(variable.len()).any(|part| part == variable))
}
