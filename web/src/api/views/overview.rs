//! The overview in response bodies.

use postonce_process::activity::ActivityCounts;
use postonce_process::http::Status;
use postonce_schemas::json as wire;
use postonce_shared::oversight::prices::Prices;
use postonce_shared::oversight::scaling::ScalingPolicy;
use postonce_shared::ports::process_registry::{ProcessKind, RegisteredProcess};

use crate::admin::costs::CostReport;
use crate::admin::overview::series::{Series, per_second};
use crate::admin::overview::{BankOverview, ProcessState, QueueState, Receivers};
use crate::admin::service::ScaleReport;
use crate::api::views;

/// Converts the overview of the bank.
pub fn overview(overview: BankOverview, scaling: &ScalingPolicy, prices: &Prices) -> wire::Overview {
    let BankOverview {
        at,
        gate,
        clock_problem,
        processes,
        activity,
        recent,
        queues,
        queues_read_at,
        dead_letters_open,
        demand,
        wanted,
        costs,
    } = overview;
    let epoch = gate.value.epoch;
    let workers = processes.iter().filter(|process| process.entry.kind == ProcessKind::Worker).count();
    wire::Overview {
        at: at.to_string(),
        gate: wire::Gate { clock_problem, ..views::gate(gate) },
        processes: processes.into_iter().map(|process| self::process(process, epoch)).collect(),
        activity: self::activity(&activity),
        per_second: rates(&recent),
        oldest_open_age_s: oldest_age_s(&queues),
        queues: queues.into_iter().map(queue).collect(),
        queues_read_at: queues_read_at.to_string(),
        dead_letters_open,
        scale: views::scale(ScaleReport { demand, policy: scaling.clone(), wanted }),
        workers_running: count(u64::try_from(workers).unwrap_or(u64::MAX)),
        costs: self::costs(&costs, prices),
    }
}

/// Converts a process. It has acknowledged the gate if it applies `current_epoch`.
fn process(process: ProcessState, current_epoch: u64) -> wire::OverviewProcess {
    let ProcessState { entry, seen_at, status } = process;
    let RegisteredProcess { id, kind, address, started_at, next_by: _, attempts_survived: _, level: _ } =
        entry;
    let build =
        |text: fn(&Status) -> &String| status.as_ref().map(text).filter(|text| !text.is_empty()).cloned();
    let gate = status.as_ref().and_then(|status| status.gate);
    let receivers = status.iter().flat_map(|status| status.listeners.values());
    let (active, max) = receivers.fold((0_u64, 0_u64), |(active, max), queue| {
        (active.saturating_add(queue.active), max.saturating_add(queue.max))
    });
    wire::OverviewProcess {
        id: id.to_string(),
        address: address.to_string(),
        kind: kind.code().into(),
        version: build(|status| &status.version),
        commit: build(|status| &status.commit),
        started_at: started_at.to_string(),
        seen_at: seen_at.to_string(),
        answers: status.is_some(),
        gate_epoch: gate.map(|gate| gate.epoch),
        gate_held: gate.map(|gate| gate.held),
        acknowledged: gate.is_some_and(|gate| gate.epoch == current_epoch),
        active_receivers: count(active),
        receivers_max: count(max),
        not_ready: status.map(|status| status.not_ready).unwrap_or_default(),
    }
}

fn activity(series: &Series) -> wire::OverviewActivity {
    let Series { step_s, until, counts } = series;
    let of = |count: fn(&ActivityCounts) -> u64| counts.iter().map(count).collect();
    wire::OverviewActivity {
        step_s: (*step_s).into(),
        until: until.to_string(),
        accepted: of(|counts| counts.accepted),
        posted_immediately: of(|counts| counts.immediate),
        posted_queued: of(|counts| counts.queued),
        posted_in_batches: of(|counts| counts.batch),
        rejected: of(|counts| counts.rejected),
        storage_errors: of(|counts| counts.storage_errors),
        request_errors: of(|counts| counts.request_errors),
    }
}

fn rates(recent: &ActivityCounts) -> wire::OverviewRates {
    wire::OverviewRates {
        accepted: per_second(recent.accepted),
        posted: per_second(recent.posted()),
        rejected: per_second(recent.rejected),
    }
}

/// Returns the age of the oldest message at the time its queue was read: zero if all queues are empty, and `None` if the
/// age is known for none of the other queues.
fn oldest_age_s(queues: &[QueueState]) -> Option<u64> {
    let filled = || queues.iter().filter(|queue| queue.backlog.depth > 0);
    let known = filled().filter(|queue| queue.backlog.oldest_inserted_at.is_some());
    let is_empty = filled().next().is_none();
    known.map(age_s).max().or_else(|| is_empty.then_some(0))
}

fn age_s(queue: &QueueState) -> u64 {
    queue.backlog.oldest_inserted_at.map_or(0, |at| queue.read_at.since(at).as_secs())
}

fn queue(queue: QueueState) -> wire::OverviewQueue {
    let oldest_age_s = age_s(&queue);
    let QueueState { name, read_at: _, backlog, receivers: Receivers { active, max, leased, assigned_to } } =
        queue;
    wire::OverviewQueue {
        name: name.to_string(),
        depth: backlog.depth,
        oldest_age_s,
        oldest_age_known: backlog.depth == 0 || backlog.oldest_inserted_at.is_some(),
        active_receivers: count(active),
        receivers_max: count(max),
        messages_leased: leased,
        assigned_to: assigned_to.iter().map(ToString::to_string).collect(),
    }
}

fn costs(report: &CostReport, prices: &Prices) -> wire::OverviewCosts {
    let total = &report.total;
    let cost = total.cost(prices);
    wire::OverviewCosts {
        postings: total.postings,
        immediate_postings: total.immediate,
        operations: total.count(),
        price_usd: cost.usd(),
        price_usd_per_million_postings: cost.of_a_million(total.postings).map(|cost| cost.usd()),
    }
}

fn count(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
