//! Writes a profile that pprof, speedscope and Grafana Pyroscope read (`perftools.profiles.Profile` of github.com/google/pprof,
//! not compressed). A sample is a call path with its exclusive energy in microjoules and its calls; the labels are the device,
//! its node, and the location group. Devices that are contained in others are left out, so that all samples may be added up.
//! Idle joules, those of other jobs and lost joules are samples of their own.

use crate::protobuf::Message;
use crate::rows::shortened;
use crate::tree::whole_views;
use ampere_figures::summary::Summary;
use ampere_model::text::printable;
use std::collections::HashMap;

const MICROJOULES: f64 = 1e6;

/// The numbers of the fields, by message.
mod field {
    pub const SAMPLE_TYPE: u32 = 1;
    pub const SAMPLE: u32 = 2;
    pub const LOCATION: u32 = 4;
    pub const FUNCTION: u32 = 5;
    pub const STRING_TABLE: u32 = 6;
    pub const COMMENT: u32 = 13;
    pub const DEFAULT_SAMPLE_TYPE: u32 = 14;
    /// Fields of a value type.
    pub const TYPE: u32 = 1;
    pub const UNIT: u32 = 2;
    /// Fields of a sample.
    pub const LOCATION_IDS: u32 = 1;
    pub const VALUES: u32 = 2;
    pub const LABEL: u32 = 3;
    /// Fields of a label.
    pub const KEY: u32 = 1;
    pub const TEXT: u32 = 2;
    /// Fields of a location, and of a function.
    pub const ID: u32 = 1;
    pub const NAME: u32 = 2;
    pub const SYSTEM_NAME: u32 = 3;
    pub const LINE: u32 = 4;
    /// Fields of a line.
    pub const FUNCTION_ID: u32 = 1;
}

/// A profile that is being written.
#[derive(Default)]
struct Profile {
    message: Message,
    /// Each text with its index in the table; the first text is empty.
    texts: HashMap<String, u64>,
    table: Message,
    /// The number of each function, by the index of its name.
    functions: HashMap<u64, u64>,
}

impl Profile {
    fn text(&mut self, text: &str) -> u64 {
        let next = self.texts.len() as u64;
        if let Some(place) = self.texts.get(text) {
            return *place;
        }
        self.texts.insert(text.to_owned(), next);
        self.table.bytes(field::STRING_TABLE, text.as_bytes());
        next
    }

    /// Returns the number of a function, which is also that of its only location.
    fn function(&mut self, name: &str) -> u64 {
        let name = self.text(&printable(name));
        let next = self.functions.len() as u64 + 1;
        let number = *self.functions.entry(name).or_insert(next);
        if number == next {
            let function = [(field::ID, number), (field::NAME, name), (field::SYSTEM_NAME, name)];
            self.message.fields(field::FUNCTION, &function);
            let mut location = Message::default();
            location.number(field::ID, number);
            location.fields(field::LINE, &[(field::FUNCTION_ID, number)]);
            self.message.bytes(field::LOCATION, &location.0);
        }
        number
    }

    fn value_type(&mut self, name: &str, unit: &str) {
        let fields = [(field::TYPE, self.text(name)), (field::UNIT, self.text(unit))];
        self.message.fields(field::SAMPLE_TYPE, &fields);
    }

    /// Adds a sample. The functions of its path are given from the outermost on.
    fn sample(&mut self, path: &[&str], labels: &[(&str, &str)], joules: f64, calls: u64) {
        let microjoules = (joules * MICROJOULES).round().max(0.0) as u64;
        if microjoules == 0 && calls == 0 {
            return;
        }
        let locations: Vec<u64> = path.iter().rev().map(|name| self.function(name)).collect();
        let mut sample = Message::default();
        sample.numbers(field::LOCATION_IDS, &locations);
        sample.numbers(field::VALUES, &[microjoules, calls]);
        for (key, value) in labels.iter().filter(|(_, value)| !value.is_empty()) {
            let label = [(field::KEY, self.text(key)), (field::TEXT, self.text(&printable(value)))];
            sample.fields(field::LABEL, &label);
        }
        self.message.bytes(field::SAMPLE, &sample.0);
    }
}

pub fn render(summary: &Summary) -> Vec<u8> {
    let mut profile = Profile::default();
    profile.text("");
    profile.value_type("energy", "microjoules");
    profile.value_type("calls", "count");
    for (device, view) in whole_views(summary).into_iter().filter(|(device, _)| device.unit == "J") {
        let of_device = [("device", device.name.as_str()), ("node", device.node.as_str())];
        for row in view.callpaths.iter() {
            let path = shortened(summary, row.path);
            let path: Vec<&str> = path.iter().map(|name| &**name).collect();
            let group = ("process", summary.name(row.location_group));
            let labels = [of_device[0], of_device[1], group];
            profile.sample(&path, &labels, row.figures.exclusive_joules, row.figures.calls);
        }
        profile.sample(&["idle"], &of_device, view.unused_joules(), 0);
        profile.sample(&["other jobs"], &of_device, view.other_jobs_joules, 0);
        profile.sample(&["lost"], &of_device, view.lost_joules, 0);
    }
    let (energy, origin) = (profile.text("energy"), format!("joules are {}", summary.run.energy));
    let origin = profile.text(&origin);
    profile.message.number(field::DEFAULT_SAMPLE_TYPE, energy);
    profile.message.number(field::COMMENT, origin);
    let mut whole = profile.message.0;
    whole.extend(profile.table.0);
    whole
}
