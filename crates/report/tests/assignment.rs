//! Made-up nodes as tables: counters, processes with their variables and streams, and the links expected, as users see them.

use ampere_figures::assignment;
use ampere_model::{LocationKind, Quality};
use ampere_settings::Config;
use ampere_timeline::attributor::{Attributor, FoundDevice, LocationInfo, Recorded, ViewKind};
use ampere_timeline::conflicts;
use ampere_timeline::topology::{Accelerator, CounterEvidence, Evidence};
use std::sync::Arc;

#[derive(Default)]
struct Made {
    toml: &'static str,
    /// `family number`, or a whole metric; then `model=`, `pci=`, `uuid=`, `kind=`, `silent`, `rises`, separated by semicolons.
    counters: Vec<String>,
    /// Variables of each rank, separated by spaces, then its streams: `HIP[0:0]`, `HIP[0:0]@` with a PCI address or a UUID.
    ranks: Vec<(String, Vec<String>)>,
}

fn place(words: &str) -> (String, CounterEvidence) {
    let mut words = words.split(';').map(str::trim);
    let metric = words.next().expect("a metric").to_owned();
    let mut place = CounterEvidence::default();
    for word in words {
        match word.split_once('=') {
            Some(("model", model)) => place.model = model.to_owned(),
            Some(("pci", pci)) => place.pci = Some(pci.to_owned()),
            Some(("uuid", uuid)) => place.uuid = Some(uuid.to_owned()),
            Some(("kind", kind)) => place.kind = kind.to_owned(),
            _ => {
                (place.silent, place.rises) =
                    (place.silent || word == "silent", place.rises || word == "rises")
            }
        }
    }
    (metric, place)
}

impl Made {
    fn counters(counters: &[&str]) -> Made {
        Made { counters: counters.iter().map(|text| (*text).to_owned()).collect(), ..Made::default() }
    }

    /// Returns one rocm_smi counter for each number.
    fn rocm_smi(numbers: &[u32], more: &str) -> Made {
        let counter = |number: &u32| format!("rocm_smi:::energy_count:device={number}{more}");
        Made { counters: numbers.iter().map(counter).collect(), ..Made::default() }
    }

    fn rank(mut self, variables: &str, streams: &[&str]) -> Made {
        self.ranks.push((variables.to_owned(), streams.iter().map(|stream| (*stream).to_owned()).collect()));
        self
    }

    fn settings(mut self, toml: &'static str) -> Made {
        self.toml = toml;
        self
    }

    fn add_counters(&self, attributor: &mut Attributor) {
        for counter in &self.counters {
            let (metric, place) = place(counter);
            let found = FoundDevice {
                node: "n".to_owned(),
                metric,
                source: "rocm_smi".to_owned(),
                quality: Quality::Measured,
                joules_per_unit: Some(1e-9),
            };
            attributor.add_recorded(found, place, Recorded::default());
        }
    }

    fn add_ranks(&self, attributor: &mut Attributor) {
        for (rank, (variables, streams)) in self.ranks.iter().enumerate() {
            let environment: Arc<[String]> = variables.split_whitespace().map(str::to_owned).collect();
            let mut add = |name: &str, kind, accelerator| {
                let evidence = Evidence {
                    process: Some(rank as u64),
                    environment: environment.clone(),
                    accelerator,
                    ..Evidence::default()
                };
                let info = LocationInfo {
                    node: "n".to_owned(),
                    group: format!("MPI Rank {rank}"),
                    name: name.to_owned(),
                    kind,
                    rank: Some(rank as u32),
                    main: kind == LocationKind::CpuThread,
                };
                attributor.add_location_with(info, evidence);
            };
            add("Master thread", LocationKind::CpuThread, Accelerator::default());
            for stream in streams {
                let (name, on) = stream.split_once('@').unwrap_or((stream, ""));
                let on = Some(on.to_owned()).filter(|on| !on.is_empty());
                let is_uuid = |on: &String| on.starts_with("GPU-");
                let (pci, uuid) = (on.clone().filter(|on| !is_uuid(on)), on.filter(is_uuid));
                add(name, LocationKind::Gpu, Accelerator { pci, uuid, ..Accelerator::default() });
            }
        }
    }

    #[track_caller]
    fn gives(&self, expected: &[&str]) {
        let config = Config::parse(self.toml, "ampere.toml").expect("settings");
        let (mut one, mut other) = (Attributor::new(config.clone(), 1000), Attributor::new(config, 1000));
        self.add_counters(&mut one);
        self.add_ranks(&mut one);
        // The result is the same whichever becomes known first.
        self.add_ranks(&mut other);
        self.add_counters(&mut other);
        let lines = |attributor: &Attributor| assignment::lines(&assignment::of_attributor(attributor, None));
        assert_eq!(lines(&one), expected);
        assert_eq!(lines(&other), expected, "the ranks first");
        // The engine's consumers are those of the links.
        for attributor in [one, other] {
            assert!(!attributor.links_changed_late());
            for (at, _) in attributor.locations.iter().enumerate() {
                let index = ampere_attribution::LocationIndex(at as u32);
                let view = |device: usize| match attributor.locations[at].kind {
                    LocationKind::Gpu => attributor.devices[device].view(ViewKind::Kernels),
                    _ => attributor.devices[device].view(ViewKind::Ranks),
                };
                for device in 0..attributor.devices.len() {
                    let bound = attributor.engine.is_bound(view(device), index);
                    assert_eq!(
                        bound,
                        attributor.assignment(at).draws_from(device),
                        "location {at}, device {device}"
                    );
                }
            }
        }
    }
}

#[test]
fn without_evidence_all_ranks_share_the_gpus() {
    Made::rocm_smi(&[0], "").rank("", &[]).rank("", &[]).gives(&[
        "GPU-0 <- MPI Rank 0-1: it is the node's only GPU with a counter: shared by all processes of the node",
    ]);
    Made::rocm_smi(&[0, 1], "").rank("", &[]).rank("", &[]).gives(&[
        "GPU-0..1 <- MPI Rank 0-1: the ranks' GPUs are not known: shared by all processes of the node",
    ]);
    // A local rank alone is not evidence.
    Made::rocm_smi(&[0, 1], "").rank("SLURM_LOCALID=0", &[]).rank("SLURM_LOCALID=1", &[]).gives(&[
        "GPU-0..1 <- MPI Rank 0-1: the ranks' GPUs are not known: shared by all processes of the node",
    ]);
    Made::counters(&["estimate:::energy", "rapl:::package:device=0; kind=cpu"])
        .rank("", &[])
        .rank("ROCR_VISIBLE_DEVICES=1", &[])
        .gives(&["node, GPU-0 <- MPI Rank 0-1: not a GPU counter: shared by all processes of the node"]);
}

#[test]
fn variables_show_which_gpu_a_rank_uses() {
    Made::rocm_smi(&[0, 1, 2, 3], "")
        .rank("ROCR_VISIBLE_DEVICES=3", &[])
        .rank("ROCR_VISIBLE_DEVICES=2,1 HIP_VISIBLE_DEVICES=1", &[])
        .rank("ROCR_VISIBLE_DEVICES=0,1", &[])
        .rank("ROCR_VISIBLE_DEVICES=", &[])
        .rank("HIP_VISIBLE_DEVICES=7", &[])
        .gives(&[
            "GPU-0..1 <- MPI Rank 2: ROCR_VISIBLE_DEVICES=0,1",
            "GPU-1 <- MPI Rank 1: ROCR_VISIBLE_DEVICES=2,1 and HIP_VISIBLE_DEVICES=1",
            "GPU-3 <- MPI Rank 0: ROCR_VISIBLE_DEVICES=3",
            "no GPU <- MPI Rank 3: ROCR_VISIBLE_DEVICES is empty",
            "no GPU <- MPI Rank 4: HIP_VISIBLE_DEVICES=7",
        ]);
    // A variable that lists all GPUs restricts nothing.
    Made::rocm_smi(&[0, 1], "").rank("ROCR_VISIBLE_DEVICES=0,1", &[]).rank("", &[]).gives(&[
        "GPU-0..1 <- MPI Rank 0: ROCR_VISIBLE_DEVICES=0,1 leaves it every GPU with a counter, and the ranks' GPUs are \
         not known: shared by all processes of the node",
        "GPU-0..1 <- MPI Rank 1: the ranks' GPUs are not known: shared by all processes of the node",
    ]);
    // A node's counter is not a GPU's.
    Made::counters(&[
        "nvml:::total_energy_consumption:device=0",
        "nvml:::total_energy_consumption:device=1",
        "pm:::energy",
    ])
    .rank("CUDA_VISIBLE_DEVICES=1 ROCR_VISIBLE_DEVICES=0", &[])
    .gives(&[
        "GPU-1 <- MPI Rank 0: CUDA_VISIBLE_DEVICES=1",
        "pm:::energy <- MPI Rank 0: not a GPU counter: shared by all processes of the node",
    ]);
}

#[test]
fn a_uuid_is_a_gpu_where_a_counter_has_one() {
    let two =
        ["rocm_smi:::energy_count:device=0; uuid=GPU-aa", "rocm_smi:::energy_count:device=1; uuid=GPU-bb"];
    Made::counters(&two)
        .rank("ROCR_VISIBLE_DEVICES=GPU-BB", &["HIP[0:0]"])
        .rank("ROCR_VISIBLE_DEVICES=GPU-aa", &[])
        .gives(&[
            "GPU-0 <- MPI Rank 1: ROCR_VISIBLE_DEVICES=GPU-aa",
            "GPU-1 <- MPI Rank 0: its GPU stream HIP[0:0] ran on it",
            "GPU-1 <- MPI Rank 0/HIP[0:0]: device 0 in its name, of ROCR_VISIBLE_DEVICES=GPU-BB",
        ]);
    Made::rocm_smi(&[0, 1], "").rank("ROCR_VISIBLE_DEVICES=GPU-bb", &[]).gives(&[
        "GPU-0..1 <- MPI Rank 0: ROCR_VISIBLE_DEVICES=GPU-bb, but no counter has the UUID GPU-bb, and the ranks' \
         GPUs are not known: shared by all processes of the node",
    ]);
}

#[test]
fn streams_are_counted_within_what_is_visible() {
    Made::rocm_smi(&[0, 1, 2, 3], "")
        .rank("ROCR_VISIBLE_DEVICES=3", &["HIP[0:0]", "HIP[0:1]"])
        .rank("ROCR_VISIBLE_DEVICES=1,2", &["HIP[1:0]"])
        // The stream has the GPU's number on the node, and the process may see that GPU.
        .rank("ROCR_VISIBLE_DEVICES=1", &["HIP[1:0]"])
        .rank("", &["HIP[0:0]", "HIP[9:0]"])
        .rank("ROCR_VISIBLE_DEVICES=0", &["HIP[2:0]"])
        .gives(&[
            "GPU-0 <- MPI Rank 3: its GPU stream HIP[0:0] ran on it",
            "GPU-0 <- MPI Rank 4: ROCR_VISIBLE_DEVICES=0",
            "GPU-0 <- MPI Rank 3/HIP[0:0]: device 0 in its name",
            "GPU-1 <- MPI Rank 2: its GPU stream HIP[1:0] ran on it",
            "GPU-1 <- MPI Rank 2/HIP[1:0]: device 1 in its name, one of ROCR_VISIBLE_DEVICES=1",
            "GPU-2 <- MPI Rank 1: its GPU stream HIP[1:0] ran on it",
            "GPU-2 <- MPI Rank 1/HIP[1:0]: device 1 in its name, of ROCR_VISIBLE_DEVICES=1,2",
            "GPU-3 <- MPI Rank 0: its GPU streams HIP[0:0], HIP[0:1] ran on it",
            "GPU-3 <- MPI Rank 0/HIP[0:0], MPI Rank 0/HIP[0:1]: device 0 in its name, of ROCR_VISIBLE_DEVICES=3",
            "no GPU <- MPI Rank 3/HIP[9:0]: no counter of GPU 9: device 9 in its name",
            "no GPU <- MPI Rank 4/HIP[2:0]: device 2 in its name is none of ROCR_VISIBLE_DEVICES=0",
        ]);
    // A rank on a GPU without a counter draws from no other.
    Made::rocm_smi(&[0, 1], "").rank("", &["HIP[5:0]"]).gives(&[
        "no GPU <- MPI Rank 0: its GPU stream HIP[5:0] ran on a GPU without a counter",
        "no GPU <- MPI Rank 0/HIP[5:0]: no counter of GPU 5: device 5 in its name",
    ]);
    Made::counters(&["estimate:::energy"]).rank("", &["HIP[0:0]"]).gives(&[
        "node <- MPI Rank 0: not a GPU counter: shared by all processes of the node",
        "no GPU <- MPI Rank 0/HIP[0:0]: the node has no GPU counter",
    ]);
}

#[test]
fn streams_do_not_show_who_uses_a_counter_that_shows_neither_number_nor_address() {
    // Cray's accelerators, alone and together with the counters of the same GPUs.
    let accelerators = ["cray_pm:::energy:accel0; kind=gpu", "cray_pm:::energy:accel1; kind=gpu"];
    let shared = "its metric's name has no GPU number: shared by all processes of the node";
    Made::counters(&accelerators).rank("", &["HIP[0:0]"]).rank("", &["HIP[1:0]@0000:02:00.0"]).gives(&[
        &format!("accel0-1 <- MPI Rank 0-1: {shared}"),
        "no GPU <- MPI Rank 0/HIP[0:0]: no counter of GPU 0: device 0 in its name",
        "no GPU <- MPI Rank 1/HIP[1:0]: no counter of the GPU at PCI address 0000:02:00.0",
    ]);
    let gpu = "rocm_smi:::energy_count:device=0; pci=0000:c1:00.0";
    Made::counters(&[accelerators[0], gpu]).rank("", &["HIP[0:0]@0000:c1:00.0"]).rank("", &[]).gives(&[
        "GPU-0 <- MPI Rank 0: its GPU stream HIP[0:0] ran on it",
        "GPU-0 <- MPI Rank 1: it is the node's only GPU with a counter: shared by all processes of the node",
        "GPU-0 <- MPI Rank 0/HIP[0:0]: PCI address 0000:c1:00.0",
        &format!("accel0 <- MPI Rank 0-1: {shared}"),
    ]);
    // A sensor of Linux has an address and no number, and a stream may have a number and no address.
    let sensor = ["hwmon:::energy:amdgpu-0; kind=gpu; pci=0000:c1:00.0"];
    Made::counters(&sensor).rank("", &["HIP[0:0]"]).gives(&[
        &format!("amdgpu-0 <- MPI Rank 0: {shared}"),
        "no GPU <- MPI Rank 0/HIP[0:0]: no counter of GPU 0: device 0 in its name",
    ]);
    Made::counters(&sensor).rank("", &["HIP[0:0]@0000:c2:00.0"]).gives(&[
        "no GPU <- MPI Rank 0: its GPU stream HIP[0:0] ran on a GPU without a counter",
        "no GPU <- MPI Rank 0/HIP[0:0]: no counter of the GPU at PCI address 0000:c2:00.0",
    ]);
}

#[test]
fn a_gpu_that_no_process_may_use_is_hidden() {
    let hidden = |made: &Made| {
        let mut attributor = Attributor::new(Config::default(), 1000);
        made.add_counters(&mut attributor);
        made.add_ranks(&mut attributor);
        for device in 0..attributor.devices.len() {
            for time in [0, 1000, 2000] {
                attributor.devices[device].read(time, ampere_model::MetricValue::U64(100_000_000 * time), 0);
            }
            attributor.end_readings(device);
        }
        attributor.judge_devices(true);
        let is_about_others = |note: &String| note.contains("another job");
        let notes: Vec<String> =
            conflicts::node_notes(&attributor).into_iter().filter(is_about_others).collect();
        let names: Vec<&str> = (0..attributor.devices.len())
            .filter(|device| attributor.is_hidden(*device))
            .map(|device| attributor.devices[device].info.name.as_str())
            .collect();
        (names.join(" "), notes.join("\n"))
    };
    let four = || Made::rocm_smi(&[0, 1, 2, 3], "");
    let (names, note) = hidden(&four().rank("ROCR_VISIBLE_DEVICES=0", &["HIP[0:0]"]));
    assert_eq!(names, "GPU-1 GPU-2 GPU-3");
    assert_eq!(
        note,
        "the *_VISIBLE_DEVICES of all processes on n hide GPU-1..3: the joules of these GPUs are in the total, although \
         another job may have used them"
    );
    let of_two = four().rank("ROCR_VISIBLE_DEVICES=0", &[]).rank("ROCR_VISIBLE_DEVICES=1", &[]);
    assert_eq!(hidden(&of_two).0, "GPU-2 GPU-3");
    // The second process may use every GPU, because it has no variable, or a variable that lists all GPUs.
    for everywhere in ["", "ROCR_VISIBLE_DEVICES=0,1,2,3"] {
        let made = four().rank("ROCR_VISIBLE_DEVICES=0", &[]).rank(everywhere, &[]);
        assert_eq!(hidden(&made), (String::new(), String::new()), "{everywhere}");
    }
    // A GPU that a process has used is not hidden, whatever its variables are.
    let queues = "ROCR_VISIBLE_DEVICES=0 ampere::queues=0000:c1:00.0";
    let gpus = [0, 1].map(|gpu| format!("rocm_smi:::energy_count:device={gpu}; pci=0000:c{gpu}:00.0"));
    assert_eq!(hidden(&Made::counters(&gpus.each_ref().map(String::as_str)).rank(queues, &[])).0, "");
    // Where each task has its own cgroup, every rank's GPU may be number 0.
    let alike = four().rank("ROCR_VISIBLE_DEVICES=0", &[]).rank("ROCR_VISIBLE_DEVICES=0", &[]);
    assert_eq!(hidden(&alike).1, "");
}

#[test]
fn addresses_are_better_than_numbers() {
    Made::counters(&[
        "rocm_smi:::energy_count:device=0; pci=0000:c1:00.0",
        "rocm_smi:::energy_count:device=1; pci=0000:02:00.0",
    ])
    .rank("", &["HIP[0:0]@0000:02:00.0"])
    .rank("", &["HIP[0:0]@0000:77:00.0"])
    .gives(&[
        "GPU-1 <- MPI Rank 0: its GPU stream HIP[0:0] ran on it",
        "GPU-1 <- MPI Rank 0/HIP[0:0]: PCI address 0000:02:00.0",
        "no GPU <- MPI Rank 1: its GPU stream HIP[0:0] ran on a GPU without a counter",
        "no GPU <- MPI Rank 1/HIP[0:0]: no counter of the GPU at PCI address 0000:77:00.0",
    ]);
    Made::counters(&[
        "rocm_smi:::energy_count:device=0; uuid=GPU-aa",
        "rocm_smi:::energy_count:device=1; uuid=GPU-bb",
    ])
    .rank("", &["HIP[0:0]@GPU-bb"])
    .gives(&[
        "GPU-1 <- MPI Rank 0: its GPU stream HIP[0:0] ran on it",
        "GPU-1 <- MPI Rank 0/HIP[0:0]: UUID GPU-bb",
    ]);
    // The counter has no address, only a number.
    Made::rocm_smi(&[0, 1], "").rank("", &["HIP[1:0]@0000:02:00.0"]).gives(&[
        "GPU-1 <- MPI Rank 0: its GPU stream HIP[1:0] ran on it",
        "GPU-1 <- MPI Rank 0/HIP[1:0]: device 1 in its name",
    ]);
}

#[test]
fn both_dies_of_a_package_draw_from_its_counter() {
    // A node of Frontier: eight ranks, eight dies, four counters.
    let mut frontier = Made::rocm_smi(&[0, 2, 4, 6], "; model=AMD Instinct MI250X");
    for die in [4, 5, 2, 3, 6, 7, 0, 1] {
        frontier = frontier.rank(&format!("ROCR_VISIBLE_DEVICES={die}"), &[]);
    }
    frontier.gives(&[
        "GPU-0 <- MPI Rank 6: ROCR_VISIBLE_DEVICES=0",
        "GPU-0 <- MPI Rank 7: ROCR_VISIBLE_DEVICES=1; second die of the package that GPU 0 counts",
        "GPU-2 <- MPI Rank 2: ROCR_VISIBLE_DEVICES=2",
        "GPU-2 <- MPI Rank 3: ROCR_VISIBLE_DEVICES=3; second die of the package that GPU 2 counts",
        "GPU-4 <- MPI Rank 0: ROCR_VISIBLE_DEVICES=4",
        "GPU-4 <- MPI Rank 1: ROCR_VISIBLE_DEVICES=5; second die of the package that GPU 4 counts",
        "GPU-6 <- MPI Rank 4: ROCR_VISIBLE_DEVICES=6",
        "GPU-6 <- MPI Rank 5: ROCR_VISIBLE_DEVICES=7; second die of the package that GPU 6 counts",
    ]);
    // The odd GPUs have counters, which never rise. The models of the GPUs are not known.
    Made::counters(&[
        "A2rocm_smi:::energy_count:device=0",
        "A2rocm_smi:::energy_count:device=1; silent",
        "A2rocm_smi:::energy_count:device=2",
        "A2rocm_smi:::energy_count:device=3; silent",
    ])
    .rank("", &["HIP[3:0]"])
    .gives(&[
        "GPU-2 <- MPI Rank 0: its GPU stream HIP[3:0] ran on it",
        "GPU-2 <- MPI Rank 0/HIP[3:0]: device 3 in its name; second die of the package that GPU 2 counts, assumed because no \
         odd GPU has a counter",
    ]);
    // No counter includes the energy of this GPU: another odd GPU has a counter, GPUs have one die, or there is only one counter.
    Made::rocm_smi(&[0, 1, 2], "")
        .rank("ROCR_VISIBLE_DEVICES=3", &[])
        .gives(&["no GPU <- MPI Rank 0: ROCR_VISIBLE_DEVICES=3"]);
    Made::rocm_smi(&[0, 2], "; model=AMD Instinct MI300A")
        .rank("ROCR_VISIBLE_DEVICES=3", &[])
        .gives(&["no GPU <- MPI Rank 0: ROCR_VISIBLE_DEVICES=3"]);
    Made::rocm_smi(&[0], "")
        .rank("ROCR_VISIBLE_DEVICES=1", &[])
        .gives(&["no GPU <- MPI Rank 0: ROCR_VISIBLE_DEVICES=1"]);
    // By address: the second die's bus comes after the first's and before the next package's.
    Made::counters(&[
        "rocm_smi:::energy_count:device=0; model=MI250X; pci=0000:c1:00.0",
        "rocm_smi:::energy_count:device=2; model=MI250X; pci=0000:c9:00.0",
    ])
    .rank("", &["HIP[0:0]@0000:c6:00.0"])
    .gives(&[
        "GPU-0 <- MPI Rank 0: its GPU stream HIP[0:0] ran on it",
        "GPU-0 <- MPI Rank 0/HIP[0:0]: PCI address 0000:c6:00.0, the second die of the package that is counted at 0000:c1:00.0",
    ]);
}

/// The driver reports addresses of GPUs on which a process has had queues.
#[test]
fn queues_show_which_gpus_a_rank_uses() {
    let gpus = |model: &str| {
        Made::counters(&[
            &format!("rocm_smi:::energy_count:device=0; model={model}; pci=0000:c1:00.0"),
            &format!("rocm_smi:::energy_count:device=2; model={model}; pci=0000:c9:00.0"),
        ])
    };
    gpus("MI100")
        .rank("ampere::queues=0000:c9:00.0", &[])
        // The GPUs that a process uses are better evidence than those that it may use, and in its control group GPUs may have
        // other numbers.
        .rank("ROCR_VISIBLE_DEVICES=0 ampere::queues=0000:c1:00.0,0000:c9:00.0", &[])
        // A rank's streams are better evidence than its queues.
        .rank("ampere::queues=0000:c1:00.0", &["HIP[2:0]"])
        .gives(&[
            "GPU-0 <- MPI Rank 1: the driver reported its queues at PCI address 0000:c1:00.0",
            "GPU-2 <- MPI Rank 0-1: the driver reported its queues at PCI address 0000:c9:00.0",
            "GPU-2 <- MPI Rank 2: its GPU stream HIP[2:0] ran on it",
            "GPU-2 <- MPI Rank 2/HIP[2:0]: device 2 in its name",
        ]);
    // The first rank uses a second die. A GPU without a counter gives no information about the others.
    gpus("MI250X")
        .rank("ampere::queues=0000:c6:00.0", &[])
        .rank("ampere::queues=0000:01:00.0 ROCR_VISIBLE_DEVICES=3", &[])
        .rank("ampere::queues=0000:01:00.0", &[])
        .gives(&[
            "GPU-0 <- MPI Rank 0: the driver reported its queues at PCI address 0000:c6:00.0, the second die of the package \
             that is counted at 0000:c1:00.0",
            "GPU-0, 2 <- MPI Rank 2: the ranks' GPUs are not known: shared by all processes of the node",
            "GPU-2 <- MPI Rank 1: ROCR_VISIBLE_DEVICES=3; second die of the package that GPU 2 counts",
        ]);
    // A process that has not opened the driver uses none of the driver's GPUs. An MI300A's counter includes the CPU cores, too.
    gpus("MI100")
        .rank("ampere::queues= ROCR_VISIBLE_DEVICES=0", &[])
        .gives(&["no GPU <- MPI Rank 0: it has not opened AMD's driver"]);
    let shared = "GPU-0, 2 <- MPI Rank 0: the ranks' GPUs are not known: shared by all processes of the node";
    gpus("AMD Instinct MI300A").rank("ampere::queues=", &[]).gives(&[shared]);
    Made::counters(&["nvml:::total_energy_consumption:device=0; pci=0000:02:00.0"])
        .rank("ampere::queues= CUDA_VISIBLE_DEVICES=0", &[])
        .gives(&["GPU-0 <- MPI Rank 0: CUDA_VISIBLE_DEVICES=0"]);
    // Another vendor's driver has queues of its own.
    Made::counters(&[
        "rocm_smi:::energy_count:device=0; pci=0000:c1:00.0",
        "nvml:::total_energy_consumption:device=0; pci=0000:02:00.0",
    ])
    .rank("ampere::queues=0000:c1:00.0 CUDA_VISIBLE_DEVICES=0", &[])
    .gives(&[
        "GPU-0 <- MPI Rank 0: the driver reported its queues at PCI address 0000:c1:00.0",
        "GPU-0-nvml <- MPI Rank 0: CUDA_VISIBLE_DEVICES=0",
    ]);
    // NVIDIA's driver lists the processes that have contexts on its GPUs.
    let nvidia = |number: u32| {
        format!("nvml:::total_energy_consumption:device={number}; pci=0000:0{}:00.0", number + 2)
    };
    Made::counters(&[&nvidia(0), &nvidia(1)]).rank("ampere::queues=0000:03:00.0", &[]).rank("", &[]).gives(
        &[
            "GPU-0..1 <- MPI Rank 1: the ranks' GPUs are not known: shared by all processes of the node",
            "GPU-1 <- MPI Rank 0: NVIDIA's driver reported it at PCI address 0000:03:00.0",
        ],
    );
    // Where counters have no addresses, the list is of no use; numbers are not needed for it.
    Made::rocm_smi(&[0, 1], "")
        .rank("ampere::queues=0000:c1:00.0 ROCR_VISIBLE_DEVICES=1", &[])
        .gives(&["GPU-1 <- MPI Rank 0: ROCR_VISIBLE_DEVICES=1"]);
    Made::counters(&[
        "hwmon:::energy:amdgpu-0; kind=gpu; pci=0000:c1:00.0",
        "hwmon:::energy:amdgpu-1; kind=gpu; pci=0000:c9:00.0",
    ])
    .rank("ampere::queues=0000:c9:00.0", &[])
    .gives(&["amdgpu-1 <- MPI Rank 0: the driver reported its queues at PCI address 0000:c9:00.0"]);
}

/// A measurement is better evidence than a name.
#[test]
fn a_second_die_whose_own_counter_rises_counts_for_itself() {
    let counters = |second: &str| {
        Made::counters(&[
            "rocm_smi:::energy_count:device=0; model=AMD Instinct MI250X; rises",
            &format!("rocm_smi:::energy_count:device=1; model=AMD Instinct MI250X; {second}"),
        ])
        .rank("ROCR_VISIBLE_DEVICES=0", &["HIP[0:0]"])
        .rank("ROCR_VISIBLE_DEVICES=1", &[])
    };
    counters("rises").gives(&[
        "GPU-0 <- MPI Rank 0: its GPU stream HIP[0:0] ran on it",
        "GPU-0 <- MPI Rank 0/HIP[0:0]: device 0 in its name, of ROCR_VISIBLE_DEVICES=0",
        "GPU-1 <- MPI Rank 1: ROCR_VISIBLE_DEVICES=1",
    ]);
    counters("silent").gives(&[
        "GPU-0 <- MPI Rank 0: its GPU stream HIP[0:0] ran on it",
        "GPU-0 <- MPI Rank 1: ROCR_VISIBLE_DEVICES=1; second die of the package that GPU 0 counts",
        "GPU-0 <- MPI Rank 0/HIP[0:0]: device 0 in its name, of ROCR_VISIBLE_DEVICES=0",
    ]);
    let four = ["rises", "", "rises", "rises"].iter().enumerate();
    let four =
        four.map(|(gpu, rises)| format!("rocm_smi:::energy_count:device={gpu}; model=MI250X; {rises}"));
    let mut made = Made { counters: four.collect(), ..Made::default() }.settings(BY_LOCAL_RANK);
    for rank in 0..4 {
        made = made.rank(&format!("SLURM_LOCALID={rank}"), &[]);
    }
    let assumed = |rank, gpu| format!("assumed: local rank {rank} of 4 (SLURM_LOCALID), 4 GPUs, GPU {gpu}");
    made.gives(&[
        &format!("GPU-0 <- MPI Rank 0: {}", assumed(0, 0)),
        &format!("GPU-0 <- MPI Rank 1: {}", assumed(1, 1)),
        &format!("GPU-2 <- MPI Rank 2: {}", assumed(2, 2)),
        &format!("GPU-3 <- MPI Rank 3: {}", assumed(3, 3)),
    ]);
}

#[test]
fn settings_come_first() {
    Made::rocm_smi(&[0, 1], "")
        .settings(
            "[[device]]\nname = \"a\"\nmetric = 'rocm_smi:::energy_count:device=0'\nranks = [1]\nlocations = ['HIP\\[1:.*']\n\
             [[device]]\nname = \"b\"\nmetric = 'rocm_smi:::energy_count:device=1'\nranks = \"found\"\n",
        )
        .rank("ROCR_VISIBLE_DEVICES=1", &["HIP[1:0]"])
        .rank("ROCR_VISIBLE_DEVICES=1", &[])
        .rank("", &[])
        .gives(&[
            "a <- MPI Rank 1: configured: ranks = [1]",
            "a <- MPI Rank 0/HIP[1:0]: configured: locations",
            "b <- MPI Rank 0: its GPU stream HIP[1:0] ran on it",
            "b <- MPI Rank 1: ROCR_VISIBLE_DEVICES=1",
            "b <- MPI Rank 2: the ranks' GPUs are not known: shared by all processes of the node",
            "b <- MPI Rank 0/HIP[1:0]: device 1 in its name, one of ROCR_VISIBLE_DEVICES=1",
        ]);
}

const BY_LOCAL_RANK: &str = "[topology]\nby_local_rank = true";

#[test]
fn the_local_rank_is_assumed_only_where_it_may_be_and_fits() {
    let ranks = |made: Made, count: u32| {
        (0..count).fold(made.settings(BY_LOCAL_RANK), |made, rank| {
            // Slurm's local rank is that of the script, and the same for all ranks.
            let variables = format!("SLURM_LOCALID=0 OMPI_COMM_WORLD_LOCAL_RANK={}", count - 1 - rank);
            made.rank(&variables, &[])
        })
    };
    ranks(Made::rocm_smi(&[0, 1], ""), 2).gives(&[
        "GPU-0 <- MPI Rank 1: assumed: local rank 0 of 2 (OMPI_COMM_WORLD_LOCAL_RANK), 2 GPUs, GPU 0",
        "GPU-1 <- MPI Rank 0: assumed: local rank 1 of 2 (OMPI_COMM_WORLD_LOCAL_RANK), 2 GPUs, GPU 1",
    ]);
    ranks(Made::rocm_smi(&[0], "; model=MI250X"), 4).gives(&[
        "GPU-0 <- MPI Rank 0: assumed: local rank 3 of 4 (OMPI_COMM_WORLD_LOCAL_RANK), 2 GPUs, GPU 1",
        "GPU-0 <- MPI Rank 1: assumed: local rank 2 of 4 (OMPI_COMM_WORLD_LOCAL_RANK), 2 GPUs, GPU 0",
        "GPU-0 <- MPI Rank 2: assumed: local rank 1 of 4 (OMPI_COMM_WORLD_LOCAL_RANK), 2 GPUs, GPU 1",
        "GPU-0 <- MPI Rank 3: assumed: local rank 0 of 4 (OMPI_COMM_WORLD_LOCAL_RANK), 2 GPUs, GPU 0",
    ]);
    ranks(Made::rocm_smi(&[0, 1], ""), 3).gives(&[
        "GPU-0..1 <- MPI Rank 0-2: 3 ranks do not fit 2 GPUs, and the ranks' GPUs are not known: shared by all processes of the node",
    ]);
    // Information from a variable or a stream is not an assumption.
    Made::rocm_smi(&[0, 1], "")
        .settings(BY_LOCAL_RANK)
        .rank("SLURM_LOCALID=0 ROCR_VISIBLE_DEVICES=1", &[])
        .rank("SLURM_LOCALID=1", &["HIP[0:0]"])
        .gives(&[
            "GPU-0 <- MPI Rank 1: its GPU stream HIP[0:0] ran on it",
            "GPU-0 <- MPI Rank 1/HIP[0:0]: device 0 in its name",
            "GPU-1 <- MPI Rank 0: ROCR_VISIBLE_DEVICES=1",
        ]);
    // Two processes have the same number, so it gives no information.
    Made::rocm_smi(&[0, 1], "")
        .settings(BY_LOCAL_RANK)
        .rank("SLURM_LOCALID=0", &[])
        .rank("SLURM_LOCALID=0", &[])
        .gives(&[
            "GPU-0..1 <- MPI Rank 0-1: the ranks' GPUs are not known: shared by all processes of the node",
        ]);
}

/// Links that change are distinguished from those that were only unknown before.
#[test]
fn a_link_that_changes_after_joules_were_attributed_is_remembered() {
    let made = Made::rocm_smi(&[0, 1], "").rank("", &[]);
    let late_stream = |attributor: &mut Attributor| {
        let info = LocationInfo {
            node: "n".to_owned(),
            group: "HIP Context 1".to_owned(),
            name: "HIP[1:0]".to_owned(),
            kind: LocationKind::Gpu,
            rank: Some(0),
            main: false,
        };
        attributor.add_location_with(info, Evidence { process: Some(0), ..Evidence::default() });
    };
    let begin = |frames: bool, samples: bool| {
        let mut attributor = Attributor::new(Config::default(), 1000);
        made.add_ranks(&mut attributor);
        made.add_counters(&mut attributor);
        if frames {
            attributor.engine.enter(ampere_attribution::LocationIndex(0), 10, ampere_model::RegionRef(0));
        }
        if samples {
            for (time, value) in [(20, 5), (30, 10_000_000_005)] {
                attributor.read_now(0, time, value);
            }
        }
        attributor
    };
    for (frames, samples, moved) in
        [(false, false, false), (true, false, false), (false, true, false), (true, true, true)]
    {
        let mut attributor = begin(frames, samples);
        late_stream(&mut attributor);
        assert_eq!(attributor.links_changed_late(), moved, "frames {frames}, samples {samples}");
        assert!(attributor.assignment(0).draws_from(1) && !attributor.assignment(0).draws_from(0));
        // The rank keeps the joules of GPU-0 that it was charged, and is charged no more of them.
        let view = attributor.devices[0].views.ranks;
        let paid = if frames && samples { 10.0 } else { 0.0 };
        assert_eq!(attributor.engine.totals(view).attributed_joules + 0.0, paid);
        attributor.read_now(0, 40, 20_000_000_005);
        assert_eq!(attributor.engine.totals(view).attributed_joules + 0.0, paid);
        assert_eq!(attributor.engine.report(view).callpaths.len(), usize::from(paid > 0.0));
    }
}
