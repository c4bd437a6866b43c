//! Exposition formats of metrics: the Prometheus text format 0.0.4, and OpenMetrics on request. `prometheus_client` writes only
//! OpenMetrics, so the other format is derived from it.

use std::fmt;

use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::registry::Registry;

/// An exposition format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// The text format 0.0.4 of Prometheus.
    Prometheus,
    /// OpenMetrics 1.0.0.
    OpenMetrics,
}

impl Format {
    /// Returns the value of `Content-Type`.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// Encodes the metrics of the registries.
    ///
    /// # Errors
    /// Fails with [`fmt::Error`] when a collector fails.
    pub fn encode(self, registries: &[&Registry]) -> Result<Vec<u8>, fmt::Error> {
        match self {
            Self::Prometheus => Ok(to_prometheus(&openmetrics(registries)?).into_bytes()),
            Self::OpenMetrics => {
                let mut text = openmetrics(registries)?;
                encode_eof(&mut text)?;
                Ok(text.into_bytes())
            }
        }
    }
}

/// Returns the metrics of the registries in OpenMetrics, without the final `# EOF`.
fn openmetrics(registries: &[&Registry]) -> Result<String, fmt::Error> {
    let mut text = String::new();
    registries.iter().try_for_each(|registry| encode_registry(&mut text, registry))?;
    Ok(text)
}

/// Converts OpenMetrics to the Prometheus text format. There, HELP and TYPE lines of a counter also contain `_total`, and units
/// have no lines. Samples are the same, because no metric has exemplars or timestamps.
fn to_prometheus(openmetrics: &str) -> String {
    let mut text = String::with_capacity(openmetrics.len());
    let mut help = "";
    for line in openmetrics.lines() {
        if line.starts_with("# HELP ") {
            // The TYPE line follows, and determines the name.
            help = line;
        } else if let Some((name, kind)) = comment(line, "# TYPE ") {
            let suffix = if kind == "counter" { "_total" } else { "" };
            let kind = if kind == "unknown" { "untyped" } else { kind };
            if let Some((_, words)) = comment(help, "# HELP ") {
                text.extend(["# HELP ", name, suffix, " ", words, "\n"]);
            }
            text.extend(["# TYPE ", name, suffix, " ", kind, "\n"]);
        } else if !line.starts_with('#') {
            text.extend([line, "\n"]);
        }
    }
    text
}

/// Returns the name in a comment line, and the text after it.
fn comment<'a>(line: &'a str, start: &str) -> Option<(&'a str, &'a str)> {
    line.strip_prefix(start)?.split_once(' ')
}

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::counter::Counter;
    use prometheus_client::metrics::family::Family;
    use prometheus_client::metrics::gauge::Gauge;
    use prometheus_client::registry::Unit;

    use super::*;

    #[test]
    fn counters_have_one_name_in_prometheus_text() {
        let mut registry = Registry::with_prefix("bank");
        let (counts, age) = (Family::<Vec<(&str, &str)>, Counter>::default(), Gauge::<i64>::default());
        counts.get_or_create(&vec![("kind", "a # b")]).inc();
        registry.register("acts", "Acts of operators", counts);
        registry.register_with_unit("age", "Age", Unit::Seconds, age);
        let openmetrics = "# HELP bank_acts Acts of operators.\n# TYPE bank_acts counter\n\
                           bank_acts_total{kind=\"a # b\"} 1\n\
                           # HELP bank_age_seconds Age.\n# TYPE bank_age_seconds gauge\n\
                           # UNIT bank_age_seconds seconds\nbank_age_seconds 0\n# EOF\n";
        assert_eq!(Format::OpenMetrics.encode(&[&registry]).unwrap(), openmetrics.as_bytes());
        let prometheus = "# HELP bank_acts_total Acts of operators.\n# TYPE bank_acts_total counter\n\
                          bank_acts_total{kind=\"a # b\"} 1\n\
                          # HELP bank_age_seconds Age.\n# TYPE bank_age_seconds gauge\nbank_age_seconds 0\n";
        assert_eq!(Format::Prometheus.encode(&[&registry]).unwrap(), prometheus.as_bytes());
    }
}
