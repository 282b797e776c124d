//! Single calls, with the joules of each: recorded for views where it is asked for. See `view/recording.rs`.

use crate::callpaths::NodeIndex;
use crate::engine::{Engine, LEAVE, LocationIndex, ViewIndex};
use crate::view::{Call, ChargedInterval, Move, OpenCall};

/// What all locations are in the middle of, and the calls of those that draw from no recorded view.
#[derive(Clone, Debug, Default)]
pub(crate) struct LocationCalls {
    /// By location, outermost first.
    open: Vec<Vec<OpenCall>>,
    over: Vec<Call>,
}

impl LocationCalls {
    pub fn open(&self, location: LocationIndex) -> &[OpenCall] {
        self.open.get(location.0 as usize).map_or(&[], Vec::as_slice)
    }

    /// `is_recorded`: by a view, too.
    #[inline]
    pub fn go(&mut self, location: LocationIndex, to: Move, is_recorded: bool) {
        let at = location.0 as usize;
        if at >= self.open.len() {
            self.open.resize_with(at + 1, Vec::new);
        }
        if to.calls != LEAVE {
            self.open[at].push(OpenCall { start: to.time, node: to.node, calls: to.calls });
        } else if let Some(open) = self.open[at].pop().filter(|_| !is_recorded) {
            let mut call = Call::new(open, location.0, 0);
            call.end = to.time.max(open.start);
            self.over.push(call);
        }
    }
}

impl Engine {
    /// From now on, what each call was charged in this view is recorded. To be called before any event, and before the view has
    /// consumers. Calls are to be taken from time to time: [`Engine::take_calls`].
    pub fn record_calls(&mut self, view: ViewIndex) {
        self.calls.get_or_insert_default();
        self.view_mut(view).calls.get_or_insert_default();
    }

    /// From now on, [`Engine::charged_interval`] says where a view's joules went.
    pub fn record_intervals(&mut self, view: ViewIndex) {
        self.view_mut(view).interval_charged.get_or_insert_default();
    }

    /// What was to be recorded of a view is recorded of its twin instead: see [`Engine::fork`].
    pub fn record_twin_instead(&mut self, view: ViewIndex) {
        let Some(twin) = self.view(view).twin else { return };
        let view = self.view_mut(view);
        let (calls, interval) = (view.calls.take(), view.interval_charged.take());
        let twin = self.view_mut(twin);
        (twin.calls, twin.interval_charged) = (calls, interval);
    }

    /// How many calls of the view are over and wait for its next sample, or to be taken.
    pub fn calls_over(&self, view: ViewIndex) -> usize {
        self.view(view).calls.as_ref().map_or(0, |calls| calls.over())
    }

    /// Puts the calls of a view that are over in the place of what is in `into`. Right after a sample, or before the first,
    /// their joules are all there; else the caller keeps them for [`Engine::charge_calls`].
    pub fn take_calls(&mut self, view: ViewIndex, into: &mut Vec<Call>) {
        let view = self.view_mut(view);
        let reached = view.reached();
        if let Some(calls) = &mut view.calls {
            calls.take(Some(reached), into);
        }
    }

    /// Right after a sample: charges calls that were taken since the one before.
    pub fn charge_calls(&self, view: ViewIndex, taken: &mut [Call]) {
        if let Some(calls) = &self.view(view).calls {
            taken.iter_mut().for_each(|call| calls.charge(call));
        }
    }

    /// How many calls of locations that draw from no view are over.
    pub fn unlinked_calls_over(&self) -> usize {
        self.calls.as_ref().map_or(0, |calls| calls.over.len())
    }

    /// As [`Engine::take_calls`], of locations that draw from no view that is recorded.
    pub fn take_unlinked_calls(&mut self, into: &mut Vec<Call>) {
        into.clear();
        if let Some(calls) = &mut self.calls {
            std::mem::swap(&mut calls.over, into);
        }
    }

    /// No more samples come. As [`Engine::take_calls`], of all calls of a view, also those that are still open: they end with the
    /// last event of their location.
    pub fn end_calls(&mut self, view: ViewIndex, into: &mut Vec<Call>) {
        let ends: Vec<_> = self.locations().iter().map(|location| location.since()).collect();
        if let Some(calls) = &mut self.view_mut(view).calls {
            calls.end(|location| ends[location.0 as usize]);
            calls.take(None, into);
        }
    }

    /// The interval that the view's last sample has ended, and where its joules went.
    pub fn charged_interval(&self, view: ViewIndex) -> Option<&ChargedInterval> {
        self.view(view).interval_charged.as_deref()
    }

    /// The call path of which this one is a part, and its innermost region. See [`Engine::nodes`].
    pub fn caller_of(
        &self,
        location: LocationIndex,
        node: NodeIndex,
    ) -> (NodeIndex, ampere_model::RegionRef) {
        let node = self.location(location.0).paths.node(node);
        (node.parent, node.region)
    }
}
