//! `ampere work`: counts units of work of the run that this process belongs to.

use ampere_model::text::printable;
use ampere_model::{Counted, is_switched_off};
use ampere_ring::session_name::session_name;
use ampere_ring::work::{ROWS_MAX, WorkTable, is_amount};
use ampere_ring::{CollectorState, Session};
use anyhow::bail;
use clap::Args;
use std::process::ExitCode;

#[derive(Args)]
pub struct WorkArguments {
    /// The name of the work, such as steps
    #[arg(value_parser = name)]
    name: String,
    /// The number of units that were done
    #[arg(value_parser = amount, allow_negative_numbers = true)]
    units: f64,
}

/// Parses, for clap, the name of work.
pub fn name(text: &str) -> Result<String, String> {
    if text.trim().is_empty() { Err("the name is empty".to_owned()) } else { Ok(text.trim().to_owned()) }
}

/// Parses, for clap, a number of units.
fn amount(text: &str) -> Result<f64, String> {
    let units = text.parse::<f64>().map_err(|_| "it is not a number, such as 100 or 2.5e9".to_owned())?;
    if is_amount(units) { Ok(units) } else { Err("units are more than 0, and finite".to_owned()) }
}

/// Adds units to the table of a session, which its collector reads.
pub fn count(session: &Session, name: &str, units: f64) -> anyhow::Result<()> {
    let table = WorkTable::open_or_create(session)?;
    let Some(row) = table.row(Counted::Work, name, false) else {
        table.leave_out();
        bail!("the run has {ROWS_MAX} names of work already: {} is not counted", printable(name));
    };
    row.add(units);
    Ok(())
}

pub fn work(arguments: WorkArguments) -> anyhow::Result<ExitCode> {
    if is_switched_off() {
        return Ok(ExitCode::SUCCESS);
    }
    let has_ended = |session: &Session| {
        matches!(session.collector_state(), CollectorState::Finished | CollectorState::Failed)
            || !session.is_of_this_boot()
    };
    let Some(session) = Session::open_named(&session_name()).ok().filter(|session| !has_ended(session))
    else {
        bail!(
            "ampere work counts units of a run that is being measured, but there is none here: use it in a command of ampere run"
        );
    };
    count(&session, &arguments.name, arguments.units)?;
    Ok(ExitCode::SUCCESS)
}
