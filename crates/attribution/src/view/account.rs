//! What a view has charged to each call path, and the most that each region can have spent.

use ampere_model::RegionRef;
use std::collections::HashMap;

/// What one call path has been charged in one view. Events touch `due`, samples all of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Account {
    /// Share-clock ticks due in the interval that is still open; above 0 exactly if the call path is listed.
    pub(super) due: f64,
    pub joules: f64,
    /// Least and most joules per share-clock tick of the intervals that it was charged for.
    price_min: f64,
    price_max: f64,
    /// The most that it can have spent: the joules of all sample intervals in which it ran.
    pub possible: f64,
    /// Its place in [`PossibleRegions`], or [`NO_REGION`] before it has run.
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
    /// Charges what is due at so many joules per share-clock tick.
    #[inline]
    pub(super) fn charge(&mut self, price: f64) {
        self.joules += self.due * price;
        self.due = 0.0;
        self.price_min = self.price_min.min(price);
        self.price_max = self.price_max.max(price);
    }

    /// Least and most joules per tick. `None` where it has never been charged for time.
    pub fn prices(&self) -> Option<(f64, f64)> {
        (self.price_min <= self.price_max).then_some((self.price_min, self.price_max))
    }
}

/// Sample intervals that belonged to one frame alone.
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

/// A part of a view's consumers that shares its joules with the others: a group, by its place, or a consumer without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Sharer {
    Group(u32),
    Consumer(u32),
}

/// The most that each region can have spent. An interval counts once, however many of the region's call paths ran in it; with
/// independent sharing, where every sharer is given all joules, once for each sharer that ran one.
#[derive(Clone, Debug, Default)]
pub(super) struct PossibleRegions {
    all: Vec<PossibleRegion>,
    /// Those with samples that are foreseen.
    foreseen: Vec<u32>,
    /// Places in `all`. No sharer where an interval counts once for all of them.
    places: HashMap<(RegionRef, Option<Sharer>), u32>,
}

#[derive(Clone, Copy, Debug)]
struct PossibleRegion {
    joules: f64,
    /// The sample that ended the last interval in which it ran.
    last_sample: u64,
    /// Of samples that are foreseen, a bit for each of those that end an interval in which it ran.
    foreseen: u64,
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

    /// The same for a sample of this number among those that are foreseen: sums of regions must not depend on which call path
    /// comes first, so its joules are added to its region when it has come.
    #[inline]
    pub fn add_foreseen(
        &mut self,
        account: &mut Account,
        joules: f64,
        number: usize,
        sharer: Option<Sharer>,
        region: impl FnOnce() -> RegionRef,
    ) {
        let Some(place) = self.add_to_account(account, joules, sharer, region) else { return };
        let region = &mut self.all[place as usize];
        if region.foreseen == 0 {
            self.foreseen.push(place);
        }
        region.foreseen |= 1 << number;
    }

    /// Returns the place of its region, if there are joules.
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

    /// That sample has come.
    pub fn settle_foreseen(&mut self, number: usize, joules: f64) {
        let all = &mut self.all;
        self.foreseen.retain(|place| {
            let region = &mut all[*place as usize];
            if region.foreseen & 1 << number != 0 {
                region.foreseen ^= 1 << number;
                region.joules += joules;
            }
            region.foreseen != 0
        });
    }

    fn place(&mut self, key: (RegionRef, Option<Sharer>)) -> u32 {
        *self.places.entry(key).or_insert_with(|| {
            self.all.push(PossibleRegion { joules: 0.0, last_sample: u64::MAX, foreseen: 0 });
            (self.all.len() - 1) as u32
        })
    }

    /// (region, joules): with independent sharing a region is there once for each sharer. Their order does not depend on which ran
    /// first, nor does their sum to the last bit.
    pub fn iter(&self) -> impl Iterator<Item = (RegionRef, f64)> {
        let mut places: Vec<_> = self.places.iter().collect();
        places.sort_unstable_by_key(|(key, _)| **key);
        places.into_iter().map(|(key, place)| (key.0, self.all[*place as usize].joules))
    }
}
