//! Draws a tree as a flame graph. Each node has a box below its caller's, whose width shows its joules. A click makes a box as
//! wide as the picture, and a click on the uppermost box shows all again. Without scripts, the picture does not change. The right
//! part of a box is paler: its static joules.

use super::tree::{Kind, ROOT, Sum, Tree};
use ampere_model::text::{joules, printable, short};
use maud::{Markup, PreEscaped, html};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

const WIDTH: f64 = 1200.0;
const ROW: f64 = 18.0;
/// The approximate width of a letter in pixels.
const LETTER: f64 = 6.6;
/// Narrower boxes cannot be seen.
const WIDTH_MIN: f64 = 0.4;
/// Frames at a greater depth have no boxes of their own.
const ROWS_MAX: usize = 128;
const STYLE: &str = include_str!("flame.css");
const SCRIPT: &str = include_str!("flame.js");

/// The maximum number of boxes of a picture in a separate file.
const BOXES_MAX: usize = 8000;
/// The maximum length of a name. Other reports have the full name.
const NAME_CHARS_MAX: usize = 200;

struct Box {
    name: String,
    kind: Kind,
    sum: Sum,
    /// The dynamic part of its joules, if it is known.
    dynamic: Option<f64>,
    left: f64,
    width: f64,
    row: usize,
}

/// The boxes, from the top down.
#[derive(Default)]
struct Layout {
    boxes: Vec<Box>,
    /// The number of call paths that are left out, and their joules.
    small: (u64, f64),
}

/// Lays out at most `limit` frames with the most joules, each below its caller, and below each caller a box with the sum of the
/// others.
fn layout(tree: &Tree, limit: usize) -> Layout {
    let mut layout = Layout::default();
    let known = |dynamic: f64| tree.idle_dynamic.map(|_| dynamic);
    let whole = tree.joules();
    let per_joule = if whole > 0.0 { WIDTH / whole } else { 0.0 };
    let called = tree.called();
    let is_wide = |joules: f64| joules * per_joule >= WIDTH_MIN;
    // A caller has at least as many joules as the frames that it calls, so it comes first.
    let mut largest: BinaryHeap<(Joules, Reverse<u32>, usize)> = BinaryHeap::new();
    let mut shown = vec![false; called.len()];
    shown[ROOT as usize] = true;
    let (mut next, mut row) = (ROOT, 0);
    for _ in 0..limit {
        let below = called[next as usize].iter().filter(|frame| is_wide(tree.sum(**frame).joules));
        if row + 1 < ROWS_MAX {
            largest.extend(below.map(|frame| (Joules(tree.sum(*frame).joules), Reverse(*frame), row + 1)));
        }
        let Some((_, Reverse(frame), at)) = largest.pop() else { break };
        (next, row) = (frame, at);
        shown[frame as usize] = true;
    }
    let mut waiting = vec![(ROOT, 0.0, 0)];
    while let Some((frame, left, row)) = waiting.pop() {
        let sum = tree.sum(frame);
        let (name, kind) = match frame {
            ROOT => (tree.name.clone(), Kind::Whole),
            _ => (tree.name_of(frame), tree.kind_of(frame)),
        };
        let (dynamic, width) = (known(sum.dynamic), sum.joules * per_joule);
        layout.boxes.push(Box { name, kind, sum: sum.clone(), dynamic, left, width, row });
        let (shown, others): (Vec<u32>, Vec<u32>) =
            called[frame as usize].iter().partition(|below| shown[**below as usize]);
        let mut at = left;
        for below in shown {
            waiting.push((below, at, row + 1));
            at += tree.sum(below).joules * per_joule;
        }
        let rest = |name: &str, kind, joules, dynamic: Option<f64>, frames| {
            let sum = Sum { joules, exclusive: joules, frames, ..Sum::default() };
            (name.to_owned(), kind, sum, dynamic)
        };
        let joules = others.iter().map(|frame| tree.sum(*frame).joules).sum::<f64>();
        let dynamic = others.iter().map(|frame| tree.sum(*frame).dynamic).sum();
        let frames = others.iter().map(|frame| tree.sum(*frame).frames).sum();
        layout.small = (layout.small.0 + frames, layout.small.1 + joules);
        let mut remainders = vec![rest(&more_words(frames), Kind::Small, joules, known(dynamic), frames)];
        if frame == ROOT {
            remainders.push(rest("idle", Kind::Rest, tree.idle, tree.idle_dynamic, 0));
            remainders.push(rest("lost", Kind::Rest, tree.lost, None, 0));
        }
        for (name, kind, sum, dynamic) in
            remainders.into_iter().filter(|(_, _, sum, _)| is_wide(sum.joules) && sum.joules > 0.0)
        {
            let width = sum.joules * per_joule;
            layout.boxes.push(Box { name, kind, sum, dynamic, left: at, width, row: row + 1 });
            at += width;
        }
    }
    layout
}

/// Joules that can be ordered.
#[derive(Clone, Copy, PartialEq)]
struct Joules(f64);

impl Eq for Joules {}

impl PartialOrd for Joules {
    fn partial_cmp(&self, other: &Joules) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Joules {
    fn cmp(&self, other: &Joules) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

fn colour(node: &Box) -> String {
    // Boxes with the same name get the same shade.
    let hash = node.name.bytes().fold(0u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
    let shade = f64::from(hash % 97) / 97.0;
    let (hue, saturation, light) = match node.kind {
        Kind::Function => (22.0 + 30.0 * shade, 85, 62.0 + 8.0 * shade),
        Kind::Mpi => (205.0 + 15.0 * shade, 55, 66.0 + 8.0 * shade),
        Kind::Kernel => (95.0 + 40.0 * shade, 45, 60.0 + 8.0 * shade),
        Kind::Rest | Kind::Small => (0.0, 0, 82.0),
        Kind::Whole => (0.0, 0, 90.0),
    };
    format!("hsl({hue:.0} {saturation}% {light:.0}%)")
}

fn label(name: &str, width: f64) -> String {
    let room = ((width - 6.0) / LETTER).max(0.0) as usize;
    if room < 3 {
        return String::new();
    }
    let name = printable(name);
    if name.chars().count() <= room {
        return name;
    }
    name.chars().take(room - 1).chain(['…']).collect()
}

/// Describes a box. `whole` has all joules of the picture, of which its share is a part, and `unit` is "J" or "dynamic J".
fn title(node: &Box, whole: f64, unit: &str) -> String {
    let share = if whole > 0.0 { 100.0 * node.sum.joules / whole } else { 0.0 };
    let (name, own) = (short(&node.name, NAME_CHARS_MAX), joules(node.sum.joules));
    // If only dynamic joules are shown, the unit states that already.
    let is_part =
        |part: f64| if unit == "J" { format!(" ({} dynamic)", joules(part)) } else { String::new() };
    let part = node.dynamic.map_or_else(String::new, is_part);
    let mut title = format!("{name}: {own} {unit}{part}, {share:.1} % of {} {unit}", joules(whole));
    if matches!(node.kind, Kind::Function | Kind::Mpi | Kind::Kernel) {
        let part = node.dynamic.map_or_else(String::new, |_| is_part(node.sum.exclusive_dynamic));
        title +=
            &format!("; {} {unit}{part} in itself, {} calls", joules(node.sum.exclusive), node.sum.calls);
    }
    title
}

/// Returns the width of the static part of a box, as a fraction of the box; `None` if it is not known or cannot be seen.
fn static_part(node: &Box) -> Option<f64> {
    let part = 1.0 - node.dynamic? / node.sum.joules;
    (part * node.width >= WIDTH_MIN).then_some(part.min(1.0))
}

/// Draws the boxes. `above` is the space above the boxes; `inside` has the further elements that a separate file needs.
fn svg(boxes: &[Box], above: f64, unit: &str, inside: Markup) -> Markup {
    let rows = boxes.iter().map(|one| one.row + 1).max().unwrap_or(1);
    let number = |value: f64| format!("{value:.2}");
    let whole = boxes[0].sum.joules;
    html! {
        svg.flame viewBox=(format!("0 {} {WIDTH} {}", -above, above + ROW * rows as f64)) xmlns="http://www.w3.org/2000/svg" role="img"
            aria-label=(title(&boxes[0], whole, unit)) {
            (inside)
            @for node in boxes {
                @let top = ROW * node.row as f64;
                g data-left=(number(node.left)) data-width=(number(node.width)) data-row=(node.row) data-name=(short(&node.name, NAME_CHARS_MAX)) {
                    title { (title(node, whole, unit)) }
                    rect x=(number(node.left)) y=(number(top)) width=(number(node.width)) height=(ROW - 1.0) fill=(colour(node)) {}
                    @if let Some(part) = static_part(node) {
                        @let width = part * node.width;
                        rect.static data-part=(format!("{part:.4}")) x=(number(node.left + node.width - width)) y=(number(top)) width=(number(width)) height=(ROW - 1.0) {}
                    }
                    text x=(number(node.left + 3.0)) y=(number(top + 12.5)) { (label(&node.name, node.width)) }
                }
            }
        }
    }
}

/// Returns the name of a box that stands for several frames.
pub fn more_words(count: u64) -> String {
    format!("{count} smaller call path{}", if count == 1 { "" } else { "s" })
}

fn small_words((count, sum): (u64, f64)) -> String {
    format!(
        "{}, summed below their callers, {} {} J",
        more_words(count),
        if count == 1 { "has" } else { "have" },
        joules(sum)
    )
}

/// Draws a picture as a separate file, with the title `head`. `unit` is "J" or "dynamic J".
pub fn document(tree: &Tree, head: &str, unit: &str) -> String {
    let Layout { boxes, small } = layout(tree, BOXES_MAX);
    let words = if small.0 > 0 { format!("; {}", small_words(small)) } else { String::new() };
    let inside = html! {
        text x="3" y="-8" { (label(head, WIDTH)) }
        desc { (head) "; " (title(&boxes[0], tree.joules(), unit)) (words) }
        style { (PreEscaped(STYLE)) }
        script { (PreEscaped(format!("<![CDATA[{SCRIPT}]]>"))) }
    };
    format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{}\n", svg(&boxes, 24.0, unit, inside).into_string())
}
