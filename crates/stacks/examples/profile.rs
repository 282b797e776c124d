//! Samples a command and prints its flat profile, and its call tree with `-t`: `profile [-k] [-t] [-p MICROSECONDS]
//! [-s STACK_BYTES] COMMAND...`

use std::collections::{BTreeMap, HashMap};
use std::process::Command;
use std::time::Duration;

use ampere_stacks::{FunctionId, Options, Sampler, Sink};

#[derive(Default)]
struct Profile {
    samples: u64,
    own: HashMap<FunctionId, u64>,
    with_tree: bool,
    tree: Node,
    processes: BTreeMap<u32, (String, u64)>,
}

#[derive(Default)]
struct Node {
    samples: u64,
    children: HashMap<FunctionId, Node>,
}

impl Sink for Profile {
    fn sample(&mut self, process: u32, _thread: u32, _time: u64, frames: &[FunctionId], is_cut_off: bool) {
        self.samples += 1;
        self.processes.entry(process).or_default().1 += 1;
        if let Some(function) = frames.last() {
            *self.own.entry(*function).or_default() += 1;
        }
        if is_cut_off || !self.with_tree {
            return;
        }
        let mut node = &mut self.tree;
        node.samples += 1;
        for function in frames {
            node = node.children.entry(*function).or_default();
            node.samples += 1;
        }
    }

    fn started(&mut self, process: u32, _time: u64, name: Option<&str>) {
        let entry = self.processes.entry(process).or_default();
        if let Some(name) = name {
            entry.0 = name.to_owned();
        }
    }

    fn ended(&mut self, _process: u32, _thread: Option<u32>, _time: u64) {}
}

fn print(node: &Node, depth: usize, least: u64, sampler: &Sampler) {
    let mut children: Vec<_> = node.children.iter().filter(|(_, child)| child.samples >= least).collect();
    children.sort_by_key(|(id, child)| (std::cmp::Reverse(child.samples), **id));
    for (id, child) in children {
        println!("{:8} {}{}", child.samples, "  ".repeat(depth), sampler.function(*id).name);
        print(child, depth + 1, least, sampler);
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut options = Options::default();
    let mut profile = Profile::default();
    let mut arguments = std::env::args_os().skip(1).peekable();
    while let Some(option) = arguments.next_if(|argument| argument.to_string_lossy().starts_with('-')) {
        let mut number = || {
            Ok::<_, Box<dyn std::error::Error>>(
                arguments.next().ok_or("the option needs a number")?.to_string_lossy().parse::<u32>()?,
            )
        };
        match &*option.to_string_lossy() {
            "-k" => options.kernel = true,
            "-t" => profile.with_tree = true,
            "-p" => options.period = Duration::from_micros(number()?.into()),
            "-s" => options.stack_bytes = number()?,
            other => return Err(format!("{other} is not an option").into()),
        }
    }
    let program =
        arguments.next().ok_or("profile [-k] [-t] [-p MICROSECONDS] [-s STACK_BYTES] COMMAND...")?;
    let mut sampler = Sampler::begin(&options)?;
    // Commands that this process executes are sampled, but not the process itself.
    sampler.add_launcher(std::process::id())?;
    let mut child = Command::new(program).args(arguments).spawn()?;
    // Nothing is lost if the rings are read twice in the time in which they fill up.
    let pause = (sampler.ring_duration() / 2).min(Duration::from_millis(16));
    let status = loop {
        sampler.poll(&mut profile);
        if let Some(status) = child.try_wait()? {
            break status;
        }
        std::thread::sleep(pause);
    };
    sampler.finish(&mut profile);
    let mut own: Vec<_> = profile.own.iter().collect();
    own.sort_by_key(|(id, samples)| (std::cmp::Reverse(**samples), **id));
    for (id, samples) in own.iter().take(40) {
        let function = sampler.function(**id);
        let module = function.module.rsplit('/').next().unwrap_or_default();
        println!(
            "{:6.2} %  {:30} {}",
            100.0 * **samples as f64 / profile.samples as f64,
            module,
            function.name
        );
    }
    if profile.with_tree {
        print(&profile.tree, 0, profile.samples / 200, &sampler);
    }
    for (process, (name, samples)) in &profile.processes {
        eprintln!("process {process} {name}: {samples} samples");
    }
    let figures = sampler.figures();
    eprintln!(
        "{status}; {} samples, {:.2} % complete, {} lost, {:.1} frames and {:.2} us each; rings last {:?}",
        figures.samples,
        100.0 * figures.complete as f64 / figures.samples.max(1) as f64,
        figures.lost,
        figures.frames as f64 / figures.samples.max(1) as f64,
        figures.cpu_ns as f64 / 1000.0 / figures.samples.max(1) as f64,
        sampler.ring_duration(),
    );
    for cut in figures.cut_off.iter().take(10) {
        eprintln!("cut off: {:6} in {}: {}", cut.samples, cut.module, cut.reason.text());
    }
    Ok(())
}
