//! Records single calls and single intervals while the events of a run are attributed.

pub use crate::attributor::Recorder;

use crate::attributor::{Attributor, Recording};
use ampere_attribution::ViewIndex;
use std::io;

/// After this many events, the recorder may take what was recorded of them.
const EVENTS_MAX: usize = 1 << 16;

impl Attributor {
    /// Starts a recording. Must be called before there is any location or device.
    pub fn record(&mut self, recorder: Box<dyn Recorder>) {
        self.recording = Some(Box::new(Recording { recorder, events: 0, failure: None }));
    }

    /// Whether the recorder has failed, so that reading further is useless.
    pub fn recording_has_failed(&self) -> bool {
        self.recording.as_ref().is_some_and(|recording| recording.failure.is_some())
    }

    /// Ends the recording at the end of the run.
    ///
    /// # Errors
    /// Returns the recorder's first error.
    pub fn end_recording(&mut self) -> io::Result<()> {
        self.recorded(|recorder, attributor| recorder.end(attributor));
        self.recording.take().and_then(|recording| recording.failure).map_or(Ok(()), Err)
    }

    pub(crate) fn record_sample(&mut self, view: ViewIndex) {
        self.recorded(|recorder, attributor| recorder.take_sample(attributor, view));
    }

    pub(crate) fn record_events(&mut self, events: usize) {
        let Some(recording) = &mut self.recording else { return };
        recording.events += events;
        if recording.events >= EVENTS_MAX {
            recording.events = 0;
            self.recorded(|recorder, attributor| recorder.take_events(attributor));
        }
    }

    fn recorded(&mut self, take: impl FnOnce(&mut dyn Recorder, &mut Attributor) -> io::Result<()>) {
        let Some(mut recording) = self.recording.take() else { return };
        if recording.failure.is_none() {
            recording.failure = take(&mut *recording.recorder, self).err();
        }
        self.recording = Some(recording);
    }
}
