//! Describes static and dynamic joules in words.

use ampere_figures::summary::{Baseline, Device, Region, View};
use ampere_model::digits::{energy, percent};
use ampere_model::text::{printable, short};
use ampere_settings::Config;
use std::collections::BTreeSet;

/// The maximum number of devices that a sentence names.
const NAMED_MAX: usize = 3;
const NAME_CHARS_MAX: usize = 40;
/// If a smaller fraction of the dynamic joules is certain, the sentence states only this limit.
const CERTAIN_PART_MIN: f64 = 0.05;

/// Describes the static joules of devices, as the end of a sentence about their joules: ", of which the node draws 1950.0 J
/// anyway (100 W, from the settings)". Returns `None` unless the policy of a device is *active*. Devices with other policies are
/// named, too, if there are any.
pub fn words(devices: &[&Device]) -> Option<String> {
    let active = devices.iter().filter_map(|device| Some((*device, device.baseline.as_ref()?)));
    let (mut known, unknown): (Vec<_>, Vec<_>) = active.partition(|(_, baseline)| baseline.is_known());
    known.sort_by(|one, other| one.0.name.cmp(&other.0.name)); // the order of the names in the sentence
    let mut words = Vec::new();
    if !known.is_empty() {
        let each: Vec<f64> = known.iter().map(|(_, baseline)| baseline.watts).collect();
        let differ = each.len() <= NAMED_MAX && each.windows(2).any(|pair| pair[0] != pair[1]);
        let watts = match differ {
            true => each.into_iter().map(short_watts).collect::<Vec<_>>().join(" + "),
            false => short_watts(each.into_iter().sum()),
        };
        let fixed: f64 = known.iter().filter_map(|(device, _)| device.static_joules).sum();
        let origins: BTreeSet<String> = known.iter().map(|of| origin(of, &known)).collect();
        let origins = origins.into_iter().collect::<Vec<_>>().join(" and ");
        let (who, draw) = subject(&devices_of(&known));
        words.push(format!(", of which {who} {draw} {} anyway ({} W, {origins})", energy(fixed), watts));
    }
    if !unknown.is_empty() {
        let (who, draw) = subject(&devices_of(&unknown));
        words.push(format!(
            "; the energy that {who} {draw} anyway is not known, so all of it counts as dynamic"
        ));
    }
    let others: Vec<&Device> = devices.iter().copied().filter(|device| device.baseline.is_none()).collect();
    if !words.is_empty() && !others.is_empty() {
        let joules = energy(others.iter().map(|device| device.total_joules).sum());
        let who = subject(&others).0;
        let is_unused = |device: &&Device| device.views.iter().all(|view| view.regions.is_empty());
        words.push(match others.iter().all(|device| device.kind == "gpu") && others.iter().all(is_unused) {
            true => format!("; {who} ran no kernel: {joules} count as idle"),
            false => format!("; the {joules} of {who} are not divided in this way"),
        });
    }
    (!words.is_empty()).then(|| words.concat())
}

/// Returns the origin of a baseline. `known` has all devices that the sentence is about, with their baselines.
fn origin((device, baseline): &(&Device, &Baseline), known: &[(&Device, &Baseline)]) -> String {
    let samples = || known.iter().map(|(_, of)| of.samples).filter(|samples| *samples > 0);
    let (least, most) = (samples().min().unwrap_or_default(), samples().max().unwrap_or_default());
    let usual = Config::default().sources.idle_watts;
    match baseline.kind.as_str() {
        "set" => "from the settings".to_owned(),
        "calibrated" => "measured by ampere calibrate".to_owned(),
        "estimate" => match device.estimate {
            Some(watts) if watts.idle_watts == usual => "assumed: not calibrated".to_owned(),
            Some(_) => "from the settings".to_owned(),
            None => "by the estimate".to_owned(),
        },
        "idle intervals" if least < most && known.len() <= NAMED_MAX => {
            let each = samples().map(|samples| samples.to_string()).collect::<Vec<_>>().join(" and ");
            format!("in {each} intervals without activity")
        }
        "idle intervals" if least < most => {
            format!("in {least} to {most} intervals without activity")
        }
        "idle intervals" => format!("in {most} intervals without activity"),
        other => printable(other),
    }
}

fn devices_of<'a>(known: &[(&'a Device, &Baseline)]) -> Vec<&'a Device> {
    known.iter().map(|(device, _)| *device).collect()
}

/// Returns a subject for the devices, and "draw" or "draws".
fn subject(devices: &[&Device]) -> (String, &'static str) {
    let is_node = |device: &Device| device.kind == "node" || device.name == "node";
    let name = |device: &Device| {
        if is_node(device) { "the node".to_owned() } else { short(&device.name, NAME_CHARS_MAX) }
    };
    match devices {
        [one] => (name(one), "draws"),
        several if several.iter().all(|device| is_node(device)) => {
            (format!("the {} nodes", several.len()), "draw")
        }
        few if few.len() <= NAMED_MAX && few.iter().all(|device| device.node == few[0].node) => {
            let mut names: Vec<String> = few.iter().map(|device| name(device)).collect();
            names.sort();
            (names.join(" and "), "draw")
        }
        many => (format!("{} devices", many.len()), "draw"),
    }
}

/// Formats watts, without a fraction if they are whole.
fn short_watts(watts: f64) -> String {
    let text = format!("{watts:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

/// Describes the part of the dynamic joules that certainly belongs to the functions that were charged for it: the sum of the
/// least that functions used. Returns `None` if there are no dynamic joules in these views, or if no function has bounds.
/// Sampled functions have no bounds, and during a run no function has them.
pub fn resolved_words<'a>(devices: impl Iterator<Item = &'a Device>) -> Option<String> {
    let has_rows = |view: &&View| view.is_active() && !view.regions.is_empty();
    let active: Vec<(&Device, &View)> =
        devices.filter_map(|device| Some((device, device.shown().find(has_rows)?))).collect();
    let dynamic: f64 = active.iter().map(|(device, view)| device.own_whole(view)).sum();
    let regions = active.iter().flat_map(|(_, view)| &view.regions);
    let recorded: Vec<&Region> = regions.filter(|row| row.figures.calls > 0).collect();
    let resolved: f64 = recorded.iter().map(|row| row.figures.resolved_joules).sum();
    let has_kernels = active.iter().any(|(_, view)| view.view == "kernels");
    let by = if has_kernels { "active time" } else { "CPU time" };
    (dynamic > 0.0 && !recorded.is_empty()).then(|| match resolved < CERTAIN_PART_MIN * dynamic {
        true => format!(
            "less than {:.0} % of the {} of dynamic energy was used while only one recorded function was active: all rows come from dividing it by {by}, which is a model",
            100.0 * CERTAIN_PART_MIN,
            energy(dynamic)
        ),
        false => format!(
            "{} of the {} of dynamic energy was used while only one recorded function was active: that part is certain, a model divided the rest",
            percent(resolved, dynamic),
            energy(dynamic)
        ),
    })
}
