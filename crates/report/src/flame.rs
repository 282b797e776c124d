//! A tree as a picture: a box for each node, as wide as its joules, below its caller's. A click makes a box as wide
//! as the picture, a click on the uppermost shows all again; without scripts it is a still picture.

use super::tree::{Kind, Node};
use ampere_model::text::{joules, printable};
use maud::{Markup, PreEscaped, html};

const WIDTH: f64 = 1200.0;
const ROW: f64 = 18.0;
/// Of a letter, about.
const LETTER: f64 = 6.6;
/// Narrower boxes cannot be seen.
const LEAST_WIDTH: f64 = 0.4;
/// Deeper recursion is not shown.
const MOST_ROWS: usize = 128;
pub const STYLE: &str = include_str!("flame.css");
pub const SCRIPT: &str = include_str!("flame.js");

struct Box<'a> {
    node: &'a Node,
    left: f64,
    width: f64,
    row: usize,
}

/// The boxes from the top down, and how many were left out.
fn layout(root: &Node) -> (Vec<Box<'_>>, usize) {
    let (mut boxes, mut left_out) = (Vec::new(), 0);
    let per_joule = if root.joules > 0.0 { WIDTH / root.joules } else { 0.0 };
    let mut waiting = vec![(root, 0.0, 0)];
    while let Some((node, left, row)) = waiting.pop() {
        let width = node.joules * per_joule;
        if width < LEAST_WIDTH || row >= MOST_ROWS {
            left_out += 1; // and what is below
            continue;
        }
        boxes.push(Box { node, left, width, row });
        let mut at = left;
        for child in &node.children {
            waiting.push((child, at, row + 1));
            at += child.joules * per_joule;
        }
    }
    (boxes, left_out)
}

fn colour(node: &Node) -> String {
    // The same name, the same shade.
    let hash = node.name.bytes().fold(0u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
    let shade = f64::from(hash % 97) / 97.0;
    let (hue, saturation, light) = match node.kind {
        Kind::Function => (22.0 + 30.0 * shade, 85, 62.0 + 8.0 * shade),
        Kind::Mpi => (205.0 + 15.0 * shade, 55, 66.0 + 8.0 * shade),
        Kind::Kernel => (95.0 + 40.0 * shade, 45, 60.0 + 8.0 * shade),
        Kind::Rest => (0.0, 0, 82.0),
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

fn title(node: &Node, whole: f64) -> String {
    let share = if whole > 0.0 { 100.0 * node.joules / whole } else { 0.0 };
    let mut title = format!("{}: {} J, {share:.1} %", printable(&node.name), joules(node.joules));
    if node.kind != Kind::Whole && node.kind != Kind::Rest {
        title += &format!("; {} J in itself, {} calls", joules(node.exclusive), node.calls);
    }
    title
}

/// `inside`: more elements, for a file of its own; `above`: room above the boxes.
fn svg(root: &Node, boxes: &[Box], above: f64, inside: Markup) -> Markup {
    let rows = boxes.iter().map(|one| one.row + 1).max().unwrap_or(1);
    let number = |value: f64| format!("{value:.2}");
    html! {
        svg.flame viewBox=(format!("0 {} {WIDTH} {}", -above, above + ROW * rows as f64)) xmlns="http://www.w3.org/2000/svg" role="img"
            aria-label=(title(root, root.joules)) {
            (inside)
            @for Box { node, left, width, row } in boxes {
                @let top = ROW * *row as f64;
                g data-left=(number(*left)) data-width=(number(*width)) data-row=(row) data-name=(printable(&node.name)) {
                    title { (title(node, root.joules)) }
                    rect x=(number(*left)) y=(number(top)) width=(number(*width)) height=(ROW - 1.0) fill=(colour(node)) {}
                    text x=(number(left + 3.0)) y=(number(top + 12.5)) { (label(&node.name, *width)) }
                }
            }
        }
    }
}

fn left_out_words(count: usize) -> String {
    match count {
        1 => "1 call path is too small to be seen here".to_owned(),
        many => format!("{many} call paths are too small to be seen here"),
    }
}

/// Part of a page, which needs [`STYLE`] and [`SCRIPT`], once.
pub fn picture(root: &Node) -> Markup {
    let (boxes, left_out) = layout(root);
    html! {
        (svg(root, &boxes, 0.0, html! {}))
        @if left_out > 0 {
            p.small { (left_out_words(left_out)) }
        }
    }
}

/// A file of its own. `head`: its title.
pub fn document(root: &Node, head: &str) -> String {
    let (boxes, left_out) = layout(root);
    let words = if left_out > 0 { format!("; {}", left_out_words(left_out)) } else { String::new() };
    let inside = html! {
        text x="3" y="-8" { (label(head, WIDTH)) }
        desc { (head) "; " (title(root, root.joules)) (words) }
        style { (PreEscaped(STYLE)) }
        script { (PreEscaped(format!("<![CDATA[{SCRIPT}]]>"))) }
    };
    format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{}\n", svg(root, &boxes, 24.0, inside).into_string())
}
