//! The call paths of all locations as one tree, numbered in the order of their first appearance.

use std::collections::HashMap;

/// The number of a name in [`Names`].
pub type NameNumber = u32;

/// The number of a call path in [`Paths`].
pub type PathNumber = u32;

/// Names that are stored once and referred to by number.
#[derive(Debug, Default)]
pub struct Names {
    all: Vec<String>,
    numbers: HashMap<String, NameNumber>,
}

impl Names {
    /// Returns the number of a name, and gives it one if it is new.
    pub fn number(&mut self, name: &str) -> NameNumber {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = self.all.len() as NameNumber;
        self.all.push(name.to_owned());
        self.numbers.insert(name.to_owned(), number);
        number
    }

    /// Returns all names, in the order of their numbers.
    pub fn all(&self) -> &[String] {
        &self.all
    }
}

/// A call path: the number of its caller's path, and its own region.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct Path {
    pub caller: Option<PathNumber>,
    pub region: NameNumber,
    pub depth: i32,
}

/// All call paths, by their numbers.
#[derive(Debug, Default)]
pub struct Paths {
    all: Vec<Path>,
    numbers: HashMap<(Option<PathNumber>, NameNumber), PathNumber>,
}

impl Paths {
    /// Returns the number of a call path, and gives it one if it is new.
    pub fn number(&mut self, caller: Option<PathNumber>, region: NameNumber) -> PathNumber {
        *self.numbers.entry((caller, region)).or_insert_with(|| {
            let depth = caller.map_or(1, |caller| self.all[caller as usize].depth + 1);
            self.all.push(Path { caller, region, depth });
            (self.all.len() - 1) as PathNumber
        })
    }

    /// Returns all paths, in the order of their numbers. Callers come before callees.
    pub fn all(&self) -> &[Path] {
        &self.all
    }

    /// Iterates over a call path and the paths of its callers, the innermost first.
    pub fn up(&self, path: PathNumber) -> impl Iterator<Item = PathNumber> {
        std::iter::successors(Some(path), |path| self.all[*path as usize].caller)
    }
}
