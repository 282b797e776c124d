//! The reference of all settings, made from the table: `docs/src/settings.md`, and a section of the manual page.

use crate::section::SectionKey;
use crate::table::{SETTINGS, Setting};
use crate::{custom, device};
use std::fmt::Write;

const HEAD: &str = "\
# Settings

<!-- Made by `ampere shipped`: edit crates/settings instead. -->

Settings come from the file that `--config` or `AMPERE_CONFIG` names; [a settings file](settings-file.md) is an example.
Each setting has an environment variable, which takes precedence over the file. An invalid setting is reported with its line
and the allowed values; `ampere doctor` checks what is set. Times are written with their unit: `\"250us\"`, `\"1ms\"`, `\"1.5s\"`.
";

/// The tables of the file, and their subjects.
const TABLES: &[(&str, &str)] = &[
    ("attribution", "How joules are divided."),
    ("sampler", "How often the hardware is read."),
    ("counters", "Which readings of counters are accepted as plausible."),
    ("trace", "The OTF2 trace."),
    ("spool", "Records on disk, from which the trace is made."),
    ("output", "The directories for results."),
    ("estimate", "The estimate from CPU time, if no counter can be read."),
    ("site", "What the energy means for the site: estimates in results, if one of these is set."),
    ("topology", "The assignment of ranks to GPUs."),
    ("collector", "The process on each node."),
    ("metrics", "The figures that are served while the job runs."),
];

/// Returns the text of `docs/src/settings.md`.
pub fn markdown() -> String {
    let mut page = HEAD.to_owned();
    for (table, about) in TABLES {
        let _ = write!(page, "\n## [{table}]\n\n{about}\n\n");
        page.push_str(
            "| key | variable | value | default | what it does |\n| --- | --- | --- | --- | --- |\n",
        );
        for setting in SETTINGS {
            if let Some((_, key)) = setting.key.filter(|(of, _)| of == table) {
                row(&mut page, &[&format!("`{key}`"), &format!("`{}`", setting.variable)], setting);
            }
        }
    }
    let about = "One section for each device, or kind of device, for which the defaults are not right. The first section that matches a\n\
                 metric applies to it.";
    section(&mut page, "device", about, device::KEYS);
    let about = "One section for each [counter of your own](counters.md#a-counter-of-your-own).";
    section(&mut page, "source", about, custom::KEYS);
    page.push_str("\n## Variables without a key\n\n| variable | value | default | what it does |\n| --- | --- | --- | --- |\n");
    for setting in SETTINGS.iter().filter(|setting| setting.key.is_none() && !setting.is_internal()) {
        row(&mut page, &[&format!("`{}`", setting.variable)], setting);
    }
    page.push_str("\nThese are set only by ampere, for its own processes, and by tests:\n\n| variable | purpose |\n| --- | --- |\n");
    for setting in SETTINGS.iter().filter(|setting| setting.is_internal()) {
        let _ = writeln!(page, "| `{}` | {} |", setting.variable, setting.about);
    }
    page
}

fn section<Draft: Default>(page: &mut String, name: &str, about: &str, keys: &[SectionKey<Draft>]) {
    let head = "| key | value | default | what it does |\n| --- | --- | --- | --- |";
    let _ = writeln!(page, "\n## [[{name}]]\n\n{about}\n\n{head}");
    for key in keys {
        let _ = writeln!(page, "| `{}` | {} | {} | {} |", key.key, key.allowed(), key.default, key.about);
    }
}

fn row(page: &mut String, names: &[&str], setting: &Setting) {
    let cells = [setting.allowed(), setting.default(), setting.about.to_owned()];
    let names = names.iter().map(|name| (*name).to_owned());
    let _ = writeln!(page, "| {} |", names.chain(cells).collect::<Vec<_>>().join(" | "));
}

/// Returns the variables and their descriptions, for the manual page.
pub fn variables() -> impl Iterator<Item = (&'static str, &'static str)> {
    SETTINGS.iter().filter(|setting| !setting.is_internal()).map(|setting| (setting.variable, setting.about))
}
