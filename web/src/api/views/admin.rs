//! Reports for operators in response bodies.

use postonce_schemas::json as wire;
use postonce_shared::batches::open::BatchBacklog;
use postonce_shared::domain::anchor::signed::SignedAnchor;
use postonce_shared::domain::audit_row::{AuditRow, DoneAct};
use postonce_shared::domain::ids::OrderNumber;
use postonce_shared::domain::time::Timestamp;
use postonce_shared::messaging::envelope::Names;
use postonce_shared::oversight::anchors::StoredAnchor;
use postonce_shared::oversight::prices::{Prices, operations_per_posting};
use postonce_shared::oversight::scaling::{Demand, ScalingPolicy, WorkersWanted};
use postonce_shared::ports::dead_letters::{DeadLetter, Resolution};
use postonce_shared::posting::order_numbers::{Holding, Register};

use crate::admin::costs::{CostReport, ProcessReport, ReportedOperation};
use crate::admin::service::{QueueReport, QueueReports, ScaleReport};

/// Converts the reports on queues. The ages of their oldest messages are relative to `now`.
pub fn queues(reports: QueueReports, now: Timestamp) -> wire::QueueList {
    let QueueReports { queues, rules } = reports;
    wire::QueueList {
        queues: queues.into_iter().map(|report| queue(report, now)).collect(),
        receivers_rules: rules.into_iter().collect(),
    }
}

fn queue(report: QueueReport, now: Timestamp) -> wire::Queue {
    let QueueReport { name, backlog, dead_letters, listeners } = report;
    wire::Queue {
        name: name.to_string(),
        depth: backlog.depth,
        oldest_age_s: backlog.oldest_inserted_at.map_or(0, |at| now.since(at).as_secs()),
        oldest_age_known: backlog.depth == 0 || backlog.oldest_inserted_at.is_some(),
        dead_letters,
        active_listeners: listeners.active,
        listeners_max: listeners.max,
    }
}

/// Converts a dead letter, with the message ids in its body if all can be read.
pub fn dead_letter(letter: DeadLetter) -> wire::DeadLetter {
    let DeadLetter { id, queue, reason, body, dequeue_count, inserted_at, dead_at, resolution } = letter;
    let names = Names::read(&body).ok().filter(Names::is_complete);
    let items = names.map(|names| {
        let keys = names.items().iter().filter_map(|name| name.key.as_ref());
        keys.map(|key| key.message.to_string()).collect()
    });
    let resolution = resolution.map(|Resolution { kind, by, at }| wire::Resolution {
        kind: kind.code().into(),
        by,
        at: at.to_string(),
    });
    wire::DeadLetter {
        id,
        queue: queue.to_string(),
        reason,
        dequeue_count,
        inserted_at: inserted_at.to_string(),
        dead_at: dead_at.to_string(),
        body: String::from_utf8_lossy(&body).into_owned(),
        items,
        resolution,
    }
}

/// Converts a stored anchor.
pub fn anchor(anchor: StoredAnchor) -> wire::Anchor {
    let StoredAnchor { statement: stated, signed, list: _ } = anchor;
    let SignedAnchor { statement, public_key, signature } = signed;
    wire::Anchor {
        sequence: stated.sequence,
        made_at: stated.made_at.to_string(),
        kind: stated.kind.code().into(),
        accounts: stated.leaves.count,
        statement,
        public_key,
        signature,
    }
}

/// Converts a row of the audit trail.
pub fn audit_row(row: AuditRow) -> wire::AuditRow {
    let AuditRow { sequence, done, previous_hash, hash } = row;
    let DoneAct { at, actor, key_id, act, target, origin, nonce } = done;
    wire::AuditRow {
        sequence,
        at: at.to_string(),
        actor,
        key_id: Some(key_id).filter(|id| !id.is_empty()),
        act,
        target,
        origin,
        nonce: nonce.as_uuid().simple().to_string(),
        previous_hash: previous_hash.to_string(),
        hash: hash.to_string(),
    }
}

/// Converts the register of order numbers, with the ranges in use.
pub fn order_numbers(register: Register) -> wire::OrderNumbers {
    let Register { next: _, reserved, issued, returned, lost, holdings } = register;
    let range = |holding: Holding| {
        let last = holding.span.until.saturating_sub(1);
        wire::OrderNumberRange {
            holder: holding.holder,
            first: OrderNumber::from_counter(holding.span.from).to_string(),
            last: OrderNumber::from_counter(last).to_string(),
            at: holding.at.to_string(),
        }
    };
    wire::OrderNumbers { reserved, issued, returned, lost, ranges: holdings.into_iter().map(range).collect() }
}

/// Converts the costs of all processes, and their sum, at these prices.
pub fn costs(costs: &CostReport, prices: &Prices) -> wire::StorageOperations {
    let total = &costs.total;
    let operation = |(operation, count): (&ReportedOperation, &u64)| wire::StorageOperation {
        service: operation.service.code().into(),
        operation: operation.name.clone().into_owned(),
        count: *count,
        price_usd: prices.of(operation.price, *count).usd(),
    };
    let process = |report: &ProcessReport| wire::ProcessCost {
        process: report.process.clone(),
        postings: report.postings,
        immediate_postings: report.immediate,
        count: report.count(),
        price_usd: report.cost(prices).usd(),
    };
    let cost = total.cost(prices);
    wire::StorageOperations {
        operations: total.operations.iter().map(operation).collect(),
        count: total.count(),
        price_usd: cost.usd(),
        postings: total.postings,
        immediate_postings: total.immediate,
        operations_per_posting: operations_per_posting(total.count(), total.postings),
        price_usd_per_million_postings: cost.of_a_million(total.postings).map(|cost| cost.usd()),
        projected_price_usd_per_month: costs.per_month(prices).map(|cost| cost.usd()),
        processes: costs.processes.iter().map(process).collect(),
    }
}

/// Converts the wanted number of workers, with the values that it was computed from.
pub fn scale(report: ScaleReport) -> wire::Scale {
    let ScaleReport { demand, policy, wanted } = report;
    let WorkersWanted { workers, for_backlog, floor } = wanted;
    let Demand { depth, waiting, oldest_age, batches: BatchBacklog { items, chunks } } = demand;
    let ScalingPolicy { age_target, worker_rate, workers_min, workers_max, floors: _, down_delay: _ } =
        policy;
    wire::Scale {
        workers_wanted: workers,
        workers_for_backlog: for_backlog,
        workers_floor: floor,
        workers_min,
        workers_max,
        depth,
        waiting,
        oldest_age_s: oldest_age.as_secs(),
        batch_items: items,
        batch_chunks: chunks,
        posting_age_target_s: age_target.as_secs(),
        worker_rate,
    }
}
