//! Call paths as boxes. Only the largest ones are kept: below each caller, one box has the sum of the others.

use super::Flame;
use super::rows::{Names, rounded};
use std::collections::{BTreeMap, HashMap};

/// Frames with their figures. The first is the whole, and a caller comes before what it calls.
pub(super) struct Frames<'a> {
    /// The caller of each frame; 0 for the first.
    pub caller: &'a [u32],
    /// The exclusive joules of each frame.
    pub joules: &'a [f64],
    /// The dynamic part of the exclusive joules, if it is known.
    pub dynamic: Option<&'a [f64]>,
    pub calls: &'a [u64],
    pub name: &'a dyn Fn(u32) -> String,
}

/// The box of a frame that has no joules.
pub(super) const NO_BOX: u32 = u32::MAX;

/// Returns a box for each of the `limit` frames with the most joules and, below each caller, one box that sums the rest; also the
/// box of each frame.
pub(super) fn boxes(frames: &Frames, limit: usize, names: &mut Names) -> (Flame, Vec<u32>) {
    let sums = sums(frames);
    let is_kept = largest(&sums, limit);
    let mut flame = Flame { caller: vec![0], name: vec![0], ..Flame::default() };
    (flame.joules, flame.calls) = (vec![*frames.joules.first().unwrap_or(&0.0)], vec![0]);
    flame.dynamic_joules.extend(frames.dynamic.map(|_| 0.0));
    let mut box_of = vec![0; frames.caller.len()];
    // `small_below`: the box with the sum of the small callees, by the caller's box; its name is 0 until the count is known.
    // `counts`: the number of frames in such a box.
    let (mut small_below, mut counts) = (HashMap::new(), BTreeMap::new());
    for frame in 1..frames.caller.len() {
        let caller = box_of[frames.caller[frame] as usize];
        if sums[frame] <= 0.0 || caller == NO_BOX {
            box_of[frame] = NO_BOX;
            continue;
        }
        let mut add = |name| {
            flame.caller.push(caller);
            flame.name.push(name);
            flame.joules.push(0.0);
            flame.dynamic_joules.extend(frames.dynamic.map(|_| 0.0));
            flame.calls.push(0);
            (flame.caller.len() - 1) as u32
        };
        let at = if is_kept[frame] {
            add(names.number(&(frames.name)(frame as u32)))
        } else {
            // A callee of a frame that is already in a sum box joins that box.
            let is_small = counts.contains_key(&caller);
            let at = if is_small { caller } else { *small_below.entry(caller).or_insert_with(|| add(0)) };
            *counts.entry(at).or_insert(0) += 1;
            at
        };
        flame.joules[at as usize] += frames.joules[frame];
        if let Some(dynamic) = frames.dynamic {
            flame.dynamic_joules[at as usize] += dynamic[frame];
        }
        flame.calls[at as usize] = flame.calls[at as usize].saturating_add(frames.calls[frame]);
        box_of[frame] = at;
    }
    for (at, count) in counts {
        flame.name[at as usize] = names.number(&crate::flame::more_words(count));
        flame.small.push(at);
    }
    (flame, box_of)
}

/// Adds the waiting of frames to their boxes: `waits` returns the joules that a frame has used waiting, and those that others
/// have used waiting for it. If the frame has no box, its caller's box gets them.
pub(super) fn add_waits(
    flame: &mut Flame,
    (callers, box_of): (&[u32], &[u32]),
    waits: impl Fn(usize) -> [f64; 2],
) {
    let mut columns = [vec![0.0; flame.joules.len()], vec![0.0; flame.joules.len()]];
    for frame in 0..callers.len() {
        let mut at = frame;
        while box_of[at] == NO_BOX {
            at = callers[at] as usize;
        }
        for (column, joules) in columns.iter_mut().zip(waits(frame)) {
            column[box_of[at] as usize] += joules;
        }
    }
    columns.iter_mut().flatten().for_each(|joules| *joules = rounded(*joules));
    if columns.iter().flatten().any(|joules| *joules > 0.0) {
        [flame.waited_joules, flame.caused_waiting_joules] = columns;
    }
}

fn sums(frames: &Frames) -> Vec<f64> {
    let mut sums: Vec<f64> = frames.joules.to_vec();
    for at in (1..sums.len()).rev() {
        let sum = sums[at];
        sums[frames.caller[at] as usize] += sum;
    }
    sums
}

/// Returns, for each frame, whether it is one of the `limit` frames with the most joules. A caller has at least the joules of
/// its callees and comes first, so the callers of kept frames are also kept.
fn largest(sums: &[f64], limit: usize) -> Vec<bool> {
    let mut order: Vec<u32> = (1..sums.len() as u32).collect();
    if order.len() > limit && limit > 0 {
        let by_sum = |a: &u32, b: &u32| sums[*b as usize].total_cmp(&sums[*a as usize]).then(a.cmp(b));
        order.select_nth_unstable_by(limit - 1, by_sum);
        order.truncate(limit);
    }
    let mut is_kept = vec![false; sums.len()];
    order.into_iter().for_each(|frame| is_kept[frame as usize] = true);
    is_kept
}
