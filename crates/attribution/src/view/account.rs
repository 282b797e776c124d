//! The joules that a view has charged to each call path, and the most that each region can have used.

use ampere_model::RegionRef;
use std::collections::HashMap;

/// The joules of a view, as of its last sample.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[allow(missing_docs)]
pub struct ViewTotals {
    pub samples: u64,
    /// The known increase of the counter since the first sample.
    pub total_joules: f64,
    /// The sum over the call paths.
    pub attributed_joules: f64,
    pub idle_joules: f64,
    /// The part of the idle joules that other jobs used, as far as that is known.
    pub other_jobs_joules: f64,
    /// The joules of intervals that cannot be attributed.
    pub lost_joules: f64,
    /// Under the policy *active*: the joules that the device always draws, and, in `dynamic_joules`, those that it draws in
    /// addition. Lost joules are in neither.
    pub static_joules: f64,
    pub dynamic_joules: f64,
    /// The ticks, of CPU time or of kernels, by which the dynamic joules of consumers were divided.
    pub active_ticks: f64,
    pub counter_resets: u64,
    /// Ticks between samples whose increase is unknown, because the counter was reset in between or the readings could not be
    /// true.
    pub unknown_ticks: u64,
    /// |total - attributed - idle - lost|. With independent sharing, whose sum is larger on purpose, each joule is counted once
    /// here.
    pub conservation_error_joules: f64,
}

/// The exclusive joules of one call path in one view.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spent {
    /// The sum of all exclusive joules.
    pub joules: f64,
    /// The exclusive joules in addition to those that the device always draws; 0 unless the policy is *active*.
    pub dynamic_joules: f64,
}

/// The joules that one call path has been charged in one view. Events change `due`, samples change all fields.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Account {
    /// The share-clock ticks that it is due in the interval that is still open. They are above 0 if and only if the call path is
    /// in its consumer's `listed`.
    pub(super) due: f64,
    pub joules: f64,
    /// The lowest and the highest price of the intervals for which it was charged, in joules per share-clock tick. Under the
    /// policy *active*, this is the device's power in joules per tick instead.
    price_min: f64,
    price_max: f64,
    /// The most that it can have used: the joules of all sample intervals in which it ran. Under the policy *active*, these are
    /// the dynamic joules of the intervals in which it was active.
    pub possible: f64,
    /// The index of its region in [`PossibleRegions`], or [`NO_REGION`] before it has run.
    region: u32,
}

const NO_REGION: u32 = u32::MAX;

impl Default for Account {
    fn default() -> Account {
        Account {
            due: 0.0,
            joules: 0.0,
            price_min: f64::INFINITY,
            price_max: f64::NEG_INFINITY,
            possible: 0.0,
            region: NO_REGION,
        }
    }
}

impl Account {
    /// Charges the ticks that are due, at `price` joules per share-clock tick.
    #[inline]
    pub(super) fn charge(&mut self, price: f64) {
        let joules = self.take_due() * price;
        self.add(joules, price);
    }

    /// Returns the ticks that are due, and sets them to zero.
    #[inline]
    pub(super) fn take_due(&mut self) -> f64 {
        std::mem::take(&mut self.due)
    }

    /// Charges joules of an interval with this price; see `price_min`.
    #[inline]
    pub(super) fn add(&mut self, joules: f64, price: f64) {
        self.joules += joules;
        self.price_min = self.price_min.min(price);
        self.price_max = self.price_max.max(price);
    }

    /// Returns the lowest and the highest joules per tick; `None` if it has never been charged for time.
    pub fn prices(&self) -> Option<(f64, f64)> {
        (self.price_min <= self.price_max).then_some((self.price_min, self.price_max))
    }
}

/// The sum of the sample intervals that belonged to a single frame.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Resolved {
    pub joules: f64,
    pub ticks: u64,
}

impl Resolved {
    pub(super) fn add(&mut self, joules: f64, ticks: u64) {
        self.joules += joules;
        self.ticks += ticks;
    }
}

/// A party to the sharing of a view's joules: a group, by its index, or a consumer without a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Sharer {
    Group(u32),
    Consumer(u32),
}

/// The most that each region can have used. An interval is counted once, even if several of the region's call paths ran in it.
/// With independent sharing, where every sharer is given all joules, it is counted once for each sharer that ran one of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct PossibleRegions {
    all: Vec<PossibleRegion>,
    /// The indices of regions with queued samples.
    queued: Vec<u32>,
    /// Indices in `all`. The sharer is `None` if an interval is counted once for all of them.
    places: HashMap<(RegionRef, Option<Sharer>), u32>,
}

#[derive(Clone, Copy, Debug)]
struct PossibleRegion {
    joules: f64,
    /// The sample that ended the last interval in which it ran.
    last_sample: u64,
    /// A bit for each queued sample that ends an interval in which it ran.
    queued: u64,
}

impl PossibleRegions {
    /// Adds the joules of the interval that this sample ends to those that are possible for a call path, and for its region.
    #[inline]
    pub fn add(
        &mut self,
        account: &mut Account,
        joules: f64,
        sample: u64,
        sharer: Option<Sharer>,
        region: impl FnOnce() -> RegionRef,
    ) {
        let Some(place) = self.add_to_account(account, joules, sharer, region) else { return };
        let region = &mut self.all[place as usize];
        if region.last_sample != sample {
            region.last_sample = sample;
            region.joules += joules;
        }
    }

    /// Like [`PossibleRegions::add`], for the queued sample of this number. [`PossibleRegions::take_queued`] adds the joules to
    /// the region later: the order of a sum must not depend on which call path comes first.
    #[inline]
    pub fn add_queued(
        &mut self,
        account: &mut Account,
        joules: f64,
        number: usize,
        sharer: Option<Sharer>,
        region: impl FnOnce() -> RegionRef,
    ) {
        let Some(place) = self.add_to_account(account, joules, sharer, region) else { return };
        let region = &mut self.all[place as usize];
        if region.queued == 0 {
            self.queued.push(place);
        }
        region.queued |= 1 << number;
    }

    /// Adds joules to a call path's account. Returns the index of its region, if there are joules.
    #[inline]
    fn add_to_account(
        &mut self,
        account: &mut Account,
        joules: f64,
        sharer: Option<Sharer>,
        region: impl FnOnce() -> RegionRef,
    ) -> Option<u32> {
        if joules == 0.0 {
            return None;
        }
        account.possible += joules;
        if account.region == NO_REGION {
            account.region = self.place((region(), sharer));
        }
        Some(account.region)
    }

    /// Adds the joules of the queued sample of this number to the regions that ran in the interval that it ends. Called when the
    /// sample is taken from the queue.
    pub fn take_queued(&mut self, number: usize, joules: f64) {
        let all = &mut self.all;
        self.queued.retain(|place| {
            let region = &mut all[*place as usize];
            if region.queued & 1 << number != 0 {
                region.queued ^= 1 << number;
                region.joules += joules;
            }
            region.queued != 0
        });
    }

    fn place(&mut self, key: (RegionRef, Option<Sharer>)) -> u32 {
        *self.places.entry(key).or_insert_with(|| {
            self.all.push(PossibleRegion { joules: 0.0, last_sample: u64::MAX, queued: 0 });
            (self.all.len() - 1) as u32
        })
    }

    /// Iterates over (region, joules). With independent sharing a region appears once for each sharer. The order does not depend
    /// on which region ran first, so neither does the sum, to the last bit.
    pub fn iter(&self) -> impl Iterator<Item = (RegionRef, f64)> {
        let mut places: Vec<_> = self.places.iter().collect();
        places.sort_unstable_by_key(|(key, _)| **key);
        places.into_iter().map(|(key, place)| (key.0, self.all[*place as usize].joules))
    }
}
