//! The formats of metrics: Prometheus text 0.0.4, and OpenMetrics or the protobuf format of Prometheus on request. As text,
//! `prometheus_client` writes only OpenMetrics, so the other format is made from it. Only the protobuf format has native histograms.

use std::fmt;

use prometheus_client::encoding::prometheus_protobuf::encode_to_vec;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::registry::Registry;

/// A format of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// The text format 0.0.4 of Prometheus.
    Prometheus,
    /// OpenMetrics 1.0.0.
    OpenMetrics,
    /// The protobuf format of Prometheus.
    Protobuf,
}

impl Format {
    /// Returns its media type.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Protobuf => {
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
            }
        }
    }

    /// Returns the metrics of the registries.
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
            Self::Protobuf => {
                let encoded =
                    registries.iter().map(|registry| encode_to_vec(registry).map_err(|_| fmt::Error));
                Ok(encoded.collect::<Result<Vec<_>, _>>()?.concat())
            }
        }
    }
}

/// Returns the metrics of the registries as OpenMetrics, without the mark of the end.
fn openmetrics(registries: &[&Registry]) -> Result<String, fmt::Error> {
    let mut text = String::new();
    registries.iter().try_for_each(|registry| encode_registry(&mut text, registry))?;
    Ok(text)
}

/// Rewrites OpenMetrics as Prometheus text: there, the name of a counter includes `_total` in its HELP and TYPE lines too,
/// and units are no lines of their own. Samples are the same, because no metric has exemplars or timestamps.
fn to_prometheus(openmetrics: &str) -> String {
    let mut text = String::with_capacity(openmetrics.len());
    let mut help = "";
    for line in openmetrics.lines() {
        if line.starts_with("# HELP ") {
            // The type, which follows, determines the name.
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

/// Returns the name and the rest of a comment line.
fn comment<'a>(line: &'a str, start: &str) -> Option<(&'a str, &'a str)> {
    line.strip_prefix(start)?.split_once(' ')
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use postonce_shared::ports::durations::Durations;
    use prometheus_client::collector::Collector;
    use prometheus_client::encoding::DescriptorEncoder;
    use prometheus_client::encoding::prometheus_protobuf::prometheus_data_model::{BucketSpan, MetricFamily};
    use prometheus_client::metrics::counter::Counter;
    use prometheus_client::metrics::family::Family;
    use prometheus_client::metrics::gauge::Gauge;
    use prometheus_client::registry::Unit;
    use prost::Message as _;

    use super::*;
    use crate::metrics::family::{self, encode_durations};

    #[derive(Debug)]
    struct Waits(Durations);

    impl Collector for Waits {
        fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
            let family = family::Family::histogram("waits_seconds", &[], "Waits");
            encode_durations(family.begin(&mut encoder)?, &self.0.snapshot())
        }
    }

    #[test]
    fn durations_have_native_buckets_in_protobuf() {
        let (mut registry, waits) = (Registry::with_prefix("bank"), Durations::new(&[1000]));
        for (seconds, count) in [(1, 2), (2, 5)] {
            waits.record(Duration::from_secs(seconds), count);
        }
        registry.register_collector(Box::new(Waits(waits)));
        let encoded = Format::Protobuf.encode(&[&registry, &Registry::default()]).unwrap();
        let family = MetricFamily::decode_length_delimited(&*encoded).unwrap();
        assert_eq!((&*family.name, family.metric.len()), ("bank_waits_seconds", 1));
        let histogram = family.metric[0].histogram.as_ref().unwrap();
        assert_eq!((histogram.sample_count, histogram.schema, histogram.zero_count), (7, 2, 0));
        assert_eq!(histogram.bucket[0].cumulative_count, 2);
        // The bucket 0 ends at a second, and the bucket 4 at two.
        assert_eq!(histogram.positive_span, [BucketSpan { offset: 0, length: 5 }]);
        assert_eq!(histogram.positive_delta, [2, -2, 0, 0, 5]);
    }

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
