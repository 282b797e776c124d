//! Replaces a killed collector: before anything is published, decodes once more the records that the killed one had read.

use super::LiveRun;
use crate::ingest::reading_again::{self, Reread};
use crate::options::Mode;
use crate::sampling::clock::best_reading;
use ampere_model::Timestamp;

/// The number of batches of an earlier collector's records that are decoded before the rings are read again. This takes about 50
/// ms.
const BATCHES_PER_ROUND: usize = 32;

/// Whether records that an earlier collector has read are still to be decoded.
pub(crate) fn is_catching_up(run: &LiveRun) -> bool {
    reading_again::furthest_behind(&run.ingest, run.sampling.samples.as_ref()).is_some()
}

/// Decodes more of the records that earlier collectors have spooled. After `limit`, further events may still arrive.
pub(crate) fn catch_up(run: &mut LiveRun, limit: Timestamp) {
    for _ in 0..BATCHES_PER_ROUND {
        let samples = run.sampling.samples.as_ref();
        let Some((which, reached)) = reading_again::furthest_behind(&run.ingest, samples) else { return };
        run.advance_to(reached.min(limit));
        let Some(timeline) = &mut run.timeline else { return };
        match which {
            Reread::Location(at) => {
                let place = (run.options.mode, run.session.directory());
                let last = run.sampling.predecessors_last;
                reading_again::read_again(&mut run.ingest, at, place, last, timeline, &mut run.notes);
            }
            Reread::Samples => {
                let batch = &mut run.ingest.batch;
                let samples = run.sampling.samples.iter_mut();
                samples.for_each(|samples| samples.read_again(batch, timeline, &mut run.notes));
            }
        }
    }
}

/// Adds a note if an earlier collector has read records that were not kept.
pub(super) fn look_for_lost_beginnings(run: &mut LiveRun) {
    if !reading_again::take_lost_beginnings(&mut run.ingest) {
        return;
    }
    let now = ampere_figures::clock_text::rfc3339(best_reading().realtime_ns);
    let what = match run.options.mode {
        Mode::Collector => format!("the collector was killed, and another one took over at {now}"),
        _ => "the collector was killed".to_owned(),
    };
    run.notes.add_loss(format!(
        "{what}: records are kept on disk only for a trace, so everything measured before is lost"
    ));
}
