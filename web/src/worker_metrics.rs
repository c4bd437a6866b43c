//! What the worker of this process counts, in the words of metrics and of the operators' view.

use std::fmt;
use std::sync::Arc;

use postonce_shared::ports::queue::QueueName;
use postonce_worker::meter::{Counter, Listeners, Meter};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;

use crate::office::{self, ListenerStatus};

/// Reads the worker's counters when it is asked.
#[derive(Debug)]
pub struct WorkerCollector(pub Arc<Meter>);

impl Collector for WorkerCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let meter = &self.0;
        let counters: [(&str, &str, &Counter); 10] = [
            ("worker_messages_received", "Queue messages received", &meter.received),
            ("worker_settled", "Transactions that became final, or were found final", &meter.settled),
            ("worker_transient_faults", "Faults that may pass", &meter.transient_faults),
            ("worker_permanent_faults", "Faults that do not pass", &meter.permanent_faults),
            ("worker_dead_letters", "Messages set aside for a person", &meter.dead_letters),
            ("worker_splits", "Envelopes taken apart into single items", &meter.splits),
            (
                "worker_leases_lost",
                "Messages whose lease was lost before they were settled",
                &meter.leases_lost,
            ),
            ("worker_newer_versions", "Messages that wait for a newer worker", &meter.newer_versions),
            (
                "worker_settled_before",
                "Messages whose work was settled before they came",
                &meter.settled_before,
            ),
            ("worker_admitted", "Orders of direct producers accepted, or found accepted", &meter.admitted),
        ];
        for (name, help, counter) in counters {
            let count = ConstCounter::new(counter.get());
            count.encode(encoder.encode_descriptor(name, help, None, MetricType::Counter)?)?;
        }
        Ok(())
    }
}

/// The listeners of this process.
#[derive(Debug)]
pub struct WorkerStatus(pub Arc<Meter>);

impl ListenerStatus for WorkerStatus {
    fn listeners(&self, queue: &QueueName) -> office::Listeners {
        let Listeners { active, max, depth: _, oldest_age: _ } = self.0.listeners(queue).look();
        let count = |count| u32::try_from(count).unwrap_or(u32::MAX);
        office::Listeners { active: count(active), max: count(max) }
    }
}
