//! The call paths of one location while its calls are folded: what has run since the last group, and which are short.
//!
//! All memory is taken when the tree is made: the event path allocates nothing. An index of 0 is the root where a parent is
//! meant, and none where a child is: the root is nobody's child. The root stands for the innermost frame that was open in
//! the ring when folding began; when that one is left it stands for the frame around it.

use std::ops::{Index, IndexMut};
use std::sync::atomic::{Ordering, compiler_fence};

/// Call paths of a location that are kept at once. More begin anew.
pub const MOST_NODES: usize = 1024;

/// A call path's number.
pub type Number = u16;

pub const ROOT: Number = 0;

/// Zero bytes are a node that nothing is known of, so that memory is touched only as it is used.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct Node {
    /// Calls that began since the last group.
    pub calls: u64,
    /// Ticks on top since the last group.
    pub exclusive: u64,
    /// When the call that is open began.
    pub start: u64,
    pub region: u32,
    pub parent: Number,
    first_child: Number,
    next_sibling: Number,
    /// The child entered last: loops find their callee here.
    last_child: Number,
    /// Calls in a row that were short.
    streak: u16,
    /// How often it has turned out long after all.
    surprises: u8,
    /// Its calls are short: they are folded.
    pub short: bool,
    /// There is something to tell of it or of a call path below it.
    pending: bool,
}

const _: () = assert!(size_of::<Node>() == 48);

pub struct CallTree {
    /// Of a length that the compiler knows: the mask in an index then is all the check that is needed.
    nodes: Box<[Node; MOST_NODES]>,
    used: Number,
}

impl Index<Number> for CallTree {
    type Output = Node;
    #[inline(always)]
    fn index(&self, node: Number) -> &Node {
        &self.nodes[node as usize & (MOST_NODES - 1)]
    }
}

impl IndexMut<Number> for CallTree {
    #[inline(always)]
    fn index_mut(&mut self, node: Number) -> &mut Node {
        &mut self.nodes[node as usize & (MOST_NODES - 1)]
    }
}

impl CallTree {
    pub fn new() -> CallTree {
        let nodes: Box<[Node]> = vec![Node::default(); MOST_NODES].into_boxed_slice();
        // A slice of that length: this cannot fail.
        let nodes = nodes.try_into().unwrap_or_else(|_| Box::new([Node::default(); MOST_NODES]));
        CallTree { nodes, used: 1 }
    }

    /// Forgets all call paths.
    pub fn clear(&mut self) {
        self.nodes[..self.used as usize].fill(Node::default());
        self.used = 1;
    }

    /// The call path `parent` + `region`, made if it is new; `None` if there is no room for it.
    #[inline(always)]
    pub fn child(&mut self, parent: Number, region: u32) -> Option<Number> {
        let guess = self[parent].last_child;
        if guess != ROOT && self[guess].region == region {
            Some(guess)
        } else {
            self.find_or_make(parent, region)
        }
    }

    #[inline(never)]
    fn find_or_make(&mut self, parent: Number, region: u32) -> Option<Number> {
        let mut at = self[parent].first_child;
        while at != ROOT && self[at].region != region {
            at = self[at].next_sibling;
        }
        if at == ROOT {
            if self.used as usize == MOST_NODES {
                return None;
            }
            at = self.used;
            self.used += 1;
            let next_sibling = self[parent].first_child;
            self[at] = Node { region, parent, next_sibling, ..Node::default() };
            self[parent].first_child = at;
        }
        self[parent].last_child = at;
        Some(at)
    }

    /// There is something to tell of this call path. Whether it was the first to have something.
    #[inline(always)]
    pub fn mark(&mut self, node: Number) -> bool {
        !self[node].pending && self.mark_up(node)
    }

    #[cold]
    fn mark_up(&mut self, node: Number) -> bool {
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

    /// What was counted while its frame was in the ring has been told there.
    fn begin(&mut self, node: Number) {
        let node = &mut self[node];
        (node.calls, node.exclusive) = (0, 0);
        compiler_fence(Ordering::SeqCst);
        node.pending = true;
    }

    /// A handler may have left in the middle of marking: what is pending would not be found below what is not.
    #[cold]
    pub fn repair(&mut self) {
        // A call path comes after the one that it is below.
        for node in (1..self.used).rev() {
            let (is_pending, above) = (self[node].pending, self[node].parent);
            if is_pending && !self[above].pending {
                self.begin(above);
            }
        }
    }

    pub fn is_pending(&self) -> bool {
        self[ROOT].pending
    }

    /// Calls `each` with (depth, node) for what is pending below `base`, a parent before its children.
    pub fn each_pending(&self, base: Number, mut each: impl FnMut(u32, &Node)) {
        let (mut at, mut depth) = (self.pending_of(self[base].first_child), 0);
        while at != ROOT {
            each(depth, &self[at]);
            let below = self.pending_of(self[at].first_child);
            if below != ROOT {
                (at, depth) = (below, depth + 1);
                continue;
            }
            loop {
                let beside = self.pending_of(self[at].next_sibling);
                if beside != ROOT {
                    at = beside;
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

    /// The first of these siblings that is pending.
    fn pending_of(&self, first: Number) -> Number {
        let mut at = first;
        while at != ROOT && !self[at].pending {
            at = self[at].next_sibling;
        }
        at
    }

    /// Everything pending has been told.
    pub fn settle(&mut self) {
        let mut at = ROOT;
        // Down to a pending node without pending children; clear it, go on beside it, or up: each is visited once.
        loop {
            let below = self.pending_of(self[at].first_child);
            if below != ROOT {
                at = below;
                continue;
            }
            loop {
                let node = &mut self[at];
                (node.pending, node.calls, node.exclusive) = (false, 0, 0);
                if at == ROOT {
                    return;
                }
                let (beside, above) = (node.next_sibling, node.parent);
                let beside = self.pending_of(beside);
                if beside != ROOT {
                    at = beside;
                    break;
                }
                at = above;
            }
        }
    }

    /// A call of this call path has ended after so many ticks: is it one to be folded from now on?
    pub fn learn(&mut self, node: Number, ticks: u64, short: u64, long: u64) {
        let node = &mut self[node];
        if node.short && ticks > long {
            (node.short, node.streak) = (false, 0);
            node.surprises = node.surprises.saturating_add(1).min(MOST_SURPRISES);
        } else if ticks < short {
            node.streak = node.streak.saturating_add(1);
            node.short |= node.streak >= SHORT_CALLS << (2 * node.surprises);
        } else {
            node.streak = 0;
        }
    }
}

/// So many short calls in a row make a call path short; four times as many after every call that was long after all.
const SHORT_CALLS: u16 = 16;
const MOST_SURPRISES: u8 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    /// A handler has left by a `longjmp` when the innermost was marked and those around it were not.
    #[test]
    fn what_is_half_marked_is_found_again() {
        let mut tree = CallTree::new();
        let outer = tree.child(ROOT, 1).unwrap();
        let inner = tree.child(outer, 2).unwrap();
        tree[outer].calls = 7; // of before
        tree.begin(inner);
        tree[inner].calls = 3;
        assert!(!tree.is_pending() && !tree.mark(inner), "nothing below is told of any more");
        tree.repair();
        let mut told = Vec::new();
        tree.each_pending(ROOT, |depth, node| told.push((depth, node.region, node.calls)));
        assert!(tree.is_pending());
        assert_eq!(told, [(0, 1, 0), (1, 2, 3)]);
    }
}
