//! Metric families: name, type, labels and help text, declared once for the process that reports them and the documentation.

use std::borrow::Cow;
use std::fmt;

use postonce_shared::ports::durations::DurationsSnapshot;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, EncodeMetric as _, MetricEncoder, NoLabelSet,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// Prefix of the names of the metrics of the bank.
pub const PREFIX: &str = "postonce";

/// A family of metrics.
#[derive(Debug, Clone)]
pub struct Family {
    /// Name without the prefix of the bank and without `_total`.
    pub name: Cow<'static, str>,
    /// Counter, gauge or histogram.
    pub kind: MetricType,
    /// Names of the labels.
    pub labels: &'static [&'static str],
    /// Help text.
    pub help: &'static str,
    /// Whether the name is standard for all programs, and has no prefix.
    pub is_standard: bool,
}

impl Family {
    /// Creates a family of counters.
    pub const fn counter(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Self {
        Self::new(name, MetricType::Counter, labels, help)
    }

    /// Creates a family of gauges.
    pub const fn gauge(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Self {
        Self::new(name, MetricType::Gauge, labels, help)
    }

    /// Creates a family of histograms.
    pub const fn histogram(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Self {
        Self::new(name, MetricType::Histogram, labels, help)
    }

    const fn new(
        name: &'static str,
        kind: MetricType,
        labels: &'static [&'static str],
        help: &'static str,
    ) -> Self {
        Self { name: Cow::Borrowed(name), kind, labels, help, is_standard: false }
    }

    /// Marks the name as standard: it gets no prefix.
    #[must_use]
    pub const fn standard(mut self) -> Self {
        self.is_standard = true;
        self
    }

    /// Returns the name of the samples; those of a histogram have further suffixes.
    pub fn full_name(&self) -> String {
        let prefix = if self.is_standard { String::new() } else { format!("{PREFIX}_") };
        let suffix = if matches!(self.kind, MetricType::Counter) { "_total" } else { "" };
        format!("{prefix}{}{suffix}", self.name)
    }

    /// Starts to encode the samples of the family.
    ///
    /// # Errors
    /// Fails with [`fmt::Error`] when the text cannot be written.
    pub fn begin<'a>(
        &'a self,
        encoder: &'a mut DescriptorEncoder<'_>,
    ) -> Result<MetricEncoder<'a>, fmt::Error> {
        encoder.encode_descriptor(&self.name, self.help, None, self.kind)
    }

    /// Writes a counter without labels.
    ///
    /// # Errors
    /// Fails with [`fmt::Error`] when the text cannot be written.
    pub fn count(&self, encoder: &mut DescriptorEncoder<'_>, value: impl EncodeCounterValue) -> fmt::Result {
        ConstCounter::new(value).encode(self.begin(encoder)?)
    }

    /// Writes a gauge without labels.
    ///
    /// # Errors
    /// Fails with [`fmt::Error`] when the text cannot be written.
    pub fn measure(&self, encoder: &mut DescriptorEncoder<'_>, value: impl EncodeGaugeValue) -> fmt::Result {
        ConstGauge::new(value).encode(self.begin(encoder)?)
    }
}

/// Encodes a histogram of durations in seconds.
///
/// # Errors
/// Fails with [`fmt::Error`] when the text cannot be written.
#[expect(
    clippy::disallowed_types,
    clippy::float_arithmetic,
    clippy::as_conversions,
    reason = "values of metrics are doubles by definition, and nothing is calculated from them"
)]
pub fn encode_durations(mut encoder: MetricEncoder<'_>, durations: &DurationsSnapshot) -> fmt::Result {
    let seconds = |bound: Option<u64>| bound.map_or(f64::INFINITY, |bound_ms| bound_ms as f64 / 1000.0);
    let ranges = durations.ranges.iter().map(|(bound, count)| (seconds(*bound), *count));
    let count = durations.ranges.iter().fold(0, |sum: u64, (_, count)| sum.saturating_add(*count));
    let sum = durations.sum_us as f64 / 1_000_000.0;
    encoder.encode_histogram::<NoLabelSet>(sum, count, &ranges.collect::<Vec<_>>(), None)
}

/// Returns a value in its base unit, such as 1.5 seconds for 1,500 milliseconds.
#[expect(
    clippy::disallowed_types,
    clippy::float_arithmetic,
    clippy::as_conversions,
    reason = "values of metrics are doubles by definition, and nothing is calculated from them"
)]
pub fn in_base_unit(value: i64, parts_of_unit: u32) -> f64 {
    value as f64 / f64::from(parts_of_unit)
}
