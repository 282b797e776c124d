//! Single calls, with the joules of each, recorded only for the views that the caller selects. See `view/recording.rs`.

use crate::engine::Engine;
use crate::steps::{LocationIndex, NodeIndex, ViewIndex};
use crate::view::{Call, ChargedInterval};

impl Engine {
    /// Makes the view record what each call is charged. This must be called before any event, and before the view has consumers;
    /// [`Engine::take_calls`] must be called from time to time.
    pub fn record_calls(&mut self, view: ViewIndex) {
        self.calls.get_or_insert_default();
        self.view_mut(view).recorder.calls.get_or_insert_default();
    }

    /// Makes [`Engine::charged_interval`] return how a view's joules were divided.
    pub fn record_intervals(&mut self, view: ViewIndex) {
        self.view_mut(view).recorder.interval.get_or_insert_default();
    }

    /// Records the calls and intervals of a view's twin instead of the view's own: see [`Engine::fork`].
    pub fn record_twin_instead(&mut self, view: ViewIndex) {
        let Some(twin) = self.view(view).twin else { return };
        self.view_mut(twin).recorder = std::mem::take(&mut self.view_mut(view).recorder);
    }

    /// Returns the number of ended calls of the view that have not been taken.
    pub fn ended_calls(&self, view: ViewIndex) -> usize {
        self.view(view).recorder.calls.as_ref().map_or(0, |calls| calls.ended())
    }

    /// Replaces the contents of `into` by the ended calls of a view. Right after a sample, or before the first, their joules are
    /// complete; otherwise the caller keeps the calls for [`Engine::charge_calls`].
    pub fn take_calls(&mut self, view: ViewIndex, into: &mut Vec<Call>) {
        let view = self.view_mut(view);
        let reached = view.clock.reached;
        if let Some(calls) = &mut view.recorder.calls {
            calls.take(Some(reached), into);
        }
    }

    /// Charges calls that were taken since the sample before the last one. This must be called right after a sample.
    pub fn charge_calls(&self, view: ViewIndex, taken: &mut [Call]) {
        if let Some(calls) = &self.view(view).recorder.calls {
            taken.iter_mut().for_each(|call| calls.charge(call));
        }
    }

    /// Does what [`Engine::take_calls`] does, for locations that draw from no recorded view.
    pub fn take_unlinked_calls(&mut self, into: &mut Vec<Call>) {
        into.clear();
        if let Some(calls) = &mut self.calls {
            std::mem::swap(&mut calls.ended, into);
        }
    }

    /// Takes all calls of a view when there are no more samples. Calls that are still open end with the last event of their
    /// location.
    pub fn end_calls(&mut self, view: ViewIndex, into: &mut Vec<Call>) {
        let ends: Vec<_> = self.locations().iter().map(|location| location.since()).collect();
        if let Some(calls) = &mut self.view_mut(view).recorder.calls {
            calls.end(|location| ends[location.0 as usize]);
            calls.take(None, into);
        }
    }

    /// Returns the interval that the view's last sample has ended, and how its joules were divided.
    pub fn charged_interval(&self, view: ViewIndex) -> Option<&ChargedInterval> {
        self.view(view).recorder.interval.as_deref()
    }

    /// Returns a call path's caller, and its innermost region. See [`Engine::nodes`].
    pub fn caller_of(
        &self,
        location: LocationIndex,
        node: NodeIndex,
    ) -> (NodeIndex, ampere_model::RegionRef) {
        let node = self.location(location.0).paths.node(node);
        (node.parent, node.region)
    }
}
