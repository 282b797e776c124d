//! Installations by `make install` and `make dist` work in their directory, after they were moved, and with module files.

use ampere_tests::jobs::{Place, built, run};
use ampere_tests::runs::{on_path, succeed, text};
use ampere_tests::{root, skip_unless};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs `make` with a target that builds nothing: what is installed was built before.
fn make(target: &str, variables: &[(&str, &Path)]) {
    let mut command = Command::new("make");
    command.current_dir(root()).args(["-s", "-o", "build", target]);
    command.arg(format!("BIN={}", built().display()));
    for (name, value) in variables {
        command.arg(format!("{name}={}", value.display()));
    }
    succeed(&mut command);
}

/// Measures a program with the installation in `prefix`, with nothing of the build in the environment.
fn check(place: &Place, prefix: &Path, output: &str) {
    let ampere = prefix.join("bin/ampere");
    // The exit status may be affected by Score-P and by this machine's memory. The test checks only that all parts are installed.
    let doctor = run(place.command(&ampere).args(["doctor", "--json"]));
    let findings: serde_json::Value = serde_json::from_str(&doctor.stdout).expect("JSON");
    let checks = findings["checks"].as_array().expect("checks");
    let parts: Vec<&serde_json::Value> = checks.iter().filter(|check| check["group"] == "ampere").collect();
    assert!(!parts.is_empty() && parts.iter().all(|check| check["status"] == "ok"), "{checks:#?}");
    assert!(doctor.stdout.contains(&*prefix.join("lib").to_string_lossy()), "{}", doctor.stdout);
    // ampere finds the plugin in its own folder; Score-P does not look there.
    let of_plugin = |doctor: &str| {
        let findings: serde_json::Value = serde_json::from_str(doctor).expect("JSON");
        let checks = findings["checks"].as_array().expect("checks").clone();
        let plugin =
            checks.into_iter().find(|check| check["group"] == "Score-P" && check["name"] == "plugin");
        plugin.expect("a finding")["status"].as_str().expect("a status").to_owned()
    };
    assert_eq!(of_plugin(&doctor.stdout), "note");
    let named =
        run(place.command(&ampere).args(["doctor", "--json"]).env("LD_LIBRARY_PATH", prefix.join("lib")));
    assert_eq!(of_plugin(&named.stdout), "ok");
    let program = place.instrumented();
    let done = run(place.command(&ampere).args(["run", "-o", output, "--"]).arg(program));
    assert_eq!(done.code, 7, "{done:#?}");
    assert!(place.summary(output)["quality"]["events"].as_u64() > Some(0), "{done:#?}");
    for file in [
        "man/man1/ampere.1",
        "ampere/dashboards",
        "ampere/examples/mpi/stencil.c",
        "ampere/examples/cuda/hip_cuda.h",
    ] {
        assert!(prefix.join("share").join(file).exists(), "{file}");
    }
}

#[test]
fn an_installation_in_an_empty_root_works() {
    let place = Place::new();
    let empty = place.path("root");
    make("install-files", &[("DESTDIR", &empty), ("PREFIX", Path::new("/opt/ampere"))]);
    check(&place, &empty.join("opt/ampere"), "out");
    place.assert_clean();
}

/// `/usr/local` and the environments of conda have other libraries in `lib`.
#[test]
fn libraries_next_to_amperes_are_not_loaded_instead_of_the_programs_own() {
    let place = Place::new();
    let prefix = place.path("prefix");
    make("install-files", &[("PREFIX", &prefix)]);
    let options = ["-shared", "-fPIC", "-Wl,-soname,libsame.so"];
    let own = place.compile("cc", "libsame.so", "int answer(void) { return 7; }", &options);
    let main = "int answer(void); int main(void) { return answer(); }";
    let own_first = ["-Wl,--enable-new-dtags,-rpath,$ORIGIN", own.to_str().expect("UTF-8")];
    let program = place.compile("cc", "program", main, &own_first);
    place.compile("cc", "prefix/lib/libsame.so", "int answer(void) { return 1; }", &options);
    let done = run(place.command(prefix.join("bin/ampere")).args(["run", "-o", "out", "--"]).arg(&program));
    assert_eq!(done.code, 7, "{done:#?}");
    place.assert_clean();
}

/// Returns the Markdown files of a directory and of the directories in it.
fn pages(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).expect("a directory").flatten().map(|entry| entry.path());
    let (directories, files): (Vec<PathBuf>, Vec<PathBuf>) = entries.partition(|path| path.is_dir());
    let mut pages: Vec<PathBuf> = directories.iter().flat_map(|directory| pages(directory)).collect();
    pages.extend(files.into_iter().filter(|file| file.extension().is_some_and(|is| is == "md")));
    pages
}

#[test]
fn an_installed_book_has_all_its_text_and_no_dead_link() {
    let place = Place::new();
    let empty = place.path("root");
    make("install-files", &[("DESTDIR", &empty), ("PREFIX", Path::new("/opt/ampere"))]);
    let book = empty.join("opt/ampere/share/ampere/docs").canonicalize().expect("a book");
    let pages = pages(&book);
    for page in ["README.md", "SUMMARY.md", "numbers.md", "decisions/index.md"] {
        assert!(pages.contains(&book.join(page)), "{page}: {pages:?}");
    }
    for page in pages {
        let text = std::fs::read_to_string(&page).expect("a page");
        assert!(!text.contains("{{#"), "{} has a part that only mdBook can insert", page.display());
        let links = text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
        for link in links.filter(|link| !link.starts_with("http") && !link.is_empty()) {
            let target = page.with_file_name("").join(link).canonicalize();
            assert!(target.is_ok_and(|target| target.starts_with(&book)), "{}: {link}", page.display());
        }
    }
    for (page, part) in [("costs.md", "make bench"), ("security.md", "## Promises")] {
        let text = std::fs::read_to_string(book.join(page)).expect("a page");
        assert!(text.contains(part), "{page} has its text");
    }
}

#[test]
fn the_quick_start_works_with_an_installed_copy() {
    skip_unless!(on_path("mpicc"), "no mpicc");
    let place = Place::new();
    let empty = place.path("root");
    make("install-files", &[("DESTDIR", &empty), ("PREFIX", Path::new("/opt/ampere"))]);
    let prefix = empty.join("opt/ampere");
    let page = std::fs::read_to_string(prefix.join("share/ampere/docs/getting-started.md")).expect("a page");
    let is_needed = |line: &&str| ["cp -r", "make -C examples/mpi"].iter().any(|word| line.starts_with(word));
    let lines: Vec<&str> =
        page.lines().filter_map(|line| line.strip_prefix("$ ")).filter(is_needed).collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    let path = format!("{}:{}", prefix.join("bin").display(), std::env::var("PATH").unwrap_or_default());
    succeed(place.command("bash").args(["-e", "-u", "-c", &lines.join("\n")]).env("PATH", path));
    assert!(place.path("examples/mpi/stencil").exists());
    place.assert_clean();
}

/// Unpacks the tarball in this place.
fn unpacked(place: &Place) -> PathBuf {
    make("dist", &[("DIST", place.directory())]);
    let entries = std::fs::read_dir(place.directory()).expect("a directory").flatten();
    let file = entries.map(|entry| entry.path()).find(|path| path.extension().is_some_and(|e| e == "gz"));
    let file = file.expect("a tar file");
    succeed(Command::new("tar").arg("-xzf").arg(&file).current_dir(place.directory()));
    file.with_extension("").with_extension("")
}

#[test]
fn the_tarball_works_wherever_it_is_unpacked() {
    let place = Place::new();
    let tree = unpacked(&place);
    check(&place, &tree, "first");
    let moved = place.path("elsewhere/ampere");
    std::fs::create_dir(place.path("elsewhere")).expect("a directory");
    std::fs::rename(&tree, &moved).expect("it can be moved");
    check(&place, &moved, "second");
    // The tarball's programs use the OTF2 library that comes with them.
    let libraries = text(&succeed(place.command("ldd").arg(moved.join("bin/ampere"))).stdout);
    let otf2 = libraries.lines().find(|line| line.contains("otf2") || line.contains("open-trace-format"));
    let own = std::fs::canonicalize(moved.join("lib")).expect("a directory");
    let path = otf2.and_then(|line| line.split_whitespace().nth(2)).expect("it is linked");
    assert!(std::fs::canonicalize(path).expect("a file").starts_with(own), "{libraries}");
    place.assert_clean();
}

/// Lmod reads both kinds of module files.
#[test]
fn the_module_files_lead_to_the_installation() {
    let lmod = Path::new("/usr/share/lmod/lmod/libexec/lmod");
    skip_unless!(lmod.exists() && on_path("bash"), "no Lmod");
    let place = Place::new();
    let tree = unpacked(&place);
    let files = tree.join("share/modulefiles");
    let script = format!(
        "eval \"$({} bash load ampere)\" && command -v ampere && echo $LD_LIBRARY_PATH && ampere --version",
        lmod.display()
    );
    for kind in ["lua", "tcl"] {
        if kind == "tcl" {
            let mut both = std::fs::read_dir(files.join("ampere")).expect("a directory").flatten();
            let lua = both.find(|file| file.path().extension().is_some_and(|extension| extension == "lua"));
            std::fs::remove_file(lua.expect("Lmod's").path()).expect("it can be removed");
        }
        let shown =
            text(&succeed(place.command("bash").args(["-c", &script]).env("MODULEPATH", &files)).stdout);
        let lines: Vec<&str> = shown.lines().collect();
        let expected =
            [tree.join("bin/ampere"), tree.join("lib/ampere-plugin")].map(|path| path.display().to_string());
        assert_eq!(lines[..2], expected, "{kind}: {shown}");
        assert!(lines[2].starts_with("ampere "), "{kind}: {shown}");
    }
}

#[test]
fn the_spack_recipe_is_python_and_asks_for_the_right_rust() {
    let recipe = root().join("packaging/spack/spack_repo/ampere/packages/ampere/package.py");
    let text_of_recipe = std::fs::read_to_string(&recipe).expect("the recipe");
    let workspace = std::fs::read_to_string(root().join("Cargo.toml")).expect("the workspace");
    let version = workspace.split("rust-version = \"").nth(1).and_then(|rest| rest.split('"').next());
    assert!(text_of_recipe.contains(&format!("rust@{}:", version.expect("a version"))), "{text_of_recipe}");
    skip_unless!(on_path("python3"), "no python3");
    let check = "import ast, sys; ast.parse(open(sys.argv[1]).read())";
    succeed(Command::new("python3").args(["-c", check]).arg(&recipe));
}
