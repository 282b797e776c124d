//! Locations that draw from a view's device, and groups of them.

use super::account::{Account, Sharer};
use crate::policy::Sharing;
use crate::steps::NodeIndex;
use ampere_model::Timestamp;

#[derive(Clone, Debug)]
pub(crate) struct Consumer {
    pub location: u32,
    /// The caller's number of its process, if it is known.
    pub(super) process: Option<u64>,
    /// The index of its group.
    pub(super) group: Option<u32>,
    /// Whether the consumer no longer draws from the device. It keeps the joules that it was charged.
    pub(super) removed: bool,
    pub(super) node: NodeIndex,
    /// The share clock (its group's, if it has one) when `node` became the innermost frame.
    pub(super) since: f64,
    /// The frame just before `changed`, the time of the last change.
    pub(super) before: NodeIndex,
    pub(super) changed: Timestamp,
    /// One account for each call path.
    pub(super) accounts: Vec<Account>,
    /// The call paths with something due in the open interval.
    pub(super) listed: Vec<NodeIndex>,
    /// The number of the view's queued samples that it has passed.
    pub(super) passed: usize,
}

impl Consumer {
    /// Makes a consumer without a frame, as of `now`.
    pub(super) fn new(location: u32, process: Option<u64>, group: Option<u32>, now: Timestamp) -> Consumer {
        Consumer {
            location,
            process,
            group,
            removed: false,
            node: NodeIndex::ROOT,
            since: 0.0,
            before: NodeIndex::ROOT,
            changed: now,
            accounts: Vec::new(),
            listed: Vec::new(),
            passed: 0,
        }
    }

    /// Adds the ticks that the current frame is due when the consumer's clock is `clock`, and returns them.
    #[inline]
    pub(super) fn accrue(&mut self, clock: f64) -> f64 {
        let due = clock - self.since;
        if self.node.is_root() || due <= 0.0 {
            return 0.0;
        }
        let node = self.node;
        let account = self.account_mut(node);
        let is_first = account.due == 0.0;
        account.due += due;
        if is_first {
            self.listed.push(node);
        }
        due
    }

    /// Returns the frame in the instant before `now`, the latest time of the view.
    pub(super) fn just_before(&self, now: Timestamp) -> NodeIndex {
        if self.changed == now { self.before } else { self.node }
    }

    /// Returns the sharer that the consumer is part of, if every sharer is given all joules.
    pub(super) fn independent_sharer(&self, index: u32, sharing: Sharing) -> Option<Sharer> {
        let sharer = self.group.map_or(Sharer::Consumer(index), Sharer::Group);
        (sharing == Sharing::Independent).then_some(sharer)
    }

    /// Whether the consumer no longer draws from the device, and has never been charged anything.
    pub fn is_removed_and_uncharged(&self) -> bool {
        self.removed && self.accounts.iter().all(|account| account.joules == 0.0)
    }

    /// Returns the ticks that its listed call paths are due.
    pub(super) fn dues(&self) -> impl Iterator<Item = f64> {
        self.listed.iter().map(|node| self.accounts[node.0 as usize].due)
    }

    pub fn account(&self, node: NodeIndex) -> Account {
        self.accounts.get(node.0 as usize).copied().unwrap_or_default()
    }

    /// Returns the account of a call path, and makes it if it is new.
    #[inline]
    pub(super) fn account_mut(&mut self, node: NodeIndex) -> &mut Account {
        let index = node.0 as usize;
        if index >= self.accounts.len() {
            self.accounts.resize(index + 1, Account::default());
        }
        &mut self.accounts[index]
    }
}

/// A view's consumers and their groups.
#[derive(Clone, Debug, Default)]
pub(crate) struct Consumers {
    pub all: Vec<Consumer>,
    pub(super) groups: Vec<Group>,
    /// Groups with a member that runs, and consumers without a group that run.
    pub(super) active: u32,
}

impl Consumers {
    /// Returns the index of the group with the caller's number, and makes the group if it is new. `clock` is the view's share
    /// clock.
    pub(super) fn group(&mut self, name: u64, clock: f64) -> u32 {
        let known = self.groups.iter().position(|group| group.name == name);
        known.unwrap_or_else(|| {
            self.groups.push(Group::new(name, 0, clock));
            self.groups.len() - 1
        }) as u32
    }

    /// Returns the number of call paths with something due.
    pub(super) fn listed(&self) -> usize {
        self.all.iter().map(|consumer| consumer.listed.len()).sum()
    }

    /// Returns the number of the sharer that a consumer belongs to. Groups come first, then consumers.
    pub(super) fn sharer(&self, consumer: usize) -> usize {
        self.all[consumer].group.map_or(self.groups.len() + consumer, |group| group as usize)
    }

    /// Starts an interval, in which nothing is due yet.
    pub(super) fn begin_interval(&mut self) {
        self.groups.iter_mut().for_each(Group::begin_interval);
        for Consumer { listed, accounts, since, .. } in &mut self.all {
            listed.drain(..).for_each(|node| accounts[node.0 as usize].due = 0.0);
            *since = 0.0;
        }
    }
}

/// Several consumers that count as one, such as a process' threads. The group's share is split among its running members.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group {
    /// The caller's number for the group.
    pub name: u64,
    pub running: u32,
    /// The ticks that one running member has been due in the open interval.
    clock: f64,
    /// The value of the view's share clock when this group was last updated.
    seen: f64,
}

impl Group {
    /// Makes a group as of the time when the view's share clock is `clock`.
    pub fn new(name: u64, running: u32, clock: f64) -> Group {
        Group { name, running, clock, seen: clock }
    }

    /// Returns the group's clock when the view's is `clock`. While at most one member has run in the interval, both are equal to
    /// the last bit, so it does not matter when that consumer became a member of the group.
    #[inline]
    pub fn at(&self, clock: f64) -> f64 {
        if self.running <= 1 && self.clock == self.seen {
            return clock;
        }
        self.clock + (clock - self.seen) / f64::from(self.running.max(1))
    }

    pub fn advance(&mut self, clock: f64) {
        (self.clock, self.seen) = (self.at(clock), clock);
    }

    pub fn begin_interval(&mut self) {
        (self.clock, self.seen) = (0.0, 0.0);
    }
}
