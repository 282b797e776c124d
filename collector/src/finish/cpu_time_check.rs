//! Finds CPU time that was not measured, by comparing the time that the kernel has counted with the time in the rows.

use super::Finish;
use crate::node_watch::NodeWatch;
use ampere_counters::ProcessCpu;
use ampere_model::LocationKind;
use ampere_settings::StackPeriod;
use ampere_timeline::attributor::Attributor;
use std::collections::HashMap;

/// If more than this fraction of the CPU time is in no row, a note reports it.
const PART_MAX: f64 = 0.05;
/// Fewer missing seconds are not reported, because the kernel counts in steps and the last moments of threads have no sample.
const SECONDS_MIN: f64 = 0.1;

/// Seconds of CPU time, by the process' pid and start time.
type Seconds = HashMap<(u32, u64), f64>;

impl Finish {
    /// Returns, for each process, the time in its rows. Also returns the time of threads that are in no row while their main
    /// thread records its functions, because the main thread's rows would hide it.
    fn seconds_of_processes(&self, attributor: &Attributor) -> (Seconds, Seconds) {
        let (mut in_rows, mut hidden) = (Seconds::new(), Seconds::new());
        for process in &self.run.ingest.processes {
            let threads = process.locations.iter().filter(|of| of.definition.kind == LocationKind::CpuThread);
            let (mut main, mut others) = (0.0, 0.0);
            for thread in threads {
                let seconds = thread.index.map_or(0.0, |index| attributor.seconds_in_frames(index));
                let is_main = thread.definition.id.0 == 0 && !process.is_sampled();
                *(if is_main { &mut main } else { &mut others }) += seconds;
            }
            let key = (process.info.pid, process.info.start_time);
            *in_rows.entry(key).or_default() += main + others;
            *hidden.entry(key).or_default() += process.unsampled_seconds() - others;
        }
        (in_rows, hidden)
    }

    /// Compares the CPU time of the run with the time in its rows. A note reports the difference: CPU time that is in no
    /// function.
    pub(super) fn note_unmeasured_cpu_time(&mut self, samples_stacks: bool) {
        let stacks = self.run.options.config.sampler.stacks;
        let is_switched_off = !samples_stacks && stacks == Some(StackPeriod::Off);
        if !samples_stacks && !is_switched_off {
            return;
        }
        let (Some(node), Some(timeline)) = (&self.run.node, &self.run.timeline) else { return };
        let (in_rows, hidden) = self.seconds_of_processes(&timeline.pipeline.attributor);
        let used = node.processes();
        let all = node.own_seconds();
        let of_process = |process: &ProcessCpu| {
            let used = (process.own_ns + process.children_ns) as f64 * 1e-9;
            let of = |map: &Seconds| map.get(&(process.pid, process.started)).copied().unwrap_or(0.0);
            (used, (used - of(&in_rows)).max(of(&hidden).min(used)).max(0.0))
        };
        // The kernel's CPU time of very short children is unknown, although they have rows.
        let unknown = in_rows.iter().filter(|(key, _)| !used.iter().any(|of| (of.pid, of.started) == **key));
        let missing = all
            - used.iter().map(of_process).map(|(used, missing)| used - missing).sum::<f64>()
            - unknown.map(|(_, seconds)| seconds).sum::<f64>()
            - self.run.sampling.given_to_parents.as_secs_f64();
        if missing < SECONDS_MIN || missing < PART_MAX * all {
            return;
        }
        let most = used.iter().max_by(|a, b| of_process(a).1.total_cmp(&of_process(b).1));
        let of_most = most.filter(|process| of_process(process).1 > 0.5 * missing).map_or_else(
            String::new,
            |process| {
                let (used, missing) = of_process(process);
                let ProcessCpu { pid, name, .. } = process;
                format!(", {missing:.2} of {used:.2} s of process {pid} ({name}) among them")
            },
        );
        let said = format!(
            "{missing:.2} s ({:.0} %) of the {all:.2} s of CPU time that the kernel has counted are in no row{of_most}: ",
            100.0 * missing / all
        );
        let why = match is_switched_off {
            true => "stacks are not sampled (--sample off), and the joules of this time count as idle",
            false => {
                "they belong to threads or processes that were neither sampled nor recorded at that time"
            }
        };
        // Without samples, a launcher whose ranks are recorded has no rows, and that is not a loss.
        match is_switched_off && !in_rows.is_empty() {
            true => self.run.notes.add(said + why),
            false => self.run.notes.add_loss(said + why),
        }
    }
}

impl NodeWatch {
    fn own_seconds(&self) -> f64 {
        self.cpu().map_or(0.0, |cpu| cpu.own_busy_seconds)
    }
}
