//! One location's call paths as a tree, with the calls and the time of each.

use ampere_model::RegionRef;
use std::collections::HashMap;

/// A call path of one location.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeIndex(pub u32);

impl NodeIndex {
    /// The root: no frame is open.
    pub const NONE: NodeIndex = NodeIndex(u32::MAX);

    pub fn is_none(self) -> bool {
        self == NodeIndex::NONE
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub parent: NodeIndex,
    pub region: RegionRef,
    /// The child entered last: loops find their callee here.
    last_child: NodeIndex,
    pub calls: u64,
    pub exclusive_ticks: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct CallPaths {
    nodes: Vec<Node>,
    by_parent: HashMap<(NodeIndex, RegionRef), NodeIndex>,
    last_top: NodeIndex,
}

impl CallPaths {
    pub fn new() -> CallPaths {
        CallPaths { nodes: Vec::new(), by_parent: HashMap::new(), last_top: NodeIndex::NONE }
    }

    /// The call path `parent` + `region`, made if it is new.
    #[inline]
    pub fn child(&mut self, parent: NodeIndex, region: RegionRef) -> NodeIndex {
        let guess = match self.nodes.get(parent.0 as usize) {
            Some(node) => node.last_child,
            None => self.last_top,
        };
        match self.nodes.get(guess.0 as usize) {
            Some(node) if node.region == region => guess,
            _ => self.find_or_make(parent, region),
        }
    }

    fn find_or_make(&mut self, parent: NodeIndex, region: RegionRef) -> NodeIndex {
        let next = NodeIndex(self.nodes.len() as u32);
        let found = *self.by_parent.entry((parent, region)).or_insert(next);
        if found == next {
            self.nodes.push(Node {
                parent,
                region,
                last_child: NodeIndex::NONE,
                calls: 0,
                exclusive_ticks: 0,
            });
        }
        match self.nodes.get_mut(parent.0 as usize) {
            Some(node) => node.last_child = found,
            None => self.last_top = found,
        }
        found
    }

    #[inline]
    pub fn parent(&self, node: NodeIndex) -> NodeIndex {
        self.nodes[node.0 as usize].parent
    }

    #[inline]
    pub fn node_mut(&mut self, node: NodeIndex) -> &mut Node {
        &mut self.nodes[node.0 as usize]
    }

    /// In the order they were first entered: a parent comes before its children.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Regions from the outermost to the innermost.
    pub fn path(&self, node: NodeIndex) -> Vec<RegionRef> {
        let mut path = Vec::new();
        let mut at = node;
        while let Some(node) = self.nodes.get(at.0 as usize) {
            path.push(node.region);
            at = node.parent;
        }
        path.reverse();
        path
    }
}
