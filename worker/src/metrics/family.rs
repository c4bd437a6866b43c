//! A family of metrics: its name, type, labels and meaning, in one place for the process that serves it and for the
//! documentation.

use std::borrow::Cow;
use std::fmt;

use prometheus_client::encoding::{
    DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, EncodeMetric as _, MetricEncoder,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// Prefix of all metric names.
pub const PREFIX: &str = "postonce";

/// A family of metrics.
#[derive(Debug, Clone)]
pub struct Family {
    /// The name, without the prefix of the bank, and without `_total`.
    pub name: Cow<'static, str>,
    /// The type.
    pub kind: MetricType,
    /// Names of the labels.
    pub labels: &'static [&'static str],
    /// The meaning.
    pub help: &'static str,
}

impl Family {
    /// Creates a family of counters.
    pub const fn counter(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Self {
        Self { name: Cow::Borrowed(name), kind: MetricType::Counter, labels, help }
    }

    /// Creates a family of gauges.
    pub const fn gauge(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Self {
        Self { name: Cow::Borrowed(name), kind: MetricType::Gauge, labels, help }
    }

    /// Creates a family of histograms.
    pub const fn histogram(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Self {
        Self { name: Cow::Borrowed(name), kind: MetricType::Histogram, labels, help }
    }

    /// Returns the name of its samples; those of a histogram have further suffixes.
    pub fn full_name(&self) -> String {
        let suffix = if matches!(self.kind, MetricType::Counter) { "_total" } else { "" };
        format!("{PREFIX}_{}{suffix}", self.name)
    }

    /// Starts to write the samples of a family.
    ///
    /// # Errors
    /// Fails with [`fmt::Error`] when the text cannot be written; so do the other methods.
    pub fn begin<'a>(
        &'a self,
        encoder: &'a mut DescriptorEncoder<'_>,
    ) -> Result<MetricEncoder<'a>, fmt::Error> {
        encoder.encode_descriptor(&self.name, self.help, None, self.kind)
    }

    /// Writes a counter without labels.
    ///
    /// # Errors
    /// [`fmt::Error`]
    pub fn count(&self, encoder: &mut DescriptorEncoder<'_>, value: impl EncodeCounterValue) -> fmt::Result {
        ConstCounter::new(value).encode(self.begin(encoder)?)
    }

    /// Writes a gauge without labels.
    ///
    /// # Errors
    /// [`fmt::Error`]
    pub fn measure(&self, encoder: &mut DescriptorEncoder<'_>, value: impl EncodeGaugeValue) -> fmt::Result {
        ConstGauge::new(value).encode(self.begin(encoder)?)
    }
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
