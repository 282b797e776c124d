//! Simulates AMD GPUs for the real librocm_smi64, by files in a separate mount namespace (needs root).
//!
//! [`wanted`] lists the powers, one for each GPU: `300`, or `300/90@0.5` for 300 W and 90 W alternating every half second
//! ([`Power`]). The GPU's energy accumulator advances at this power by the driver's clock, in the ticks of 15.3 uJ that
//! librocm_smi64 5.2.3 reports. `dual` makes MI250X packages: two devices for each power, the second of which stays at 0. `bare`
//! omits the files of power, temperatures, load and memory; `headless` omits `hwmon` entirely.
//!
//! It tests our side of the interface: loading, functions, units, timestamps. It proves nothing about AMD's hardware. Layout: the
//! kernel's kgd_pp_interface.h (gpu_metrics v1.3), KFD topology, hwmon.

use std::fs::File;
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use super::put;

/// The variable that describes the GPUs to a child: the powers, `;`, and one of the words above or nothing.
const WANTED: &str = "AMPERE_MADE_UP_GPUS";
const TICK_MICROJOULES: f64 = 15.3;
const PERIOD: Duration = Duration::from_millis(1);

/// Returns the command under which a child must run so that [`serve`] can give it such GPUs; `None`, with a message, if that is
/// not possible.
pub fn command() -> Option<[&'static str; 2]> {
    let may_mount = Command::new("unshare").args(["-m", "true"]).output();
    if !may_mount.is_ok_and(|output| output.status.success()) {
        println!("skipped: needs root, and to be allowed to mount");
        return None;
    }
    Some(["unshare", "-m"])
}

/// Returns the variable that describes the GPUs.
pub fn wanted(watts: &str, how: &str) -> (&'static str, String) {
    (WANTED, format!("{watts};{how}"))
}

/// In a process that was started with [`command`] and [`wanted`], makes the tree, lets its counters run, and runs `then` in it.
/// In any other process, only runs `then`.
pub fn serve(then: impl FnOnce()) {
    let Ok(wanted) = std::env::var(WANTED) else { return then() };
    // The library's locks are in /dev/shm. If a process ends while it holds one, no other process can use that lock.
    for place in ["/sys", "/dev/shm"] {
        let mounted = Command::new("mount").args(["-t", "tmpfs", "tmpfs", place]).status();
        assert!(mounted.is_ok_and(|status| status.success()));
    }
    let (watts, how) = wanted.split_once(';').unwrap();
    put(Path::new("/sys/class/kfd/kfd/topology/nodes/0/gpu_id"), "0\n");
    put(Path::new("/sys/class/kfd/kfd/topology/nodes/0/properties"), "vendor_id 0\n");
    std::fs::create_dir_all("/sys/class/kfd/kfd/topology/nodes/0/io_links").unwrap();
    let mut gpus = Vec::new();
    let mut count = 0;
    for power in watts.split(',') {
        gpus.push(Gpu { metrics: make_gpu(count, how), power: Power::parse(power) });
        count += 1;
        if how == "dual" {
            make_gpu(count, how);
            count += 1;
        }
    }
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let (first, counts) = channel();
    let counting = std::thread::spawn(move || count_energy(gpus, &stopped, &first));
    counts.recv().unwrap();
    std::thread::sleep(Duration::from_millis(50));
    then();
    stop.store(true, Ordering::Relaxed);
    counting.join().unwrap();
}

/// Two powers, in watts, that alternate from the clock's zero on, so that the energy depends only on time.
pub struct Power {
    high: f64,
    low: f64,
    /// The seconds for which each of them lasts.
    half_period: f64,
}

impl Power {
    pub fn parse(text: &str) -> Power {
        let number = |text: &str| text.parse::<f64>().unwrap();
        match text.split_once('/') {
            None => Power { high: number(text), low: 0.0, half_period: f64::INFINITY },
            Some((high, rest)) => {
                let (low, half) = rest.split_once('@').unwrap();
                Power { high: number(high), low: number(low), half_period: number(half) }
            }
        }
    }

    fn watts(&self, seconds: f64) -> f64 {
        if ((seconds / self.half_period) as u64).is_multiple_of(2) { self.high } else { self.low }
    }

    /// Returns the energy since the clock's zero.
    pub fn joules(&self, clock_ns: u64) -> f64 {
        let seconds = clock_ns as f64 * 1e-9;
        let halves = (seconds / self.half_period).floor();
        if halves < 1.0 {
            return self.high * seconds;
        }
        let whole = (self.high + self.low) * self.half_period * (halves / 2.0).floor();
        let odd = if halves % 2.0 == 1.0 { self.high * self.half_period } else { 0.0 };
        whole + odd + self.watts(seconds) * (seconds - halves * self.half_period)
    }
}

struct Gpu {
    metrics: File,
    power: Power,
}

fn count_energy(gpus: Vec<Gpu>, stop: &AtomicBool, counted: &Sender<()>) {
    let begin_ns = super::monotonic_ns();
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(PERIOD);
        let clock_ns = super::monotonic_ns();
        for gpu in &gpus {
            let watts = gpu.power.watts(clock_ns as f64 * 1e-9);
            let joules = gpu.power.joules(clock_ns) - gpu.power.joules(begin_ns);
            // The offsets are 22 for the power (u16), 24 for the accumulator, 32 for the driver's clock (ns), 96 for the
            // firmware's time (10 ns). All are written at once, as by a driver: otherwise a reader may find an old energy with a
            // new time.
            let ticks = 1_000_000 + (joules * 1e6 / TICK_MICROJOULES) as u64;
            let mut block = [0; 104 - 22];
            block[..2].copy_from_slice(&(watts as u16).to_le_bytes());
            block[2..10].copy_from_slice(&ticks.to_le_bytes());
            block[10..18].copy_from_slice(&clock_ns.to_le_bytes());
            block[74..].copy_from_slice(&(clock_ns / 10).to_le_bytes());
            gpu.metrics.write_all_at(&block, 22).unwrap();
        }
        let _ = counted.send(());
    }
}

/// Makes the files of one GPU that the library reads. Returns the file `gpu_metrics`, which the caller keeps up to date.
fn make_gpu(i: u32, how: &str) -> File {
    let address = format!("0000:{:02x}:00.0", i + 3);
    let pci = PathBuf::from(format!("/sys/devices/pci0000:00/{address}"));
    let hwmon = pci.join(format!("hwmon/hwmon{i}"));
    for (name, text) in [
        ("vendor", "0x1002\n"),
        ("device", "0x740c\n"),
        ("vbios_version", "113-D65-1\n"),
        ("unique_id", "1234abcd\n"),
    ] {
        put(&pci.join(name), text);
    }
    for (name, text) in [("name", "amdgpu\n"), ("in0_label", "vddgfx\n"), ("in0_input", "800\n")] {
        put(&hwmon.join(name), text);
    }
    if how.is_empty() || how == "dual" {
        for (name, text) in [
            ("gpu_busy_percent", "37\n"),
            ("mem_busy_percent", "12\n"),
            ("mem_info_vram_total", "68702699520\n"),
            ("mem_info_vram_used", "1073741824\n"),
        ] {
            put(&pci.join(name), text);
        }
        for (name, text) in [
            ("power1_average", "90000000\n"),
            ("temp1_input", "41000\n"),
            ("temp1_label", "edge\n"),
            ("temp2_input", "55500\n"),
            ("temp2_label", "junction\n"),
            ("temp3_input", "48000\n"),
            ("temp3_label", "mem\n"),
        ] {
            put(&hwmon.join(name), text);
        }
    }
    let headless = how == "headless";
    if headless {
        std::fs::remove_dir_all(pci.join("hwmon")).unwrap();
    }
    let card = pci.join(format!("drm/card{i}"));
    std::fs::create_dir_all(&card).unwrap();
    let up = format!("../../../{address}");
    symlink(&up, card.join("device")).unwrap();
    if !headless {
        symlink(&up, hwmon.join("device")).unwrap();
    }
    for (class, below) in [("drm", format!("drm/card{i}")), ("hwmon", format!("hwmon/hwmon{i}"))] {
        if headless && class == "hwmon" {
            continue;
        }
        let folder = Path::new("/sys/class").join(class);
        std::fs::create_dir_all(&folder).unwrap();
        let link = folder.join(below.rsplit('/').next().unwrap());
        symlink(format!("../../devices/pci0000:00/{address}/{below}"), link).unwrap();
    }
    let node = PathBuf::from(format!("/sys/class/kfd/kfd/topology/nodes/{}", i + 1));
    put(&node.join("gpu_id"), &format!("{}\n", 4660 + i));
    put(&node.join("name"), "aldebaran\n");
    std::fs::create_dir_all(node.join("mem_banks")).unwrap();
    put(
        &node.join("properties"),
        &format!(
            "simd_count 440\nlocation_id {}\ndomain 0\nvendor_id 4098\ndevice_id 29708\nunique_id {}\nhive_id 0\n\
             num_xcc 1\nsimd_arrays_per_engine 1\ncu_per_simd_array 14\nsimd_per_cu 4\narray_count 8\n\
             io_links_count 0\n",
            (i + 3) << 8,
            305_441_741 + i
        ),
    );
    put(
        &node.join("io_links/0/properties"),
        &format!(
            "type 2\nversion_major 0\nversion_minor 0\nnode_from {}\nnode_to 0\nweight 20\nmin_latency 0\n\
             max_latency 0\nmin_bandwidth 312\nmax_bandwidth 64000\nrecommended_transfer_size 0\nflags 1\n",
            i + 1
        ),
    );
    // The structure has 120 bytes, format 1, content 3.
    let mut metrics = [0u8; 120];
    metrics[..4].copy_from_slice(&[120, 0, 1, 3]);
    std::fs::write(pci.join("gpu_metrics"), metrics).unwrap();
    File::options().write(true).open(pci.join("gpu_metrics")).unwrap()
}
