//! The script of a stand-in's variable (`STAND_IN_ROCM_SMI`, `STAND_IN_AMD_SMI`, `STAND_IN_NVML`), and what a counter shows at a
//! given time. A status is a number of the library's own.
//!
//! | entry | meaning |
//! | --- | --- |
//! | `watts=300,150` | power by device; without `devices` it also gives their number. Default `100`. `300/90@0.5` is a square wave: 300 W for half a second, 90 W for the next |
//! | `devices=4` | number of devices; powers are repeated in turn |
//! | `resolution=15.3` | microjoules per tick, as the library reports it |
//! | `epoch=12.5` | time zero of the entries below, seconds of CLOCK_MONOTONIC; default is the time of `rsmi_init` |
//! | `init=8`, `count=2` | status that the library's init, and its count of devices, return |
//! | `error=1:4` | device 1's energy read returns status 4 |
//! | `zero=1`, `zero=odd` | the counter, and its timestamp, stay 0 |
//! | `first_zero=0` | the first read of device 0 shows 0 |
//! | `no_timestamp=0` | device 0 has no timestamp (it is 0) |
//! | `reset=0@2.5` | the counter restarts from 0 at 2.5 s |
//! | `freeze=0@1-2` | from 1 s to 2 s the counter and its timestamp stand still, then catch up |
//! | `asleep=0@1-2` | from 1 s to 2 s reading device 0 shows 0; its counter continues in the meantime |
//! | `gone=1@3`, `gone=1@3-4` | from 3 s on (until 4 s), reading device 1 returns the status of a device that is lost |
//! | `jump=0@2` | from 2 s on, the counter is higher by 1 GJ |
//! | `lag_ms=120,30` | delays by device, repeated in turn: a counter shows an earlier value with the present timestamp |
//! | `step_ms=15` | counters move every 15 ms only |
//! | `play=DIRECTORY` | energies are those of the files there, one value after the other: see `played.rs` |
//! | `partitions=1` | all devices are partitions of one package: they have one address, and a function number each |
//! | `slow_us=500` | an energy read takes this much longer; the thread sleeps |
//! | `busy_us=20` | an energy read takes this much longer; the thread uses the CPU |
//! | `gauge=0:edge:41.5` | a gauge of device 0: `power` (mean) and `socket` in watts, `edge`, `junction`, `memory` and `gpu` in degrees, `busy` in percent, `used` and `total` in bytes |
//! | `gauge_error=0:edge:2` | reading that gauge returns status 2 |
//! | `gauge_us=3000` | reading a gauge takes this much longer; the thread sleeps |
//! | `crash=read` | a device's tenth energy read is a segmentation fault; likewise `crash=init`, `crash=end` (the shut-down) |
//! | `hang=read` | a device's tenth energy read never returns; likewise `hang=init`, `hang=end` |
//!
//! Entries with a device may be given several times. Lists are separated by commas.

use crate::gauges::Gauges;

/// A constant power, or a square wave, in watts over CLOCK_MONOTONIC.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wave {
    pub high: f64,
    pub low: f64,
    /// Seconds at each level; infinite for a constant power.
    pub half: f64,
}

impl Wave {
    /// Power at `t` seconds, in watts.
    pub fn watts(&self, t: f64) -> f64 {
        if self.half.is_infinite() || ((t / self.half) as u64).is_multiple_of(2) {
            self.high
        } else {
            self.low
        }
    }

    /// Energy from 0 to `t` seconds, in joules: whole half-periods by their number, the rest by its level.
    pub fn joules(&self, t: f64) -> f64 {
        if self.half.is_infinite() {
            return self.high * t;
        }
        let halves = (t / self.half).floor();
        let lows = (halves / 2.0).floor();
        (halves - lows) * self.half * self.high
            + lows * self.half * self.low
            + (t - halves * self.half) * self.watts(t)
    }
}

/// One device of the script. Times are seconds after the epoch.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    pub wave: Wave,
    pub error: u32,
    pub zero: bool,
    pub first_zero: bool,
    pub no_timestamp: bool,
    pub reset: Option<f64>,
    pub freeze: Option<(f64, f64)>,
    pub asleep: Option<(f64, f64)>,
    pub gone: Option<(f64, f64)>,
    pub jump: Option<f64>,
    /// The counter's delay in seconds.
    pub lag: f64,
    pub gauges: Gauges,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Script {
    pub devices: Vec<Device>,
    pub resolution_microjoules: f32,
    pub epoch: Option<f64>,
    pub init_status: u32,
    pub count_status: u32,
    pub slow_us: u64,
    pub busy_us: u64,
    pub gauge_us: u64,
    pub crash: Option<Moment>,
    pub hang: Option<Moment>,
    /// Seconds between two changes of a counter; 0 for a counter that changes all the time.
    pub step: f64,
    /// Whether all devices are partitions of one package.
    pub partitions: bool,
    /// The directory with the readings that are shown.
    pub play: Option<String>,
}

/// The moment at which a library crashes or hangs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    Init,
    Read,
    End,
}

/// The result of a read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reading {
    Counter { ticks: u64, timestamp_ns: u64 },
    Error(u32),
    Gone,
}

impl Script {
    /// Parses the entries in the table above. The error names the wrong entry.
    pub fn parse(text: &str) -> Result<Script, String> {
        let entries: Vec<(&str, &str)> = text
            .split(';')
            .map(str::trim)
            .filter(|entry| !entry.is_empty())
            .map(|entry| entry.split_once('=').ok_or_else(|| format!("{entry:?} is not key=value")))
            .collect::<Result<_, _>>()?;
        let find = |key: &str| entries.iter().rev().find(|(k, _)| *k == key).map(|(_, value)| *value);
        let waves: Vec<Wave> =
            find("watts").unwrap_or("100").split(',').map(parse_wave).collect::<Result<_, _>>()?;
        let lags: Vec<f64> =
            find("lag_ms").unwrap_or("0").split(',').map(number).collect::<Result<_, _>>()?;
        let count = find("devices").map(number::<usize>).transpose()?.unwrap_or(waves.len());
        let mut script = Script {
            devices: (0..count)
                .map(|i| Device {
                    wave: waves[i % waves.len()],
                    error: 0,
                    zero: false,
                    first_zero: false,
                    no_timestamp: false,
                    reset: None,
                    freeze: None,
                    asleep: None,
                    gone: None,
                    jump: None,
                    lag: lags[i % lags.len()] * 1e-3,
                    gauges: Gauges::default(),
                })
                .collect(),
            resolution_microjoules: 15.3,
            epoch: None,
            init_status: 0,
            count_status: 0,
            slow_us: 0,
            busy_us: 0,
            gauge_us: 0,
            crash: None,
            hang: None,
            step: 0.0,
            partitions: false,
            play: None,
        };
        for (key, value) in entries {
            script.apply(key, value)?;
        }
        Ok(script)
    }

    fn apply(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "watts" | "devices" | "lag_ms" => {}
            "resolution" => self.resolution_microjoules = number(value)?,
            "epoch" => self.epoch = Some(number(value)?),
            "init" => self.init_status = number(value)?,
            "count" => self.count_status = number(value)?,
            "slow_us" => self.slow_us = number(value)?,
            "busy_us" => self.busy_us = number(value)?,
            "gauge_us" => self.gauge_us = number(value)?,
            "crash" => self.crash = Some(moment(value)?),
            "hang" => self.hang = Some(moment(value)?),
            "step_ms" => self.step = number::<f64>(value)? * 1e-3,
            "play" => self.play = Some(value.to_owned()),
            "partitions" => self.partitions = number::<u32>(value)? != 0,
            "zero" if value == "odd" => {
                self.devices.iter_mut().skip(1).step_by(2).for_each(|device| device.zero = true);
            }
            "error" | "zero" | "first_zero" | "no_timestamp" | "reset" | "freeze" | "asleep" | "gone"
            | "jump" | "gauge" | "gauge_error" => {
                for one in value.split(',') {
                    self.apply_to_device(key, one)?;
                }
            }
            _ => return Err(format!("{key:?} is not known")),
        }
        Ok(())
    }

    fn apply_to_device(&mut self, key: &str, value: &str) -> Result<(), String> {
        let (index, rest) = value.split_once([':', '@']).unwrap_or((value, ""));
        let device = self
            .devices
            .get_mut(number::<usize>(index)?)
            .ok_or_else(|| format!("{key}={value}: no such device"))?;
        match key {
            "error" => device.error = number(rest)?,
            "gauge" | "gauge_error" => device.gauges.apply(rest, key == "gauge_error")?,
            "zero" => device.zero = true,
            "first_zero" => device.first_zero = true,
            "no_timestamp" => device.no_timestamp = true,
            "reset" => device.reset = Some(number(rest)?),
            "jump" => device.jump = Some(number(rest)?),
            "gone" => {
                let (from, to) = rest.split_once('-').unwrap_or((rest, "inf"));
                device.gone = Some((number(from)?, number(to)?));
            }
            _ => {
                let (from, to) = rest.split_once('-').ok_or_else(|| format!("{key}={value}: no FROM-TO"))?;
                let times = Some((number(from)?, number(to)?));
                if key == "asleep" {
                    device.asleep = times;
                } else {
                    device.freeze = times;
                }
            }
        }
        Ok(())
    }

    /// The result of a read of a device `monotonic` seconds after boot, `t` seconds after the epoch.
    pub fn reading(&self, index: usize, monotonic: f64, t: f64, first: bool) -> Reading {
        let device = &self.devices[index];
        if device.error != 0 {
            return Reading::Error(device.error);
        }
        if device.gone.is_some_and(|(from, to)| (from..to).contains(&t)) {
            return Reading::Gone;
        }
        if device.zero || device.asleep.is_some_and(|(from, to)| (from..to).contains(&t)) {
            return Reading::Counter { ticks: 0, timestamp_ns: 0 };
        }
        // A frozen counter shows its value at the time when it froze.
        let shown = match device.freeze {
            Some((from, to)) if (from..to).contains(&t) => from,
            _ => t,
        };
        let at = monotonic - (t - shown);
        let at = if self.step > 0.0 { (at / self.step).floor() * self.step } else { at };
        let joules_at = |time: f64| device.wave.joules((time - device.lag).max(0.0));
        let mut joules = joules_at(at);
        if let Some(reset) = device.reset.filter(|reset| shown >= *reset) {
            joules -= joules_at(monotonic - (t - reset));
        }
        if device.jump.is_some_and(|from| shown >= from) {
            joules += 1e9;
        }
        let ticks = if first && device.first_zero {
            0
        } else {
            (joules / (f64::from(self.resolution_microjoules) * 1e-6)) as u64
        };
        let timestamp_ns = if device.no_timestamp { 0 } else { (at * 1e9) as u64 };
        Reading::Counter { ticks, timestamp_ns }
    }
}

pub(crate) fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.trim().parse().map_err(|_| format!("{text:?} is not a number that fits here"))
}

fn moment(text: &str) -> Result<Moment, String> {
    match text {
        "init" => Ok(Moment::Init),
        "read" => Ok(Moment::Read),
        "end" => Ok(Moment::End),
        _ => Err(format!("{text:?}: use init, read or end")),
    }
}

fn parse_wave(text: &str) -> Result<Wave, String> {
    match text.split_once('/') {
        None => Ok(Wave { high: number(text)?, low: 0.0, half: f64::INFINITY }),
        Some((high, rest)) => {
            let (low, half) =
                rest.split_once('@').ok_or_else(|| format!("watts={text}: no HIGH/LOW@SECONDS"))?;
            let half: f64 = number(half)?;
            if half.is_nan() || half <= 0.0 {
                return Err(format!("watts={text}: the half period must be above 0"));
            }
            Ok(Wave { high: number(high)?, low: number(low)?, half })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks(script: &Script, device: usize, monotonic: f64, t: f64) -> u64 {
        match script.reading(device, monotonic, t, false) {
            Reading::Counter { ticks, .. } => ticks,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_square_wave_holds_the_energy_of_its_levels() {
        let wave = parse_wave("300/90@0.5").unwrap();
        assert_eq!(wave.joules(1.0), 195.0);
        assert_eq!(wave.joules(1.25), 195.0 + 75.0);
        assert_eq!(wave.joules(1.75), 195.0 + 150.0 + 22.5);
    }

    #[test]
    fn reset_and_freeze_follow_the_script() {
        let script = Script::parse("watts=10,20;resolution=1000000;reset=0@2;freeze=1@1-2;gone=1@5").unwrap();
        assert_eq!(ticks(&script, 0, 101.9, 1.9), 1019);
        assert_eq!(ticks(&script, 0, 103.0, 3.0), 10);
        assert_eq!(ticks(&script, 1, 101.9, 1.9), 2020);
        assert_eq!(ticks(&script, 1, 103.0, 3.0), 2060);
        assert_eq!(script.reading(1, 105.0, 5.0, false), Reading::Gone);
    }

    #[test]
    fn a_counter_that_lags_shows_an_earlier_value() {
        let script =
            Script::parse("watts=300/90@0.5,10;resolution=1000000;lag_ms=250,0;step_ms=500").unwrap();
        for (now, ago) in [(101.25, 100.75), (101.5, 101.25)] {
            assert_eq!(ticks(&script, 0, now, now), script.devices[0].wave.joules(ago) as u64);
        }
        assert_eq!(ticks(&script, 1, 101.5, 1.5), 1015);
        assert!(matches!(
            script.reading(0, 101.5, 1.5, false),
            Reading::Counter { timestamp_ns: 101_500_000_000, .. }
        ));
        assert!(Script::parse("lag_ms=x").is_err());
    }

    #[test]
    fn gauges_follow_the_script() {
        let script = Script::parse("devices=2;gauge=1:edge:90,1:busy:5;gauge_error=0:edge:2").unwrap();
        assert_eq!(script.devices[0].gauges.get("edge", 100.0), Err(2));
        assert_eq!(script.devices[1].gauges.get("edge", 100.0), Ok(90.0));
        assert_eq!(script.devices[1].gauges.get("busy", 100.0), Ok(5.0));
        assert_eq!(script.devices[1].gauges.get("power", 100.0), Ok(100.0));
    }

    #[test]
    fn a_wrong_entry_of_a_script_is_named() {
        assert!(Script::parse("wats=3").unwrap_err().contains("wats"));
        assert!(Script::parse("error=7:2").unwrap_err().contains("no such device"));
        assert!(Script::parse("watts=x").is_err());
        assert!(Script::parse("gauge=0:wings:2").unwrap_err().contains("\"wings\" is not known"));
        assert!(Script::parse("gauge=1:edge:2").unwrap_err().contains("no such device"));
        assert!(Script::parse("crash=1").unwrap_err().contains("use init, read or end"));
    }
}
