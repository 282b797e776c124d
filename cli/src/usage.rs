//! The command line as a whole: examples of each command, and messages about wrong usage.

use ampere_model::text::printable_lines;
use ampere_report::Format;
use ampere_settings::is_misspelt;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory, ValueEnum};
use std::num::{IntErrorKind, ParseIntError};

/// Examples of each command: the typed line, and its effect.
pub const EXAMPLES: &[(&str, &[(&str, &str)])] = &[
    (
        "run",
        &[
            ("ampere run mpirun -n 4 ./xhpl", "measures an MPI program"),
            (
                "ampere run --repeat 10 --until 2% -o out -- ./program",
                "runs the program up to ten times, until the mean of its joules is known within 2 %",
            ),
            ("ampere run -o out --quiet -- python3 work.py", "writes the results to out, and prints nothing"),
            (
                "ampere run --require --listen off -- ./program",
                "fails if nothing can be measured, and opens no port",
            ),
        ],
    ),
    (
        "report",
        &[
            ("ampere report", "shows the last run in this directory"),
            ("ampere report out -f csv -o rows.csv", "writes a row for each call path"),
            ("ampere report out -f timeline --region step", "writes the joules of each call of step"),
        ],
    ),
    (
        "attribute",
        &[
            ("ampere attribute traces.otf2", "shows the joules of the functions in a trace"),
            (
                "ampere attribute traces.otf2 --config ampere.toml --calls calls.csv",
                "writes a row for each call, too",
            ),
        ],
    ),
    (
        "compare",
        &[
            ("ampere compare before after", "compares two runs"),
            (
                "ampere compare a1 a2 a3 -- b1 b2 b3",
                "compares groups of runs, and shows which differences are noise",
            ),
            (
                "ampere compare a1 a2 a3 -- b1 b2 b3 --fail-above 5%",
                "ends with status 3 if the joules rose by more than 5 %",
            ),
        ],
    ),
    (
        "top",
        &[
            ("ampere top", "follows your run on this node"),
            ("ampere top http://node7:9977", "follows a run on another node"),
        ],
    ),
    (
        "replay",
        &[("ampere replay traces.otf2 --speed 10", "plays a trace ten times as fast as it was recorded")],
    ),
    ("work", &[("ampere work steps 100", "counts 100 steps, in a script that ampere run has started")]),
    ("recover", &[("ampere recover out", "finishes the killed run whose output directory is out")]),
    (
        "doctor",
        &[("ampere doctor", "checks this node"), ("ampere doctor --json", "prints the findings as JSON")],
    ),
    ("calibrate", &[("ampere calibrate", "measures the delay of this node's counters")]),
];

/// Returns the command line with its examples.
pub fn command() -> Command {
    EXAMPLES.iter().fold(crate::Arguments::command(), |all, (name, examples)| {
        let width = examples.iter().map(|(line, _)| line.len()).max().unwrap_or_default();
        let lines = examples.iter().map(|(line, what)| format!("  {line:width$}  {what}"));
        let text = format!("Examples:\n{}", lines.collect::<Vec<_>>().join("\n"));
        all.mut_subcommand(name, |one| one.after_help(text))
    })
}

/// Ends this process with status 2 and a message that shows how this command is used.
pub fn wrong(command_name: &str, kind: ErrorKind, words: &str) -> ! {
    let mut all = command();
    all.build();
    let why = match all.find_subcommand_mut(command_name) {
        Some(one) => one.error(kind, words),
        None => all.error(kind, words),
    };
    exit(why)
}

/// Exits with status 2, or 0 after help. The shell may have replaced a pattern with names of files that somebody else chose. If
/// an argument is not plain text, the message is printed without colours and control characters.
pub fn exit(why: clap::Error) -> ! {
    let why = improved(why);
    let is_text = |word: std::ffi::OsString| {
        let word = word.to_string_lossy();
        printable_lines(&word) == word
    };
    if std::env::args_os().chain(std::env::vars_os().map(|(_, value)| value)).all(is_text) {
        why.exit();
    }
    crate::terminal::words::eprint_line(why.render().to_string().trim_end());
    std::process::exit(why.exit_code())
}

/// Makes clap's message clearer where its words mislead.
fn improved(mut why: clap::Error) -> clap::Error {
    let is_text = std::error::Error::source(&why)
        .and_then(|source| source.downcast_ref::<ParseIntError>())
        .is_some_and(|source| *source.kind() == IntErrorKind::InvalidDigit);
    if let (true, Some(value), Some(option)) =
        (is_text, why.get(ContextKind::InvalidValue), why.get(ContextKind::InvalidArg))
    {
        let words = format!("invalid value '{value}' for '{option}': it is not a whole number\n");
        return clap::Error::raw(ErrorKind::ValueValidation, words);
    }
    remove_misleading_tips(&mut why);
    replace_tip_for_option(&mut why);
    let is_format = |word: &str| Format::from_str(word, false).is_ok();
    if let Some(ContextValue::String(word)) = why.get(ContextKind::InvalidSubcommand)
        && is_format(word)
    {
        let tip = format!("did you mean ampere report -f {word}?").into();
        why.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip]));
    }
    why
}

/// Removes misleading tips of clap: the advice to pass an unknown option after `--`, which users never mean, and the names of
/// commands that only ampere itself calls.
fn remove_misleading_tips(why: &mut clap::Error) {
    if why.kind() == ErrorKind::UnknownArgument {
        why.remove(ContextKind::Suggested);
    }
    let all = crate::Arguments::command();
    let is_hidden = |name: &String| all.find_subcommand(name).is_some_and(Command::is_hide_set);
    match why.remove(ContextKind::SuggestedSubcommand) {
        Some(ContextValue::String(one)) if !is_hidden(&one) => {
            why.insert(ContextKind::SuggestedSubcommand, ContextValue::String(one));
        }
        Some(ContextValue::Strings(mut several)) => {
            several.retain(|one| !is_hidden(one));
            if !several.is_empty() {
                why.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(several));
            }
        }
        _ => {}
    }
}

/// Words that people try as options: the option that they mean, and what it does.
const MEANT: &[(&[&str], &str, &str)] = &[
    (
        &["interval", "freq", "frequency", "rate", "period"],
        "sample-period",
        "--sample sets how often call paths are sampled, --sample-period how often counters are read",
    ),
    (&["port", "bind", "address"], "listen", "--listen sets the address and the port: 127.0.0.1:9977"),
    (&["live", "no-live", "silent"], "quiet", "-q leaves out the live table and the results"),
];

/// Answers an unknown option with the one that is meant. clap suggests names that share some letters, but are other words.
fn replace_tip_for_option(why: &mut clap::Error) {
    let similar = why.remove(ContextKind::SuggestedArg);
    let Some(ContextValue::String(given)) = why.get(ContextKind::InvalidArg).cloned() else { return };
    if let Some(ContextValue::String(one)) = similar
        && is_misspelt(&given, &one, given.len())
    {
        why.insert(ContextKind::SuggestedArg, ContextValue::String(one));
        return;
    }
    let word = given.trim_start_matches('-');
    let usage = why.get(ContextKind::Usage).map(ToString::to_string).unwrap_or_default();
    let all = crate::Arguments::command();
    let command = usage.split_whitespace().skip_while(|word| *word != "ampere").nth(1);
    let command = command.and_then(|name| all.find_subcommand(name));
    let has = |option: &str| {
        command.is_some_and(|of| of.get_arguments().any(|known| known.get_long() == Some(option)))
    };
    let meant = MEANT.iter().find(|(words, option, _)| words.contains(&word) && has(option));
    let tip = match meant {
        Some((_, _, words)) => (*words).to_owned(),
        None if Format::from_str(word, false).is_err() => return,
        None if has("format") => format!("did you mean -f {word}?"),
        None => format!("did you mean ampere report -f {word}?"),
    };
    why.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_are_no_numbers_and_formats_that_are_no_commands_are_explained() {
        let said = |words: &[&str]| {
            let matches = command().try_get_matches_from(std::iter::once(&"ampere").chain(words));
            improved(matches.expect_err("wrong usage")).render().to_string()
        };
        let text = said(&["report", "out", "--rows", "x"]);
        assert!(text.contains("invalid value 'x' for '--rows <N>': it is not a whole number"), "{text}");
        let text = said(&["report", "out", "--rows", "0"]);
        assert!(text.contains("0 is not in 1.."), "{text}");
        let text = said(&["timeline", "out"]);
        assert!(text.contains("did you mean ampere report -f timeline?"), "{text}");
        let text = said(&["nothing"]);
        assert!(!text.contains("did you mean"), "{text}");
    }

    #[test]
    fn an_unknown_option_is_answered_with_the_one_that_is_meant_or_without_a_tip() {
        let tip = |words: &[&str]| {
            let matches = command().try_get_matches_from(std::iter::once(&"ampere").chain(words));
            let text = improved(matches.expect_err("wrong usage")).render().to_string();
            text.lines().find_map(|line| Some(line.trim().strip_prefix("tip: ")?.to_owned()))
        };
        for (words, wanted) in [
            (&["run", "--interval", "5", "--", "x"][..], Some("--sample-period")),
            (&["run", "--freq=99", "x"], Some("--sample-period")),
            (&["run", "--port", "80", "x"], Some("--listen")),
            (&["run", "--live=no", "x"], Some("-q ")),
            (&["run", "--quite", "x"], Some("--quiet")),
            (&["run", "--csv", "x"], Some("ampere report -f csv")),
            (&["report", "--csv"], Some("mean -f csv")),
            (&["run", "--verbose", "x"], None),
            (&["top", "--interval", "5"], None),
        ] {
            let tip = tip(words);
            assert_eq!(tip.is_some(), wanted.is_some(), "{words:?}: {tip:?}");
            assert!(tip.is_none_or(|tip| tip.contains(wanted.unwrap_or_default())), "{words:?}");
        }
    }
}
