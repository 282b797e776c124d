//! Selects the sources to open: those that are named, or all that the node has, without opening any counter twice.

use crate::{
    Kind, OpenErrors, Opened, Settings, Source, amdsmi, cray_pm, custom, estimate, hwmon, nvml, perf, rapl,
    relations, rocm_smi,
};

/// Opens the sources that `settings.names` names, in that order; with `None`, all that the node has, and the estimate if it has
/// none. This may take up to 20 ms for each library; [`Settings::names`] can exclude a source.
pub fn open_sources(settings: &Settings) -> Opened {
    let mut opened = Opened::default();
    match &settings.names {
        Some(names) => opened.open_named(names, settings),
        None => opened.open_all(settings),
    }
    let doubts = relations::relate(&mut opened.sources, settings);
    let mut devices = opened.sources.iter().flat_map(|source| source.devices()).peekable();
    // A node's counter contains the energy that the other sources would have counted, and so does the estimate.
    opened.is_incomplete &= devices.peek().is_some() && devices.all(|device| device.kind != Kind::Node);
    opened.is_incomplete |= !doubts.is_empty();
    opened.notes.extend(doubts);
    opened
}

impl Opened {
    fn open_named(&mut self, names: &[&'static str], settings: &Settings) {
        let mut errors = OpenErrors::default();
        for name in names {
            // AMD's two libraries have the same counters, and so have RAPL's files and perf. The first that can be opened is
            // used.
            let twin = match *name {
                rocm_smi::NAME => Some(amdsmi::NAME),
                amdsmi::NAME => Some(rocm_smi::NAME),
                rapl::NAME => Some(perf::NAME),
                perf::NAME => Some(rapl::NAME),
                _ => None,
            };
            if let Some(twin) = twin.filter(|twin| self.has(twin)) {
                errors.notes.push(format!("{name}: not used: {twin} has the same counters"));
                continue;
            }
            self.open_one(name, settings, &mut errors);
        }
        self.is_incomplete |= errors.has_unreadable;
        // A source that was requested by name and is absent deserves a note.
        self.notes.append(&mut errors.notes);
        self.notes.append(&mut errors.absent);
    }

    /// Opens all sources. Before ROCm 7, rocm_smi comes before amdsmi, which reads from the driver with the same code: rocm_smi
    /// has had one interface since ROCm 3, while amdsmi's has changed with most releases. Since ROCm 7, rocm_smi is no longer
    /// maintained, and ROCm 10 does not have it.
    fn open_all(&mut self, settings: &Settings) {
        let mut errors = OpenErrors::default();
        let (first, second) = match amdsmi::is_preferred(settings) {
            true => (amdsmi::NAME, rocm_smi::NAME),
            false => (rocm_smi::NAME, amdsmi::NAME),
        };
        self.open_one(first, settings, &mut errors);
        if !self.has(first) {
            self.open_one(second, settings, &mut errors);
        }
        for name in [nvml::NAME, cray_pm::NAME, rapl::NAME] {
            self.open_one(name, settings, &mut errors);
        }
        self.open_perf(settings, &mut errors);
        for name in [hwmon::NAME, custom::NAME] {
            self.open_one(name, settings, &mut errors);
        }
        self.is_incomplete |= errors.has_unreadable;
        self.notes.append(&mut errors.notes);
        self.absent.append(&mut errors.absent);
        if self.sources.is_empty() {
            self.notes.push("no energy counter was found: energy is estimated from CPU time".to_owned());
            self.open_one(estimate::NAME, settings, &mut errors);
            self.notes.append(&mut errors.notes);
        }
    }

    /// Opens perf's counters if RAPL's files show no package. They are the same counters, so the files that can be read, such as
    /// those of memory, are not used then, and the notes about RAPL need no attention.
    fn open_perf(&mut self, settings: &Settings, errors: &mut OpenErrors) {
        if self.has_packages() {
            return;
        }
        self.open_one(perf::NAME, settings, errors);
        if self.has(perf::NAME) {
            self.sources.retain(|source| source.name() != rapl::NAME);
            let (of_rapl, others) = errors.notes.drain(..).partition(|note| note.starts_with(rapl::NAME));
            errors.notes = others;
            errors.absent.extend::<Vec<String>>(of_rapl);
        }
    }

    /// Whether RAPL's or perf's packages are read.
    fn has_packages(&self) -> bool {
        let mut devices = self.sources.iter().flat_map(|source| source.devices());
        devices.any(|d| [rapl::NAME, perf::NAME].contains(&d.source) && d.kind == Kind::Cpu)
    }

    fn has(&self, name: &str) -> bool {
        self.sources.iter().any(|source| source.name() == name)
    }

    fn open_one(&mut self, name: &str, settings: &Settings, errors: &mut OpenErrors) {
        fn boxed<S: Source + 'static>(source: Option<S>) -> Option<Box<dyn Source>> {
            source.map(|source| Box::new(source) as Box<dyn Source>)
        }
        let source = match name {
            rocm_smi::NAME => boxed(rocm_smi::open(settings, errors)),
            amdsmi::NAME => boxed(amdsmi::open(settings, errors)),
            nvml::NAME => boxed(nvml::open(settings, errors)),
            cray_pm::NAME => boxed(cray_pm::open(settings, errors)),
            rapl::NAME => boxed(rapl::open(settings, errors)),
            perf::NAME => boxed(perf::open(settings, errors)),
            custom::NAME => boxed(custom::open(settings, errors)),
            hwmon::NAME => boxed(hwmon::open(settings, self.known_to_hwmon(), errors)),
            estimate::NAME => boxed(estimate::open(settings, &mut errors.notes)),
            _ => None,
        };
        self.sources.extend(source);
    }

    /// Returns the parts that better sources already have, and that hwmon would show again.
    fn known_to_hwmon(&self) -> hwmon::Known {
        let devices = || self.sources.iter().flat_map(|source| source.devices());
        hwmon::Known {
            amd_gpus: self.has(rocm_smi::NAME) || self.has(amdsmi::NAME),
            packages: self.has_packages(),
            node: devices().any(|d| d.source == cray_pm::NAME && d.kind == Kind::Node),
        }
    }
}
