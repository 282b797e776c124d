//! `ampere top`: shows a run that was started elsewhere on the whole terminal, or in lines if there is no terminal.
//!
//! ```text
//! asked.rs   which collector is asked        watching.rs  requests figures, and waits for keys and signals
//! screen.rs  handles figures, keys and signals
//! ```

mod asked;
mod screen;
mod watching;

use crate::terminal::live_table::{ANSWER_LIMIT, NODES, line};
use ampere_endpoint::access::Access;
use ampere_endpoint::token::Token;
use ampere_figures::nodes::job::Job;
use ampere_figures::snapshot::Snapshot;
use ampere_model::text::printable;
use ampere_settings::Config;
use asked::Asked;
use clap::Args;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

const LINE_PERIOD: Duration = Duration::from_secs(5);
/// If a further request fails after this many successive requests without an answer, the collector has ended. A collector
/// that was killed is replaced sooner.
const UNANSWERED: u32 = 5;
const RETRY: Duration = Duration::from_millis(500);

#[derive(Args)]
pub struct TopArguments {
    /// Output directory of a run, or its collector's address (http://..., unix:/...); without it, your run on this node
    #[arg(value_hint = clap::ValueHint::DirPath)]
    target: Option<String>,
}

pub fn top(arguments: TopArguments) -> anyhow::Result<ExitCode> {
    let access = Access::load(&Config::load(None)?).map_err(anyhow::Error::msg)?;
    let asked = Asked::of(arguments.target)?;
    let first = match snapshot(&asked, access.token()) {
        Err(_) if asked.shows_if_cut_off()? || asked.shows_if_ended()? => return Ok(ExitCode::SUCCESS),
        first => first?,
    };
    match screen::show(&asked, access.token()) {
        Some(end) => end,
        None => lines(&asked, access.token(), first),
    }
}

fn snapshot(asked: &Asked, token: Option<&Token>) -> anyhow::Result<Snapshot> {
    asked.get("/snapshot.json", token, ANSWER_LIMIT, |snapshot: &Snapshot| &snapshot.run)
}

fn lines(asked: &Asked, token: Option<&Token>, mut shown: Snapshot) -> anyhow::Result<ExitCode> {
    say!("ampere: following {}", printable(&format!("{}: {}", asked.name(), shown.command)));
    let mut silent = 0;
    loop {
        let job = asked.get(NODES, token, ANSWER_LIMIT, |job: &Job| &job.run).ok();
        let mut out = std::io::stdout().lock();
        if writeln!(out, "{}", printable(&line(&shown, job.as_ref()))).and_then(|()| out.flush()).is_err() {
            return Ok(ExitCode::SUCCESS); // the reader has closed the pipe
        }
        drop(out);
        let mut pause = LINE_PERIOD;
        shown = loop {
            std::thread::sleep(pause);
            match snapshot(asked, token) {
                Ok(snapshot) => break snapshot,
                Err(_) if silent == UNANSWERED => return end(asked),
                // Another collector may take over.
                Err(_) => (silent, pause) = (silent + 1, RETRY),
            }
        };
        silent = 0;
    }
}

/// Ends the command when no collector answers any more.
fn end(asked: &Asked) -> anyhow::Result<ExitCode> {
    asked.shows_if_cut_off()?;
    say!("ampere: {}", asked.end());
    Ok(ExitCode::SUCCESS)
}
