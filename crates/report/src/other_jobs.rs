//! Describes the energy of other jobs on the nodes in words.

use ampere_figures::summary::{Device, Summary, topmost};
use ampere_model::digits::{energy, percent};

/// A smaller part of the dynamic joules is not mentioned.
const PART_MIN: f64 = 0.01;

/// Returns the joules that other jobs used, of all devices that are not contained in another.
pub fn joules(summary: &Summary) -> f64 {
    let ranks = topmost(summary).filter_map(|device| device.shown().find(|view| view.view == "ranks"));
    ranks.map(|view| view.other_jobs_joules).sum()
}

/// Returns "other jobs used 30.1 J (12 %) of the dynamic joules, by their CPU time". `None` if the part is at most `PART_MIN`.
pub fn words(summary: &Summary) -> Option<String> {
    let is_shared = |device: &&Device| device.shown().any(|view| view.other_jobs_joules > 0.0);
    let shared = topmost(summary).filter(is_shared);
    let dynamic: f64 = shared.filter_map(|device| device.dynamic_joules).sum();
    let joules = joules(summary);
    (joules > PART_MIN * dynamic).then(|| {
        let part = percent(joules, dynamic);
        format!("other jobs used {} ({part}) of the dynamic joules, by their CPU time", energy(joules))
    })
}
