//! Runs inputs that were found: `ampere-fuzz-one TARGET FILE...`, and says how long each took.

fn main() {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_default();
    let Some(target) = ampere_fuzz::find(&name) else {
        let names: Vec<&str> = ampere_fuzz::TARGETS.iter().map(|target| target.name).collect();
        eprintln!("usage: ampere-fuzz-one TARGET FILE..., with a target of {}", names.join(", "));
        std::process::exit(2);
    };
    for path in arguments {
        let data = std::fs::read(&path).expect("the input");
        let begun = std::time::Instant::now();
        (target.run)(&data);
        println!("{path}: {:?}", begun.elapsed());
    }
}
