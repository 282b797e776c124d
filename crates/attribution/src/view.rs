//! One device seen by one kind of consumer: the share clock, and what each call path has been paid.

use crate::callpaths::NodeIndex;
use crate::counter::Increase;
use crate::engine::ViewIndex;
use ampere_model::{RegionRef, Timestamp};
use std::collections::HashMap;

/// How the joules of a sample interval go to the frames that ran in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Policy {
    /// Evenly over time; where no consumer is active they are idle.
    #[default]
    TimeSliced,
    /// All to the frames that ran, by exclusive run time; idle only where none ran at all.
    BusyOnly,
}

/// Whether consumers that are active at once split the energy or each get all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Sharing {
    #[default]
    Shared,
    /// Counts energy twice, on purpose.
    Independent,
}

impl Policy {
    pub fn as_str(self) -> &'static str {
        match self {
            Policy::TimeSliced => "time_sliced",
            Policy::BusyOnly => "busy_only",
        }
    }
}

impl Sharing {
    pub fn as_str(self) -> &'static str {
        match self {
            Sharing::Shared => "shared",
            Sharing::Independent => "independent",
        }
    }
}

/// Joules of a view, as of its last sample.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ViewTotals {
    pub samples: u64,
    /// Known increase of the counter since the first sample.
    pub total_joules: f64,
    /// Sum over the call paths.
    pub attributed_joules: f64,
    pub idle_joules: f64,
    /// Known to have been spent, not known by whom.
    pub lost_joules: f64,
    pub counter_resets: u64,
    /// Ticks between samples whose increase is unknown: the counter was reset in between, or what was read could not be true.
    pub unknown_ticks: u64,
    /// |total - attributed - idle - lost|. With independent sharing, whose sum is larger on purpose, attributed
    /// stands here for what was handed out once.
    pub conservation_error_joules: f64,
}

/// What one call path has been paid by one view. Events touch `due`, samples all of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Account {
    /// Share-clock ticks due in the interval that is still open; above 0 exactly if the call path is listed.
    due: f64,
    pub joules: f64,
    /// Least and most joules per share-clock tick of the intervals that it was paid for.
    price_min: f64,
    price_max: f64,
    /// The most that it can have spent: the joules of all sample intervals in which it ran.
    pub possible: f64,
    /// Its place in [`PossibleRegions`], or [`NO_REGION`] before it has run.
    region: u32,
}

const NO_REGION: u32 = u32::MAX;

/// Sample intervals that belonged to one frame alone.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Resolved {
    pub joules: f64,
    pub ticks: u64,
}

/// The most that each region can have spent. An interval counts once, however many of the region's call paths ran in it; with
/// independent sharing, where every sharer is given all joules, once for each sharer that ran one.
#[derive(Clone, Debug, Default)]
struct PossibleRegions {
    all: Vec<PossibleRegion>,
    /// Places in it. No sharer where an interval counts once for all of them.
    places: HashMap<(RegionRef, Option<Sharer>), u32>,
}

#[derive(Clone, Copy, Debug)]
struct PossibleRegion {
    region: RegionRef,
    joules: f64,
    /// The sample that ended the last interval in which it ran.
    last_sample: u64,
}

/// Who shares a view's joules: a group, or else a consumer.
type Sharer = Result<u32, u32>;

impl PossibleRegions {
    /// Adds the joules of the interval that this sample ends to those that are possible for a call path, and for its region.
    #[inline]
    fn add(
        &mut self,
        account: &mut Account,
        joules: f64,
        sample: u64,
        sharer: Option<Sharer>,
        region: impl FnOnce() -> RegionRef,
    ) {
        if joules == 0.0 {
            return;
        }
        account.possible += joules;
        if account.region == NO_REGION {
            account.region = self.place((region(), sharer));
        }
        let region = &mut self.all[account.region as usize];
        if region.last_sample != sample {
            region.last_sample = sample;
            region.joules += joules;
        }
    }

    fn place(&mut self, key: (RegionRef, Option<Sharer>)) -> u32 {
        *self.places.entry(key).or_insert_with(|| {
            self.all.push(PossibleRegion { region: key.0, joules: 0.0, last_sample: u64::MAX });
            (self.all.len() - 1) as u32
        })
    }
}

/// At that time, a consumer's innermost frame becomes this one.
pub(crate) type Move = (Timestamp, NodeIndex);

/// Several consumers that count as one, a process' threads: what the group is due is split over those that run.
#[derive(Clone, Copy, Debug, Default)]
struct Group {
    running: u32,
    /// What one running member has been due in the open interval.
    clock: f64,
    /// The view's share clock when this one was brought up to date.
    seen: f64,
}

impl Group {
    /// Its clock when the view's is this. While no more than one member has run in the interval that is the view's own, to the
    /// last bit: so it matters not since when the consumer has been a member of a group.
    #[inline]
    fn at(&self, clock: f64) -> f64 {
        if self.running <= 1 && self.clock == self.seen {
            return clock;
        }
        self.clock + (clock - self.seen) / f64::from(self.running.max(1))
    }

    fn advance(&mut self, clock: f64) {
        (self.clock, self.seen) = (self.at(clock), clock);
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Consumer {
    pub location: u32,
    group: Option<u32>,
    /// Not one any more, but what it was paid stays.
    removed: bool,
    node: NodeIndex,
    /// Share clock (its group's, if it has one) when `node` came on top.
    since: f64,
    /// The frame of the instant before `changed`, when it last changed.
    before: NodeIndex,
    changed: Timestamp,
    /// By call path.
    accounts: Vec<Account>,
}

#[derive(Clone, Debug)]
pub(crate) struct View {
    policy: Policy,
    sharing: Sharing,
    consumers: Vec<Consumer>,
    groups: Vec<Group>,
    /// The caller's names of the groups.
    group_names: Vec<u64>,
    /// Groups with a member that runs, and consumers without a group that run.
    active: u32,
    /// The share clock as of `now`, and what it gains in a tick from then on. It is a straight line from one *break*, where
    /// somebody begins or ceases to run, or a sample ends the interval, to the next. What happens between two breaks is read
    /// off that line, so it matters not in which order the locations tell it, not even to the last bit.
    clock: f64,
    rate: f64,
    /// The latest break.
    now: Timestamp,
    /// The latest event.
    reached: Timestamp,
    /// Start of the open interval; `None` before the first sample.
    interval: Option<Timestamp>,
    idle_ticks: f64,
    /// Call paths with something due in the open interval.
    listed: Vec<(u32, NodeIndex)>,
    /// By location and call path. Apart from the accounts: at most one grows in an interval.
    resolved: HashMap<(u32, NodeIndex), Resolved>,
    possible_regions: PossibleRegions,
    totals: ViewTotals,
    /// What the consumers were paid, each joule counted once: asked for where sharing is independent.
    handed_out: f64,
    pub late: u64,
    /// See [`Engine::fork`](crate::Engine::fork).
    pub twin: Option<ViewIndex>,
}

impl View {
    pub fn new(policy: Policy, sharing: Sharing) -> View {
        View {
            policy,
            sharing,
            consumers: Vec::new(),
            groups: Vec::new(),
            group_names: Vec::new(),
            active: 0,
            clock: 0.0,
            rate: 0.0,
            now: 0,
            reached: 0,
            interval: None,
            idle_ticks: 0.0,
            listed: Vec::new(),
            resolved: HashMap::new(),
            possible_regions: PossibleRegions::default(),
            totals: ViewTotals::default(),
            handed_out: 0.0,
            late: 0,
            twin: None,
        }
    }

    /// The same so far, with its consumers in groups, each in another one.
    pub fn fork(&self, group: impl Fn(u32) -> Option<u64>) -> View {
        let mut fork = View { late: 0, twin: None, ..self.clone() };
        for index in 0..fork.consumers.len() {
            let Some(name) = group(fork.consumers[index].location) else { continue };
            fork.consumers[index].group = Some(fork.groups.len() as u32);
            fork.group_names.push(name);
            let running = u32::from(!fork.consumers[index].node.is_root());
            fork.groups.push(Group { running, clock: fork.clock, seen: fork.clock });
        }
        fork
    }

    /// A consumer whose call path is `node` as of now. With those of the same group it counts as one. One that was removed
    /// comes back with what it was paid.
    pub fn add_consumer(&mut self, location: u32, group: Option<u64>, node: NodeIndex) -> u32 {
        let before = self.consumers.iter().position(|c| c.removed && c.location == location);
        if let Some(consumer) = before {
            self.consumers[consumer].removed = false;
            self.switch(consumer as u32, self.reached, node);
            return consumer as u32;
        }
        let group = group.map(|name| self.group(name));
        self.consumers.push(Consumer {
            location,
            group,
            removed: false,
            node: NodeIndex::ROOT,
            since: 0.0,
            before: NodeIndex::ROOT,
            changed: self.reached,
            accounts: Vec::new(),
        });
        let consumer = (self.consumers.len() - 1) as u32;
        self.switch(consumer, self.reached, node);
        consumer
    }

    /// The number here of the caller's group, made if it is new.
    fn group(&mut self, name: u64) -> u32 {
        let known = self.group_names.iter().position(|known| *known == name);
        known.unwrap_or_else(|| {
            self.group_names.push(name);
            let clock = self.clock_at(self.reached);
            self.groups.push(Group { running: 0, clock, seen: clock });
            self.groups.len() - 1
        }) as u32
    }

    pub fn remove_consumer(&mut self, consumer: u32) {
        self.switch(consumer, self.reached, NodeIndex::ROOT);
        self.consumers[consumer as usize].removed = true;
    }

    /// When the last sample was, and the counter's increase until then.
    pub fn last_sample(&self) -> Option<(Timestamp, f64)> {
        Some((self.interval?, self.totals.total_joules))
    }

    /// An event that comes before the latest break is late, and so is a break before any event: it is counted, and taken as
    /// of then.
    #[inline]
    fn timely(&mut self, time: Timestamp, is_break: bool) -> Timestamp {
        let earliest = if is_break { self.reached } else { self.now };
        if time < earliest {
            self.late += 1;
            return earliest;
        }
        self.reached = self.reached.max(time);
        time
    }

    /// The share clock at a time that is not before the latest break.
    #[inline]
    fn clock_at(&self, time: Timestamp) -> f64 {
        // While none is active the rate is 0.
        self.clock + (time - self.now) as f64 * self.rate
    }

    /// A break.
    fn advance(&mut self, time: Timestamp) {
        if self.active == 0 {
            self.idle_ticks += (time - self.now) as f64;
        }
        self.clock = self.clock_at(time);
        self.now = time;
    }

    /// From `time` on, the consumer's innermost frame is `node`.
    #[inline]
    pub fn switch(&mut self, index: u32, time: Timestamp, node: NodeIndex) {
        let was_active = !self.consumers[index as usize].node.is_root();
        let starts_or_stops = was_active == node.is_root();
        let time = self.timely(time, starts_or_stops);
        let clock = self.charge(index, self.clock_at(time));
        let consumer = &mut self.consumers[index as usize];
        if time > consumer.changed {
            consumer.before = consumer.node;
            consumer.changed = time;
        }
        consumer.node = node;
        consumer.since = consumer.since.max(clock); // what has been charged is not charged again
        if starts_or_stops {
            self.start_or_stop(index, time, !was_active);
        }
    }

    /// Several switches of a consumer that runs before, between and after them. `nodes`: how many call paths it has.
    pub fn moves(&mut self, index: u32, moves: &[Move], nodes: usize) {
        let in_time = moves.partition_point(|(time, _)| *time < self.now);
        let (late, in_time) = moves.split_at(in_time);
        late.iter().for_each(|(time, node)| self.switch(index, *time, *node));
        let Some((last, _)) = in_time.last() else { return };
        self.reached = self.reached.max(*last);
        let consumer = &mut self.consumers[index as usize];
        if consumer.accounts.len() < nodes {
            consumer.accounts.resize(nodes, Account::default());
        }
        let group = consumer.group.map(|group| self.groups[group as usize]);
        let paid = self.interval.is_some();
        let (now, clock, rate) = (self.now, self.clock, self.rate);
        let Consumer { node, since, before, changed, accounts, .. } = consumer;
        for (time, next) in in_time {
            let clock = clock + time.saturating_sub(now) as f64 * rate;
            let clock = group.map_or(clock, |group| group.at(clock)).max(*since);
            let due = clock - *since;
            if due > 0.0 && paid {
                let account = &mut accounts[node.0 as usize];
                if account.due == 0.0 {
                    self.listed.push((index, *node));
                }
                account.due += due;
            }
            if *time > *changed {
                (*before, *changed) = (*node, *time);
            }
            (*node, *since) = (*next, clock);
        }
    }

    fn start_or_stop(&mut self, index: u32, time: Timestamp, start: bool) {
        self.advance(time);
        if let Some(group) = self.consumers[index as usize].group {
            let group = &mut self.groups[group as usize];
            group.advance(self.clock);
            group.running = if start { group.running + 1 } else { group.running - 1 };
            if group.running != u32::from(start) {
                return; // others of the group run before and after
            }
        }
        self.active = if start { self.active + 1 } else { self.active - 1 };
        let split = self.policy == Policy::TimeSliced && self.sharing == Sharing::Shared;
        self.rate = match self.active {
            0 => 0.0,
            active if split => 1.0 / f64::from(active),
            _ => 1.0,
        };
    }

    /// Adds to the current frame of a consumer what it is due when the share clock is `clock`. Returns the one that it goes by.
    #[inline]
    fn charge(&mut self, index: u32, clock: f64) -> f64 {
        let consumer = &mut self.consumers[index as usize];
        let clock = match consumer.group {
            None => clock,
            Some(group) => self.groups[group as usize].at(clock),
        };
        let due = clock - consumer.since;
        if consumer.node.is_root() || due <= 0.0 || self.interval.is_none() {
            return clock;
        }
        let account = at(&mut consumer.accounts, consumer.node);
        if account.due == 0.0 {
            self.listed.push((index, consumer.node));
        }
        account.due += due;
        clock
    }

    /// A sample: the interval that ends here is paid. `region_of`: the region of a location's call path.
    pub fn sample(
        &mut self,
        time: Timestamp,
        increase: Increase,
        region_of: impl Fn(u32, NodeIndex) -> RegionRef,
    ) {
        let time = self.timely(time, true);
        self.advance(time);
        for index in 0..self.consumers.len() as u32 {
            self.charge(index, self.clock);
        }
        let ticks = self.interval.map_or(0, |start| self.now - start);
        match increase {
            Increase::Joules(joules) => {
                self.totals.total_joules += joules;
                self.pay(joules, ticks, region_of);
            }
            Increase::Lost(joules) => {
                self.totals.total_joules += joules;
                self.totals.lost_joules += joules;
                self.add_possible(joules, region_of);
            }
            Increase::Reset => {
                self.totals.counter_resets += 1;
                self.totals.unknown_ticks += ticks;
            }
            Increase::First => self.totals.unknown_ticks += ticks,
        }
        self.totals.samples += 1;
        self.begin_interval();
    }

    /// The interval's joules may have been spent by any call path that ran in it, also where they are lost. Between two samples of
    /// one time nothing ran: there it is what ran until then, whatever the policy makes of them.
    fn add_possible(&mut self, joules: f64, region_of: impl Fn(u32, NodeIndex) -> RegionRef) {
        let mut ran = self.listed.clone();
        if ran.is_empty() {
            let until_now = self.consumers.iter().map(|consumer| consumer.just_before(self.now)).enumerate();
            ran.extend(until_now.filter(|(_, node)| !node.is_root()).map(|(at, node)| (at as u32, node)));
        }
        for (index, node) in ran {
            let consumer = &mut self.consumers[index as usize];
            let (location, sharer) = (consumer.location, consumer.sharer(index, self.sharing));
            let account = at(&mut consumer.accounts, node);
            let region = || region_of(location, node);
            self.possible_regions.add(account, joules, self.totals.samples, sharer, region);
        }
    }

    fn begin_interval(&mut self) {
        self.forget_dues();
        self.interval = Some(self.now);
        self.clock = 0.0;
        self.idle_ticks = 0.0;
        for group in &mut self.groups {
            (group.clock, group.seen) = (0.0, 0.0);
        }
        for consumer in &mut self.consumers {
            consumer.since = 0.0;
        }
    }

    fn forget_dues(&mut self) {
        for (consumer, node) in self.listed.drain(..) {
            self.consumers[consumer as usize].accounts[node.0 as usize].due = 0.0;
        }
    }

    /// Hands an interval's joules to the frames that are listed.
    fn pay(&mut self, joules: f64, ticks: u64, region_of: impl Fn(u32, NodeIndex) -> RegionRef) {
        if self.listed.is_empty() {
            self.add_possible(joules, region_of);
            // Time without a due is time without a frame; without time there may have been one.
            if self.policy == Policy::BusyOnly || !self.pay_at_once(joules) {
                self.totals.idle_joules += joules;
            }
            return;
        }
        if let [(consumer, node)] = self.listed[..] {
            self.resolve(consumer, node, joules, ticks);
        }
        if self.policy == Policy::BusyOnly {
            // Sums must not depend on the order in which the locations told of it.
            self.listed.sort_unstable();
        }
        match (self.policy, self.sharing) {
            (Policy::TimeSliced, _) => {
                let idle = joules * (self.idle_ticks / ticks as f64);
                self.totals.idle_joules += idle;
                self.handed_out += joules - idle;
                let price = joules / ticks as f64;
                self.pay_listed(joules, |_| price, region_of);
            }
            (Policy::BusyOnly, Sharing::Shared) => {
                let all: f64 = self.listed.iter().map(|(consumer, node)| self.due(*consumer, *node)).sum();
                let price = joules / all;
                self.pay_listed(joules, |_| price, region_of);
            }
            (Policy::BusyOnly, Sharing::Independent) => {
                self.handed_out += joules;
                let sharers: Vec<usize> = (0..self.consumers.len()).map(|at| self.sharer(at)).collect();
                let mut own = vec![0.0; self.groups.len() + self.consumers.len()];
                for (consumer, node) in &self.listed {
                    own[sharers[*consumer as usize]] += self.due(*consumer, *node);
                }
                let price = |consumer| joules / own[sharers[consumer as usize]];
                self.pay_listed(joules, price, region_of);
            }
        }
    }

    /// Each listed frame gets what it is due, at the consumer's joules per share-clock tick. All joules are possible for it.
    #[inline]
    fn pay_listed(
        &mut self,
        joules: f64,
        price: impl Fn(u32) -> f64,
        region_of: impl Fn(u32, NodeIndex) -> RegionRef,
    ) {
        for (index, node) in self.listed.drain(..) {
            let price = price(index);
            let consumer = &mut self.consumers[index as usize];
            let (location, sharer) = (consumer.location, consumer.sharer(index, self.sharing));
            let account = &mut consumer.accounts[node.0 as usize];
            account.joules += account.due * price;
            account.due = 0.0;
            account.price_min = account.price_min.min(price);
            account.price_max = account.price_max.max(price);
            let region = || region_of(location, node);
            self.possible_regions.add(account, joules, self.totals.samples, sharer, region);
        }
    }

    /// Only one frame ran. The whole interval was its own if nothing was idle either.
    fn resolve(&mut self, consumer: u32, node: NodeIndex, joules: f64, ticks: u64) {
        if self.due(consumer, node) == ticks as f64 {
            let location = self.consumers[consumer as usize].location;
            let resolved = self.resolved.entry((location, node)).or_default();
            resolved.joules += joules;
            resolved.ticks += ticks;
        }
    }

    fn due(&self, consumer: u32, node: NodeIndex) -> f64 {
        self.consumers[consumer as usize].accounts[node.0 as usize].due
    }

    /// Energy without time (two samples with one timestamp): to the frames that ran until then, if any did.
    fn pay_at_once(&mut self, joules: f64) -> bool {
        let now = self.now;
        let mut running = vec![0u32; self.groups.len() + self.consumers.len()];
        for (at, consumer) in self.consumers.iter().enumerate() {
            running[self.sharer(at)] += u32::from(!consumer.just_before(now).is_root());
        }
        let count = running.iter().filter(|members| **members > 0).count();
        let share = if self.sharing == Sharing::Shared { joules / count as f64 } else { joules };
        for index in 0..self.consumers.len() {
            let members = running[self.sharer(index)];
            let consumer = &mut self.consumers[index];
            let node = consumer.just_before(now);
            if !node.is_root() {
                at(&mut consumer.accounts, node).joules += share / f64::from(members);
            }
        }
        if count > 0 {
            self.handed_out += joules;
        }
        count > 0
    }

    /// Who a consumer shares as: its group, or after these itself.
    fn sharer(&self, consumer: usize) -> usize {
        self.consumers[consumer].group.map_or(self.groups.len() + consumer, |group| group as usize)
    }

    pub fn totals(&self) -> ViewTotals {
        let attributed: f64 = self.accounts().map(|(_, _, account)| account.joules).sum();
        let once = if self.sharing == Sharing::Shared { attributed } else { self.handed_out };
        let error = self.totals.total_joules - once - self.totals.idle_joules - self.totals.lost_joules;
        ViewTotals { attributed_joules: attributed, conservation_error_joules: error.abs(), ..self.totals }
    }

    /// (location, call path, account) of everything that has ever been due something.
    pub fn accounts(&self) -> impl Iterator<Item = (u32, NodeIndex, &Account)> {
        self.consumers.iter().flat_map(|consumer| {
            let numbered = consumer.accounts.iter().enumerate().skip(1);
            numbered.map(|(node, account)| (consumer.location, NodeIndex(node as u32), account))
        })
    }

    pub fn resolved(&self, location: u32, node: NodeIndex) -> Resolved {
        self.resolved.get(&(location, node)).copied().unwrap_or_default()
    }

    /// (region, the most that it can have spent): with independent sharing a region is there once for each sharer.
    pub fn possible_regions(&self) -> impl Iterator<Item = (RegionRef, f64)> {
        self.possible_regions.all.iter().map(|possible| (possible.region, possible.joules))
    }

    pub fn consumers(&self) -> &[Consumer] {
        &self.consumers
    }

    pub fn policy(&self) -> Policy {
        self.policy
    }

    pub fn sharing(&self) -> Sharing {
        self.sharing
    }
}

impl Consumer {
    /// What ran in the instant before `now`, which nothing is later than.
    fn just_before(&self, now: Timestamp) -> NodeIndex {
        if self.changed == now { self.before } else { self.node }
    }

    /// Where every sharer is given all joules.
    fn sharer(&self, index: u32, sharing: Sharing) -> Option<Sharer> {
        (sharing == Sharing::Independent).then(|| self.group.ok_or(index))
    }

    /// It is none any more, and has never been paid anything.
    pub fn is_nobody(&self) -> bool {
        self.removed && self.accounts.iter().all(|account| account.joules == 0.0)
    }

    pub fn account(&self, node: NodeIndex) -> Account {
        self.accounts.get(node.0 as usize).copied().unwrap_or_default()
    }
}

impl Account {
    /// `None` where it has never been paid for time.
    pub fn prices(&self) -> Option<(f64, f64)> {
        (self.price_min <= self.price_max).then_some((self.price_min, self.price_max))
    }
}

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

/// The account of a call path, made if it is not there yet.
#[inline]
fn at(accounts: &mut Vec<Account>, node: NodeIndex) -> &mut Account {
    let index = node.0 as usize;
    if index >= accounts.len() {
        accounts.resize(index + 1, Account::default());
    }
    &mut accounts[index]
}
