//! What the run did not see: CPU time that the kernel has counted, beside the time that is in rows.

use super::Finish;
use crate::node_watch::NodeWatch;
use ampere_attribution::LocationIndex;
use ampere_counters::ProcessCpu;
use ampere_model::LocationKind;
use std::collections::HashMap;

/// A larger part of the CPU time matters.
const PART_MAX: f64 = 0.05;
/// Less is not known so well: the kernel counts in steps, and threads' last moments have no sample.
const SECONDS_MIN: f64 = 0.1;

impl Finish {
    /// Compares the CPU time of the run with the time in its rows: a difference is in no function, and is said.
    pub(super) fn note_what_was_not_seen(&mut self) {
        let (Some(node), Some(timeline)) = (&self.run.node, &self.run.timeline) else { return };
        // Of each process, by pid and start time.
        let mut in_rows: HashMap<(u32, u64), f64> = HashMap::new();
        for process in &self.run.ingest.processes {
            let threads = process.locations.iter().filter(|of| of.definition.kind == LocationKind::CpuThread);
            let seconds = threads
                .filter_map(|thread| thread.index)
                .map(|index: LocationIndex| timeline.pipeline.attributor.seconds_in_frames(index));
            *in_rows.entry((process.info.pid, process.info.start_time)).or_default() += seconds.sum::<f64>();
        }
        let used = node.processes();
        let all = node.own_seconds();
        let of_process = |process: &ProcessCpu| {
            let used = (process.own_ns + process.children_ns) as f64 * 1e-9;
            let seen = in_rows.get(&(process.pid, process.started)).copied().unwrap_or(0.0);
            (used, used - seen.min(used))
        };
        // Children that were too short for a look have rows that nothing is known to have used.
        let unknown = in_rows.iter().filter(|(key, _)| !used.iter().any(|of| (of.pid, of.started) == **key));
        let missing = all
            - used.iter().map(of_process).map(|(used, missing)| used - missing).sum::<f64>()
            - unknown.map(|(_, seconds)| seconds).sum::<f64>();
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
        self.run.notes.add_loss(format!(
            "{missing:.2} s ({:.0} %) of the {all:.2} s of CPU time that the kernel has counted are in no row{of_most}: threads or \
             processes that were neither sampled nor recorded then",
            100.0 * missing / all
        ));
    }
}

impl NodeWatch {
    fn own_seconds(&self) -> f64 {
        self.cpu().map_or(0.0, |cpu| cpu.own_busy_seconds)
    }
}
