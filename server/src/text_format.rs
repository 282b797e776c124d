//! The two text formats of metrics: OpenMetrics, and the older format of Prometheus for clients that prefer it.

use std::fmt::Write;

/// The format of a scrape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextFormat {
    /// The text that [`super::metrics::encode`] makes.
    OpenMetrics,
    /// The text format of Prometheus that preceded OpenMetrics.
    Classic,
}

const CLASSIC_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

impl TextFormat {
    /// Returns the format that a request prefers, from its `Accept` header; OpenMetrics if it has no preference.
    pub fn wanted<'a>(accept: impl Iterator<Item = &'a str>) -> TextFormat {
        let ranges: Vec<Range> = accept.flat_map(|line| line.split(',')).filter_map(Range::parse).collect();
        let quality = |kind: &str, subtype: &str, versions: &[&str]| {
            let fitting = ranges.iter().filter(|range| range.fits(kind, subtype, versions));
            fitting.max_by_key(|range| range.precision()).map_or(0.0, |range| range.quality)
        };
        let open_metrics = quality("application", "openmetrics-text", &["1.0.0"]);
        let classic = quality("text", "plain", &["0.0.4"]);
        if classic > open_metrics { TextFormat::Classic } else { TextFormat::OpenMetrics }
    }

    pub fn content_type(self) -> &'static str {
        match self {
            TextFormat::OpenMetrics => super::metrics::CONTENT_TYPE,
            TextFormat::Classic => CLASSIC_TYPE,
        }
    }
}

/// A media range in `Accept`, such as `text/plain;version=0.0.4;q=0.5`.
struct Range<'a> {
    kind: &'a str,
    subtype: &'a str,
    version: Option<&'a str>,
    quality: f64,
}

impl Range<'_> {
    /// Parses a media range; `None` if the text is not one.
    fn parse(text: &str) -> Option<Range<'_>> {
        let mut parts = text.split(';').map(str::trim);
        let (kind, subtype) = parts.next()?.split_once('/')?;
        let mut range = Range { kind, subtype, version: None, quality: 1.0 };
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            let value = value.trim().trim_matches('"');
            match name.trim().to_ascii_lowercase().as_str() {
                "version" => range.version = Some(value),
                "q" => range.quality = value.parse().ok().filter(|q| (0.0..=1.0).contains(q))?,
                _ => {}
            }
        }
        Some(range)
    }

    fn fits(&self, kind: &str, subtype: &str, versions: &[&str]) -> bool {
        let is = |own: &str, other: &str| own == "*" || own.eq_ignore_ascii_case(other);
        is(self.kind, kind)
            && is(self.subtype, subtype)
            && self.version.is_none_or(|version| versions.contains(&version))
    }

    /// Returns how specific the range is. If several ranges match a format, the most specific one sets its quality.
    fn precision(&self) -> u8 {
        u8::from(self.kind != "*") + u8::from(self.subtype != "*") + u8::from(self.version.is_some())
    }
}

/// Converts OpenMetrics text to the classic format. In that format, the HELP and TYPE lines give a counter the name of its
/// series, with `_total`. Units and the end mark are left out.
pub(crate) fn classic(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len());
    let mut help = "";
    for line in open_metrics.lines() {
        let words = |keyword: &str| line.strip_prefix(keyword)?.split_once(' ');
        if let Some((_, words)) = words("# HELP ") {
            help = words;
        } else if let Some((name, kind)) = words("# TYPE ") {
            let total = if kind == "counter" { "_total" } else { "" };
            // Writing to a String cannot fail.
            let _ = writeln!(text, "# HELP {name}{total} {help}\n# TYPE {name}{total} {kind}");
        } else if !line.starts_with('#') {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_gets_the_format_that_it_prefers() {
        let wanted = |accept: &str| TextFormat::wanted(std::iter::once(accept));
        assert_eq!(TextFormat::wanted(std::iter::empty()), TextFormat::OpenMetrics);
        for open_metrics in [
            "",
            "*/*",
            "application/*",
            "application/openmetrics-text",
            "application/openmetrics-text; version=1.0.0",
            "text/plain;q=0.5, application/openmetrics-text",
            "text/plain, application/openmetrics-text",
            "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
            // This is the header of Prometheus 2 and 3.
            "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.7,\
             application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=1.0.0;q=0.4,*/*;q=0.2",
            "text/plain;q=nonsense",
            "text/plain;q=0",
        ] {
            assert_eq!(wanted(open_metrics), TextFormat::OpenMetrics, "{open_metrics}");
        }
        for classic in [
            "text/plain",
            "Text/Plain; Version=0.0.4",
            "text/plain;version=\"0.0.4\";charset=utf-8",
            "text/*",
            "text/plain;version=0.0.4;q=0.5,application/openmetrics-text;q=0.4",
            "application/openmetrics-text;version=0.0.1, text/plain;q=0.3",
            "text/plain;version=0.0.4,*/*;q=0.1",
            "application/openmetrics-text;q=0,*/*",
        ] {
            assert_eq!(wanted(classic), TextFormat::Classic, "{classic}");
        }
        assert_eq!(
            TextFormat::wanted(["text/plain", "application/openmetrics-text;q=0.1"].into_iter()),
            TextFormat::Classic
        );
    }

    #[test]
    fn the_classic_format_names_counters_like_their_series() {
        let open_metrics = "# HELP a_joules Energy.\n# TYPE a_joules counter\n# UNIT a_joules joules\n\
             a_joules_total{region=\"# TYPE x\"} 1.5\n# HELP b Part.\n# TYPE b gauge\nb 2.0\n# EOF\n";
        let text = "# HELP a_joules_total Energy.\n# TYPE a_joules_total counter\na_joules_total{region=\"# TYPE x\"} 1.5\n\
             # HELP b Part.\n# TYPE b gauge\nb 2.0\n";
        assert_eq!(classic(open_metrics), text);
    }
}
