//! `ampere-fuzz-one TARGET FILE...` runs inputs from files and prints how long each took. `ampere-fuzz-one TARGET --seconds N
//! [SEED]` makes random inputs, for libraries that are built without coverage and may end the process. It leaves the
//! current input in `last-input` and the slowest one in `slowest-input`.

use ampere_fuzz::Target;
use ampere_fuzz::mutate::Mutator;
use std::time::{Duration, Instant};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let target = arguments.first().and_then(|name| ampere_fuzz::find(name));
    match (target, &arguments.get(1..)) {
        (Some(target), Some([option, seconds, more @ ..])) if option == "--seconds" => {
            let seconds = seconds.parse().expect("a number of seconds");
            let seed = more.first().map_or(1, |seed| seed.parse().expect("a number"));
            unguided(target, Duration::from_secs(seconds), seed);
        }
        (Some(target), Some(files)) if !files.is_empty() => {
            for path in *files {
                let data = std::fs::read(path).expect("the input");
                let begun = Instant::now();
                (target.run)(&data);
                println!("{path}: {:?}", begun.elapsed());
            }
        }
        _ => {
            let names: Vec<&str> = ampere_fuzz::TARGETS.iter().map(|target| target.name).collect();
            eprintln!(
                "usage: ampere-fuzz-one TARGET FILE...|--seconds N [SEED], with a target of {}",
                names.join(", ")
            );
            std::process::exit(2);
        }
    }
}

fn unguided(target: &Target, time: Duration, seed: u64) {
    let seeds = ampere_fuzz::inputs(target);
    let mut mutator = Mutator::new(seed);
    let begun = Instant::now();
    let mut count = 0u64;
    let mut slowest = Duration::ZERO;
    while begun.elapsed() < time {
        let data = mutator.mutate(&seeds, target.bytes_max);
        std::fs::write("last-input", &data).expect("room");
        let input = Instant::now();
        (target.run)(&data);
        if input.elapsed() > slowest {
            slowest = input.elapsed();
            std::fs::write("slowest-input", &data).expect("room");
        }
        count += 1;
    }
    println!("{} {count} inputs, the slowest {slowest:?}", target.name);
}
