//! Checks of `[[device]]` settings that need no run: what can never be meant, and the nearest names to one that matches nothing.

use crate::{DeviceSetting, edit_distance};

/// Names that are offered in place of one that matches nothing.
const MOST_NAMES: usize = 4;

/// Why a setting can never be used as it is written.
pub fn impossible(before: &[DeviceSetting], setting: &DeviceSetting) -> Option<String> {
    if let Some(first) = before.iter().find(|first| patterns(first) == patterns(setting)) {
        let metric = plain(setting.metric.as_str());
        return Some(format!("metric = '{metric}' is device {:?} already", first.name));
    }
    let groups = setting.metric.captures_len() - 1;
    let numbered = setting.name.split('$').skip(1).filter_map(|rest| {
        let rest = rest.strip_prefix('{').unwrap_or(rest);
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        rest[..end].parse::<usize>().ok()
    });
    let missing = numbered.into_iter().find(|number| *number > groups)?;
    let groups = if groups == 1 { "1 group".to_owned() } else { format!("{groups} groups") };
    Some(format!("name: there is no ${missing}, metric = '{}' has {groups}", plain(setting.metric.as_str())))
}

/// What a setting is about.
pub fn patterns(setting: &DeviceSetting) -> (Option<&str>, &str) {
    (setting.node.as_ref().map(|node| node.as_str()), setting.metric.as_str())
}

/// A pattern as it was written.
pub fn plain(pattern: &str) -> &str {
    pattern.strip_prefix("^(?:").and_then(|rest| rest.strip_suffix(")$")).unwrap_or(pattern)
}

/// The first few names, and how many more there are.
pub fn listed<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> String {
    let count = names.len();
    let shown: Vec<&str> = names.take(MOST_NAMES).collect();
    let more = if count > MOST_NAMES { format!(" and {} more", count - MOST_NAMES) } else { String::new() };
    format!("{}{more}", shown.join(", "))
}

/// "it could be a, b or c", the most similar first.
pub fn nearest<'a>(pattern: &str, names: impl Iterator<Item = &'a str>) -> String {
    let literal: String = pattern.chars().filter(|c| !r"\()[]*+?^$|".contains(*c)).collect();
    let mut names: Vec<&str> = names.collect();
    names.sort_by_key(|name| (edit_distance(&literal, name), *name));
    match names.len() {
        0 => "there is none".to_owned(),
        1 => format!("there is only {}", names[0]),
        count => {
            let more = count.saturating_sub(MOST_NAMES);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            names.truncate(MOST_NAMES);
            format!("there are {}{more}", names.join(", "))
        }
    }
}
