//! The response with the overview of the whole bank.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::codes;
use super::costs::Scale;
use super::operators::Gate;

/// The bank at this moment: gate, processes, activity, queues, scaling and costs. Activity and costs are those of the processes
/// that answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Overview {
    /// The time of the response.
    #[schema(format = "date-time")]
    pub at: String,
    /// The gate, as the process that answers applies it. `since`, `by` and `reason` are absent for up to some minutes after a change.
    pub gate: Gate,
    /// The live processes, by id. A process that ended without notice remains for up to 36 minutes.
    pub processes: Vec<OverviewProcess>,
    /// What was accepted and decided in the last seconds.
    pub activity: OverviewActivity,
    /// The same per second, over the last 10 seconds.
    pub per_second: OverviewRates,
    /// The work queues and those of batches, by name.
    pub queues: Vec<OverviewQueue>,
    /// The time when the work queues were read. They are read rarely, because reading them costs storage operations.
    #[schema(format = "date-time")]
    pub queues_read_at: String,
    /// The age in seconds of the oldest message in all queues; 0 if there is no message, null if no age is known.
    #[schema(required = true, example = 4)]
    pub oldest_open_age_s: Option<u64>,
    /// The number of dead letters without a decision, as the process that scrubs counted them last; null if none has.
    #[schema(required = true, example = 0)]
    pub dead_letters_open: Option<u64>,
    /// The number of workers that is wanted.
    pub scale: Scale,
    /// The number of live processes that are workers.
    #[schema(example = 2)]
    pub workers_running: u32,
    /// Storage operations and their cost since the processes started.
    pub costs: OverviewCosts,
}

/// A live process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OverviewProcess {
    /// The id of the process, as in its log.
    #[schema(format = Uuid)]
    pub id: String,
    /// The address at which other processes reach it.
    #[schema(example = "http://10.0.0.7:8081")]
    pub address: String,
    /// `web` or `worker`. A web process that runs the worker as well is a worker.
    #[schema(example = "worker", pattern = "^(web|worker)$")]
    #[serde(deserialize_with = "codes::process_kind")]
    pub kind: Cow<'static, str>,
    /// The version of its program; null if it did not answer.
    #[schema(required = true, example = "0.1.0")]
    pub version: Option<String>,
    /// The commit of its program, abbreviated.
    #[schema(required = true, example = "3f1c2d9a7b60")]
    pub commit: Option<String>,
    /// The time of its start.
    #[schema(format = "date-time")]
    pub started_at: String,
    /// When the process last renewed its entry in the process registry, about every 15 minutes; now for the process that answers.
    #[schema(format = "date-time")]
    pub seen_at: String,
    /// Whether it answered. If not, the members below have no values of it.
    pub answers: bool,
    /// The epoch of the gate that it applies; null if it is not known.
    #[schema(required = true, example = 7)]
    pub gate_epoch: Option<u64>,
    /// Whether it holds the gate.
    #[schema(required = true, example = false)]
    pub gate_held: Option<bool>,
    /// Whether it applies the current epoch of the gate.
    pub acknowledged: bool,
    /// The number of receivers that handle messages.
    pub active_receivers: u32,
    /// The maximum number of its receivers.
    pub receivers_max: u32,
    /// The names of the parts that it lacks to be ready, as in `/readyz`.
    #[schema(example = json!(["queue"]))]
    pub not_ready: Vec<String>,
}

/// Numbers in steps of equal length, the oldest step first; each list has one for each step, at most 360.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OverviewActivity {
    /// The length of a step in seconds, a multiple of 2.
    #[schema(example = 2, minimum = 2, maximum = 10)]
    pub step_s: u32,
    /// The end of the last step. It is a multiple of the length, and at least 2 seconds ago, so that the step is complete.
    #[schema(format = "date-time")]
    pub until: String,
    /// New deposits and withdrawals that were accepted, items of batches and orders of direct producers included.
    #[schema(example = json!([3, 0]))]
    pub accepted: Vec<u64>,
    /// Those that were posted by the process that received the request, without the queue.
    #[schema(example = json!([2, 0]))]
    pub posted_immediately: Vec<u64>,
    /// Those that were posted from the queue.
    #[schema(example = json!([1, 0]))]
    pub posted_queued: Vec<u64>,
    /// Items of batches that were posted.
    #[schema(example = json!([0, 98]))]
    pub posted_in_batches: Vec<u64>,
    /// Transactions that were rejected, on any way.
    #[schema(example = json!([0, 0]))]
    pub rejected: Vec<u64>,
    /// Storage operations that failed: the store did not answer or was overloaded. Most are repeated.
    #[schema(example = json!([0, 0]))]
    pub storage_errors: Vec<u64>,
    /// Requests that were answered with a status of 500 or above, including those of console pages, except readiness checks.
    #[schema(example = json!([0, 0]))]
    pub request_errors: Vec<u64>,
}

/// Transactions per second, with one decimal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OverviewRates {
    /// Accepted ones.
    #[schema(example = "12.5", pattern = r"^[0-9]+\.[0-9]$")]
    pub accepted: String,
    /// Posted ones.
    #[schema(example = "12.4", pattern = r"^[0-9]+\.[0-9]$")]
    pub posted: String,
    /// Rejected ones.
    #[schema(example = "0.1", pattern = r"^[0-9]+\.[0-9]$")]
    pub rejected: String,
}

/// One queue: of work, or of a role of batches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OverviewQueue {
    /// The name of the queue.
    #[schema(example = "work-0")]
    pub name: String,
    /// The number of messages, visible and invisible. One message can contain many transactions.
    pub depth: u64,
    /// The age in seconds of the oldest message when the queue was read; 0 if there is none, or it is not known.
    pub oldest_age_s: u64,
    /// Whether the age is known: false on Azure while workers have received all messages of the queue, also workers that ended.
    pub oldest_age_known: bool,
    /// The number of receivers that handle messages of the queue, in the processes that answered.
    pub active_receivers: u32,
    /// The maximum number of its receivers.
    pub receivers_max: u32,
    /// The number of messages on which the processes that answered have leases: they were received, are hidden from other receivers,
    /// and are not settled yet.
    pub messages_leased: u64,
    /// The ids of the processes that answered to which the queue is assigned by a lease. Workers take such leases under lasting load
    /// only; without one, each worker may receive from the queue.
    #[schema(example = json!([]))]
    pub assigned_to: Vec<String>,
}

/// Storage operations of the processes that answered, each counted since its start, and their cost at the configured prices.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OverviewCosts {
    /// The number of transactions that they made final.
    pub postings: u64,
    /// Those of them that were made final by the process that received the request, without the queue.
    pub immediate_postings: u64,
    /// The number of their requests to the store, including retries.
    pub operations: u64,
    /// The price of these requests in US dollars.
    #[schema(example = "0.000012480", pattern = r"^[0-9]+(\.[0-9]+)?$")]
    pub price_usd: String,
    /// The price in US dollars of a million postings at this rate; null if no transaction was made final.
    #[schema(required = true, example = "1.030000000", pattern = r"^[0-9]+(\.[0-9]+)?$")]
    pub price_usd_per_million_postings: Option<String>,
}
