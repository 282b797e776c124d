//! One device seen by one kind of consumer: the share clock, and what each call path has been paid.

use crate::callpaths::NodeIndex;
use crate::counter::Increase;
use ampere_model::Timestamp;

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
    /// Samples that were not numbers, or older than the one before.
    pub unusable_samples: u64,
    /// Ticks between samples whose increase is unknown because the counter was reset in between.
    pub unknown_ticks: u64,
    /// |total - attributed - idle - lost|. With independent sharing, whose sum is larger on purpose, attributed
    /// stands here for what was handed out once.
    pub conservation_error_joules: f64,
}

/// What one call path has been paid by one view.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Account {
    pub joules: f64,
    /// Of these, joules of sample intervals that belonged to this frame alone.
    pub resolved_joules: f64,
    pub resolved_ticks: u64,
    /// Share-clock ticks due in the interval that is still open.
    due: f64,
    /// Whether the call path is on the list of those to be paid.
    listed: bool,
}

#[derive(Clone, Debug)]
struct Consumer {
    location: u32,
    node: NodeIndex,
    /// Share clock when `node` came on top.
    since: f64,
    accounts: Vec<Account>,
}

#[derive(Clone, Debug)]
pub(crate) struct View {
    policy: Policy,
    sharing: Sharing,
    consumers: Vec<Consumer>,
    active: u32,
    /// Share-clock ticks per tick.
    rate: f64,
    clock: f64,
    now: Timestamp,
    /// Start of the open interval; `None` before the first sample.
    interval: Option<Timestamp>,
    idle_ticks: f64,
    /// Call paths with something due in the open interval.
    listed: Vec<(u32, NodeIndex)>,
    totals: ViewTotals,
    /// What the consumers were paid, each joule counted once.
    handed_out: f64,
    pub late: u64,
}

impl View {
    pub fn new(policy: Policy, sharing: Sharing) -> View {
        View {
            policy,
            sharing,
            consumers: Vec::new(),
            active: 0,
            rate: 1.0,
            clock: 0.0,
            now: 0,
            interval: None,
            idle_ticks: 0.0,
            listed: Vec::new(),
            totals: ViewTotals::default(),
            handed_out: 0.0,
            late: 0,
        }
    }

    /// A consumer whose call path is `node` as of now.
    pub fn add_consumer(&mut self, location: u32, node: NodeIndex) -> u32 {
        self.consumers.push(Consumer {
            location,
            node: NodeIndex::NONE,
            since: self.clock,
            accounts: Vec::new(),
        });
        let consumer = (self.consumers.len() - 1) as u32;
        self.switch(consumer, self.now, node);
        consumer
    }

    /// Moves time on. Time that goes back is counted and taken as no time.
    #[inline]
    fn advance(&mut self, time: Timestamp) {
        let Some(ticks) = time.checked_sub(self.now) else {
            self.late += 1;
            return;
        };
        self.now = time;
        if self.active > 0 {
            self.clock += ticks as f64 * self.rate;
        } else {
            self.idle_ticks += ticks as f64;
        }
    }

    /// From `time` on, the consumer's innermost frame is `node`.
    #[inline]
    pub fn switch(&mut self, consumer: u32, time: Timestamp, node: NodeIndex) {
        self.advance(time);
        self.charge(consumer);
        let consumer = &mut self.consumers[consumer as usize];
        let was_active = !consumer.node.is_none();
        consumer.node = node;
        consumer.since = self.clock;
        if was_active == node.is_none() {
            self.active = if was_active { self.active - 1 } else { self.active + 1 };
            let split =
                self.policy == Policy::TimeSliced && self.sharing == Sharing::Shared && self.active > 0;
            self.rate = if split { 1.0 / f64::from(self.active) } else { 1.0 };
        }
    }

    /// Adds to the current frame of a consumer what it is due up to now.
    #[inline]
    fn charge(&mut self, index: u32) {
        let consumer = &mut self.consumers[index as usize];
        let at = consumer.node.0 as usize;
        let due = self.clock - consumer.since;
        consumer.since = self.clock;
        if consumer.node.is_none() || due <= 0.0 || self.interval.is_none() {
            return;
        }
        if at >= consumer.accounts.len() {
            consumer.accounts.resize(at + 1, Account::default());
        }
        let account = &mut consumer.accounts[at];
        account.due += due;
        if !account.listed {
            account.listed = true;
            self.listed.push((index, consumer.node));
        }
    }

    /// A sample: the interval that ends here is paid.
    pub fn sample(&mut self, time: Timestamp, increase: Increase) {
        if increase == Increase::Unusable {
            self.totals.unusable_samples += 1;
            return;
        }
        self.advance(time);
        for index in 0..self.consumers.len() as u32 {
            self.charge(index);
        }
        let ticks = self.interval.map_or(0, |start| self.now - start);
        match increase {
            Increase::Joules(joules) => {
                self.totals.total_joules += joules;
                self.pay(joules, ticks);
            }
            Increase::Reset => {
                self.totals.counter_resets += 1;
                self.totals.unknown_ticks += ticks;
            }
            Increase::First | Increase::Unusable => {}
        }
        self.totals.samples += 1;
        self.begin_interval();
    }

    fn begin_interval(&mut self) {
        for (consumer, node) in self.listed.drain(..) {
            let account = &mut self.consumers[consumer as usize].accounts[node.0 as usize];
            account.due = 0.0;
            account.listed = false;
        }
        self.interval = Some(self.now);
        self.clock = 0.0;
        self.idle_ticks = 0.0;
        for consumer in &mut self.consumers {
            consumer.since = 0.0;
        }
    }

    fn pay(&mut self, joules: f64, ticks: u64) {
        let listed = std::mem::take(&mut self.listed);
        if listed.is_empty() {
            if ticks == 0 && self.active > 0 {
                self.pay_at_once(joules);
            } else {
                self.totals.idle_joules += joules;
            }
            self.listed = listed;
            return;
        }
        let length = ticks as f64;
        match self.policy {
            Policy::TimeSliced => {
                let idle = joules * (self.idle_ticks / length);
                self.totals.idle_joules += idle;
                self.handed_out += joules - idle;
                for (consumer, node) in &listed {
                    self.account(*consumer, *node).earn(joules, length, ticks, listed.len());
                }
            }
            Policy::BusyOnly => {
                self.handed_out += joules;
                let mut due = vec![0.0; self.consumers.len()];
                for (consumer, node) in &listed {
                    due[*consumer as usize] += self.account(*consumer, *node).due;
                }
                let all: f64 = due.iter().sum();
                for (consumer, node) in &listed {
                    let of = if self.sharing == Sharing::Shared { all } else { due[*consumer as usize] };
                    self.account(*consumer, *node).earn(joules, of, ticks, listed.len());
                }
            }
        }
        self.listed = listed;
    }

    /// Energy without time (two samples with one timestamp): to whoever is active.
    fn pay_at_once(&mut self, joules: f64) {
        self.handed_out += joules;
        let share = if self.sharing == Sharing::Shared { joules / f64::from(self.active) } else { joules };
        for consumer in &mut self.consumers {
            let at = consumer.node.0 as usize;
            if !consumer.node.is_none() {
                if at >= consumer.accounts.len() {
                    consumer.accounts.resize(at + 1, Account::default());
                }
                consumer.accounts[at].joules += share;
            }
        }
    }

    fn account(&mut self, consumer: u32, node: NodeIndex) -> &mut Account {
        &mut self.consumers[consumer as usize].accounts[node.0 as usize]
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
            let numbered = consumer.accounts.iter().enumerate();
            numbered.map(|(node, account)| (consumer.location, NodeIndex(node as u32), account))
        })
    }

    pub fn locations(&self) -> impl Iterator<Item = u32> {
        self.consumers.iter().map(|consumer| consumer.location)
    }

    pub fn accounts_of(&self, location: u32) -> &[Account] {
        self.consumers.iter().find(|c| c.location == location).map_or(&[], |c| &c.accounts)
    }

    pub fn policy(&self) -> Policy {
        self.policy
    }

    pub fn sharing(&self) -> Sharing {
        self.sharing
    }
}

impl Account {
    /// Takes the part `due / of` of an interval's joules.
    fn earn(&mut self, joules: f64, of: f64, interval_ticks: u64, frames: usize) {
        let earned = joules * (self.due / of);
        self.joules += earned;
        if frames == 1 && self.due == interval_ticks as f64 {
            self.resolved_joules += earned;
            self.resolved_ticks += interval_ticks;
        }
    }
}
