//! Writes the delays into a file of settings. The file may exist already and then contains things that must not be changed:
//! comments, other devices, other settings.
//!
//! A delay goes into the first `[[device]]` that matches the counter, as in the attribution, or into a new one if none does. The
//! result is parsed before it replaces the file: all settings except these delays must be unchanged, and each line must still be
//! there. Otherwise the file is not changed.

use ampere_ring::files::{create_private, unfinished};
use ampere_settings::Config;
use anyhow::{Context, anyhow, bail};
use rustix::fs::OFlags;
use std::fs::{File, Metadata};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use toml_edit::{ArrayOfTables, DocumentMut, Item, RawString, Table, Value, value};

/// The start of the lines that calibrate writes: they are replaced when it is repeated.
const MARK: &str = "# ampere calibrate";

/// The settings of one counter that are to be written.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    pub name: String,
    pub metric: String,
    /// The delay in seconds, 0 or more.
    pub delay: f64,
    /// The standard error of the delay, in seconds.
    pub error: f64,
    /// The date and method of the measurement, on one line.
    pub how: String,
}

/// A file that settings can be written to.
pub struct Target {
    /// The target of symbolic links, which are kept.
    path: PathBuf,
    shown: PathBuf,
}

impl Target {
    /// Checks, before anything is measured, whether the file can be written or amended.
    pub fn check(path: &Path) -> anyhow::Result<Target> {
        let shown = path.to_owned();
        let path = match std::fs::canonicalize(path) {
            Ok(path) => path,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                if std::fs::symlink_metadata(path).is_ok() {
                    bail!("{} is a link to a file that is not there", path.display());
                }
                path.to_owned()
            }
            Err(error) => return Err(error).with_context(|| format!("cannot write {}", path.display())),
        };
        let target = Target { path, shown };
        let (old, _) = target.read()?;
        amend(&old, &target.origin(), "", &[])?;
        // A directory that cannot be written to is better reported now.
        let trial = unfinished(&target.path);
        create_private(&trial).with_context(|| format!("cannot write {}", target.shown.display()))?;
        let _ = std::fs::remove_file(trial);
        Ok(target)
    }

    fn origin(&self) -> String {
        self.shown.display().to_string()
    }

    /// Returns the text, and the file's owner and mode; an empty text and `None` if there is no file yet.
    fn read(&self) -> anyhow::Result<(String, Option<Metadata>)> {
        let shown = self.shown.display();
        // Opening a pipe must not wait for its writer. The links have been followed, so anything that is a link now was created
        // later.
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY).bits() as i32;
        let mut file = match File::options().read(true).custom_flags(flags).open(&self.path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok((String::new(), None)),
            opened => opened.with_context(|| format!("cannot read {shown}"))?,
        };
        let found = file.metadata().with_context(|| format!("cannot read {shown}"))?;
        if found.is_dir() {
            bail!("{shown} is a directory: name a file");
        }
        if !found.is_file() {
            bail!("{shown} is no plain file");
        }
        let mut text = String::new();
        file.read_to_string(&mut text).with_context(|| format!("cannot read {shown}"))?;
        Ok((text, Some(found)))
    }

    /// Replaces the old text, with its mode and owner. Returns the changes, one line each.
    pub fn write(&self, node: &str, settings: &[Setting]) -> anyhow::Result<Vec<String>> {
        let (old, found) = self.read()?; // it may have been edited meanwhile
        let amended = amend(&old, &self.origin(), node, settings)?;
        let written = ampere_owned::replace_named(&self.path, 0o666, |file| {
            if let Some(old) = found {
                let file = file.get_ref();
                file.set_permissions(std::fs::Permissions::from_mode(old.mode() & 0o777))?;
                // Only root can give a file to another user, and only root needs to.
                let _ = std::os::unix::fs::fchown(file, Some(old.uid()), Some(old.gid()));
            }
            file.write_all(amended.text.as_bytes())?;
            file.flush()?;
            file.get_ref().sync_all()
        });
        written.with_context(|| format!("cannot write {}", self.shown.display()))?;
        Ok(amended.remarks)
    }
}

#[derive(Debug)]
struct Amended {
    text: String,
    remarks: Vec<String>,
}

/// Amends the text. `origin` names the file in messages.
fn amend(old: &str, origin: &str, node: &str, settings: &[Setting]) -> anyhow::Result<Amended> {
    let before = Config::parse(old, origin)?;
    // The toml_edit crate writes new lines without a carriage return: all of them are added again below.
    let carriage_returns = old.contains("\r\n");
    let plain = old.replace("\r\n", "\n");
    let mut document: DocumentMut =
        plain.parse().map_err(|_| anyhow!("{origin} cannot be amended: its TOML is not understood"))?;
    let mut expected = before.clone();
    let mut remarks = Vec::new();
    for (index, of_one) in by_device(&before, node, settings, origin)? {
        let delay = of_one[0];
        let name = &before.devices[index].name;
        expected.devices[index].delay = parsed(delay);
        set(&mut document, index, delay, origin)?;
        remarks.push(format!("{origin}: [[device]] {name:?} has now delay = \"{}\"", text(delay)));
    }
    for new in settings.iter().filter(|setting| find(&before, node, setting).is_none()) {
        append(&mut document, new, origin)?;
        remarks.push(format!("{origin}: [[device]] {:?} is new, with delay = \"{}\"", new.name, text(new)));
    }
    let mut new = document.to_string();
    if carriage_returns {
        new = new.replace('\n', "\r\n");
    }
    check(old, &new, &expected, settings, node, origin)?;
    Ok(Amended { text: new, remarks })
}

/// Groups settings by the device of the file that they match, by its index. The first of several settings is the one whose delay
/// is the median.
fn by_device<'a>(
    config: &Config,
    node: &str,
    settings: &'a [Setting],
    origin: &str,
) -> anyhow::Result<Vec<(usize, Vec<&'a Setting>)>> {
    let mut all = Vec::new();
    for (index, device) in config.devices.iter().enumerate() {
        let mut of_one: Vec<&Setting> =
            settings.iter().filter(|setting| find(config, node, setting) == Some(index)).collect();
        if of_one.is_empty() {
            continue;
        }
        of_one.sort_by(|a, b| a.delay.total_cmp(&b.delay));
        let (least, most) = (of_one[0], of_one[of_one.len() - 1]);
        if most.delay - least.delay > 4.0 * (least.error + most.error) {
            bail!(
                "{origin}: [[device]] {:?} is about {} and {}, whose delays differ ({} and {}): give each a [[device]] of its \
                 own; nothing was written",
                device.name,
                least.name,
                most.name,
                text(least),
                text(most)
            );
        }
        let middle = (of_one.len() - 1) / 2;
        of_one.swap(0, middle);
        all.push((index, of_one));
    }
    Ok(all)
}

/// Returns the device of the file that the attribution would use for a counter: the first that matches.
fn find(config: &Config, node: &str, setting: &Setting) -> Option<usize> {
    config.devices.iter().position(|device| device.name_for(node, &setting.metric).is_some())
}

fn text(setting: &Setting) -> String {
    format!("{:.1}ms", setting.delay * 1e3)
}

/// Returns the delay as it will be read from the file.
fn parsed(setting: &Setting) -> Duration {
    let milliseconds: f64 = format!("{:.1}", setting.delay * 1e3).parse().unwrap_or(0.0);
    Duration::try_from_secs_f64(milliseconds * 1e-3).unwrap_or_default()
}

fn devices<'a>(document: &'a mut DocumentMut, origin: &str) -> anyhow::Result<&'a mut ArrayOfTables> {
    let item = document.entry("device").or_insert_with(|| Item::ArrayOfTables(ArrayOfTables::new()));
    item.as_array_of_tables_mut()
        .with_context(|| format!("{origin} cannot be amended: write its devices as [[device]] sections"))
}

fn set(document: &mut DocumentMut, index: usize, setting: &Setting, origin: &str) -> anyhow::Result<()> {
    let table = devices(document, origin)?
        .get_mut(index)
        .with_context(|| format!("{origin} cannot be amended: its devices are not where they were"))?;
    let mut delay = Value::from(text(setting));
    match table.get_mut("delay").and_then(Item::as_value_mut) {
        Some(old) => {
            // Text before and after the value, such as a comment, is the user's. An insert would lose it.
            *delay.decor_mut() = old.decor().clone();
            *old = delay;
        }
        None => drop(table.insert("delay", Item::Value(delay))),
    }
    remark(table, setting);
    Ok(())
}

/// Puts the comment above a device's delay, in place of an earlier one of calibrate.
fn remark(table: &mut Table, setting: &Setting) {
    let Some(mut key) = table.key_mut("delay") else { return };
    let decor = key.leaf_decor_mut();
    let above = decor.prefix().and_then(RawString::as_str).unwrap_or_default();
    let indent: String = above.rsplit('\n').next().unwrap_or_default().to_owned();
    let kept: String =
        above.split_inclusive('\n').filter(|line| !line.trim_start().starts_with(MARK)).collect();
    let kept = kept.strip_suffix(&indent).unwrap_or(&kept).to_owned();
    decor.set_prefix(format!("{kept}{indent}{MARK}, {}\n{indent}", setting.how));
}

fn append(document: &mut DocumentMut, setting: &Setting, origin: &str) -> anyhow::Result<()> {
    let is_first = document.as_table().is_empty();
    let mut table = Table::new();
    table["name"] = value(escape_name(&setting.name));
    // A literal string keeps the pattern's backslashes, as patterns are usually written.
    let pattern = escape_pattern(&setting.metric);
    table["metric"] = match pattern.contains('\'') {
        true => value(pattern),
        false => format!("'{pattern}'").parse::<Value>().map_or_else(|_| value(pattern.clone()), value),
    };
    table["delay"] = value(text(setting));
    remark(&mut table, setting);
    table.decor_mut().set_prefix(if is_first { "" } else { "\n" });
    devices(document, origin)?.push(table);
    Ok(())
}

/// Escapes `$`, which refers to the pattern's groups in a device's name.
fn escape_name(name: &str) -> String {
    name.replace('$', "$$")
}

/// Returns a regular expression that matches this text and nothing else.
fn escape_pattern(text: &str) -> String {
    let escaped = text.chars().flat_map(|c| [Some('\\').filter(|_| r"\.+*?()|[]{}^$".contains(c)), Some(c)]);
    escaped.flatten().collect()
}

/// Checks that nothing is lost and nothing else is changed.
fn check(
    old: &str,
    new: &str,
    expected: &Config,
    settings: &[Setting],
    node: &str,
    origin: &str,
) -> anyhow::Result<()> {
    let refused = |why: &str| Err(anyhow!("{origin} cannot be amended safely: {why}; nothing was written"));
    let Ok(mut after) = Config::parse(new, origin) else {
        return refused("it would not be understood any more");
    };
    for setting in settings {
        let found = find(&after, node, setting).map(|index| after.devices[index].delay);
        // If a device has several counters, it gets the delay of one of them.
        let close = |delay: Duration| settings.iter().any(|other| parsed(other) == delay);
        if !found.is_some_and(close) {
            return refused(&format!("the delay of {} would not be in force", setting.name));
        }
    }
    after.devices.truncate(expected.devices.len());
    if format!("{after:?}") != format!("{expected:?}") {
        return refused("other settings would change");
    }
    let mut lines = new.lines();
    for line in old.lines() {
        let is_ours = line.trim_start().starts_with(MARK) || line.trim_start().starts_with("delay");
        if !is_ours && !lines.any(|new| new == line) {
            return refused(&format!("the line {line:?} would change"));
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "write_tests.rs"]
mod tests;
