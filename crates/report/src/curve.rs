//! Power over time as a picture: an area, with its highest value and the run's length beside it.

use ampere_timeline::curve::PowerCurve;
use maud::{Markup, html};
use std::fmt::Write;

const WIDTH: f64 = 1200.0;
const HEIGHT: f64 = 90.0;
/// Below and above the area, for words.
const MARGIN: f64 = 16.0;

pub fn most(curve: &PowerCurve) -> f64 {
    curve.watts.iter().copied().fold(0.0, f64::max)
}

/// `scale`: the watts that are as high as the picture.
pub fn picture(curve: &PowerCurve, scale: f64, quality: &str) -> Markup {
    let most = most(curve);
    let seconds = curve.step_seconds * curve.watts.len() as f64;
    let words = if quality == "measured" { String::new() } else { format!(", {quality}") };
    let label = format!("power over {seconds:.1} s, at most {most:.1} W{words}");
    html! {
        svg.power viewBox=(format!("0 0 {WIDTH} {}", HEIGHT + 2.0 * MARGIN)) role="img" aria-label=(label) {
            title { (label) }
            path d=(area(curve, scale)) {}
            text x="0" y="11" { (format!("{most:.1} W at most, mean of {} s{words}", step(curve.step_seconds))) }
            text x="0" y=(HEIGHT + 2.0 * MARGIN - 3.0) { "0 s" }
            text.end x=(WIDTH) y=(HEIGHT + 2.0 * MARGIN - 3.0) { (format!("{seconds:.1} s")) }
        }
    }
}

fn step(seconds: f64) -> String {
    if seconds < 1.0 { format!("{seconds:.2}") } else { format!("{seconds:.1}") }
}

/// Steps, as they were measured: nothing is known of the power within one.
fn area(curve: &PowerCurve, scale: f64) -> String {
    let (wide, base) = (WIDTH / curve.watts.len().max(1) as f64, HEIGHT + MARGIN);
    let mut path = format!("M0 {base:.1}");
    for (at, watts) in curve.watts.iter().enumerate() {
        let high = if scale > 0.0 { HEIGHT * watts.max(0.0) / scale } else { 0.0 };
        let _ = write!(path, "V{:.1}H{:.1}", base - high, wide * (at + 1) as f64);
    }
    path + &format!("V{base:.1}Z")
}
