//! The documentation: its commands run, its options exist, its settings are valid, its links have targets, and its
//! sentences for users are short.
//!
//! A fenced block of `console` or `sh` is run, unless it follows `<!-- not run here: why -->`. In a `console` block the lines
//! that start with `$ ` are commands, and the others are their output. The blocks of a page run one after the other in one
//! scratch directory, which has a copy of `examples/mpi`, and in `gpu` a run with GPU kernels.

use ampere_tests::jobs::Place;
use ampere_tests::runs::{on_path, stencil, succeed, text};
use ampere_tests::{artifact, root, skip_unless};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

const NOT_RUN: &str = "<!-- not run here: ";
const HELD_BY: &str = "<!-- held by: ";
const INCLUDE: &str = "{{#include ";
/// The limit for README.md and ARCHITECTURE.md, which are meant to be read in one sitting.
const LINES_MAX: usize = 150;
/// A longer sentence has to be read twice.
const SENTENCE_WORDS_MAX: usize = 35;

struct Block {
    language: String,
    text: String,
    /// The line at which the block starts.
    line: usize,
    is_run: bool,
}

impl Block {
    /// Returns the commands for a shell.
    fn commands(&self) -> Vec<&str> {
        match self.language.as_str() {
            "console" => self.text.lines().filter_map(|line| line.strip_prefix("$ ")).collect(),
            "sh" | "" => self.text.lines().collect(),
            _ => Vec::new(),
        }
    }
}

fn read(page: &Path) -> String {
    std::fs::read_to_string(page).unwrap_or_else(|error| panic!("{}: {error}", page.display()))
}

fn shown(page: &Path) -> String {
    page.strip_prefix(root()).unwrap_or(page).display().to_string()
}

/// Returns the book's pages, including its decisions.
fn book() -> Vec<PathBuf> {
    let source = root().join("docs/src");
    let folders = [source.clone(), source.join("decisions")];
    let files = folders.iter().flat_map(|folder| std::fs::read_dir(folder).expect("a folder")).flatten();
    let mut pages: Vec<PathBuf> = files.map(|file| file.path()).collect();
    pages.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    pages.sort();
    assert!(pages.len() > 50, "{pages:?}");
    pages
}

fn pages() -> Vec<PathBuf> {
    let others = [
        "README.md",
        "ARCHITECTURE.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "bench/README.md",
        "dashboards/README.md",
        "examples/hip/README.md",
        "fuzz/README.md",
    ];
    others.iter().map(|name| root().join(name)).chain(book()).collect()
}

/// Returns the fenced and indented blocks of a page.
fn blocks(page: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut fenced = false;
    let mut indented = false;
    let mut is_run = true;
    for (number, line) in page.lines().enumerate() {
        let mut begin = |language: &str| {
            let (language, text) = (language.to_owned(), String::new());
            blocks.push(Block { language, text, line: number + 1, is_run });
        };
        if let Some(language) = line.strip_prefix("```") {
            fenced = !fenced;
            if fenced {
                begin(language);
            }
        } else if !fenced && line.starts_with("    ") {
            if !indented {
                begin("");
            }
        } else {
            assert!(
                !line.starts_with(NOT_RUN) || line.len() > NOT_RUN.len() + " -->".len(),
                "no reason: {line}"
            );
            is_run = if line.starts_with(NOT_RUN) { false } else { is_run || !line.is_empty() };
        }
        indented = !fenced && line.starts_with("    ");
        if let Some(block) = blocks.last_mut().filter(|_| (fenced && !line.starts_with("```")) || indented) {
            block.text += line.strip_prefix("    ").filter(|_| indented).unwrap_or(line);
            block.text.push('\n');
        }
        if !fenced && line.starts_with("```") {
            is_run = true;
        }
    }
    assert!(!fenced, "a block without an end");
    blocks
}

/// Returns the PATH with `path` in front.
fn prepend_to_path(path: &Path) -> String {
    format!("{}:{}", path.display(), std::env::var("PATH").unwrap_or_default())
}

#[test]
fn the_commands_of_each_page_run() {
    skip_unless!(on_path("mpirun"), "no mpirun");
    stencil();
    let programs = artifact("ampere");
    let path = prepend_to_path(programs.parent().expect("a folder"));
    let mut run = 0;
    for page in book() {
        let text_of_page = read(&page);
        let blocks = blocks(&text_of_page);
        let blocks = blocks.iter().filter(|block| block.is_run && !block.language.is_empty());
        let script: Vec<&str> = blocks.flat_map(Block::commands).collect();
        if script.is_empty() {
            continue;
        }
        let place = Place::new();
        let examples = place.path("examples");
        std::fs::create_dir(&examples).expect("a folder");
        succeed(Command::new("cp").arg("-r").arg(root().join("examples/mpi")).arg(&examples));
        place.gpu_run("gpu");
        let mut command = place.command("bash");
        command.env("PATH", &path).args(["-e", "-u", "-x", "-c", &script.join("\n")]);
        // There are more ranks than cores. This variable permits it in Open MPI 4 and 5.
        command.env("OMPI_MCA_rmaps_base_oversubscribe", "1");
        command.env("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe");
        let output = command.output().expect("bash");
        let errors = text(&output.stderr);
        assert!(output.status.success(), "{}: {}\n{errors}", shown(&page), output.status);
        run += script.len();
    }
    assert!(run > 15, "only {run} lines were run");
}

/// Returns the arguments up to where the shell, or a command after `--`, takes over.
fn arguments(line: &str) -> Option<Vec<String>> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let program = words.iter().position(|word| word.ends_with("/ampere") || *word == "ampere")?;
    let is_prefix = |word: &&str| word.contains('=') || ["srun", "-n", "16", "$"].contains(word);
    words[..program].iter().all(is_prefix).then_some(())?;
    let ends = |word: &&&str| !["--", "|", "&", "&&", ">", "2>", "#"].contains(*word);
    let words = words[program + 1..].iter().take_while(ends);
    Some(words.map(|word| word.trim_matches(['"', '\'']).replace("$PWD", "/tmp")).collect())
}

/// Returns the texts between single backquotes.
fn code_spans(page: &str) -> Vec<&str> {
    let outside = page.split("```").step_by(2);
    outside.flat_map(|text| text.split('`').skip(1).step_by(2)).collect()
}

#[test]
fn every_option_in_the_documentation_exists() {
    let mut checked = BTreeSet::new();
    for page in pages() {
        let text_of_page = read(&page);
        let blocks = blocks(&text_of_page);
        let in_blocks = blocks.iter().flat_map(|block| block.commands());
        let spans = code_spans(&text_of_page).into_iter().filter(|span| !span.contains('\n'));
        for line in in_blocks.chain(spans).filter(|line| line.contains("ampere ")) {
            let Some(arguments) = arguments(line).filter(|arguments| !arguments.is_empty()) else { continue };
            // Options are parsed in order, so an unknown one is an error before `--help` is reached.
            let output =
                Command::new(artifact("ampere")).args(&arguments).arg("--help").output().expect("ampere");
            assert!(output.status.success(), "{}: {line}\n{}", shown(&page), text(&output.stderr));
            checked.extend(arguments.first().cloned());
        }
    }
    let commands =
        ["attribute", "calibrate", "compare", "doctor", "recover", "replay", "report", "run", "top"];
    assert!(commands.iter().all(|command| checked.contains(*command)), "only {checked:?}");
}

#[test]
fn every_settings_file_in_the_documentation_is_valid() {
    let place = Place::new();
    let file = place.path("ampere.toml");
    let mut tried = 0;
    for page in pages() {
        for block in blocks(&read(&page)).iter().filter(|block| block.language == "toml") {
            std::fs::write(&file, &block.text).expect("room for a file");
            let mut command = place.command(artifact("ampere"));
            // Settings are read first; the missing trace is the next error.
            command.args(["attribute", "missing.otf2", "--config"]).arg(&file);
            let said = text(&command.output().expect("ampere").stderr);
            let is_valid = said.contains("missing.otf2") && !said.contains("ampere.toml");
            assert!(is_valid, "{}:{}: {said}", shown(&page), block.line);
            tried += 1;
        }
    }
    assert!(tried > 0);
}

/// Returns the text of a page with the files that it includes.
fn with_includes(page: &Path) -> String {
    let text = read(page);
    let mut parts = text.split(INCLUDE);
    let mut whole = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (path, rest) = part.split_once("}}").expect("an include has an end");
        whole += &read(&page.with_file_name(path));
        whole += rest;
    }
    whole
}

/// Returns the anchors that mdBook and GitHub make of headings.
fn anchors(page: &Path) -> BTreeSet<String> {
    let text = with_includes(page);
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| -> String {
        let heading = heading.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
        heading.chars().filter(|c| c.is_alphanumeric() || ['-', '_'].contains(c)).collect()
    };
    headings.map(anchor).collect()
}

#[test]
fn every_link_leads_somewhere() {
    let in_book = root().join("docs/src");
    let mut wrong = Vec::new();
    for page in pages() {
        let text = with_includes(&page);
        let links = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for link in links.filter(|link| !link.starts_with("http")) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { page.clone() } else { page.with_file_name("").join(file) };
            let leaves_the_book = page.starts_with(&in_book)
                && !target
                    .canonicalize()
                    .is_ok_and(|t| t.starts_with(in_book.canonicalize().expect("docs/src")));
            let has_anchor = anchor.is_empty() || target.exists() && anchors(&target).contains(anchor);
            if !target.exists() || leaves_the_book || !has_anchor {
                wrong.push(format!("{}: {link}", shown(&page)));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_path_in_the_map_exists() {
    let is_path = |span: &&str| {
        let is_of_path = |c: char| c.is_alphanumeric() || ['/', '.', '_', '-'].contains(&c);
        span.contains('/') && !span.starts_with(['/', '.']) && span.chars().all(is_of_path)
    };
    for page in ["ARCHITECTURE.md", "CONTRIBUTING.md"] {
        let text = read(&root().join(page));
        let spans = code_spans(&text).into_iter().filter(is_path);
        let wrong: Vec<&str> = spans.filter(|path| !root().join(path).exists()).collect();
        assert!(wrong.is_empty(), "{page}: {wrong:?}");
    }
}

/// Whether a list has this name, and not only a name that ends with it.
fn names(list: &str, name: &str) -> bool {
    let is_of_name = |before: char| before.is_alphanumeric() || before == '_';
    list.match_indices(name).any(|(at, _)| !list[..at].ends_with(is_of_name))
}

/// Collects the files and folders of code that are missing in the list in the doc comment of a folder's `lib.rs`, `main.rs` or
/// `mod.rs`, also for the folders in it.
fn left_out_of_lists(folder: &Path, left_out: &mut Vec<String>) {
    let entries = std::fs::read_dir(folder).expect("a folder").flatten().map(|entry| entry.path());
    let (folders, files): (Vec<PathBuf>, Vec<PathBuf>) = entries.partition(|path| path.is_dir());
    let name_of = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let is_code = |name: &String| {
        name.ends_with(".rs")
            && !name.ends_with("tests.rs")
            && !["lib.rs", "main.rs", "mod.rs"].contains(&name.as_str())
    };
    let file_names = files.iter().map(|path| name_of(path)).filter(is_code);
    // The root of the code in folder `x` is `x/mod.rs` or `x.rs`.
    let has_code = |path: &&PathBuf| path.join("mod.rs").exists() || name_of(path) == "main";
    let folder_names = folders.iter().filter(has_code).map(|path| format!("{}/", name_of(path)));
    let wanted: Vec<String> = file_names.chain(folder_names).collect();
    for root in files.iter().filter(|path| ["lib.rs", "main.rs", "mod.rs"].contains(&name_of(path).as_str()))
    {
        let text = read(root);
        let comment: String = text.lines().take_while(|line| line.starts_with("//!")).collect();
        if comment.contains("```text") {
            let missing = wanted.iter().filter(|name| !names(&comment, name));
            left_out.extend(missing.map(|name| format!("{}: {name}", root.display())));
        }
    }
    folders.iter().for_each(|folder| left_out_of_lists(folder, left_out));
}

#[test]
fn every_list_of_files_names_all_of_them() {
    let mut left_out = Vec::new();
    let crates =
        std::fs::read_dir(root().join("crates")).expect("crates").flatten().map(|entry| entry.path());
    let others = ["cli", "collector", "fuzz", "plugin", "tests"].map(|folder| root().join(folder));
    crates.chain(others).for_each(|folder| left_out_of_lists(&folder.join("src"), &mut left_out));
    assert!(left_out.is_empty(), "{left_out:#?}");
}

#[test]
fn every_page_of_the_book_is_in_its_summary() {
    let source = root().join("docs/src");
    let summary = read(&source.join("SUMMARY.md"));
    for page in book().iter().filter(|page| !page.ends_with("SUMMARY.md")) {
        let name = page.strip_prefix(&source).expect("in the book").display().to_string();
        assert!(summary.contains(&format!("({name})")), "{name} is not in docs/src/SUMMARY.md");
    }
}

/// README.md, and the pages of the book up to the part for developers.
fn pages_for_users() -> Vec<PathBuf> {
    let source = root().join("docs/src");
    let summary = read(&source.join("SUMMARY.md"));
    let (users, _) = summary.split_once("# For developers").expect("a part for developers");
    let names = users.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    names.map(|name| source.join(name)).chain([root().join("README.md")]).collect()
}

/// Returns the paragraphs and items of lists of a page, each in one line, without blocks of code, tables and headings.
fn paragraphs(page: &str) -> Vec<String> {
    let mut paragraphs = vec![String::new()];
    let mut is_code = false;
    for line in page.lines().map(str::trim) {
        let is_fence = line.starts_with("```");
        is_code ^= is_fence;
        let item = line
            .strip_prefix("- ")
            .or_else(|| line.split_once(". ").filter(|(n, _)| n.parse::<u8>().is_ok()).map(|(_, item)| item));
        if is_fence || line.is_empty() || item.is_some() || line.starts_with(['|', '#', '!', '<']) {
            paragraphs.push(String::new());
        }
        if !is_code && !is_fence && !line.starts_with(['|', '#', '!', '<']) {
            let paragraph = paragraphs.last_mut().expect("at least one");
            *paragraph += item.unwrap_or(line);
            paragraph.push(' ');
        }
    }
    paragraphs
}

/// Returns the sentences of a paragraph. A span of code counts as one word, and the target of a link as none.
fn sentences(paragraph: &str) -> Vec<Vec<String>> {
    let words: Vec<&str> = paragraph.split('`').step_by(2).collect();
    let without_code = words.join("code");
    let without_targets: Vec<&str> = without_code
        .split("](")
        .enumerate()
        .map(|(at, part)| if at == 0 { part } else { part.split_once(')').map_or(part, |(_, rest)| rest) })
        .collect();
    let mut sentences = vec![Vec::new()];
    for word in without_targets.join("]").split_whitespace() {
        if word.contains(char::is_alphanumeric) {
            sentences.last_mut().expect("at least one").push(word.to_owned());
        }
        if word.trim_end_matches([')', '*', ']', '"']).ends_with(['.', '?', '!']) {
            sentences.push(Vec::new());
        }
    }
    sentences
}

/// Whether the test `FILE::NAME` is in `tests/tests/FILE.rs` or `tests/tests/FILE/main.rs`, or in `FILE.rs` of the tests of
/// host, report or counters. `FILE` may be `FOLDER::FILE`.
fn has_test(test: &str) -> bool {
    let (file, name) = test.rsplit_once("::").expect("FILE::NAME");
    let file = file.replace("::", "/");
    let test = format!("#[test]\nfn {name}() {{");
    let files = [
        format!("tests/tests/{file}.rs"),
        format!("tests/tests/{file}/main.rs"),
        format!("crates/host/tests/{file}.rs"),
        format!("crates/report/tests/{file}.rs"),
        format!("crates/counters/tests/{file}.rs"),
    ];
    files.iter().any(|file| std::fs::read_to_string(root().join(file)).is_ok_and(|text| text.contains(&test)))
}

/// Before a statement that a change of the program could make false, a comment names the test that checks it.
#[test]
fn every_test_that_a_statement_names_exists() {
    let mut held = 0;
    for page in pages_for_users() {
        let text = read(&page);
        for test in text.split(HELD_BY).skip(1).filter_map(|rest| rest.split(" -->").next()) {
            assert!(has_test(test), "{}: {test}", shown(&page));
            held += 1;
        }
    }
    assert!(held >= 5, "only {held}");
}

#[test]
fn no_sentence_for_users_has_more_than_35_words() {
    let mut long = Vec::new();
    for page in pages_for_users() {
        let text = with_includes(&page);
        for sentence in paragraphs(&text).iter().flat_map(|paragraph| sentences(paragraph)) {
            if sentence.len() > SENTENCE_WORDS_MAX {
                long.push(format!("{}: {} words: {}", shown(&page), sentence.len(), sentence.join(" ")));
            }
        }
    }
    assert!(long.is_empty(), "{long:#?}");
}

#[test]
fn the_first_pages_are_short() {
    for page in ["README.md", "ARCHITECTURE.md"] {
        let lines = read(&root().join(page)).lines().count();
        assert!(lines <= LINES_MAX, "{page} has {lines} lines");
    }
}
