//! A parser of the OpenMetrics text format that shares no code with the library that writes it.

use std::collections::BTreeMap;

pub type Labels = BTreeMap<String, String>;

#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    pub name: String,
    pub labels: Labels,
    pub value: f64,
}

impl Sample {
    pub fn label(&self, name: &str) -> &str {
        self.labels.get(name).map_or("", String::as_str)
    }
}

/// Returns all samples of a scrape.
///
/// # Errors
/// Fails on a line that is not a sample or is repeated, and on a body without its end marker.
pub fn parse(body: &str) -> Result<Vec<Sample>, String> {
    let body = body.strip_suffix("# EOF\n").ok_or("no # EOF at the end")?;
    let mut samples: Vec<Sample> = Vec::new();
    let mut seen = std::collections::BTreeSet::new();
    for line in body.lines().filter(|line| !line.starts_with('#')) {
        let sample = parse_line(line).ok_or_else(|| format!("no sample: {line}"))?;
        if !seen.insert((sample.name.clone(), sample.labels.clone())) {
            return Err(format!("this line is repeated: {line}"));
        }
        samples.push(sample);
    }
    Ok(samples)
}

/// Returns the joules of a kernel, on all devices, in a scrape; 0 if it has none.
///
/// # Panics
/// Panics if the body is not a scrape.
pub fn kernel_joules(body: &str, kernel: &str) -> f64 {
    let samples = parse(body).expect("metrics");
    let kernels = samples.iter().filter(|sample| sample.name == "ampere_kernel_energy_joules_total");
    kernels.filter(|sample| sample.label("kernel") == kernel).map(|sample| sample.value).sum()
}

fn parse_line(line: &str) -> Option<Sample> {
    let (name, mut rest) = line.split_once('{')?;
    let mut labels = Labels::new();
    while !rest.starts_with('}') {
        let (label, after) = rest.trim_start_matches(',').split_once("=\"")?;
        let (value, after) = quoted(after)?;
        labels.insert(label.to_owned(), value);
        rest = after;
    }
    let value = rest.strip_prefix("} ")?.parse().ok()?;
    Some(Sample { name: name.to_owned(), labels, value })
}

/// Returns a label's value up to its closing quote, and the text after it.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => value.push(match characters.next()?.1 {
                'n' => '\n',
                plain @ ('\\' | '"') => plain,
                _ => return None,
            }),
            _ => value.push(character),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_unescaped() {
        let samples =
            parse("# TYPE a counter\na_total{b=\"x\\\"\\\\\\n}\",c=\"\"} 1e3\na_total{} 2\n# EOF\n").unwrap();
        assert_eq!(samples[0].label("b"), "x\"\\\n}");
        assert_eq!((samples[0].label("c"), samples[0].value, samples[1].value), ("", 1000.0, 2.0));
    }

    #[test]
    fn errors_are_reported() {
        assert!(parse("a{} 1\n").unwrap_err().contains("EOF"));
        assert!(parse("a{} 1\na{} 1\n# EOF\n").unwrap_err().contains("repeated"));
        assert!(parse("a{b=\"c} 1\n# EOF\n").unwrap_err().contains("no sample"));
    }
}
