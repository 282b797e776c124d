//! Call paths as a tree, each node with its joules and those of what is below it.

use crate::highlights::{topmost, view};
use crate::summary::{Summary, View};
use std::collections::BTreeMap;

/// A call path's last frame, with the frames that it called.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    pub name: String,
    pub kind: Kind,
    /// With those of all below.
    pub joules: f64,
    pub exclusive: f64,
    pub calls: u64,
    pub children: Vec<Node>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    #[default]
    Function,
    Mpi,
    Kernel,
    /// Idle or lost joules: beside the functions, so that the sum is the device's.
    Rest,
    /// The root: a device, or all of them.
    Whole,
}

/// A node that is being built: children by name.
#[derive(Default)]
struct Unfinished {
    exclusive: f64,
    calls: u64,
    children: BTreeMap<String, Unfinished>,
}

impl Unfinished {
    fn add(&mut self, view: &View) {
        for row in &view.callpaths {
            let mut at = &mut *self;
            for name in &row.path {
                // Most are there: names are copied only for new ones.
                if !at.children.contains_key(&**name) {
                    at.children.insert(name.to_string(), Unfinished::default());
                }
                at = at.children.get_mut(&**name).expect("it is there now");
            }
            at.exclusive += row.exclusive_joules;
            at.calls = at.calls.saturating_add(row.calls);
        }
    }

    fn finish(self, name: String, function: Kind) -> Node {
        let kind = if crate::highlights::is_mpi(&name) { Kind::Mpi } else { function };
        let children: Vec<Node> =
            self.children.into_iter().map(|(name, child)| child.finish(name, function)).collect();
        let mut node =
            Node { name, kind, joules: 0.0, exclusive: self.exclusive, calls: self.calls, children };
        node.sum();
        node
    }
}

impl Node {
    fn sum(&mut self) {
        self.joules = self.exclusive + self.children.iter().map(|child| child.joules).sum::<f64>();
        self.children.sort_by(|a, b| b.joules.total_cmp(&a.joules));
    }

    fn rest(name: &str, joules: f64) -> Option<Node> {
        let node =
            Node { name: name.to_owned(), kind: Kind::Rest, joules, exclusive: joules, ..Node::default() };
        (joules > 0.0).then_some(node)
    }
}

/// The call paths of views of several devices, merged over all ranks and threads.
pub fn of_views<'a>(name: &str, views: impl Iterator<Item = &'a View>) -> Node {
    let (mut root, mut idle, mut lost, mut function) = (Unfinished::default(), 0.0, 0.0, Kind::Function);
    for view in views {
        root.add(view);
        idle += view.idle_joules;
        lost += view.lost_joules;
        if view.view == "kernels" {
            function = Kind::Kernel;
        }
    }
    let mut node = root.finish(name.to_owned(), function);
    node.children.extend(Node::rest("idle", idle));
    node.children.extend(Node::rest("lost", lost));
    node.kind = Kind::Whole;
    node.sum();
    node
}

/// Of all devices that no other contains: the ranks view, or the kernels view where only that was chosen.
pub fn whole(summary: &Summary) -> Node {
    let views = |name: &'static str| {
        topmost(summary).flat_map(|device| device.shown()).filter(move |view| view.view == name)
    };
    let is_empty = views("ranks").all(|view| view.callpaths.is_empty()) && views("kernels").next().is_some();
    of_views("all devices", views(if is_empty { "kernels" } else { "ranks" }))
}

/// The kernels of all devices that no other contains.
pub fn of_kernels(summary: &Summary) -> Node {
    let views = topmost(summary).flat_map(|device| view(device, "kernels"));
    of_views("GPUs with kernels", views)
}
