//! What a caller wants to know of a run beside its summary, while its events are attributed: single calls, single intervals.

use crate::attributor::{Attributor, Device};
use ampere_attribution::{Engine, ViewIndex};
use std::io;

/// Takes from the engine what it records. The first failure ends the recording: [`Attributor::end_recording`] returns it.
pub trait Recorder: Send {
    /// A device is new, and its views have no consumers yet.
    fn begin_device(&mut self, engine: &mut Engine, number: usize, device: &Device);

    /// A device's view, and its twin, have had a sample.
    fn take_sample(&mut self, attributor: &mut Attributor, view: ViewIndex) -> io::Result<()>;

    /// There were many events since the last time.
    fn take_events(&mut self, attributor: &mut Attributor) -> io::Result<()>;

    /// There are no more events and samples.
    fn end(&mut self, attributor: &mut Attributor) -> io::Result<()>;
}

/// So many events go to the engine before the recorder may take what was recorded of them.
const MOST_EVENTS: usize = 1 << 16;

/// A recorder at work.
pub(crate) struct Recording {
    pub recorder: Box<dyn Recorder>,
    /// Events that it has not taken.
    events: usize,
    failure: Option<io::Error>,
}

impl Recording {
    pub fn new(recorder: Box<dyn Recorder>) -> Recording {
        Recording { recorder, events: 0, failure: None }
    }
}

impl Attributor {
    /// To be called before there is any location or device.
    pub fn record(&mut self, recorder: Box<dyn Recorder>) {
        self.recording = Some(Box::new(Recording::new(recorder)));
    }

    /// Whether the recorder has failed, and there is no point in going on.
    pub fn recording_has_failed(&self) -> bool {
        self.recording.as_ref().is_some_and(|recording| recording.failure.is_some())
    }

    /// The run is over.
    ///
    /// # Errors
    /// The recorder's first.
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
        if recording.events >= MOST_EVENTS {
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
