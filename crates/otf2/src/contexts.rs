//! Turns calling contexts into enters and leaves, as Score-P's own profile does. Unwinding and sampling record the position of
//! a location as a calling context.

use crate::definitions::{CallingContext, Definitions};
use crate::handler::Flow;
use crate::table::{CallingContextRef, RegionRef};

pub(crate) enum Step {
    Enter(RegionRef),
    Leave(RegionRef),
}

/// Makes the steps from a location's previous context to `target`. The `distance - 1` innermost contexts of `target` are new.
/// The context outside of these was open before, perhaps at another place in the same region. Its frame stays open, and the
/// frames inside it have ended.
pub(crate) fn walk(
    definitions: &Definitions,
    from: Option<CallingContextRef>,
    target: Option<CallingContextRef>,
    distance: u64,
    mut each: impl FnMut(Step) -> Flow,
) -> Flow {
    let defined = |context: Option<CallingContextRef>| -> Option<&CallingContext> {
        definitions.calling_contexts.get(context?)
    };
    let mut new = Vec::new();
    let mut stays = defined(target);
    while let Some(context) = stays.filter(|_| new.len() as u64 + 1 < distance) {
        new.push(context.region);
        stays = defined(context.parent);
    }
    let mut open = defined(from);
    while let Some(frame) = open.filter(|frame| {
        stays.is_none_or(|stays| (frame.region, frame.parent) != (stays.region, stays.parent))
    }) {
        each(Step::Leave(frame.region))?;
        open = defined(frame.parent);
    }
    if open.is_none() {
        // At the first event, or after recording was switched off, all frames around the new ones must be entered, too.
        while let Some(context) = stays {
            new.push(context.region);
            stays = defined(context.parent);
        }
    }
    new.into_iter().rev().try_for_each(|region| each(Step::Enter(region)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ops::ControlFlow;

    #[test]
    fn a_frame_stays_open_when_its_place_in_the_region_changes() {
        let mut definitions = Definitions::default();
        let mut context = |region, parent| {
            let parent = (parent != u32::MAX).then_some(CallingContextRef(parent));
            definitions.calling_contexts.push(CallingContext { region: RegionRef(region), parent })
        };
        let none = u32::MAX;
        let at_start = context(1, none);
        let later = context(1, none);
        let solve = context(2, at_start.0);
        let multiply = context(3, solve.0);
        let send = context(4, later.0);
        let steps = |from: Option<CallingContextRef>, target, distance| {
            let mut steps = Vec::new();
            let flow = walk(&definitions, from, target, distance, |step| {
                steps.push(match step {
                    Step::Enter(region) => region.0 as i32,
                    Step::Leave(region) => -(region.0 as i32),
                });
                ControlFlow::Continue(())
            });
            assert_eq!(flow, ControlFlow::Continue(()));
            steps
        };
        assert_eq!(steps(None, Some(at_start), 2), [1]);
        assert_eq!(steps(Some(at_start), Some(multiply), 3), [2, 3]);
        assert_eq!(
            steps(Some(multiply), Some(multiply), 3),
            [-3, -2, 2, 3],
            "the two innermost contexts are new calls"
        );
        assert_eq!(steps(Some(multiply), Some(send), 2), [-3, -2, 4], "region 1 stays open");
        assert_eq!(steps(Some(send), Some(later), 1), [-4]);
        assert_eq!(steps(Some(send), None, 1), [-4, -1]);
        assert_eq!(steps(None, Some(send), 2), [1, 4], "the events before this one are missing");
    }
}
