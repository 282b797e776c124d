//! What another node's collector tells, message after message: each is understood or refused in one line, names can be
//! printed, and the job's sums are numbers that never go back.

use crate::scratch::assert_is_line;
use ampere_collector::serving::job::Nodes;
use ampere_collector::serving::job::report::{NodeReport, Refused};
use std::time::{Duration, Instant};

/// No JSON has a zero byte: it separates messages.
const END: u8 = 0;
const MOST_MESSAGES: usize = 6;

pub fn run(data: &[u8]) {
    let messages: Vec<_> =
        data.split(|byte| *byte == END).take(MOST_MESSAGES).map(NodeReport::read).collect();
    let mut before = 0.0;
    for told in 1..=messages.len() {
        let joules = sum_after(&messages[..told]);
        assert!(joules.is_finite() && joules >= before, "{joules} J after {before} J");
        before = joules;
    }
}

/// The job's joules after these messages.
fn sum_after(messages: &[Result<NodeReport, Refused>]) -> f64 {
    let mut nodes = Nodes::default();
    nodes.add("other");
    let begun = Instant::now();
    for (second, message) in messages.iter().enumerate() {
        let now = begun + Duration::from_secs(second as u64);
        let taken = message.as_ref().map_err(Clone::clone).and_then(|share| nodes.take("other", share, now));
        if let Err(refused) = taken {
            assert_is_line(&refused.to_string());
            nodes.has_problem("other", &refused.to_string(), second > 2);
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
