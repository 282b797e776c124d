//! The call paths of one location while its calls are coalesced: their calls and times since the last group, and which paths are
//! short.
//!
//! All memory is allocated when the tree is made: the event path allocates nothing. As a parent, index 0 means the root; as a
//! child, it means "none". The root stands for the innermost frame that was open in the ring when coalescing began; when that
//! frame is left, it stands for the frame around it.

use std::ops::{Index, IndexMut};
use std::sync::atomic::{Ordering, compiler_fence};

/// The number of call paths that a location keeps at a time. When there are more, the tree is cleared.
pub const NODES_MAX: usize = 1024;

/// The offset of a call path in the tree, in bytes, so that the event path need not multiply. It has 32 bits: compilers load a
/// narrower field together with its neighbours, and the processor cannot forward the narrow store before it to such a load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeIndex(u32);

impl NodeIndex {
    /// Makes an index. There is no other way to make one, so every tree has the node of any index.
    fn new(number: usize) -> NodeIndex {
        NodeIndex((number % NODES_MAX * size_of::<Node>()) as u32)
    }
}

/// The root, or "no child".
pub const ROOT: NodeIndex = NodeIndex(0);

/// A handle that no region has: it is Score-P's `SCOREP_FILTERED_REGION`, which is never entered.
const NO_REGION: u32 = u32::MAX;

/// One call path, in a cache line of its own. Zero bytes are a valid empty node, so that memory is touched only as it is used.
#[derive(Clone, Copy, Default)]
#[repr(C, align(64))]
pub struct Node {
    /// Calls that began since the last group.
    pub calls: u64,
    /// Exclusive ticks since the last group.
    pub exclusive: u64,
    /// The time at which the open call began.
    pub start: u64,
    pub region: u32,
    /// Equal to `region` while its calls are coalesced and it has something to write, else [`NO_REGION`]. While it is equal, an
    /// enter or a leave only has to count.
    pub ready: u32,
    /// The call path that this one extends by its region.
    pub parent: NodeIndex,
    first_child: NodeIndex,
    next_sibling: NodeIndex,
    /// The child that was entered last.
    last_child: NodeIndex,
    /// The child that is expected to be entered next.
    expected_child: NodeIndex,
    /// The sibling that was last entered after this one, at first this one itself. It predicts the sequence of callees in a loop.
    follower: NodeIndex,
    /// The number of short calls in a row.
    streak: u16,
    /// The number of long calls after the path was known to be short.
    surprises: u8,
    /// Whether the calls are short and therefore coalesced.
    pub short: bool,
    /// Whether this call path or one inside it has something to write.
    pending: bool,
}

const _: () = assert!(size_of::<Node>() == 64);

/// The call paths of one location.
pub struct CallTree {
    nodes: Box<[Node; NODES_MAX]>,
    used: usize,
}

impl Index<NodeIndex> for CallTree {
    type Output = Node;
    #[inline(always)]
    fn index(&self, node: NodeIndex) -> &Node {
        // SAFETY: `NodeIndex::new` makes only indices of nodes that are in the tree.
        unsafe { &*self.nodes.as_ptr().byte_add(node.0 as usize) }
    }
}

impl IndexMut<NodeIndex> for CallTree {
    #[inline(always)]
    fn index_mut(&mut self, node: NodeIndex) -> &mut Node {
        // SAFETY: see above; the tree is borrowed exclusively.
        unsafe { &mut *self.nodes.as_mut_ptr().byte_add(node.0 as usize) }
    }
}

impl CallTree {
    pub fn new() -> CallTree {
        let nodes: Box<[Node]> = vec![Node::default(); NODES_MAX].into_boxed_slice();
        // The slice has that length, so this cannot fail.
        let nodes = nodes.try_into().unwrap_or_else(|_| Box::new([Node::default(); NODES_MAX]));
        let mut tree = CallTree { nodes, used: 1 };
        tree[ROOT].ready = NO_REGION;
        tree
    }

    pub fn clear(&mut self) {
        self.nodes[..self.used].fill(Node::default());
        self.used = 1;
        self[ROOT].ready = NO_REGION;
    }

    /// Finds or makes the call path `parent` + `region`; `None` if there is no room for it.
    #[inline(always)]
    pub fn child(&mut self, parent: NodeIndex, region: u32) -> Option<NodeIndex> {
        let guess = self[parent].expected_child;
        if guess != ROOT && self[guess].region == region {
            self.expect_after(parent, guess);
            Some(guess)
        } else {
            self.find_or_make(parent, region)
        }
    }

    /// Returns the child that is expected next. If there is none, it is the root, which is never ready.
    #[inline(always)]
    pub fn expected_child(&self, parent: NodeIndex) -> NodeIndex {
        self[parent].expected_child
    }

    /// Records that a child is entered, so that its follower is expected next.
    #[inline(always)]
    pub fn expect_after(&mut self, parent: NodeIndex, child: NodeIndex) {
        let follower = self[child].follower;
        let parent = &mut self[parent];
        (parent.last_child, parent.expected_child) = (child, follower);
    }

    #[inline(never)]
    fn find_or_make(&mut self, parent: NodeIndex, region: u32) -> Option<NodeIndex> {
        let mut at = self[parent].first_child;
        while at != ROOT && self[at].region != region {
            at = self[at].next_sibling;
        }
        if at == ROOT {
            if self.used == NODES_MAX {
                return None;
            }
            at = NodeIndex::new(self.used);
            self.used += 1;
            let next_sibling = self[parent].first_child;
            self[at] =
                Node { region, ready: NO_REGION, parent, next_sibling, follower: at, ..Node::default() };
            self[parent].first_child = at;
        }
        let before = self[parent].last_child;
        if before != ROOT {
            self[before].follower = at;
        }
        self.expect_after(parent, at);
        Some(at)
    }

    /// Marks a call path as pending. Returns whether nothing was pending before, so that a group begins.
    #[inline(always)]
    pub fn mark_pending(&mut self, node: NodeIndex) -> bool {
        !self[node].pending && self.mark_with_ancestors(node)
    }

    #[cold]
    fn mark_with_ancestors(&mut self, node: NodeIndex) -> bool {
        let mut at = node;
        while !self[at].pending {
            self.begin(at);
            if at == ROOT {
                return true;
            }
            at = self[at].parent;
        }
        false
    }

    /// Starts counting from zero, because calls that were counted while the frame was in the ring are recorded there.
    fn begin(&mut self, node: NodeIndex) {
        let node = &mut self[node];
        (node.calls, node.exclusive) = (0, 0);
        compiler_fence(Ordering::SeqCst);
        node.pending = true;
    }

    /// Repairs the tree after a signal handler left one of these functions by `longjmp`: marks the ancestors that the function
    /// had not reached. It also marks every call path as not ready, because a ready one might have nothing to write.
    #[cold]
    pub fn repair(&mut self) {
        // A call path has a larger number than its parent.
        for node in (1..self.used).rev().map(NodeIndex::new) {
            self[node].ready = NO_REGION;
            let (is_pending, above) = (self[node].pending, self[node].parent);
            if is_pending && !self[above].pending {
                self.begin(above);
            }
        }
    }

    /// Whether there is anything to write.
    pub fn has_pending(&self) -> bool {
        self[ROOT].pending
    }

    /// Calls `each` with the depth and the node of each pending call path inside `base`, callers before callees.
    pub fn each_pending(&self, base: NodeIndex, mut each: impl FnMut(u32, &Node)) {
        let (mut at, mut depth) = (self.pending_of(self[base].first_child), 0);
        while at != ROOT {
            each(depth, &self[at]);
            let below = self.pending_of(self[at].first_child);
            if below != ROOT {
                (at, depth) = (below, depth + 1);
                continue;
            }
            loop {
                let sibling = self.pending_of(self[at].next_sibling);
                if sibling != ROOT {
                    at = sibling;
                    break;
                }
                at = self[at].parent;
                if at == base || at == ROOT {
                    return;
                }
                depth -= 1;
            }
        }
    }

    /// Returns the first pending one of these siblings.
    fn pending_of(&self, first: NodeIndex) -> NodeIndex {
        let mut at = first;
        while at != ROOT && !self[at].pending {
            at = self[at].next_sibling;
        }
        at
    }

    /// Called when everything pending has been written.
    pub fn clear_pending(&mut self) {
        let mut at = ROOT;
        // Goes down to a pending node without pending children, clears it, and continues with its sibling or parent: each node
        // is visited once.
        loop {
            let below = self.pending_of(self[at].first_child);
            if below != ROOT {
                at = below;
                continue;
            }
            loop {
                let node = &mut self[at];
                (node.ready, node.pending, node.calls, node.exclusive) = (NO_REGION, false, 0, 0);
                if at == ROOT {
                    return;
                }
                let (sibling, above) = (node.next_sibling, node.parent);
                let sibling = self.pending_of(sibling);
                if sibling != ROOT {
                    at = sibling;
                    break;
                }
                at = above;
            }
        }
    }

    /// Decides again, after a call of this duration, whether a call path is short. `short` and `long` are limits in ticks.
    pub fn learn_duration(&mut self, node: NodeIndex, ticks: u64, short: u64, long: u64) {
        let node = &mut self[node];
        if node.short && ticks > long {
            (node.ready, node.short, node.streak) = (NO_REGION, false, 0);
            node.surprises = node.surprises.saturating_add(1).min(SURPRISES_MAX);
        } else if ticks < short {
            node.streak = node.streak.saturating_add(1);
            node.short |= node.streak >= SHORT_CALLS << (2 * node.surprises);
        } else {
            node.streak = 0;
        }
    }
}

/// The number of short calls in a row that make a call path short. After each long call it is multiplied by
/// four, up to [`SURPRISES_MAX`] times.
const SHORT_CALLS: u16 = 16;
const SURPRISES_MAX: u8 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_sequence_of_calls_the_same_sequence_is_expected() {
        let mut tree = CallTree::new();
        for region in [1, 2, 1] {
            tree.child(ROOT, region).unwrap();
        }
        for region in [2, 1, 2, 1] {
            assert_eq!(tree[tree.expected_child(ROOT)].region, region);
            tree.child(ROOT, region).unwrap();
        }
        tree.child(ROOT, 1).unwrap();
        tree.child(ROOT, 1).unwrap();
        assert_eq!(tree[tree.expected_child(ROOT)].region, 1, "a loop");
    }

    #[test]
    fn marking_that_was_interrupted_is_completed() {
        let mut tree = CallTree::new();
        let outer = tree.child(ROOT, 1).unwrap();
        let inner = tree.child(outer, 2).unwrap();
        tree[outer].calls = 7; // from before
        tree.begin(inner);
        tree[inner].calls = 3;
        tree[outer].ready = 1; // while it is not pending
        assert!(!tree.has_pending() && !tree.mark_pending(inner), "the calls would never be written");
        tree.repair();
        assert_eq!(tree[outer].ready, NO_REGION, "it would be counted and never written");
        let mut written = Vec::new();
        tree.each_pending(ROOT, |depth, node| written.push((depth, node.region, node.calls)));
        assert!(tree.has_pending());
        assert_eq!(written, [(0, 1, 0), (1, 2, 3)]);
    }
}
