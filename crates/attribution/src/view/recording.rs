//! The joules that a view charges to single calls, and in single intervals. They are recorded only if the caller wants that.
//!
//! A call is due the ticks that its frame is due while it is the innermost one. At a sample, every call of a consumer is charged
//! at the consumer's price, like the accounts, so the calls of a call path add up to its joules. Ended calls wait for the sample
//! that ends their last interval, and are then taken by the caller.

use super::account::ViewTotals;
use super::active::{Due, Price};
use crate::steps::{LEAVE, LocationIndex, Move, NodeIndex};
use ampere_model::Timestamp;

/// A call that has ended, and the joules that one view has charged to it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Call {
    /// The time at which the call was entered.
    pub start: Timestamp,
    /// The time at which the call was left.
    pub end: Timestamp,
    /// The location on which the call was made.
    pub location: LocationIndex,
    /// The call's call path, as in [`Engine::nodes`](crate::Engine::nodes).
    pub node: NodeIndex,
    /// The number of successive calls that this entry stands for; 0 if it continues a call that was counted before.
    pub calls: u32,
    /// The number of the call's consumer in the view.
    consumer: u32,
    /// The call's own joules, without those of the calls that it made.
    pub exclusive_joules: f64,
    /// The dynamic part of the exclusive joules; 0 unless the policy is *active*.
    pub dynamic_joules: f64,
    /// Joules of the sample intervals that belonged to this call alone.
    pub resolved_joules: f64,
    /// The joules of the calls that this call made, and their dynamic part.
    inner_joules: f64,
    inner_dynamic_joules: f64,
    /// The ticks that this call, and the calls that it made, are due in the open interval.
    due: Due,
    inner_due: Due,
}

/// A call that has not ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenCall {
    pub start: Timestamp,
    pub node: NodeIndex,
    pub calls: u32,
}

/// The joules of an interval that one call path of a location was charged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Charge {
    /// The location on which the call path ran.
    pub location: LocationIndex,
    /// The call path that was charged.
    pub node: NodeIndex,
    /// The call path's exclusive joules.
    pub joules: f64,
    /// Their dynamic part; 0 unless the policy is *active*.
    pub dynamic_joules: f64,
}

/// A sample interval, and how its joules were divided.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChargedInterval {
    /// The time of the previous sample.
    pub start: Timestamp,
    /// The time of this sample.
    pub end: Timestamp,
    /// One entry for each call path that was charged.
    pub charges: Vec<Charge>,
    /// The counter's increase, as far as it is known.
    pub joules: f64,
    /// The dynamic part of these joules; 0 unless the policy is *active*.
    pub dynamic_joules: f64,
    /// The idle joules, which are charged to no frame.
    pub idle_joules: f64,
    /// The part of the idle joules that other jobs used.
    pub other_jobs_joules: f64,
    /// The joules that cannot be attributed.
    pub lost_joules: f64,
}

impl ChargedInterval {
    #[inline]
    pub(crate) fn add(&mut self, location: u32, node: NodeIndex, joules: f64, dynamic_joules: f64) {
        self.charges.push(Charge { location: LocationIndex(location), node, joules, dynamic_joules });
    }

    /// Returns the dynamic joules that nobody used. With independent sharing, the charges may add up to more than the device
    /// used.
    pub fn idle_dynamic_joules(&self) -> f64 {
        let charged: f64 = self.charges.iter().map(|charge| charge.dynamic_joules).sum();
        let unused = self.idle_joules - self.other_jobs_joules;
        (self.dynamic_joules - charged - self.other_jobs_joules).clamp(0.0, unused.max(0.0))
    }
}

impl Call {
    pub(crate) fn new(open: OpenCall, location: u32, consumer: u32) -> Call {
        let OpenCall { start, node, calls } = open;
        Call {
            start,
            end: start,
            location: LocationIndex(location),
            node,
            calls,
            consumer,
            exclusive_joules: 0.0,
            dynamic_joules: 0.0,
            resolved_joules: 0.0,
            inner_joules: 0.0,
            inner_dynamic_joules: 0.0,
            due: Due::default(),
            inner_due: Due::default(),
        }
    }

    /// Returns the joules of the call itself and of the calls that it made.
    pub fn inclusive_joules(&self) -> f64 {
        self.exclusive_joules + self.inner_joules
    }

    /// Returns the dynamic part of [`Call::inclusive_joules`].
    pub fn inclusive_dynamic_joules(&self) -> f64 {
        self.dynamic_joules + self.inner_dynamic_joules
    }

    #[inline]
    fn contain(&mut self, inner: &Call) {
        self.inner_joules += inner.inclusive_joules();
        self.inner_dynamic_joules += inner.inclusive_dynamic_joules();
        self.inner_due.add(inner.due);
        self.inner_due.add(inner.inner_due);
    }

    /// The number of words of [`Call::to_words`].
    pub const WORDS: usize = 15;

    /// Returns the call as plain numbers, which can be stored elsewhere for a while.
    pub fn to_words(&self) -> [u64; Call::WORDS] {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let joules = [
            self.exclusive_joules,
            self.dynamic_joules,
            self.resolved_joules,
            self.inner_joules,
            self.inner_dynamic_joules,
        ];
        let [a, b, c, d, e] = joules.map(f64::to_bits);
        let ([f, g, h], [i, j, k]) = (self.due.to_words(), self.inner_due.to_words());
        let (place, what) = (pair(self.location.0, self.node.0), pair(self.calls, self.consumer));
        [self.start, self.end, place, what, a, b, c, d, e, f, g, h, i, j, k]
    }

    /// Returns the call that [`Call::to_words`] has written.
    pub fn from_words([start, end, place, what, a, b, c, d, e, due @ ..]: [u64; Call::WORDS]) -> Call {
        let halves = |word: u64| (word as u32, (word >> 32) as u32);
        let ((location, node), (calls, consumer)) = (halves(place), halves(what));
        let [exclusive_joules, dynamic_joules, resolved_joules, inner_joules, inner_dynamic_joules] =
            [a, b, c, d, e].map(f64::from_bits);
        let [f, g, h, i, j, k] = due;
        let (due, inner_due) = (Due::from_words([f, g, h]), Due::from_words([i, j, k]));
        let (location, node) = (LocationIndex(location), NodeIndex(node));
        let open = OpenCall { start, node, calls };
        Call {
            end,
            exclusive_joules,
            dynamic_joules,
            resolved_joules,
            inner_joules,
            inner_dynamic_joules,
            due,
            inner_due,
            ..Call::new(open, location.0, consumer)
        }
    }

    /// Whether the call ended at `now`. Energy without time may still be charged to it.
    #[inline]
    fn ended_at(&self, now: Timestamp) -> bool {
        self.end == now && self.start < now
    }
}

/// The open calls of all locations, and the ended calls of locations that draw from no recorded view.
#[derive(Clone, Debug, Default)]
pub(crate) struct LocationCalls {
    /// The open calls of each location, the outermost call first.
    open: Vec<Vec<OpenCall>>,
    pub ended: Vec<Call>,
}

impl LocationCalls {
    pub fn open(&self, location: LocationIndex) -> &[OpenCall] {
        self.open.get(location.0 as usize).map_or(&[], Vec::as_slice)
    }

    /// Records a move. `is_recorded`: a view records the calls of this location, too.
    #[inline]
    pub fn record(&mut self, location: LocationIndex, to: Move, is_recorded: bool) {
        let at = location.0 as usize;
        if at >= self.open.len() {
            self.open.resize_with(at + 1, Vec::new);
        }
        if to.calls != LEAVE {
            self.open[at].push(OpenCall { start: to.time, node: to.node, calls: to.calls });
        } else if let Some(open) = self.open[at].pop().filter(|_| !is_recorded) {
            let mut call = Call::new(open, location.0, 0);
            call.end = to.time.max(open.start);
            self.ended.push(call);
        }
    }
}

/// The calls of a view.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recording {
    /// The open calls by consumer, outermost first.
    open: Vec<Vec<Call>>,
    /// The ended calls, for each consumer in the order of their ends.
    ended: Vec<Call>,
    /// The prices of the last interval, by consumer. Empty if it was not charged.
    prices: Vec<Price>,
    alone: Option<Alone>,
}

/// The records of a view.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recorder {
    /// Single calls, if they are recorded.
    pub calls: Option<Box<Recording>>,
    /// The last interval, if intervals are recorded.
    pub interval: Option<Box<ChargedInterval>>,
}

impl Recorder {
    #[cold]
    pub fn add_due(&mut self, consumer: u32, due: Due) {
        if let Some(calls) = &mut self.calls {
            calls.add_due(consumer, due);
        }
    }

    /// Starts to charge the interval that has ended with a sample. `totals` are the view's totals before that.
    pub fn begin_charging(&mut self, totals: &ViewTotals) {
        if let Some(calls) = &mut self.calls {
            calls.begin_charging();
        }
        if let Some(charged) = &mut self.interval {
            charged.charges.clear();
            // `end_charging` subtracts these.
            charged.joules = totals.total_joules;
            charged.dynamic_joules = totals.dynamic_joules;
            (charged.idle_joules, charged.lost_joules) = (totals.idle_joules, totals.lost_joules);
            charged.other_jobs_joules = totals.other_jobs_joules;
        }
    }

    /// Ends what [`Recorder::begin_charging`] has started. `totals` are the view's totals after that.
    pub fn end_charging(&mut self, totals: &ViewTotals, start: Timestamp, end: Timestamp) {
        if let Some(calls) = &mut self.calls {
            calls.end_interval();
        }
        if let Some(charged) = &mut self.interval {
            (charged.start, charged.end) = (start, end);
            charged.joules = totals.total_joules - charged.joules;
            charged.dynamic_joules = totals.dynamic_joules - charged.dynamic_joules;
            charged.idle_joules = totals.idle_joules - charged.idle_joules;
            charged.lost_joules = totals.lost_joules - charged.lost_joules;
            charged.other_jobs_joules = totals.other_jobs_joules - charged.other_jobs_joules;
        }
    }
}

/// The interval that was charged last, if only one call path of one consumer ran in it.
#[derive(Clone, Copy, Debug)]
struct Alone {
    consumer: u32,
    joules: f64,
    /// The ticks that the call path was due.
    due: Due,
}

impl Recording {
    /// Adds the open frames of a new consumer.
    pub fn begin(&mut self, consumer: u32, location: u32, open: &[OpenCall]) {
        let at = consumer as usize;
        self.open.resize_with(self.open.len().max(at + 1), Vec::new);
        self.open[at] = open.iter().map(|open| Call::new(*open, location, consumer)).collect();
    }

    #[inline]
    pub fn add_due(&mut self, consumer: u32, due: Due) {
        if let Some(innermost) = self.open[consumer as usize].last_mut() {
            innermost.due.add(due);
        }
    }

    #[inline]
    pub fn record(&mut self, consumer: u32, location: u32, to: Move) {
        if to.calls == LEAVE {
            return self.leave(consumer, to.time);
        }
        let open = OpenCall { start: to.time, node: to.node, calls: to.calls };
        self.open[consumer as usize].push(Call::new(open, location, consumer));
    }

    #[inline]
    fn leave(&mut self, consumer: u32, time: Timestamp) {
        let open = &mut self.open[consumer as usize];
        let Some(mut call) = open.pop() else { return };
        if let Some(caller) = open.last_mut() {
            caller.contain(&call);
        }
        call.end = time.max(call.start);
        self.ended.push(call);
    }

    pub fn leave_all(&mut self, consumer: u32, time: Timestamp) {
        for _ in 0..self.open[consumer as usize].len() {
            self.leave(consumer, time);
        }
    }

    /// Records that an interval belonged to one call path. Its joules are resolved for a call that was due the whole interval.
    pub fn resolve(&mut self, consumer: u32, joules: f64, due: Due) {
        self.alone = Some(Alone { consumer, joules, due });
    }

    pub fn set_prices(&mut self, consumers: usize, price: &impl Fn(u32) -> Price) {
        self.prices.extend((0..consumers as u32).map(price));
    }

    /// Charges joules without time to the call that ran in the instant before `now`, in this call path.
    pub fn charge_at_once(&mut self, consumer: u32, now: Timestamp, node: NodeIndex, joules: f64) {
        let charge = |call: &mut Call| match call.node == node {
            true => call.exclusive_joules += joules,
            false => call.inner_joules += joules,
        };
        // In that interval only the call and its callers ran. Open callers get their joules when the calls that they made are
        // added to them; only the innermost open call is charged here.
        let open = &mut self.open[consumer as usize];
        open.iter_mut().rfind(|call| call.start < now).into_iter().for_each(charge);
        let ended = self.ended.iter_mut().rev().filter(|call| call.consumer == consumer);
        ended.filter(|call| call.ended_at(now)).for_each(charge);
    }

    pub fn end_interval(&mut self) {
        let Recording { open, ended, prices, alone } = self;
        let calls = open.iter_mut().flatten().chain(ended);
        calls.for_each(|call| charge(call, prices, alone.as_ref()));
    }

    /// Charges a call that ended in the interval that was charged last, and was taken before that.
    pub fn charge(&self, call: &mut Call) {
        charge(call, &self.prices, self.alone.as_ref());
    }

    /// Starts the charges of a new sample.
    pub fn begin_charging(&mut self) {
        self.prices.clear();
        self.alone = None;
    }

    /// Ends all calls, because there are no more samples. `end_of` returns the time at which a location's open calls end.
    pub fn end(&mut self, end_of: impl Fn(LocationIndex) -> Timestamp) {
        self.begin_charging();
        self.end_interval();
        for consumer in 0..self.open.len() {
            if let Some(call) = self.open[consumer].first() {
                self.leave_all(consumer as u32, end_of(call.location));
            }
        }
    }

    pub fn ended(&self) -> usize {
        self.ended.len()
    }

    /// Takes the ended calls, except those that end at `reached`, the latest time of the view, because energy without time may
    /// still be charged to them.
    pub fn take(&mut self, reached: Option<Timestamp>, into: &mut Vec<Call>) {
        into.clear();
        std::mem::swap(into, &mut self.ended);
        let Some(reached) = reached else { return };
        into.retain(|call| {
            let stays = call.ended_at(reached);
            if stays {
                self.ended.push(*call);
            }
            !stays
        });
    }
}

#[inline]
fn charge(call: &mut Call, prices: &[Price], alone: Option<&Alone>) {
    let price = prices.get(call.consumer as usize).copied().unwrap_or_default();
    if let Some(alone) = alone
        && alone.consumer == call.consumer
        && call.due == alone.due
    {
        call.resolved_joules += alone.joules;
    }
    call.exclusive_joules += call.due.joules(&price);
    call.dynamic_joules += call.due.dynamic_joules(&price);
    call.inner_joules += call.inner_due.joules(&price);
    call.inner_dynamic_joules += call.inner_due.dynamic_joules(&price);
    (call.due, call.inner_due) = (Due::default(), Due::default());
}
