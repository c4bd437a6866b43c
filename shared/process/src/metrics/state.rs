//! Metrics of the gate, readiness, posting times and traces.

use std::fmt;
use std::sync::Arc;

use postonce_shared::cluster::gate::GateState;
use postonce_shared::cluster::gate::permits::GatePermits;
use postonce_shared::ports::spans::SpanCounts;
use postonce_shared::posting::posting_latency::PostingLatency;
use postonce_shared::tracer::Tracer;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::gauge::ConstGauge;

use super::family::{Family, encode_durations, in_base_unit};
use crate::readiness::{Part, Readiness};

static GATE_HELD: Family = Family::gauge(
    "gate_held",
    &[],
    "1 while the gate is held, as this process knows it, 0 while it is released; missing until it was read",
);
static GATE_CHANGED: Family = Family::gauge(
    "gate_changed_timestamp_seconds",
    &[],
    "Last change of the gate, as this process knows it; missing if it was never changed",
);
static READY: Family =
    Family::gauge("ready", &["part"], "1 while a part that the service needs is available, else 0");
static LATENCY: Family = Family::histogram(
    "accepted_to_posted_seconds",
    &["way"],
    "Time from the acceptance of transactions to their posting: immediate, queued, or as items of a batch",
);

static SPANS_RECORDED: Family =
    Family::counter("spans_recorded", &[], "Spans of sampled traces; none without the setting otlp-endpoint");
static SPANS_EXPORTED: Family = Family::counter(
    "spans_exported",
    &[],
    "Spans of the batches that the collector answered with success; of the others, the last seconds wait, and all older ones were lost",
);

pub(super) static FAMILIES: [&Family; 6] =
    [&GATE_HELD, &GATE_CHANGED, &READY, &LATENCY, &SPANS_RECORDED, &SPANS_EXPORTED];

/// Collects the state of the gate.
#[derive(Debug)]
pub struct GateCollector(pub Arc<GatePermits>);

impl Collector for GateCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(gate) = self.0.known() else { return Ok(()) };
        GATE_HELD.measure(&mut encoder, u64::from(gate.state != GateState::Released))?;
        let changed = GATE_CHANGED.begin(&mut encoder)?;
        self.0
            .since()
            .map_or(Ok(()), |since| ConstGauge::new(in_base_unit(since.unix_ms(), 1000)).encode(changed))
    }
}

/// Collects the availability of each part.
pub struct ReadinessCollector(pub Arc<Readiness>);

impl fmt::Debug for ReadinessCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReadinessCollector")
    }
}

impl Collector for ReadinessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let missing = self.0.missing();
        let mut family = READY.begin(&mut encoder)?;
        for part in Part::ALL {
            let is_available = missing.iter().all(|missing| missing.part != part);
            let labels = [("part", part.code())];
            ConstGauge::new(u64::from(is_available)).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

/// Collects the times from acceptance to posting.
#[derive(Debug)]
pub struct LatencyCollector(pub Arc<PostingLatency>);

impl Collector for LatencyCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut family = LATENCY.begin(&mut encoder)?;
        for (way, durations) in self.0.by_way() {
            encode_durations(family.encode_family(&[("way", way)])?, &durations.snapshot())?;
        }
        Ok(())
    }
}

/// Collects the numbers of recorded and exported spans.
pub struct TracesCollector(pub Arc<Tracer>);

impl fmt::Debug for TracesCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TracesCollector")
    }
}

impl Collector for TracesCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let SpanCounts { recorded, exported } = self.0.counts();
        SPANS_RECORDED.count(&mut encoder, recorded)?;
        SPANS_EXPORTED.count(&mut encoder, exported)
    }
}
