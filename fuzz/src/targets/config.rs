//! Passes any text to the reader of settings, as a file and as variables, and to the reader of filter files.

use ampere_model::filter::Filter;
use ampere_settings::Config;

pub fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    match Config::parse(&text, "ampere.toml") {
        Ok(config) => {
            for device in &config.devices {
                let _ = device.name_for("frontier1234", "A2rocm_smi:::energy_count:device=3");
                let _ = device.name_for("", &text);
            }
        }
        Err(error) => assert_is_message(&error.to_string()),
    }
    match Filter::parse(&text) {
        Ok(filter) => drop(filter.excludes(("main", "_Z4mainv", "/src/main.c"), ampere_model::matches)),
        Err(error) => assert_is_message(&error.to_string()),
    }
    // Each line is used as a variable.
    for line in text.lines().take(8) {
        let Some((name, value)) = line.split_once('=') else { continue };
        let mut config = Config::default();
        let lookup = |asked: &str| (asked == name.trim()).then(|| value.trim().to_owned());
        if let Err(error) = config.apply(&lookup) {
            assert_is_message(&error.to_string());
        }
    }
}

/// Panics unless a message is one line without control characters.
fn assert_is_message(message: &str) {
    assert!(!message.is_empty() && !message.chars().any(char::is_control), "{message:?}");
}
