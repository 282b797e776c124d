//! Which sources are opened: those that are named, or all that the node has, without any counter twice.

use crate::{
    Kind, Opened, Settings, Source, Trouble, amdsmi, cray_pm, estimate, hwmon, nvml, rapl, relations,
    rocm_smi,
};

/// Opens the sources that `settings.names` names, in that order; with `None`, all that the node has, and the estimate if
/// it has none. May take up to 20 ms for each library; see [`Settings::names`] to leave a source out.
pub fn open_sources(settings: &Settings) -> Opened {
    let mut opened = Opened::default();
    match &settings.names {
        Some(names) => opened.open_named(names, settings),
        None => opened.open_all(settings),
    }
    relations::relate(&mut opened.sources, &settings.sys_root);
    opened
}

impl Opened {
    fn open_named(&mut self, names: &[&'static str], settings: &Settings) {
        let mut trouble = Trouble::default();
        for name in names {
            // AMD's two libraries have the same counters: the one that is named first is opened.
            let twin = match *name {
                rocm_smi::NAME => Some(amdsmi::NAME),
                amdsmi::NAME => Some(rocm_smi::NAME),
                _ => None,
            };
            if let Some(twin) = twin.filter(|twin| self.has(twin)) {
                trouble.notes.push(format!("{name}: left out: {twin} has the same counters"));
                continue;
            }
            self.open_one(name, settings, &mut trouble);
        }
        // A source that was asked for by name and is absent is worth a note.
        self.notes.append(&mut trouble.notes);
        self.notes.append(&mut trouble.absent);
    }

    /// rocm_smi comes before amdsmi, which asks the driver by the same code: it has had one interface since ROCm 3, while
    /// amdsmi's has changed with most releases, and its numbers are those that traces and `[[device]]` know GPUs by.
    fn open_all(&mut self, settings: &Settings) {
        let mut trouble = Trouble::default();
        self.open_one(rocm_smi::NAME, settings, &mut trouble);
        if !self.has(rocm_smi::NAME) {
            self.open_one(amdsmi::NAME, settings, &mut trouble);
        }
        for name in [nvml::NAME, cray_pm::NAME, rapl::NAME, hwmon::NAME] {
            self.open_one(name, settings, &mut trouble);
        }
        self.notes.append(&mut trouble.notes);
        self.absent.append(&mut trouble.absent);
        if self.sources.is_empty() {
            self.notes.push("no energy counter was found: energy is estimated from CPU time".to_owned());
            self.open_one(estimate::NAME, settings, &mut trouble);
            self.notes.append(&mut trouble.notes);
        }
    }

    fn has(&self, name: &str) -> bool {
        self.sources.iter().any(|source| source.name() == name)
    }

    fn open_one(&mut self, name: &str, settings: &Settings, trouble: &mut Trouble) {
        fn boxed<S: Source + 'static>(source: Option<S>) -> Option<Box<dyn Source>> {
            source.map(|source| Box::new(source) as Box<dyn Source>)
        }
        let source = match name {
            rocm_smi::NAME => boxed(rocm_smi::open(settings, trouble)),
            amdsmi::NAME => boxed(amdsmi::open(settings, trouble)),
            nvml::NAME => boxed(nvml::open(settings, trouble)),
            cray_pm::NAME => boxed(cray_pm::open(settings, trouble)),
            rapl::NAME => boxed(rapl::open(settings, trouble)),
            hwmon::NAME => boxed(hwmon::open(settings, self.known_to_hwmon(), trouble)),
            estimate::NAME => boxed(estimate::open(settings, &mut trouble.notes)),
            _ => None,
        };
        self.sources.extend(source);
    }

    /// hwmon shows again what better sources have.
    fn known_to_hwmon(&self) -> hwmon::Known {
        let devices = || self.sources.iter().flat_map(|source| source.devices());
        hwmon::Known {
            amd_gpus: self.has(rocm_smi::NAME) || self.has(amdsmi::NAME),
            packages: devices().any(|d| d.source == rapl::NAME && d.kind == Kind::Cpu),
            node: devices().any(|d| d.source == cray_pm::NAME && d.kind == Kind::Node),
        }
    }
}
