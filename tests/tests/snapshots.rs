//! What users see, word for word. After an intended change, `UPDATE_EXPECT=1 cargo test --release -p ampere-tests --test
//! snapshots` writes the new text into this file; the difference is then reviewed like any other change.

use ampere_tests::collector::announced;
use ampere_tests::jobs::{Done, Place, run, start, until};
use ampere_tests::stand_ins::with_rocm_smi;
use ampere_tests::{http, small_trace};
use expect_test::{Expect, expect};
use std::collections::BTreeSet;

const TRACE: &str = "
    counter 0 model=MI250X pci=193
    metric cpu_energy
    rank node0 ROCR_VISIBLE_DEVICES=0
    stream HIP[0:0] tree=0 pci=193
    rank node0 ROCR_VISIBLE_DEVICES=
";

/// Returns a place with that trace in `trace`, attributed into `out`. The second value is the command's output.
fn attributed() -> (Place, Done) {
    let place = Place::new();
    small_trace::write(&place.path("trace"), TRACE);
    let done = run(&mut place.ampere(["attribute", "trace/traces.otf2", "-o", "out"]));
    assert_eq!(done.code, 0, "{done:#?}");
    (place, done)
}

fn report(place: &Place, format: &str) -> String {
    let done = run(&mut place.ampere(["report", "out", "-f", format]));
    assert_eq!(done.code, 0, "{done:#?}");
    done.stdout
}

#[test]
fn the_summary_as_a_table() {
    let (_place, done) = attributed();
    expect![[r#"
        ampere  trace    2 ranks on node0    1.94 s
        energy  415 J (0.12 Wh), 217 W
                MEASURED  GPU + cpu_energy, rocm_smi + trace, every 10 ms
                of which GPU-0 draws 194 J anyway (100 W, in 64 intervals without
                activity); the 221 J of cpu_energy are not divided in this way
                of total: 22 % in kernels, 25 % on GPU-0 outside kernels, 53 % outside
                of GPUs

        kernel  GPU  of total  joules  (least..most)      s  mean W  calls
        kernel    0    22.0 %   91.50         (0..0)  0.960    95.3     15

        GPU    joules  mean W  max W  of it in kernels  outside
        GPU-0   194.0     100    100            47.2 %    102.5
        of total  joules  (least..most)     s  function  calls
          47.6 %   197.8     (0..221.1)  3.58  main          2
           5.6 %    23.3      (0..44.5)  0.42  solve        40

        ranks   111 J each: balanced

        look    out/report.html   ampere report out
    "#]]
    .assert_eq(&done.stdout);
}

#[test]
fn a_site_has_its_energy_carbon_dioxide_and_price() {
    let place = Place::new();
    small_trace::write(&place.path("trace"), TRACE);
    let settings = "[site]\npue = 1.5\ngrams_per_kwh = 240\nprice_per_kwh = 0.25\n";
    place.write("site.toml", settings);
    let mut attribute =
        place.ampere(["attribute", "trace/traces.otf2", "-o", "out", "--config", "site.toml"]);
    let done = run(attribute.env("AMPERE_CURRENCY", "EUR").env("AMPERE_PRICE_PER_KWH", "25000"));
    assert_eq!(done.code, 0, "{done:#?}");
    let summary = place.summary("out");
    let joules = summary["run"]["total_joules"].as_f64().expect("joules");
    let facility = summary["run"]["site"]["facility_joules"].as_f64().expect("joules");
    assert!((facility - 1.5 * joules).abs() < 1e-9 * joules, "{facility} {joules}");
    let lines = report(&place, "table");
    let lines: Vec<&str> = lines.lines().filter(|line| line.starts_with("site")).collect();
    expect![[r#"
        site    energy of the facility ~623 J at a PUE of 1.5, estimated
        site    carbon dioxide ~0.042 g at 240 g per kWh, estimated
        site    price ~4.32 EUR at 25000 EUR per kWh, estimated"#]]
    .assert_eq(&lines.join("\n"));
    assert!(report(&place, "html").contains("energy of the facility"), "the page has them, too");
}

#[test]
fn rows_for_a_spreadsheet() {
    let (place, _) = attributed();
    expect![[r#"
        node,device,energy,unit,view,location_group,location,path,region,calls,exclusive_joules,inclusive_joules,resolved_joules,possible_joules,exclusive_seconds,mean_watts,sampled_error_joules,static_joules,dynamic_joules,inclusive_dynamic_joules,waited_joules,caused_waiting_joules
        node0,GPU-0,measured,J,ranks,MPI Rank 0,Master thread,main,main,1,175.0,194.0,0.0,0.0,1.8,97.22222222222221,,175.0,0.0,0.0,,
        node0,GPU-0,measured,J,ranks,MPI Rank 0,Master thread,main > solve,solve,20,19.0,19.0,0.0,0.0,0.2,,,19.0,0.0,0.0,,
        node0,GPU-0,measured,J,ranks,,,,(idle),,0.0,0.0,,,,,,0.0,0.0,0.0,,
        node0,GPU-0,measured,J,ranks,,,,(lost),,0.0,0.0,,,,,,,,,,
        node0,GPU-0,measured,J,kernels,Context of HIP[0:0],HIP[0:0],kernel,kernel,15,91.5,91.5,0.0,0.0,0.96,95.3125,,91.5,0.0,0.0,,
        node0,GPU-0,measured,J,kernels,,,,(idle),,102.49999999999997,102.49999999999997,,,,,,102.49999999999997,0.0,0.0,,
        node0,GPU-0,measured,J,kernels,,,,(lost),,0.0,0.0,,,,,,,,,,
        node0,cpu_energy,measured,J,ranks,MPI Rank 0,Master thread,main,main,1,99.45,110.565,0.0,221.13,1.8,,,,,,,
        node0,cpu_energy,measured,J,ranks,MPI Rank 1,Master thread,main,main,1,98.3385,110.565,0.0,221.13,1.78,,,,,,,
        node0,cpu_energy,measured,J,ranks,MPI Rank 1,Master thread,main > solve,solve,20,12.2265,12.2265,0.0,44.46,0.22,,,,,,,
        node0,cpu_energy,measured,J,ranks,MPI Rank 0,Master thread,main > solve,solve,20,11.115,11.115,0.0,44.46,0.2,,,,,,,
        node0,cpu_energy,measured,J,ranks,,,,(idle),,0.0,0.0,,,,,,,,,,
        node0,cpu_energy,measured,J,ranks,,,,(lost),,0.0,0.0,,,,,,,,,,
    "#]].assert_eq(&report(&place, "csv"));
}

#[test]
fn stacks_for_a_flame_graph() {
    let (place, _) = attributed();
    expect![[r#"
        GPU-0;MPI Rank 0;main 175000000
        GPU-0;MPI Rank 0;main;solve 19000000
        cpu_energy;MPI Rank 0;main 99450000
        cpu_energy;MPI Rank 1;main 98338500
        cpu_energy;MPI Rank 1;main;solve 12226500
        cpu_energy;MPI Rank 0;main;solve 11115000
    "#]]
    .assert_eq(&report(&place, "folded"));
}

/// Returns the words of a page, without its markup, style and pictures.
fn words(page: &str) -> String {
    let without = |page: String, tag: &str| {
        let (begin, end) = (format!("<{tag}"), format!("</{tag}>"));
        let mut parts = page.split(&begin);
        let first = parts.next().unwrap_or_default().to_owned();
        parts.fold(first, |text, part| text + part.split_once(&end).map_or("", |(_, after)| after))
    };
    let page = ["style", "script", "svg"].into_iter().fold(page.to_owned(), without);
    let mut text = String::new();
    for part in page.split('<').skip(1) {
        let (tag, after) = part.split_once('>').unwrap_or((part, ""));
        let ends_a_line = ["/tr", "/p", "/h", "/li", "/div", "br", "/caption", "/title", "/summary", "/dd"];
        text += if ends_a_line.iter().any(|end| tag.starts_with(end)) { "\n" } else { " " };
        text += after;
    }
    let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    lines.filter(|line| !line.is_empty()).map(|line| line + "\n").collect()
}

#[test]
fn the_page() {
    let (place, _) = attributed();
    let page = report(&place, "html");
    let (_, without_scripts) = page.split_once("<noscript>").expect("something without scripts");
    expect![[r#"
        2 ranks on node0, run trace
        415 J, of which GPU-0 draws 194 J anyway (100 W, in 64 intervals without activity); the 221 J of cpu_energy are not divided in this way
        1.9 s, 217 W on average; 0.0 % of the joules in no function
        22.0 % of the total while GPU kernels ran: kernel (22.0 %)
        on the host, also while kernels ran: most of the total in main (89.8 %), solve (10.2 %)
        All devices: 415.1 J
        J of total function
        372.8 89.8 % main
        42.3 10.2 % solve
        GPU kernels
        J of total kernel
        91.50 22.0 % kernel
        GPUs with kernels have 194.0 J.
        Devices
        total device node energy its joules
        194.0 J GPU-0 node0 measured ranks view: 194.0 J attributed, 0 J idle, 0 J lost
        kernels view: 91.50 J attributed, 102.5 J idle, 0 J lost
        221.1 J cpu_energy node0 measured ranks view: 221.1 J attributed, 0 J idle, 0 J lost
        kernels view: 0 J attributed, 221.1 J idle, 0 J lost
        Pictures, call paths, the comparison of ranks and the quality of the figures need JavaScript. Their figures are also in summary.txt and summary.json.
    "#]].assert_eq(&words(&format!("<noscript>{without_scripts}")));
    let (_, data) = page.split_once("id=\"data\">").expect("data");
    let data = data.split("</script>").next().expect("its end");
    expect![[r#"
        "over" {"gpu_joules":194.0,"idle_joules":0.0,"joules":415.1299999999992,"kernel_joules":91.50000000000003,"lost_joules":0.0,"mpi_joules":0.0,"other_jobs_joules":0.0,"watts":null}
        functions
          calls 2, inclusive_joules 415.1299999999994, joules 372.78849999999943, least_joules 0.0, most_joules 221.12999999999917, "main", seconds 3.58
          calls 40, inclusive_joules 42.34150000000001, joules 42.34150000000001, least_joules 0.0, most_joules 44.460000000000036, "solve", seconds 0.42
        kernels
          calls 15, inclusive_joules 91.50000000000003, joules 91.50000000000003, "kernel", seconds 0.96
        functions x ranks
          joules [274.45,98.3385], "main"
          joules [30.115,12.2265], "solve"
        "ranks view" of device 0: []
          calls 1, dynamic_joules 0.0, inclusive_joules 194.0, joules 175.0, "main", seconds 1.8, watts 0.0
          calls 20, dynamic_joules 0.0, inclusive_joules 19.0, joules 19.0, "solve", seconds 0.2, watts null
        by location group
          dynamic_joules 0.0, joules 194.0, "MPI Rank 0"
        "kernels view" of device 0: []
          calls 15, dynamic_joules 0.0, inclusive_joules 91.50000000000003, joules 91.50000000000003, "kernel", seconds 0.96, watts 0.0
        by location group
          dynamic_joules 0.0, joules 91.5, "Context of HIP[0:0]"
        "ranks view" of device 1: ["no watts: no function was alone in 10 sample intervals"]
          calls 2, inclusive_joules 221.12999999999943, joules 197.78849999999943, least_joules 0.0, most_joules 221.12999999999917, "main", seconds 3.58
          calls 40, inclusive_joules 23.34150000000001, joules 23.34150000000001, least_joules 0.0, most_joules 44.460000000000036, "solve", seconds 0.42
        by location group
          joules 110.565, "MPI Rank 0"
          joules 110.565, "MPI Rank 1"
        boxes of "all devices"
          caller 0, calls 0, joules 0.0, "main"
          caller 0, calls 2, joules 372.789, "main"
          caller 1, calls 40, joules 42.3415, "solve"
        boxes of "GPUs with kernels"
          caller 0, calls 0, joules 0.0, "main"
          caller 0, calls 15, joules 91.5, "kernel"
        boxes of "GPU-0, ranks view"
          caller 0, calls 0, joules 0.0, "main"
          caller 0, calls 1, joules 175.0, "main"
          caller 1, calls 20, joules 19.0, "solve"
        boxes of "GPU-0, kernels view"
          caller 0, calls 0, joules 0.0, "main"
          caller 0, calls 15, joules 91.5, "kernel"
        boxes of "cpu_energy, ranks view"
          caller 0, calls 0, joules 0.0, "main"
          caller 0, calls 2, joules 197.789, "main"
          caller 1, calls 40, joules 23.3415, "solve"
        {"count":[1,1],"each":[],"has_others":false,"label":["0","1"],"words":"2 ranks: 208 J each on average, 111 J to 305 J"}
        ["GPU-0 <- MPI Rank 0: its GPU stream HIP[0:0] ran on it","GPU-0 <- MPI Rank 0/HIP[0:0]: PCI address 0000:c1:00.0","cpu_energy <- MPI Rank 0-1: not a GPU counter: shared by all processes of the node","no GPU <- MPI Rank 1: ROCR_VISIBLE_DEVICES is empty"]
    "#]].assert_eq(&figures(&serde_json::from_str(data).expect("JSON")));
}

/// Returns the tables of a page, with a line for each row.
fn figures(page: &serde_json::Value) -> String {
    let tables = &page["tables"];
    let name =
        |number: &serde_json::Value| tables["names"][number.as_u64().expect("a number") as usize].clone();
    let mut text = format!("{} {}\n", page["state"], page["totals"]);
    let mut add = |title: &str, rows: &serde_json::Value| {
        text += &format!("{title}\n");
        let columns = rows.as_object().expect("columns").iter().filter(|(_, column)| column.is_array());
        let columns: Vec<_> = columns.filter(|(_, column)| column != &&serde_json::json!([])).collect();
        for at in 0..rows["name"].as_array().map_or(0, Vec::len) {
            let cells = columns.iter().map(|(key, column)| match key.as_str() {
                "name" => name(&column[at]).to_string(),
                key => format!("{key} {}", column[at]),
            });
            text += &format!("  {}\n", cells.collect::<Vec<_>>().join(", "));
        }
    };
    add("functions", &tables["functions"]);
    add("kernels", &tables["kernels"]);
    add("functions x ranks", &tables["heat"]);
    for view in tables["views"].as_array().expect("views") {
        add(&format!("{} of device {}: {}", view["title"], view["device"], view["remarks"]), &view["rows"]);
        add("by location group", &view["groups"]);
    }
    for flame in tables["flames"].as_array().expect("flames") {
        let boxes = serde_json::json!({ "name": flame["name"], "caller": flame["caller"], "joules": flame["joules"], "calls": flame["calls"] });
        add(&format!("boxes of {}", flame["title"]), &boxes);
    }
    text + &format!("{}\n{}\n", tables["ranks"], page["assignment"])
}

/// Names, types, explanations and labels of all metrics of a run, without values.
#[test]
fn metrics() {
    let place = Place::new();
    let source = r#"
        #include <unistd.h>
        __attribute__((noinline)) void step(void) { for (volatile int i = 0; i < 100000; i++); }
        int main(void) { while (access("go", F_OK)) step(); return 0; }
    "#;
    let program = place.compile("cc", "waits", source, &["-finstrument-functions"]);
    let mut command = place.ampere_run("out", [&program]);
    let running = start(with_rocm_smi(&mut command, "watts=300"));
    let mut body = String::new();
    // These metrics come one after the other.
    let last =
        ["region_energy_joules_total", "device_busy_ratio", "device_memory_size_bytes", "device_power_watts"];
    until("all metrics are served", || {
        let collector = announced(&place.path("out"));
        let reply = collector.and_then(|collector| http::get(collector.address(), "/metrics").ok());
        body = reply.map(|reply| reply.body).unwrap_or_default();
        last.iter().all(|name| body.contains(&format!("\nampere_{name}{{")))
    });
    place.write("go", "");
    assert_eq!(running.wait().code, 0);
    let mut seen = BTreeSet::new();
    let mut shown = String::new();
    // This metric comes some seconds after the start, and is only served by now if this test was delayed.
    for line in body.lines().filter(|line| !line.contains("ampere_device_counter_agreement_ratio")) {
        let line = match line.strip_prefix('#') {
            Some(_) => line.to_owned(),
            // The names of the labels are kept.
            None => {
                let sample = line.rsplit_once(' ').map_or(line, |(sample, _)| sample);
                let (name, labels) = sample.split_once('{').unwrap_or((sample, ""));
                let labels = labels.split("\",").filter_map(|label| Some(label.split_once('=')?.0));
                format!("{name}{{{}}}", labels.collect::<Vec<_>>().join(","))
            }
        };
        if seen.insert(line.clone()) {
            shown += &line;
            shown.push('\n');
        }
    }
    expect![[r#"
        # HELP ampere_device_energy_joules Energy of a device since the start of the run, as of the last attributed sample
        # TYPE ampere_device_energy_joules counter
        # UNIT ampere_device_energy_joules joules
        ampere_device_energy_joules_total{node,device,energy}
        # HELP ampere_device_power_watts Power of a device over the last second that was sampled; absent if that is too long ago
        # TYPE ampere_device_power_watts gauge
        ampere_device_power_watts{node,device,energy}
        # HELP ampere_device_info 1; the labels are the source of a device's energy figures, its kind, and the device that also contains its joules
        # TYPE ampere_device_info gauge
        ampere_device_info{node,device,source,energy,kind,within}
        # HELP ampere_device_reported_power_watts Power of a device as the device reports it; kind is average or current
        # TYPE ampere_device_reported_power_watts gauge
        ampere_device_reported_power_watts{node,device,kind}
        # HELP ampere_device_temperature_celsius Temperature of a device's sensor as the device reports it
        # TYPE ampere_device_temperature_celsius gauge
        ampere_device_temperature_celsius{node,device,sensor}
        # HELP ampere_device_busy_ratio Fraction of the time in which a device computes, as the device reports it
        # TYPE ampere_device_busy_ratio gauge
        ampere_device_busy_ratio{node,device}
        # HELP ampere_device_memory_used_bytes Used memory of a device, as the device reports it
        # TYPE ampere_device_memory_used_bytes gauge
        ampere_device_memory_used_bytes{node,device}
        # HELP ampere_device_memory_size_bytes Size of a device's memory, as the device reports it
        # TYPE ampere_device_memory_size_bytes gauge
        ampere_device_memory_size_bytes{node,device}
        # HELP ampere_region_energy_joules Exclusive energy of a region on a rank (ranks view)
        # TYPE ampere_region_energy_joules counter
        # UNIT ampere_region_energy_joules joules
        ampere_region_energy_joules_total{node,rank,device,region}
        # HELP ampere_idle_energy_joules Energy used while no consumer of the view was active
        # TYPE ampere_idle_energy_joules counter
        # UNIT ampere_idle_energy_joules joules
        ampere_idle_energy_joules_total{node,device,view}
        # HELP ampere_lost_energy_joules Energy that cannot be attributed because of a counter reset or a gap in sampling
        # TYPE ampere_lost_energy_joules counter
        # UNIT ampere_lost_energy_joules joules
        ampere_lost_energy_joules_total{node,device}
        # HELP ampere_pending_energy_joules Energy that is not attributed to kernels yet, because GPU streams report late
        # TYPE ampere_pending_energy_joules gauge
        ampere_pending_energy_joules{node,device}
        # HELP ampere_region_calls Calls of a region on a rank's main location
        # TYPE ampere_region_calls counter
        ampere_region_calls_total{node,rank,region}
        # HELP ampere_region_time_seconds Exclusive time of a region on a rank's main location
        # TYPE ampere_region_time_seconds counter
        # UNIT ampere_region_time_seconds seconds
        ampere_region_time_seconds_total{node,rank,region}
        # HELP ampere_device_uncovered_seconds Time whose energy is unknown: the counter was reset, or its readings were impossible
        # TYPE ampere_device_uncovered_seconds counter
        ampere_device_uncovered_seconds_total{node,device}
        # HELP ampere_collector_cpu_seconds CPU time of the collector
        # TYPE ampere_collector_cpu_seconds counter
        # UNIT ampere_collector_cpu_seconds seconds
        ampere_collector_cpu_seconds_total{node}
        # HELP ampere_run_busy_cpu_seconds CPU time of the run's own processes on this node
        # TYPE ampere_run_busy_cpu_seconds counter
        # UNIT ampere_run_busy_cpu_seconds seconds
        ampere_run_busy_cpu_seconds_total{node}
        # HELP ampere_node_busy_cpu_seconds CPU time of all processes on the node since the collector started
        # TYPE ampere_node_busy_cpu_seconds counter
        # UNIT ampere_node_busy_cpu_seconds seconds
        ampere_node_busy_cpu_seconds_total{node}
        # HELP ampere_counter_stale 1 if a device's counter has not changed for long: it is frozen, or the device draws nothing
        # TYPE ampere_counter_stale gauge
        ampere_counter_stale{node,device}
        # HELP ampere_ring_fill_ratio Fill level of a rank's fullest ring
        # TYPE ampere_ring_fill_ratio gauge
        ampere_ring_fill_ratio{node,rank}
        # HELP ampere_lag_seconds Time by which attribution is behind the application
        # TYPE ampere_lag_seconds gauge
        ampere_lag_seconds{node}
        # HELP ampere_conservation_error_joules Difference between a device's energy and the sum of attributed, idle and lost energy; rounding only
        # TYPE ampere_conservation_error_joules gauge
        ampere_conservation_error_joules{node,device}
        # HELP ampere_collector_resident_bytes Resident memory of the collector
        # TYPE ampere_collector_resident_bytes gauge
        ampere_collector_resident_bytes{node}
        # HELP ampere_sampler_readings Successful readings of a device's counter
        # TYPE ampere_sampler_readings counter
        ampere_sampler_readings_total{node,device}
        # HELP ampere_sampler_failed_readings Failed readings of a device's counter
        # TYPE ampere_sampler_failed_readings counter
        ampere_sampler_failed_readings_total{node,device}
        # HELP ampere_sampler_deadlines Number of times that the sampler was due to wake up
        # TYPE ampere_sampler_deadlines counter
        ampere_sampler_deadlines_total{node}
        # HELP ampere_sampler_missed_deadlines Number of times that the sampler woke up more than a millisecond too late
        # TYPE ampere_sampler_missed_deadlines counter
        ampere_sampler_missed_deadlines_total{node}
        # HELP ampere_sampler_read_seconds Time that the readings of a device's counter took
        # TYPE ampere_sampler_read_seconds counter
        # UNIT ampere_sampler_read_seconds seconds
        ampere_sampler_read_seconds_total{node,device}
        # HELP ampere_sampler_cpu_seconds CPU time of the sampler
        # TYPE ampere_sampler_cpu_seconds counter
        # UNIT ampere_sampler_cpu_seconds seconds
        ampere_sampler_cpu_seconds_total{node}
        # HELP ampere_sampler_gauges_seconds Time that reading the devices' gauges took: power, temperature, memory
        # TYPE ampere_sampler_gauges_seconds counter
        # UNIT ampere_sampler_gauges_seconds seconds
        ampere_sampler_gauges_seconds_total{node}
        # HELP ampere_sampler_longest_late_seconds The longest delay of a wake-up of the sampler
        # TYPE ampere_sampler_longest_late_seconds gauge
        ampere_sampler_longest_late_seconds{node}
        # HELP ampere_sampler_update_seconds Observed time between two changes of a device's counter; 0 while it is unknown
        # TYPE ampere_sampler_update_seconds gauge
        ampere_sampler_update_seconds{node,device}
        # HELP ampere_build_info 1; the label version is the version of ampere
        # TYPE ampere_build_info gauge
        ampere_build_info{node,version}
        # HELP ampere_run_info 1; the labels are the run, its user and its start, and for the run's user or with a token also the command and the batch system's job
        # TYPE ampere_run_info gauge
        ampere_run_info{node,run,scheduler,job_id,command,user,start}
        # HELP ampere_events Enter and leave events taken from the rings
        # TYPE ampere_events counter
        ampere_events_total{node,rank}
        # HELP ampere_coalesced_calls Calls that were recorded together with others, without loss
        # TYPE ampere_coalesced_calls counter
        ampere_coalesced_calls_total{node,rank}
        # HELP ampere_suppressed_calls Calls whose enter and leave were left out because a ring was too full
        # TYPE ampere_suppressed_calls counter
        ampere_suppressed_calls_total{node,rank}
        # HELP ampere_unrecorded_calls Calls of locations without a ring, and of frames that were too deep; known when the process ends
        # TYPE ampere_unrecorded_calls counter
        ampere_unrecorded_calls_total{node,rank}
        # HELP ampere_unrecorded_kernels Kernels and copies on GPUs that are not recorded, because their times could not be read
        # TYPE ampere_unrecorded_kernels counter
        ampere_unrecorded_kernels_total{node,rank}
        # HELP ampere_dropped_records Records for which a ring had no space
        # TYPE ampere_dropped_records counter
        ampere_dropped_records_total{node,rank}
        # HELP ampere_late_events Events that came after their time had been attributed; counted for the whole node, on its first process
        # TYPE ampere_late_events counter
        ampere_late_events_total{node,rank}
        # HELP ampere_repaired_events Frames that had to be closed, and leaves that had to be left out, because a stream did not nest
        # TYPE ampere_repaired_events counter
        ampere_repaired_events_total{node,rank}
        # HELP ampere_damaged_records Records that could not be decoded
        # TYPE ampere_damaged_records counter
        ampere_damaged_records_total{node,rank}
        # HELP ampere_kernels_without_launch Kernels, copies and fills whose launch is not known, although the launches of others on their stream are: their call paths begin with themselves
        # TYPE ampere_kernels_without_launch counter
        ampere_kernels_without_launch_total{node,rank}
        # HELP ampere_left_out_definitions Definitions for which there was no space
        # TYPE ampere_left_out_definitions counter
        ampere_left_out_definitions_total{node,rank}
        # HELP ampere_counter_resets How often a device's counter was reset
        # TYPE ampere_counter_resets counter
        ampere_counter_resets_total{node,device}
        # HELP ampere_counter_wraps How often a device's counter wrapped, which was corrected
        # TYPE ampere_counter_wraps counter
        ampere_counter_wraps_total{node,device}
        # HELP ampere_sampling_gaps Sample intervals that were so long that their energy is lost
        # TYPE ampere_sampling_gaps counter
        ampere_sampling_gaps_total{node,device}
        # HELP ampere_unusable_samples Readings that were not numbers, came out of order or were impossible
        # TYPE ampere_unusable_samples counter
        ampere_unusable_samples_total{node,device}
        # EOF
    "#]].assert_eq(&shown);
}

/// Checks what each command line prints on standard error, and its exit status.
#[track_caller]
fn check_messages(place: &Place, command_lines: &[&str], expected: Expect) {
    let mut shown = String::new();
    for line in command_lines {
        let done = run(&mut place.ampere(line.split(' ')));
        assert_eq!(done.stdout, "", "{line}");
        let said = done.stderr.replace(&*place.path("").to_string_lossy(), "");
        shown += &format!("$ ampere {line}\n{said}[{}]\n\n", done.code);
    }
    expected.assert_eq(&shown);
}

#[test]
fn commands_that_cannot_be_run() {
    let place = Place::new();
    place.write("text", "not a program");
    place.script("no-interpreter", "#!/nonexistent/interpreter\n");
    let lines = [
        "run -o out -- ./absent",
        "run -o out -- absent-from-path",
        "run -o out -- ./text",
        "run -o out -- ./shm",
        "run -o out -- ./no-interpreter",
    ];
    check_messages(
        &place,
        &lines,
        expect![[r#"
        $ ampere run -o out -- ./absent
        ampere: cannot run ./absent: there is no such file
        [127]

        $ ampere run -o out -- absent-from-path
        ampere: cannot run absent-from-path: it is not in PATH
        [127]

        $ ampere run -o out -- ./text
        ampere: cannot run ./text: it is not executable (chmod +x)
        [126]

        $ ampere run -o out -- ./shm
        ampere: cannot run ./shm: it is a directory
        [126]

        $ ampere run -o out -- ./no-interpreter
        ampere: cannot run ./no-interpreter: No such file or directory (os error 2)
        [126]

    "#]],
    );
}

#[test]
fn mistakes_in_settings() {
    let place = Place::new();
    place.write("key.toml", "[attribution]\npolcy = \"busy_only\"\n");
    place.write("value.toml", "[attribution]\npolicy = \"fair\"\n");
    place.write("syntax.toml", "[attribution\n");
    place.write("regex.toml", "[[device]]\nname = \"x\"\nmetric = \"(\"\n");
    let lines = [
        "run --config key.toml -- true",
        "run --config value.toml -- true",
        "run --config syntax.toml -- true",
        "run --config regex.toml -- true",
        "run --config absent.toml -- true",
    ];
    check_messages(
        &place,
        &lines,
        expect![[r#"
            $ ampere run --config key.toml -- true
            ampere: key.toml:2: unknown key "polcy"; did you mean "policy"?
            [1]

            $ ampere run --config value.toml -- true
            ampere: value.toml:2: policy: "fair": use active, time_sliced or busy_only
            [1]

            $ ampere run --config syntax.toml -- true
            ampere: syntax.toml:1: unclosed table, expected `]`
            [1]

            $ ampere run --config regex.toml -- true
            ampere: regex.toml:3: metric: "(" is not a regular expression: unclosed group
            [1]

            $ ampere run --config absent.toml -- true
            ampere: cannot read the configuration absent.toml: No such file or directory (os error 2)
            [1]

        "#]],
    );
}

#[test]
fn traces_that_cannot_be_attributed() {
    let place = Place::new();
    place.write("empty.otf2", "");
    place.write("text.otf2", "This is a letter.\n");
    std::fs::create_dir(place.path("directory")).expect("a directory");
    small_trace::write(&place.path("idle"), "rank node0\n");
    let lines = [
        "attribute absent.otf2",
        "attribute empty.otf2",
        "attribute text.otf2",
        "attribute directory",
        "attribute idle/traces.otf2",
    ];
    check_messages(
        &place,
        &lines,
        expect![[r#"
        $ ampere attribute absent.otf2
        ampere: absent.otf2: no such file or directory
        [1]

        $ ampere attribute empty.otf2
        ampere: empty.otf2: not an OTF2 anchor file (traces.otf2): it is empty
        [1]

        $ ampere attribute text.otf2
        ampere: text.otf2: not an OTF2 anchor file (traces.otf2): it does not start like one
        [1]

        $ ampere attribute directory
        ampere: directory has no traces.otf2: name a trace
        [1]

        $ ampere attribute idle/traces.otf2
        ampere: idle/traces.otf2 has no metric, so it has no energy: --time gives a time profile; for energy measure with ampere run, or have Score-P record an energy counter (SCOREP_METRIC_PAPI, or a metric plugin)
        [1]

    "#]],
    );
}

#[test]
fn runs_that_are_not_there() {
    let (place, _) = attributed();
    std::fs::create_dir(place.path("empty")).expect("a directory");
    let lines = [
        "report absent",
        "report empty",
        "report .",
        "report out --device GPU-7",
        "report out -o absent/file",
        "top",
        "top empty",
        "recover absent",
        "recover empty",
        "compare out absent",
    ];
    check_messages(
        &place,
        &lines,
        expect![[r#"
            $ ampere report absent
            ampere: cannot read absent/summary.json: No such file or directory (os error 2): name an output directory of ampere run
            [1]

            $ ampere report empty
            ampere: cannot read empty/summary.json: No such file or directory (os error 2): name an output directory of ampere run
            [1]

            $ ampere report .
            ampere: cannot read ./summary.json: No such file or directory (os error 2): name an output directory of ampere run: ./out
            [1]

            $ ampere report out --device GPU-7
            ampere: there is no device "GPU-7"; known are GPU-0, cpu_energy
            [1]

            $ ampere report out -o absent/file
            ampere: cannot write absent/file: No such file or directory (os error 2)
            [1]

            $ ampere top
            ampere: you have no run on this node: name an output directory or a collector's address
            [1]

            $ ampere top empty
            ampere: no run is active in empty: it has no collector.json with an address
            [1]

            $ ampere recover absent
            ampere: there is no absent: name an output directory of a run that was killed
            [1]

            $ ampere recover empty
            ampere: there is nothing to recover in empty: no spool-<node> of a run that was killed
            [1]

            $ ampere compare out absent
            ampere: cannot read absent/summary.json: No such file or directory (os error 2): name an output directory of ampere run
            [1]

        "#]],
    );
}

/// Returns a line of `ampere doctor` without figures that change between two calls.
fn masked(line: &str) -> String {
    let mask = |part: &str| match part {
        part if part.contains("moves every ") => {
            format!("{}moves every #", part.split("moves every ").next().unwrap_or_default())
        }
        part if part.ends_with(" W now") => "# W now".to_owned(),
        part => part.to_owned(),
    };
    line.split(", ").map(mask).collect::<Vec<_>>().join(", ")
}

/// A node with two GPUs, one of which has a counter that stands still.
#[test]
fn doctor() {
    let place = Place::new();
    let mut command = place.ampere(["doctor"]);
    with_rocm_smi(&mut command, "watts=300,150;step_ms=40;freeze=1@0-9").env_remove("AMPERE_COUNTERS");
    command.env("AMPERE_SYS_ROOT", place.made_up_node()).env("AMPERE_POLICIE", "busy_only");
    let done = run(&mut command);
    // The other groups depend on this machine, and so does its NVIDIA driver.
    let mut shown = String::new();
    let mut is_shown = false;
    for line in done.stdout.lines().filter(|line| !line.is_empty() && !line.contains(" nvml ")) {
        if !line.starts_with(' ') {
            is_shown = ["counters", "settings"].contains(&line);
        }
        if is_shown {
            shown += &masked(line);
            shown.push('\n');
        }
    }
    let built = ampere_tests::jobs::built();
    let shown =
        shown.replace(&*built.to_string_lossy(), "BUILT").replace(&*place.path("").to_string_lossy(), "");
    expect![[r#"
        counters
          ok       rocm_smi        2 devices, used by a run; rocm_smi 5.0.0 ampere stand-in, BUILT/libstand_in_rocm_smi64.so
          ok       rocm_smi GPU-0  moves every #, # W now, in steps of 15.3 uJ, simulated, Stand-in GPU, rocm_smi 5.0.0 ampere stand-in
          note     rocm_smi GPU-1  did not move in 1 s, in steps of 15.3 uJ, simulated, Stand-in GPU, rocm_smi 5.0.0 ampere stand-in -> its joules come late or not at all; try again under load
          note     amdsmi          no AMD GPU in node/sys/class/kfd/kfd/topology/nodes
          note     cray_pm         no node/sys/cray/pm_counters
          note     rapl            no intel-rapl in node/sys/class/powercap
          note     perf            no node/sys/bus/event_source/devices/power
          note     hwmon           no usable sensor in node/sys/class/hwmon
          note     custom          the settings have no [[source]]
          ok       estimate        1 device, not used by a run: there are counters
          ok       estimate node   moves every #, # W now, in steps of 1 nJ, estimated, 100 W and 4 W per busy core, CPU time from node/proc/stat
          ok       a run reads     rocm_smi
        settings
          ok       file                     none: the defaults apply
          ok       AMPERE_LISTEN            127.0.0.1:0
          note     AMPERE_POLICIE           is not known and has no effect -> did you mean AMPERE_POLICY?
          ok       AMPERE_ROCM_SMI_LIBRARY  BUILT/libstand_in_rocm_smi64.so
          ok       AMPERE_SAMPLE            off
          ok       AMPERE_SHM               shm
          ok       AMPERE_SPOOL_DIRECTORY   tmp/spool
          ok       AMPERE_SYS_ROOT          node
    "#]].assert_eq(&shown);
}
