//! Compares a run with the power measurement methodology of the EE HPC WG (Energy Efficient High Performance Computing Working
//! Group), which the Green500 list uses. For each aspect and level, the result is whether the run meets the requirements, and
//! what is missing. The requirements are those of table 3.1 of version 3.0, the working copy of 8 November 2024.

use crate::first;
use ampere_figures::summary::{Baseline, Device, Summary, topmost};
use ampere_model::digits::{energy, significant};
use ampere_model::text::{plural, printable, short, wrapped};
use std::fmt::Write;

const VERSION: &str =
    "version 3.0, working copy of 8 November 2024, github.com/EEHPCWG/PowerMeasurementMethodology";
/// The limits of the methodology.
const SAMPLE_SECONDS_MAX: f64 = 1.0;
const CORE_SECONDS_MIN: f64 = 60.0;
const MEASUREMENTS_MIN: u64 = 10;
const WATTS_ENOUGH_AT_1: f64 = 40_000.0;
const WATTS_MIN_AT_1: f64 = 2000.0;
const WATTS_MIN_AT_2: f64 = 10_000.0;
const NODES_MIN: usize = 15;
/// The width of text below a label.
const WIDTH: usize = 96;
const LABEL: usize = 16;
const COMMAND_CHARS_MAX: usize = 80;

/// Whether a run fulfils a requirement.
enum Fulfilled {
    Yes,
    No(String),
    /// The summary does not show whether the run fulfils it.
    Unknown(String),
}
use Fulfilled::{No, Unknown, Yes};

/// An aspect of the methodology.
struct Aspect {
    name: &'static str,
    /// The property of the run that the aspect is about, in words.
    has: String,
    /// Whether the run fulfils the requirements of levels 1 to 3.
    levels: [Fulfilled; 3],
}

pub fn render(summary: &Summary) -> String {
    let run = &summary.run;
    let mut out =
        format!("Power measurement methodology of the EE HPC WG: what this run fulfils\n({VERSION})\n\n");
    let command = short(&printable(&first::command_line(&run.command)), COMMAND_CHARS_MAX);
    paragraph("command", &command, &mut out);
    let watts = watts(summary);
    let average =
        watts.map_or_else(|| "not known".to_owned(), |watts| format!("{} W", significant(watts, 4)));
    let size = format!(
        "{} in {} s on {}",
        energy(run.total_joules),
        significant(run.seconds, 4),
        plural(run.nodes.len() as u64, "node")
    );
    paragraph("full run", &format!("{average} on average: {size}, {}", printable(&run.energy)), &mut out);
    paragraph(
        "core phase",
        "its start and end are not marked in a summary. For the region that is the core phase, such as HPL_pdgesv, ampere report DIR \
         -f timeline --region NAME has the time and the joules of each rank's calls",
        &mut out,
    );
    paragraph("GFLOPS/W", &efficiency(summary), &mut out);
    out.push('\n');
    let aspects = aspects(summary, watts.unwrap_or_default());
    for aspect in &aspects {
        let words = aspect.levels.each_ref().map(|level| match level {
            Yes => "yes",
            No(_) => "no",
            Unknown(_) => "not known",
        });
        let levels = format!("level 1: {}, level 2: {}, level 3: {}", words[0], words[1], words[2]);
        paragraph(aspect.name, &format!("{}. {levels}", aspect.has), &mut out);
    }
    for level in 0..3 {
        // Writing to a String cannot fail.
        let _ = writeln!(out, "\nmissing for level {}", level + 1);
        for aspect in &aspects {
            match &aspect.levels[level] {
                Yes => {}
                No(why) | Unknown(why) => paragraph(aspect.name, why, &mut out),
            }
        }
    }
    out
}

fn paragraph(label: &str, text: &str, out: &mut String) {
    let lines = wrapped(text, WIDTH - LABEL);
    let labels = std::iter::once(label).chain(std::iter::repeat(""));
    labels.zip(lines).for_each(|(label, line)| out.push_str(&format!("{label:LABEL$}{line}\n")));
}

fn watts(summary: &Summary) -> Option<f64> {
    let run = &summary.run;
    (run.seconds > 0.0 && run.total_joules > 0.0).then(|| run.total_joules / run.seconds)
}

/// Returns the efficiency in GFLOPS/W, computed from a unit of work that counts floating-point operations.
fn efficiency(summary: &Summary) -> String {
    let work = summary.run.work.iter().find_map(|work| Some((work, giga(&work.name)?)));
    let Some((work, giga)) = work.filter(|_| summary.run.total_joules > 0.0) else {
        return "not known: count the operations as a unit of work that is named flops, gflop or tflop"
            .to_owned();
    };
    let per_watt = work.units * giga / summary.run.total_joules;
    format!(
        "{} over the full run, from the work {}",
        significant(per_watt, 4),
        short(&printable(&work.name), COMMAND_CHARS_MAX)
    )
}

/// Returns the billions of floating-point operations in a unit of work of this name.
fn giga(name: &str) -> Option<f64> {
    match name.to_ascii_lowercase().trim_end_matches('s') {
        "flop" => Some(1e-9),
        "gflop" => Some(1.0),
        "tflop" => Some(1e3),
        _ => None,
    }
}

fn aspects(summary: &Summary, watts: f64) -> [Aspect; 7] {
    let devices: Vec<&Device> = topmost(summary).collect();
    [
        granularity(&devices),
        timing(summary),
        measurements(&devices),
        fraction(summary.run.nodes.len(), watts),
        subsystems(&devices),
        location(),
        accuracy(),
    ]
}

/// Whether energy counters of the hardware were read, and no power was estimated.
fn is_read(devices: &[&Device]) -> bool {
    !devices.is_empty() && devices.iter().all(|device| ["measured", "integrated"].contains(&&*device.energy))
}

fn granularity(devices: &[&Device]) -> Aspect {
    let period = devices.iter().map(|device| device.sample_seconds).fold(0.0, f64::max);
    let has_integral = devices.iter().all(|device| device.energy == "measured");
    let estimated = || No("the energy is not measured: a counter of the hardware is needed".to_owned());
    let sampled = || match is_read(devices) {
        true if period <= SAMPLE_SECONDS_MAX => Yes,
        true => No("a sample each second".to_owned()),
        false => estimated(),
    };
    let integrated = match is_read(devices) {
        true if has_integral => Yes,
        true => No("a counter that integrates energy, instead of a power".to_owned()),
        false => estimated(),
    };
    let has = match is_read(devices) {
        true => format!(
            "a sample every {} s, {}",
            significant(period, 3),
            if has_integral { "of counters that integrate" } else { "of a power" }
        ),
        false => "the energy is estimated, at least in part".to_owned(),
    };
    Aspect { name: "1a granularity", has, levels: [sampled(), sampled(), integrated] }
}

fn timing(summary: &Summary) -> Aspect {
    let run = &summary.run;
    let uncovered: f64 = topmost(summary).map(|device| device.uncovered_seconds).sum();
    let is_whole = run.gaps.is_empty() && uncovered == 0.0;
    let covered =
        || if is_whole { Yes } else { No("the energy of a part of the run is not known".to_owned()) };
    let at_1 = match covered() {
        Yes if run.seconds < CORE_SECONDS_MIN => No(format!("a core phase of at least {CORE_SECONDS_MIN} s")),
        Yes => Unknown(format!("that the core phase takes at least {CORE_SECONDS_MIN} s")),
        other => other,
    };
    let has = format!("{} of {} s", if is_whole { "all" } else { "a part" }, significant(run.seconds, 4));
    Aspect { name: "1b timing", has, levels: [at_1, covered(), covered()] }
}

fn measurements(devices: &[&Device]) -> Aspect {
    let samples = devices.iter().map(|device| device.samples).min().unwrap_or_default();
    let has_idle = devices.iter().all(|device| device.baseline.as_ref().is_some_and(Baseline::is_known));
    let of_core = || Unknown("the average power of the core phase, which is not marked".to_owned());
    let more = || match () {
        () if samples < MEASUREMENTS_MIN => {
            No(format!("at least {MEASUREMENTS_MIN} measurements in the core phase"))
        }
        () if !has_idle => No("idle power: measure the idle nodes, or set baseline_watts".to_owned()),
        () => of_core(),
    };
    let at_1 = if samples > 0 { of_core() } else { No("samples".to_owned()) };
    let idle = if has_idle { "the idle power is known" } else { "no idle power" };
    Aspect {
        name: "1c measured",
        has: format!("{samples} samples of each device, {idle}"),
        levels: [at_1, more(), more()],
    }
}

fn fraction(nodes: usize, watts: f64) -> Aspect {
    let of_system =
        |part: &str| Unknown(format!("that this is {part}: the size of the system is not known to a run"));
    let at_1 = match () {
        () if watts >= WATTS_ENOUGH_AT_1 => Yes,
        () if nodes < NODES_MIN || watts < WATTS_MIN_AT_1 => of_system(
            "the entire system, or at least 40 kW, or the largest of a tenth of the compute nodes, 2 kW and 15 nodes",
        ),
        () => of_system("at least a tenth of the compute nodes"),
    };
    let at_2 = match nodes >= NODES_MIN && watts >= WATTS_MIN_AT_2 {
        true => of_system("at least an eighth of the compute nodes"),
        false => of_system(
            "the entire system, or the greater of an eighth of the compute nodes, 10 kW and 15 nodes",
        ),
    };
    let has = format!("{} with {} W", plural(nodes as u64, "node"), significant(watts, 4));
    Aspect {
        name: "2 fraction",
        has,
        levels: [at_1, at_2, of_system("the entire system with all its subsystems")],
    }
}

fn subsystems(devices: &[&Device]) -> Aspect {
    let is_of_nodes = is_read(devices) && devices.iter().all(|device| device.kind == "node");
    let has = if is_of_nodes { "whole compute nodes" } else { "parts of compute nodes" }.to_owned();
    let nodes =
        if is_of_nodes { "" } else { "a counter of the whole node, with memory, fans and power supply; " };
    let levels = [
        "the interconnect, measured or estimated",
        "all participating subsystems, such as interconnect, storage and cooling in the racks, measured or estimated",
        "all participating subsystems, such as interconnect, storage and cooling in the racks, measured",
    ];
    Aspect { name: "3 subsystems", has, levels: levels.map(|words| No(format!("{nodes}{words}"))) }
}

fn location() -> Aspect {
    let levels = [
        "modelled with the manufacturer's data",
        "modelled with off-line measurements of one power supply",
        "measured at the same time",
    ];
    Aspect {
        name: "4a location",
        has: "counters inside the nodes, most of them downstream of the power supply".to_owned(),
        levels: levels.map(|words| {
            No(format!("a meter upstream of the power supply, or the conversion loss, {words}"))
        }),
    }
}

fn accuracy() -> Aspect {
    let levels = ["5 %", "2 %", "1 %"];
    Aspect {
        name: "4b accuracy",
        has: "not known to a run".to_owned(),
        levels: levels.map(|most| {
            Unknown(format!("the specification of the counters, with an error of at most {most}"))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::summary;
    use ampere_figures::summary::Work;

    #[test]
    fn each_aspect_says_what_a_run_fulfils_and_what_is_missing() {
        let mut run = summary();
        run.run.command = vec!["./xhpl".to_owned()];
        expect_test::expect![[r#"
            Power measurement methodology of the EE HPC WG: what this run fulfils
            (version 3.0, working copy of 8 November 2024, github.com/EEHPCWG/PowerMeasurementMethodology)

            command         ./xhpl
            full run        1.000 W on average: 10.0 J in 10.00 s on 0 nodes, measured
            core phase      its start and end are not marked in a summary. For the region that is the core
                            phase, such as HPL_pdgesv, ampere report DIR -f timeline --region NAME has the
                            time and the joules of each rank's calls
            GFLOPS/W        not known: count the operations as a unit of work that is named flops, gflop or
                            tflop

            1a granularity  a sample every 0.100 s, of counters that integrate. level 1: yes, level 2: yes,
                            level 3: yes
            1b timing       all of 10.00 s. level 1: no, level 2: yes, level 3: yes
            1c measured     101 samples of each device, no idle power. level 1: not known, level 2: no,
                            level 3: no
            2 fraction      0 nodes with 1.000 W. level 1: not known, level 2: not known, level 3: not known
            3 subsystems    parts of compute nodes. level 1: no, level 2: no, level 3: no
            4a location     counters inside the nodes, most of them downstream of the power supply. level 1:
                            no, level 2: no, level 3: no
            4b accuracy     not known to a run. level 1: not known, level 2: not known, level 3: not known

            missing for level 1
            1b timing       a core phase of at least 60 s
            1c measured     the average power of the core phase, which is not marked
            2 fraction      that this is the entire system, or at least 40 kW, or the largest of a tenth of
                            the compute nodes, 2 kW and 15 nodes: the size of the system is not known to a
                            run
            3 subsystems    a counter of the whole node, with memory, fans and power supply; the
                            interconnect, measured or estimated
            4a location     a meter upstream of the power supply, or the conversion loss, modelled with the
                            manufacturer's data
            4b accuracy     the specification of the counters, with an error of at most 5 %

            missing for level 2
            1c measured     idle power: measure the idle nodes, or set baseline_watts
            2 fraction      that this is the entire system, or the greater of an eighth of the compute
                            nodes, 10 kW and 15 nodes: the size of the system is not known to a run
            3 subsystems    a counter of the whole node, with memory, fans and power supply; all
                            participating subsystems, such as interconnect, storage and cooling in the
                            racks, measured or estimated
            4a location     a meter upstream of the power supply, or the conversion loss, modelled with
                            off-line measurements of one power supply
            4b accuracy     the specification of the counters, with an error of at most 2 %

            missing for level 3
            1c measured     idle power: measure the idle nodes, or set baseline_watts
            2 fraction      that this is the entire system with all its subsystems: the size of the system
                            is not known to a run
            3 subsystems    a counter of the whole node, with memory, fans and power supply; all
                            participating subsystems, such as interconnect, storage and cooling in the
                            racks, measured
            4a location     a meter upstream of the power supply, or the conversion loss, measured at the
                            same time
            4b accuracy     the specification of the counters, with an error of at most 1 %
        "#]]
        .assert_eq(&render(&run));
        let work = |name: &str, units| Work { name: name.to_owned(), units, joules_per_unit: None };
        let joules = run.run.total_joules;
        for (name, units) in [("flops", 4e9 * joules), ("GFLOP", 4.0 * joules), ("tflops", 4e-3 * joules)] {
            run.run.work = vec![work("steps", 7.0), work(name, units)];
            assert!(
                render(&run)
                    .contains(&format!("GFLOPS/W        4.000 over the full run, from the work {name}\n"))
            );
        }
        run.run.work = vec![work("steps", 7.0)];
        assert!(render(&run).contains("GFLOPS/W        not known: count"));
        run.devices[0].energy = "estimated".to_owned();
        let estimated = render(&run);
        assert!(estimated.contains("level 1: no, level 2: no, level 3: no"), "{estimated}");
        assert!(
            estimated.contains("1a granularity") && estimated.contains("a counter of the hardware is needed")
        );
    }
}
