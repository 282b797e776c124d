//! Reads the reports of another node's collector, one after another. Each is accepted or refused in one line, names have no
//! control characters, and the job's sums are finite and never decrease.

use crate::scratch::assert_is_line;
use ampere_figures::nodes::gathered::Nodes;
use ampere_figures::nodes::report::{NodeReport, Refused};
use std::time::{Duration, Instant};

/// The byte that separates messages. JSON contains no zero byte.
const END: u8 = 0;
const MESSAGES_MAX: usize = 6;

pub fn run(data: &[u8]) {
    let messages: Vec<_> = data.split(|byte| *byte == END).take(MESSAGES_MAX).map(NodeReport::read).collect();
    let mut before = 0.0;
    for count in 1..=messages.len() {
        let joules = sum_after(&messages[..count]);
        assert!(joules.is_finite() && joules >= before, "{joules} J after {before} J");
        before = joules;
    }
}

/// Returns the job's joules after these messages.
fn sum_after(messages: &[Result<NodeReport, Refused>]) -> f64 {
    let mut nodes = Nodes::default();
    nodes.add("other");
    let begun = Instant::now();
    for (second, message) in messages.iter().enumerate() {
        let now = begun + Duration::from_secs(second as u64);
        let taken = message.as_ref().map_err(Clone::clone).and_then(|share| nodes.take("other", share, now));
        if let Err(refused) = taken {
            assert_is_line(&refused.to_string());
            nodes.note_problem("other", &refused.to_string(), second > 2);
        }
    }
    let job = nodes.job(NodeReport::default);
    let names = job.functions.iter().chain(&job.kernels).map(|row| &row.name);
    for name in
        names.chain(job.ranks.iter().map(|row| &row.rank)).chain(job.nodes.iter().map(|row| &row.energy))
    {
        assert!(!name.chars().any(char::is_control), "{name:?}");
    }
    let _ = job.for_page();
    job.totals.joules
}
