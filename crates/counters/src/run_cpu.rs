//! CPU time of a run's own processes, and of all processes of its node.
//!
//! The run's processes are those that were named ([`RunCpu::add`]), the children of `ampere run` ([`RunCpu::add_launcher`]), and
//! the descendants of both. A control group's time is not used: a batch job's group may contain several runs, and a login
//! session's group contains everything that its user does.
//!
//! A living process' time is read from its own clock, in nanoseconds and with all its threads. Two other times are missing
//! there: the time between the last reading of a process and its end, and the time of processes that are too short to be seen at
//! all. They are found in the sums that the kernel adds to the parent that waits for a process (`cutime` and `cstime`). If these
//! sums increase by more than was counted of ended children, the difference is counted for the parent. If a process' parent does
//! not wait for it or does not belong to the run, only the last moments of the process are lost. These sums have steps of 10 ms.
//! Until they show the time of an ended process, it is taken from a clock of all processes together, if there is one
//! ([`RunCpu::add_total_clock`]).

use crate::Settings;
use crate::cpu_time::{CpuTime, now_ns, thread_cpu_time};
use crate::late_time::{LateTime, TotalClock};
use ampere_model::time_namespace::ticks_since_boot;
use rustix::time::{ClockId, clock_gettime};
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The interval at which new descendants are searched for. The search takes at most a thousandth of the time.
const SEARCH_PERIOD: Duration = Duration::from_millis(100);
const SEARCH_SHARE: u32 = 1000;
/// The time spent on searches after the end of a process is at most the whole time divided by this.
const ENDED_SHARE: u32 = 200;
/// While the run is younger than this, descendants are searched for more often, because many commands are shorter.
const YOUNG_AGE_MAX: Duration = Duration::from_millis(200);

/// A counter of CPU time that the estimate, in the sampler's thread, shares with the thread that shows the figures.
pub type SharedRunCpu = Arc<Mutex<RunCpu>>;

/// CPU time since counting started, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BusyTime {
    /// The CPU time of the run's own processes.
    pub own_ns: u64,
    /// The CPU time of this process and of `ampere run`.
    pub ampere_ns: u64,
    /// The CPU time of all processes of the node.
    pub node_ns: u64,
    /// The time since counting started.
    pub counted_ns: u64,
}

/// The CPU time of a process of the run, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessCpu {
    pub pid: u32,
    /// The process' start time in clock ticks since boot, which together with `pid` identifies the process.
    pub started: u64,
    pub name: String,
    /// The process' CPU time since counting started, as last read.
    pub own_ns: u64,
    /// The CPU time of the process' children that were not seen, as far as the process has waited for them.
    pub children_ns: u64,
}

/// Ended processes that used less than this are not kept for [`RunCpu::processes`].
const KEPT_NS: u64 = 20_000_000;
/// At most this many ended processes are kept.
const KEPT_MAX: usize = 4096;

/// The processes of a run, and the CPU time that they have used.
pub struct RunCpu {
    /// `None` if the node's time cannot be read.
    node: Option<CpuTime>,
    /// CLOCK_MONOTONIC when counting started, and the busy time of the node's CPUs until then.
    began_ns: u64,
    node_began_ns: u64,
    node_ns: u64,
    /// The number of CPUs that the run may use, and that of the node.
    cpus: (usize, usize),
    /// The living processes, by pid.
    members: HashMap<u32, Member>,
    /// The CPU time of processes that have ended, and that of their children that were not seen.
    ended_ns: u64,
    ended_unseen_ns: u64,
    /// The CPU time that is not yet in the sums of parents.
    late: Option<LateTime>,
    /// The highest result so far.
    own_ns: u64,
    /// The whole CPU time of an ended command, to the microsecond.
    command_ns: u64,
    ended: Vec<ProcessCpu>,
    /// The time when counting started, in clock ticks since boot, like the start times of processes.
    began: u64,
    next_search: Instant,
    /// The CPU time that this process had used when counting started.
    collector_base: u64,
    /// When the last search ended, and the CPU time that it took.
    searched: (Instant, Duration),
    /// The most CPU time that one search has found of children that were not seen.
    found_late_ns: u64,
    /// The start times of processes of the run that were not found in this PID namespace.
    foreign: Vec<u64>,
}

/// A process of the run. Times are in nanoseconds.
#[derive(Debug, Default)]
struct Member {
    name: String,
    parent: u32,
    started: u64,
    /// Whether the process is `ampere run` itself, whose time does not belong to the run.
    is_launcher: bool,
    /// The CPU time of the process and its children before counting started.
    base: u64,
    children_base: u64,
    own: u64,
    /// The CPU time of the process' ended children that has been counted.
    reaped: u64,
    /// The CPU time of the process' children that were not seen.
    unseen: u64,
}

impl RunCpu {
    /// Starts to count. `cpus`: the number of the node's CPUs that the run may use.
    pub fn new(settings: &Settings, cpus: usize) -> RunCpu {
        let mut node = CpuTime::open(&settings.sys_root).ok().map(|(time, _)| time);
        let began_ns = now_ns();
        let node_began_ns = node.as_mut().and_then(|node| node.busy_ns(began_ns).ok()).unwrap_or(0);
        let since_boot = clock_gettime(ClockId::Boottime);
        let ticks_per_second = rustix::param::clock_ticks_per_second();
        RunCpu {
            node,
            began_ns,
            node_began_ns,
            node_ns: 0,
            cpus: (cpus, cpus_of(&settings.sys_root).max(cpus).max(1)),
            members: HashMap::new(),
            ended_ns: 0,
            ended_unseen_ns: 0,
            late: None,
            own_ns: 0,
            command_ns: 0,
            ended: Vec::new(),
            began: ticks_since_boot(
                since_boot.tv_sec as u64 * ticks_per_second
                    + since_boot.tv_nsec as u64 * ticks_per_second / 1_000_000_000,
            ),
            next_search: Instant::now(),
            collector_base: cpu_time_ns(std::process::id()).unwrap_or(0),
            searched: (Instant::now(), Duration::ZERO),
            found_late_ns: 0,
            foreign: Vec::new(),
        }
    }

    /// Returns the number of CPUs that the run may use, and that of the node.
    pub fn cpus(&self) -> (usize, usize) {
        self.cpus
    }

    /// Returns when counting started, and whether the command of `ampere run` has ended. After its end, all of its CPU time is
    /// known.
    pub fn began_and_ended(&self) -> (u64, bool) {
        (self.began_ns, self.command_ns > 0)
    }

    /// Adds a process of the run, by its pid and its start time in clock ticks since boot. CPU time that it used before counting
    /// started is not counted.
    pub fn add(&mut self, pid: u32, started: u64) {
        if let Some(stat) = Stat::of(pid).filter(|stat| stat.started == started) {
            self.insert(pid, &stat, false);
            self.next_search = Instant::now();
        }
    }

    /// Adds a process that is about to become a program of the run, by its pid and its start time in clock ticks since boot. CPU
    /// time that it has used until now is not counted.
    pub fn add_command(&mut self, pid: u32, started: u64) {
        self.add(pid, started);
        let used = cpu_time_ns(pid).unwrap_or(0);
        self.members.get_mut(&pid).into_iter().for_each(|member| member.base = used);
    }

    /// Adds a process of the run in another PID namespace, by its start time. Its pid in this namespace becomes
    /// known only if it is a descendant of other processes of the run.
    pub fn add_foreign(&mut self, started: u64) {
        if self.members.values().all(|member| member.started != started) {
            self.foreign.push(started);
            self.next_search = Instant::now();
        }
    }

    /// Whether the CPU time of some processes of the run cannot be read, because they are in other PID namespaces.
    pub fn is_partial(&self) -> bool {
        !self.foreign.is_empty()
    }

    /// Adds `ampere run`, whose children belong to the run, except this process.
    pub fn add_launcher(&mut self, pid: u32) {
        if let Some(stat) = Stat::of(pid) {
            self.insert(pid, &stat, true);
        }
    }

    /// Adds a clock of all processes together, which starts at 0.
    pub fn add_total_clock(&mut self, clock: TotalClock) {
        self.late = Some(LateTime::new(clock));
    }

    /// Sets the CPU time of the ended command of `ampere run`, including the children that it waited for. The kernel shows the
    /// launcher's sum only in steps of 10 ms.
    pub fn command_used(&mut self, cpu_ns: u64) {
        self.command_ns = cpu_ns;
    }

    fn insert(&mut self, pid: u32, stat: &Stat, is_launcher: bool) {
        if pid == std::process::id() || self.members.contains_key(&pid) {
            return;
        }
        self.foreign.retain(|started| *started != stat.started);
        let is_older = stat.started < self.began;
        let base = |used: u64| if is_older { used } else { 0 };
        let member = Member {
            name: stat.name.clone(),
            parent: stat.parent,
            started: stat.started,
            is_launcher,
            base: base(cpu_time_ns(pid).unwrap_or(0)),
            children_base: base(stat.children_ns),
            ..Member::default()
        };
        self.members.insert(pid, member);
    }

    /// Returns the run's own CPU time, which never decreases.
    pub fn own_ns(&mut self) -> u64 {
        let (last, took) = self.searched;
        // When a process ends, its parent's sum includes the rest of its time. A search finds that time at once, so that it
        // counts in the interval of the process' last work.
        let is_due = Instant::now() >= self.next_search;
        let mut has_ended = self.read_clocks();
        let is_searching = is_due || has_ended && last.elapsed() >= took * ENDED_SHARE;
        if is_searching {
            has_ended |= self.look();
        }
        let sum = |of: fn(&Member) -> u64| self.members.values().map(of).sum::<u64>();
        let direct_ns = self.ended_ns + sum(|member| member.own);
        let unseen_ns = self.ended_unseen_ns + sum(|member| member.unseen);
        // Each sum of user or system time that the kernel shows has steps of a tick.
        let not_shown_ns = 2 * tick_ns() * self.members.len() as u64;
        let late_ns = self.late.as_mut().map_or(0, |late| {
            late.update(direct_ns, unseen_ns, has_ended);
            if is_searching {
                late.limit(unseen_ns + not_shown_ns);
            }
            late.ns()
        });
        // After the end of the command, its whole CPU time is known.
        let late_ns = if self.command_ns > 0 { 0 } else { late_ns };
        self.own_ns = self.own_ns.max(direct_ns + late_ns.max(unseen_ns));
        self.own_ns
    }

    /// Returns the running processes, and those that have ended, except the smallest.
    pub fn processes(&self) -> impl Iterator<Item = ProcessCpu> + '_ {
        let living = self.members.iter().filter(|(_, member)| !member.is_launcher);
        living.map(|(pid, member)| member.cpu(*pid)).chain(self.ended.iter().cloned())
    }

    /// Returns `None` if the node's CPU time cannot be read.
    pub fn busy(&mut self) -> Option<BusyTime> {
        let own_ns = self.own_ns();
        let now_ns = now_ns();
        let node_ns = self.node.as_mut()?.busy_ns(now_ns).ok()?.saturating_sub(self.node_began_ns);
        let counted_ns = now_ns.saturating_sub(self.began_ns);
        // The kernel counts the node's time in steps. The first one may have begun before counting started.
        let max_ns = counted_ns.saturating_mul(self.cpus.1 as u64);
        self.node_ns = self.node_ns.max(node_ns.min(max_ns)).max(own_ns);
        Some(BusyTime { own_ns, ampere_ns: self.ampere_ns(), node_ns: self.node_ns, counted_ns })
    }

    fn ampere_ns(&self) -> u64 {
        let since = |pid: u32, base: u64| cpu_time_ns(pid).map_or(0, |used| used.saturating_sub(base));
        let launchers = self.members.iter().filter(|(_, member)| member.is_launcher);
        let launchers: u64 = launchers.map(|(pid, member)| since(*pid, member.base)).sum();
        launchers + since(std::process::id(), self.collector_base)
    }

    /// Searches for the last CPU time of ended processes, unless searches would take more than 1/`share` of the time.
    /// Returns how much of the run's own time may not be known.
    pub(crate) fn not_seen_ns(&mut self, share: u32) -> u64 {
        let (ended, took) = self.searched;
        if ended.elapsed() < took * share {
            return self.found_late_ns;
        }
        self.look();
        0
    }

    /// Searches for new processes, and for the last CPU time of ended ones. Returns whether a process has ended.
    pub fn look(&mut self) -> bool {
        let cpu_before = thread_cpu_time();
        // Parents' sums are read before ended processes are searched for, so that a process that ends in between is counted once.
        let mut waited_for = Vec::new();
        let mut children = Vec::new();
        let mut replaced = Vec::new();
        for (pid, member) in &mut self.members {
            match Stat::of(*pid) {
                Some(stat) if stat.started == member.started => {
                    member.parent = stat.parent;
                    let from_command =
                        if member.is_launcher { member.children_base + self.command_ns } else { 0 };
                    waited_for.push((*pid, stat.children_ns.max(from_command)));
                    children_of(*pid, &mut children);
                }
                Some(_) => replaced.push(*pid),
                None => {}
            }
        }
        let mut has_ended = !replaced.is_empty();
        replaced.into_iter().for_each(|pid| self.end(pid));
        has_ended |= self.read_clocks();
        let mut found_late_ns = 0;
        for (pid, children_ns) in waited_for {
            let Some(member) = self.members.get_mut(&pid) else { continue };
            let used = children_ns.saturating_sub(member.children_base).saturating_sub(member.reaped);
            found_late_ns += used.saturating_sub(member.unseen);
            member.unseen = member.unseen.max(used);
        }
        self.found_late_ns = self.found_late_ns.max(found_late_ns);
        // The children may have children in turn, so the search continues until there are no more.
        while let Some(pid) = children.pop() {
            let Some(stat) = Stat::of(pid).filter(|_| !self.members.contains_key(&pid)) else { continue };
            self.insert(pid, &stat, false);
            if self.members.contains_key(&pid) {
                children_of(pid, &mut children);
            }
        }
        has_ended |= self.read_clocks();
        let took = thread_cpu_time().saturating_sub(cpu_before);
        self.searched = (Instant::now(), took);
        let age = Duration::from_nanos(now_ns().saturating_sub(self.began_ns));
        self.next_search = Instant::now()
            + match age < YOUNG_AGE_MAX {
                true => age / 2,
                false => SEARCH_PERIOD.max(took * SEARCH_SHARE),
            };
        has_ended
    }

    /// Reads the clocks of all processes. Returns whether one has ended.
    fn read_clocks(&mut self) -> bool {
        let mut ended = Vec::new();
        for (pid, member) in &mut self.members {
            match cpu_time_ns(*pid) {
                Some(_) if member.is_launcher => {}
                Some(used) => member.own = member.own.max(used.saturating_sub(member.base)),
                None => ended.push(*pid),
            }
        }
        let has_ended = !ended.is_empty();
        ended.into_iter().for_each(|pid| self.end(pid));
        has_ended
    }

    fn end(&mut self, pid: u32) {
        let Some(member) = self.members.remove(&pid) else { return };
        let counted = member.own + member.unseen;
        if counted >= KEPT_NS && !member.is_launcher && self.ended.len() < KEPT_MAX {
            self.ended.push(member.cpu(pid));
        }
        self.ended_ns += member.own;
        self.ended_unseen_ns += member.unseen;
        if let Some(parent) = self.members.get_mut(&member.parent) {
            // This is what the kernel has added to the parent's sum for this process.
            parent.reaped += counted + member.reaped + member.base + member.children_base;
        }
        // Children that ended before this process may be noticed only after it. The kernel has added their time to that of this
        // process' parent, too.
        let children = self.members.values_mut().filter(|child| child.parent == pid);
        children.for_each(|child| child.parent = member.parent);
    }
}

impl Member {
    fn cpu(&self, pid: u32) -> ProcessCpu {
        ProcessCpu {
            pid,
            started: self.started,
            name: self.name.clone(),
            own_ns: self.own,
            children_ns: self.unseen,
        }
    }
}

/// Returns the CPU time of all threads of a process; `None` after it has been waited for.
#[allow(unsafe_code)]
fn cpu_time_ns(pid: u32) -> Option<u64> {
    // `clock_getcpuclockid` computes the same, but asks the kernel each time. The lowest bits select the run time of a process.
    let clock = !i32::try_from(pid).ok()? << 3 | 2;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes to the structure that it is given, and keeps no pointer to it.
    let is_read = unsafe { libc::clock_gettime(clock, &mut time) == 0 };
    is_read.then_some(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Returns the size of the steps of the kernel's sums, in nanoseconds.
fn tick_ns() -> u64 {
    1_000_000_000 / rustix::param::clock_ticks_per_second().max(1)
}

/// Returns the number of the node's CPUs, from the lines of `/proc/stat`.
fn cpus_of(root: &Path) -> usize {
    let text = std::fs::read_to_string(root.join("proc/stat")).unwrap_or_default();
    text.lines().skip(1).take_while(|line| line.starts_with("cpu")).count()
}

/// Adds the children of all threads of a process.
fn children_of(pid: u32, to: &mut Vec<u32>) {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    for thread in threads {
        let text = std::fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        to.extend(text.split_ascii_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
    }
}

/// Figures of a process or a thread, from its `stat` in `/proc`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// The process' present name, of at most 15 bytes.
    pub name: String,
    /// The pid of its parent.
    pub parent: u32,
    /// The CPU time of a process, with all its threads, or of a thread, in steps of 10 ms.
    pub cpu_ns: u64,
    /// The CPU time of the children that it has waited for, and of theirs.
    pub children_ns: u64,
    /// The process' start time, in clock ticks since boot.
    pub started: u64,
}

impl Stat {
    /// Returns `None` if there is no such process.
    pub fn of(pid: u32) -> Option<Stat> {
        Stat::read(&format!("/proc/{pid}/stat"))
    }

    /// Returns `None` if there is no such thread.
    pub fn of_thread(pid: u32, thread: u32) -> Option<Stat> {
        Stat::read(&format!("/proc/{pid}/task/{thread}/stat"))
    }

    fn read(path: &str) -> Option<Stat> {
        // The name may be arbitrary bytes.
        Stat::parse(&String::from_utf8_lossy(&std::fs::read(path).ok()?))
    }

    fn parse(text: &str) -> Option<Stat> {
        let (begin, end) = (text.find('(')?, text.rfind(')')?);
        let fields: Vec<&str> = text.get(end + 1..)?.split_ascii_whitespace().collect();
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        let time = |user: usize| Some((number(user)? + number(user + 1)?) * tick_ns());
        Some(Stat {
            name: text.get(begin + 1..end)?.to_owned(),
            parent: number(4)? as u32,
            cpu_ns: time(14)?,
            children_ns: time(16)?,
            started: ticks_since_boot(number(22)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel adds a child's time to its parent's, and so to that of the parent's parent.
    #[test]
    fn a_process_that_ends_together_with_its_parent_is_counted_once() {
        let mut run = RunCpu::new(&Settings::default(), 1);
        let launcher = std::process::id();
        // This is above every possible pid.
        let first = 1 << 23;
        run.members.insert(launcher, Member { is_launcher: true, ..Member::default() });
        for (pid, parent) in
            (first..first + 100).map(|pid| (pid, if pid % 2 == 0 { launcher } else { pid - 1 }))
        {
            run.members.insert(pid, Member { parent, own: 10, started: 1, ..Member::default() });
        }
        run.read_clocks();
        assert_eq!((run.ended_ns, run.members[&launcher].reaped), (1000, 1000));
    }

    #[test]
    fn a_name_with_parentheses_is_read_as_a_name() {
        let text = "7 (a) (b) S 3 7 7 0 -1 0 0 0 0 0 10 20 300 400 20 0 1 0 1234 0";
        let tick_ns = 1_000_000_000 / rustix::param::clock_ticks_per_second();
        let stat = Stat::parse(text).unwrap();
        assert_eq!((stat.name.as_str(), stat.parent, stat.started), ("a) (b", 3, 1234));
        assert_eq!((stat.cpu_ns, stat.children_ns), (30 * tick_ns, 700 * tick_ns));
        assert_eq!(Stat::parse("7 (a"), None);
        assert_eq!(Stat::parse("7 (a) S 3"), None);
    }
}
