//! One location's call paths as a tree, with the calls and the time of each.

use crate::steps::NodeIndex;
use ampere_model::RegionRef;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub parent: NodeIndex,
    pub region: RegionRef,
    /// The child that was entered last. In a loop, this is the callee.
    last_child: NodeIndex,
    /// The sibling that was entered after this node last time. In a repeated sequence of calls, this is the next callee.
    next_sibling: NodeIndex,
    pub calls: u64,
    pub exclusive_ticks: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct CallPaths {
    nodes: Vec<Node>,
    /// The child of each node for a region, for use when the child is not the one entered last. It is boxed so that the fields
    /// that every event touches stay in one cache line.
    by_parent: Box<Children>,
}

type Children = HashMap<(NodeIndex, RegionRef), NodeIndex, BuildHasherDefault<IndexHasher>>;

/// Hashes a key with one multiplication (by 2^64 / golden ratio). The keys are our own small numbers, so the hash need not resist
/// attackers.
#[derive(Clone, Copy, Default)]
struct IndexHasher(u64);

impl Hasher for IndexHasher {
    fn write_u32(&mut self, number: u32) {
        self.0 = (self.0.rotate_left(26) ^ u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u32(u32::from(*byte)));
    }

    fn finish(&self) -> u64 {
        self.0.rotate_left(26) // the table takes its index from the low bits, and the high bits of the product are mixed best
    }
}

impl CallPaths {
    pub fn new() -> CallPaths {
        let root = Node { region: RegionRef(u32::MAX), ..Node::new(NodeIndex::ROOT, RegionRef(0)) };
        CallPaths { nodes: vec![root], by_parent: Box::default() }
    }

    /// Returns the call path `parent` + `region`, and makes it if it is new.
    #[inline]
    pub fn child(&mut self, parent: NodeIndex, region: RegionRef) -> NodeIndex {
        // The guess of a node without children is the root, which has no region.
        let last = self.nodes[parent.0 as usize].last_child;
        if self.nodes[last.0 as usize].region == region {
            last
        } else {
            self.other_child(parent, last, region)
        }
    }

    fn other_child(&mut self, parent: NodeIndex, last: NodeIndex, region: RegionRef) -> NodeIndex {
        let guess = self.nodes[last.0 as usize].next_sibling;
        if self.nodes[guess.0 as usize].region == region {
            self.nodes[parent.0 as usize].last_child = guess;
            return guess;
        }
        let next = NodeIndex(self.nodes.len() as u32);
        let found = *self.by_parent.entry((parent, region)).or_insert(next);
        if found == next {
            self.nodes.push(Node::new(parent, region));
        }
        self.nodes[parent.0 as usize].last_child = found;
        if !last.is_root() {
            self.nodes[last.0 as usize].next_sibling = found;
        }
        found
    }

    /// Loads up to `count` call paths, starting with `from`, into the cache at once.
    #[inline]
    pub fn load(&self, from: NodeIndex, count: usize) {
        let nodes = self.nodes[from.0 as usize..].iter().take(count);
        std::hint::black_box(nodes.fold(0, |all, node| all | node.calls));
    }

    #[inline]
    pub fn parent(&self, node: NodeIndex) -> NodeIndex {
        self.nodes[node.0 as usize].parent
    }

    #[inline]
    pub fn node_mut(&mut self, node: NodeIndex) -> &mut Node {
        &mut self.nodes[node.0 as usize]
    }

    pub fn node(&self, node: NodeIndex) -> &Node {
        &self.nodes[node.0 as usize]
    }

    /// Iterates over all call paths except the root, in the order in which they were first entered: a parent comes before its
    /// children.
    pub fn nodes(&self) -> impl DoubleEndedIterator<Item = (NodeIndex, &Node)> {
        let numbered = self.nodes.iter().enumerate().skip(1);
        numbered.map(|(at, node)| (NodeIndex(at as u32), node))
    }

    /// Returns the number of call paths, including the root.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether the node's region is on its call path only once.
    pub fn is_outermost(&self, node: NodeIndex) -> bool {
        let Node { region, parent: mut at, .. } = *self.node(node);
        while !at.is_root() && self.node(at).region != region {
            at = self.parent(at);
        }
        at.is_root()
    }

    /// Returns the regions of a call path, from the outermost to the innermost.
    pub fn path(&self, node: NodeIndex) -> Vec<RegionRef> {
        let mut path = Vec::new();
        let mut at = node;
        while !at.is_root() {
            let node = self.node(at);
            path.push(node.region);
            at = node.parent;
        }
        path.reverse();
        path
    }
}

impl Node {
    fn new(parent: NodeIndex, region: RegionRef) -> Node {
        let none = NodeIndex::ROOT;
        Node { parent, region, last_child: none, next_sibling: none, calls: 0, exclusive_ticks: 0 }
    }
}
