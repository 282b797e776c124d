//! The tree of call paths for pictures: merged over all ranks and threads, with a region that calls itself as one frame.

use ampere_figures::summary::{Device, Summary, View};
use ampere_figures::summary::{topmost, view};
use ampere_model::order::largest_first;
use ampere_model::regions::is_mpi;
use std::collections::HashMap;

/// The outermost frame, which stands for the whole and contains all others.
pub const ROOT: u32 = 0;

/// The frames of a summary's pictures. A caller comes before the frames that it calls.
pub struct Frames<'a> {
    summary: &'a Summary,
    frames: Vec<Frame>,
    /// The frame of each call path.
    of_path: Vec<u32>,
}

struct Frame {
    caller: u32,
    /// An index into the summary's names.
    name: u32,
    /// The largest number of times that it is on the stack, because it calls itself.
    times: u32,
}

/// The frames with the figures of some views.
pub struct Tree<'a> {
    pub name: String,
    frames: &'a Frames<'a>,
    is_of_kernels: bool,
    sums: Vec<Sum>,
    /// Joules that are in no frame.
    pub idle: f64,
    /// Their dynamic part; `None` unless the dynamic joules of all frames are known.
    pub idle_dynamic: Option<f64>,
    /// Joules that cannot be attributed.
    pub lost: f64,
}

/// The figures of a frame.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sum {
    /// The joules of the frame and of all frames that it called.
    pub joules: f64,
    /// The joules of the frame itself.
    pub exclusive: f64,
    /// The dynamic parts of both; see [`Tree::idle_dynamic`].
    pub dynamic: f64,
    pub exclusive_dynamic: f64,
    pub calls: u64,
    /// The joules that the frame itself used while waiting in MPI, and those that others used while waiting for it.
    pub waits: [f64; 2],
    /// The number of frames: itself, and the frames inside it that were called.
    pub frames: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Function,
    Mpi,
    Kernel,
    /// Idle or lost joules, which are shown in addition to the functions, so that the sum is that of the device.
    Rest,
    /// Call paths that are too small to be boxes of their own.
    Small,
    /// The root: a device, or all of them.
    Whole,
}

impl<'a> Frames<'a> {
    pub fn of(summary: &'a Summary) -> Frames<'a> {
        let paths = &summary.paths;
        let mut frames = vec![Frame { caller: ROOT, name: u32::MAX, times: 1 }];
        let mut of_path: Vec<u32> = Vec::with_capacity(paths.len());
        let mut times: Vec<u32> = Vec::with_capacity(paths.len());
        let mut known: HashMap<(u32, u32), u32> = HashMap::with_capacity(paths.len());
        for (caller, name) in paths.parent.iter().zip(&paths.name) {
            let (above, again) =
                caller.map_or((ROOT, 0), |path| (of_path[path as usize], times[path as usize]));
            let frame = if frames[above as usize].name == *name {
                frames[above as usize].times = frames[above as usize].times.max(again + 1);
                times.push(again + 1);
                above
            } else {
                times.push(1);
                *known.entry((above, *name)).or_insert_with(|| {
                    frames.push(Frame { caller: above, name: *name, times: 1 });
                    (frames.len() - 1) as u32
                })
            };
            of_path.push(frame);
        }
        Frames { summary, frames, of_path }
    }

    /// Makes a tree with the figures of the views of several devices.
    pub fn of_views<'b>(
        &'a self,
        name: &str,
        views: impl Iterator<Item = (&'b Device, &'b View)>,
    ) -> Tree<'a> {
        let mut sums = vec![Sum::default(); self.frames.len()];
        let mut idle = 0.0;
        let mut lost = 0.0;
        let mut is_of_kernels = false;
        let mut idle_dynamic = Some(0.0);
        for (device, view) in views {
            let whole = match view.is_active() {
                true => device.own_whole(view),
                false => device.dynamic_joules.unwrap_or_default(),
            };
            let mut dynamic = whole;
            for row in view.callpaths.iter() {
                let sum = &mut sums[self.of_path[row.path as usize] as usize];
                sum.exclusive += row.figures.exclusive_joules;
                sum.exclusive_dynamic += row.figures.own_joules();
                dynamic -= row.figures.own_joules();
                sum.calls = sum.calls.saturating_add(row.figures.calls);
                sum.frames = 1;
            }
            for row in view.callpaths.all() {
                let sum = &mut sums[self.of_path[row.path as usize] as usize];
                sum.waits[0] += row.figures.waited_joules.unwrap_or_default();
                sum.waits[1] += row.figures.caused_waiting_joules.unwrap_or_default();
            }
            let is_known = view.is_active() || view.callpaths.is_empty();
            // With independent sharing, the frames may have more joules than the device. Rows have nine digits in a file, so
            // their difference has fewer.
            let step = (1e-7 * whole).max(f64::MIN_POSITIVE);
            let dynamic = (dynamic.max(0.0) / step).round() * step;
            idle_dynamic = idle_dynamic.filter(|_| is_known).map(|sum| sum + dynamic);
            idle += view.idle_joules;
            lost += view.lost_joules;
            is_of_kernels |= view.view == "kernels";
        }
        for at in (1..sums.len()).rev() {
            sums[at].joules += sums[at].exclusive;
            sums[at].dynamic += sums[at].exclusive_dynamic;
            let (above, below) = sums.split_at_mut(at);
            let caller = &mut above[self.frames[at].caller as usize];
            caller.joules += below[0].joules;
            caller.dynamic += below[0].dynamic;
            caller.frames += below[0].frames;
        }
        sums[ROOT as usize].joules += idle.max(0.0) + lost.max(0.0);
        sums[ROOT as usize].dynamic += idle_dynamic.unwrap_or_default();
        Tree { name: name.to_owned(), frames: self, is_of_kernels, sums, idle, idle_dynamic, lost }
    }

    /// Returns the tree of all devices that are not contained in another: the ranks view, or the kernels view if only that was
    /// chosen.
    pub fn whole(&'a self) -> Tree<'a> {
        self.of_views("all devices", whole_views(self.summary).into_iter())
    }

    /// Returns the caller of each frame. The root is its own caller.
    pub fn callers(&self) -> Vec<u32> {
        self.frames.iter().map(|frame| frame.caller).collect()
    }

    /// Returns the frame of a call path.
    pub fn of_path(&self, path: u32) -> u32 {
        self.of_path[path as usize]
    }

    /// Returns the tree of the kernels of all devices that are not contained in another.
    pub fn of_kernels(&'a self) -> Tree<'a> {
        let views = topmost(self.summary).filter_map(|device| Some((device, view(device, "kernels")?)));
        self.of_views("GPUs with kernels", views)
    }
}

/// Returns the views that together have all joules of the run: the ranks views of the topmost devices, or the kernels views if
/// only those were chosen.
pub fn whole_views(summary: &Summary) -> Vec<(&Device, &View)> {
    let views = |name: &'static str| {
        let all = topmost(summary).flat_map(|device| device.shown().map(move |view| (device, view)));
        all.filter(move |(_, view)| view.view == name)
    };
    let is_empty =
        views("ranks").all(|(_, view)| view.callpaths.is_empty()) && views("kernels").next().is_some();
    views(if is_empty { "kernels" } else { "ranks" }).collect()
}

impl Tree<'_> {
    pub fn is_of_kernels(&self) -> bool {
        self.is_of_kernels
    }

    /// Sets the calls of call paths over several devices, in which each call of a rank is counted once.
    pub fn set_calls(&mut self, calls: impl Iterator<Item = (u32, u64)>) {
        self.sums.iter_mut().for_each(|sum| sum.calls = 0);
        for (path, calls) in calls {
            let sum = &mut self.sums[self.frames.of_path(path) as usize];
            sum.calls = sum.calls.saturating_add(calls);
        }
    }

    pub fn sum(&self, frame: u32) -> &Sum {
        &self.sums[frame as usize]
    }

    /// Returns the joules of the whole tree.
    pub fn joules(&self) -> f64 {
        self.sum(ROOT).joules
    }

    /// Returns, for each frame, the frames that it calls and that have joules, the most first.
    pub fn called(&self) -> Vec<Vec<u32>> {
        let mut called = vec![Vec::new(); self.sums.len()];
        for (at, frame) in
            self.frames.frames.iter().enumerate().skip(1).filter(|(at, _)| self.sums[*at].joules > 0.0)
        {
            called[frame.caller as usize].push(at as u32);
        }
        for below in &mut called {
            largest_first(below, |frame| self.sum(*frame).joules);
        }
        called
    }

    /// Returns the name of a frame, such as "fib x18" if it calls itself.
    pub fn name_of(&self, frame: u32) -> String {
        let Frame { name, times, .. } = self.frames.frames[frame as usize];
        crate::first::names::times(self.frames.summary.name(name), times)
    }

    pub fn kind_of(&self, frame: u32) -> Kind {
        match self.is_of_kernels {
            _ if is_mpi(self.frames.summary.name(self.frames.frames[frame as usize].name)) => Kind::Mpi,
            true => Kind::Kernel,
            false => Kind::Function,
        }
    }
}
