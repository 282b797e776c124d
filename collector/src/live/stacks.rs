//! Decides whose stacks are sampled, and when.

use super::LiveRun;
use crate::node_watch::NodeWatch;
use crate::stacks::{Activity, StackSampling, notes_of_not_counted};
use ampere_settings::{Policy, StackPeriod};
use std::time::Duration;

/// Records when threads are on a CPU, and samples stacks if that is wanted. This covers the processes that `ampere run` is about
/// to start, or has started before an earlier collector was killed, and other processes that are found.
pub fn sample(run: &mut LiveRun, launcher: Option<u32>, takes_over: bool) {
    if run.options.replay.is_some() {
        return;
    }
    let period = run.options.config.sampler.stacks.unwrap_or(StackPeriod::Off);
    // The policy `active` needs to know when threads are on a CPU.
    let records_cpu_times = matches!(run.options.config.attribution.policy, None | Some(Policy::Active));
    if period == StackPeriod::Off && !run.options.config.sampler.events.is_empty() {
        run.notes.add(
            "no events are counted in threads: they are read with samples of stacks, which are switched off",
        );
    }
    if period == StackPeriod::Off && !records_cpu_times {
        return;
    }
    let run_cpu = run.node.as_ref().map(NodeWatch::shared);
    let launched = launcher.filter(|_| !takes_over);
    let events = &run.options.config.sampler.events;
    match StackSampling::begin(run.session.directory(), launched, period, events, records_cpu_times, run_cpu)
    {
        Ok(stacks) => {
            note_activity(run, &stacks);
            run.notes.extend(notes_of_not_counted(&stacks.not_counted));
            let running = launcher.filter(|_| takes_over).map(descendants).unwrap_or_default();
            running.into_iter().for_each(|process| stacks.take_over(process));
            run.sampling.stacks = Some(stacks);
        }
        Err(why) => run.notes.add(format!("no stacks are sampled: {why}")),
    }
}

/// Adds a note if the times at which threads are on a CPU are not fully known, with the reason.
fn note_activity(run: &mut LiveRun, stacks: &StackSampling) {
    if let Some(activity) = stacks.activity {
        activity.as_str().clone_into(&mut run.options.manifest.progress.activity);
        run.options.save_manifest(&run.ingest.spool, &mut run.notes);
    }
    let Some(why) = &stacks.failure else { return };
    if stacks.wants_samples {
        run.notes.add(format!("no stacks are sampled: {why}"));
    }
    let instead = match stacks.activity {
        None | Some(Activity::Switches) => return,
        Some(Activity::Schedstat) => {
            "the kernel's count of the CPU time of each thread is read ten times a second"
        }
        Some(Activity::None) => "it is not known, because the kernel has no schedstat",
    };
    let because = if stacks.wants_samples { String::new() } else { format!(" ({why})") };
    run.notes.add(format!("when threads are on a CPU is not recorded at each switch{because}: {instead}"));
}

/// Samples the stacks of commands, and of processes that write logs, if no sampled process has started them.
pub(super) fn sample_found(run: &mut LiveRun) {
    for command in run.ingest.take_commands() {
        match &run.sampling.stacks {
            Some(stacks) if command.waits => stacks.add_command(command),
            Some(stacks) => stacks.add(command.pid),
            None => run.session.release_command(&command),
        }
    }
    let Some(stacks) = &run.sampling.stacks else { return };
    run.ingest.take_found().for_each(|process| stacks.add(process));
}

/// Ends sampling, after which all samples are in the rings. Returns the CPU time between two samples if it differs from the
/// requested one.
pub(crate) fn end(run: &mut LiveRun) -> Option<Duration> {
    let stacks = run.sampling.stacks.take();
    note_killed_sampler(run, stacks.as_ref().is_some_and(|stacks| stacks.has_samples));
    let said = stacks?.stop();
    run.notes.extend(said.notes);
    run.sampling.stacks_overhead = said.overhead;
    run.sampling.given_to_parents = said.given_to_parents;
    said.losses.into_iter().for_each(|loss| run.notes.add_loss(loss));
    said.period
}

/// Sets the CPU time between two samples, by which standard errors are computed.
pub(crate) fn set_period(run: &mut LiveRun, period: Duration) {
    run.ingest.processes.iter_mut().for_each(|process| process.set_stack_period(period));
    run.timeline.iter_mut().for_each(|timeline| timeline.pipeline.attributor.stack_period = Some(period));
}

/// Adds a note about missing samples if an earlier collector was killed while it sampled stacks.
fn note_killed_sampler(run: &mut LiveRun, sampling_continues: bool) {
    if !run.ingest.processes.iter().any(|process| process.lost_its_sampler() && process.has_samples()) {
        return;
    }
    let what =
        "stack samples that a killed collector had not yet written are missing; their number is unknown";
    if sampling_continues {
        run.notes.add(what);
    } else {
        run.notes.add_loss(format!("{what}: no stack was sampled after that"));
    }
}

/// Tells the sampler which processes record their own functions, where that has changed.
pub(super) fn find_recorded(run: &mut LiveRun) {
    let (Some(timeline), Some(stacks)) = (&run.timeline, &run.sampling.stacks) else { return };
    for process in &mut run.ingest.processes {
        if process.has_pid_here()
            && let Some(is_recorded) = process.find_recording(timeline, stacks.has_samples)
        {
            stacks.set_recorded(process.info.pid, is_recorded);
        }
    }
}

/// Returns the descendants of a process, without this process (the collector) and its own descendants.
fn descendants(process: u32) -> Vec<u32> {
    let children = |process: u32| {
        let tasks = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
        let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
        lists.flat_map(|list| list.split(' ').filter_map(|pid| pid.parse().ok()).collect::<Vec<u32>>())
    };
    let mut all: Vec<u32> = children(process).filter(|child| *child != std::process::id()).collect();
    let mut at = 0;
    while let Some(process) = all.get(at) {
        all.extend(children(*process).collect::<Vec<_>>());
        at += 1;
    }
    all
}
