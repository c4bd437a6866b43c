//! Metrics of the worker and the scrubber of this process.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use postonce_shared::domain::time::Timestamp;
use postonce_shared::oversight::scrubber::{OpenLetters, ScrubberStatus};
use postonce_shared::ports::queue::QueueName;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::family::{Family, in_base_unit};
use crate::meter::{Listeners, Meter, Observed, OrderCounts};

static LISTENERS_ACTIVE: Family =
    Family::gauge("worker_listeners_active", &["queue"], "Receivers that handle messages now");
static LISTENERS_MAX: Family =
    Family::gauge("worker_listeners_max", &["queue"], "Largest allowed number of receivers");

static QUEUE_DEPTH: Family = Family::gauge(
    "queue_depth",
    &["queue"],
    "Messages beyond those in progress, as this process last saw the queue",
);
static QUEUE_OLDEST_AGE: Family = Family::gauge(
    "queue_oldest_age_seconds",
    &["queue"],
    "Waiting time of the oldest message that was received then; zero if the queue was empty",
);
static QUEUE_OBSERVED: Family =
    Family::gauge("queue_observed_timestamp_seconds", &["queue"], "When this process last saw the queue");

static INGEST_ORDERS: Family = Family::counter(
    "ingest_orders",
    &["queue", "result"],
    "Orders of direct producers that were accepted, refused (became dead letters) or postponed (above the rate of their partner), \
     for each delivery",
);

static OPERATIONS: Family = Family::counter("scrubber_operations", &[], "Storage operations of the scrubber");
static FINDINGS: Family =
    Family::counter("scrubber_findings", &[], "Rows that differ from what the bank wrote");
static ENQUEUED: Family =
    Family::counter("scrubber_enqueued", &[], "Transactions whose forgotten work was enqueued again");
static ROUND: Family = Family::gauge("scrubber_round_ratio", &[], "Part of the round that is done");
static ROUND_STARTED: Family =
    Family::gauge("scrubber_round_started_timestamp_seconds", &[], "Start of the round");
static LAST_ROUND_ENDED: Family =
    Family::gauge("scrubber_last_round_ended_timestamp_seconds", &[], "End of the last round");
static LAST_ROUND_FINDINGS: Family =
    Family::gauge("scrubber_last_round_findings", &[], "Findings of the last round");
static OLDEST_ACCEPTED: Family = Family::gauge(
    "scrubber_oldest_accepted_timestamp_seconds",
    &[],
    "When the oldest accepted transaction that is not a dead letter was accepted",
);
static DEAD_LETTERS_OPEN: Family = Family::gauge("dead_letters_open", &[], "Dead letters without a decision");
static DEAD_LETTERS_COUNTED: Family = Family::gauge(
    "dead_letters_counted_timestamp_seconds",
    &[],
    "When the dead letters without a decision were counted",
);

static OLDEST_ACCEPTED_AGE: Family = Family::gauge(
    "scrubber_oldest_accepted_age_seconds",
    &[],
    "How long that transaction had been open when the scrubber passed it",
);

/// The families of this file, without the counters of the [`Meter`].
pub(super) static FAMILIES: [&Family; 17] = [
    &LISTENERS_ACTIVE,
    &LISTENERS_MAX,
    &QUEUE_DEPTH,
    &QUEUE_OLDEST_AGE,
    &QUEUE_OBSERVED,
    &INGEST_ORDERS,
    &DEAD_LETTERS_OPEN,
    &DEAD_LETTERS_COUNTED,
    &OPERATIONS,
    &FINDINGS,
    &ENQUEUED,
    &ROUND,
    &ROUND_STARTED,
    &LAST_ROUND_ENDED,
    &LAST_ROUND_FINDINGS,
    &OLDEST_ACCEPTED,
    &OLDEST_ACCEPTED_AGE,
];

/// Returns the metric family and the value of each worker counter.
pub(super) fn counters(meter: &Meter) -> impl Iterator<Item = (Family, u64)> {
    meter.counters().into_iter().map(|(name, help, counter)| {
        let name = format!("worker_{name}").into();
        (Family { name, kind: MetricType::Counter, labels: &[], help, is_standard: false }, counter.get())
    })
}

type ListenersGauge = (&'static Family, fn(&Listeners) -> u64);

/// A gauge of the last observation of each queue: family, reported parts per base unit, and the function that reads the value.
type ObservedGauge = (&'static Family, u32, fn(&Observed) -> i64);

/// Collects the counters of the worker.
#[derive(Debug)]
pub struct WorkerCollector(pub Arc<Meter>);

impl Collector for WorkerCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for (family, count) in counters(&self.0) {
            family.count(&mut encoder, count)?;
        }
        let listeners = self.0.all_listeners();
        let gauges: [ListenersGauge; 2] =
            [(&LISTENERS_ACTIVE, |queue| queue.active), (&LISTENERS_MAX, |queue| queue.max)];
        for (family, read) in gauges {
            let mut family = family.begin(&mut encoder)?;
            for (queue, gauges) in &listeners {
                ConstGauge::new(read(gauges)).encode(family.encode_family(&[("queue", queue.as_str())])?)?;
            }
        }
        encode_observed(&listeners, &mut encoder)?;
        encode_orders(&self.0, &mut encoder)
    }
}

fn encode_orders(meter: &Meter, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let mut family = INGEST_ORDERS.begin(encoder)?;
    for (queue, gauge) in meter.ingest_queues() {
        let OrderCounts { accepted, refused, postponed } = &gauge.orders;
        for (result, count) in [("accepted", accepted), ("refused", refused), ("postponed", postponed)] {
            let labels = [("queue", queue.as_str()), ("result", result)];
            ConstCounter::new(count.get()).encode(family.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

fn encode_observed(
    listeners: &BTreeMap<QueueName, Listeners>,
    encoder: &mut DescriptorEncoder<'_>,
) -> fmt::Result {
    let gauges: [ObservedGauge; 3] = [
        (&QUEUE_DEPTH, 1, |observed| i64::try_from(observed.depth).unwrap_or(i64::MAX)),
        (&QUEUE_OLDEST_AGE, 1000, |observed| {
            i64::try_from(observed.oldest_age.as_millis()).unwrap_or(i64::MAX)
        }),
        (&QUEUE_OBSERVED, 1000, |observed| observed.at.unix_ms()),
    ];
    for (family, parts_of_unit, read) in gauges {
        let mut family = family.begin(encoder)?;
        for (queue, listeners) in listeners {
            let Some(observed) = &listeners.observed else { continue };
            let value = ConstGauge::new(in_base_unit(read(observed), parts_of_unit));
            value.encode(family.encode_family(&[("queue", queue.as_str())])?)?;
        }
    }
    Ok(())
}

/// Collects the progress of this process's scrubber.
#[derive(Debug)]
pub struct ScrubberCollector(pub Arc<ScrubberStatus>);

impl Collector for ScrubberCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let ScrubberStatus { operations, findings, enqueued, .. } = &*self.0;
        OPERATIONS.count(&mut encoder, operations.get())?;
        FINDINGS.count(&mut encoder, findings.get())?;
        ENQUEUED.count(&mut encoder, enqueued.get())?;
        // Only the process that currently scrubs has the following values.
        let Some(report) = self.0.report() else { return Ok(()) };
        if let Some(OpenLetters { count, counted_at }) = self.0.open_letters() {
            DEAD_LETTERS_OPEN.measure(&mut encoder, count)?;
            DEAD_LETTERS_COUNTED.measure(&mut encoder, in_base_unit(counted_at.unix_ms(), 1000))?;
        }
        let seconds = |time: Timestamp| time.unix_ms().checked_div(1000).unwrap_or_default();
        let (round, last) = (report.round.as_ref(), report.last_round.as_ref());
        if let Some(round) = round {
            ROUND.measure(&mut encoder, in_base_unit(i64::from(round.progress), 1000))?;
        }
        let last_findings = last.map(|last| i64::try_from(last.findings).unwrap_or(i64::MAX));
        let gauges = [
            (&ROUND_STARTED, round.map(|round| seconds(round.started_at))),
            (&LAST_ROUND_ENDED, last.and_then(|last| last.ended_at).map(seconds)),
            (&LAST_ROUND_FINDINGS, last_findings),
            (&OLDEST_ACCEPTED, report.oldest_accepted_at.map(seconds)),
            (
                &OLDEST_ACCEPTED_AGE,
                report.oldest_accepted_age.map(|age| i64::try_from(age.as_secs()).unwrap_or(i64::MAX)),
            ),
        ];
        for (family, value) in gauges {
            let Some(value) = value else { continue };
            family.measure(&mut encoder, value)?;
        }
        Ok(())
    }
}
