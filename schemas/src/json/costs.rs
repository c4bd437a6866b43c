//! Responses of the operations that report costs and scaling.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Storage operations of the processes that responded, each counted since its start, and their cost at the
/// configured prices.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StorageOperations {
    /// The operations, by service and name.
    pub operations: Vec<StorageOperation>,
    /// The number of all requests.
    pub count: u64,
    /// The price of all requests in US dollars.
    #[schema(example = "0.000012480", pattern = r"^[0-9]+(\.[0-9]+)?$")]
    pub price_usd: String,
    /// The number of transactions that these processes made final.
    pub postings: u64,
    /// Those of them that were made final by the process that received the request, without the queue.
    pub immediate_postings: u64,
    /// The number of requests per transaction made final; null if there is no such transaction.
    #[schema(required = true, example = "2.12", pattern = r"^[0-9]+(\.[0-9]+)?$")]
    pub operations_per_posting: Option<String>,
    /// The price in US dollars of a million postings at this rate; null if no transaction was made final.
    #[schema(required = true, example = "1.030000000", pattern = r"^[0-9]+(\.[0-9]+)?$")]
    pub price_usd_per_million_postings: Option<String>,
    /// The price in US dollars of a month of 30 days at this rate: the sum over the processes, each at its rate since its start.
    /// Null until each process that responded has counted for 10 minutes.
    #[schema(required = true, example = "12.480000000", pattern = r"^[0-9]+(\.[0-9]+)?$")]
    pub projected_price_usd_per_month: Option<String>,
    /// The processes that are included.
    pub processes: Vec<ProcessCost>,
}

/// Storage operations of one process since it started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ProcessCost {
    /// The address that the process listens on, which identifies it.
    #[schema(example = "http://127.0.0.1:8080")]
    pub process: String,
    /// The number of transactions that it made final.
    pub postings: u64,
    /// Those of them that it made final when it received the request, without the queue.
    pub immediate_postings: u64,
    /// The number of its requests, including retries.
    pub count: u64,
    /// The price of its requests in US dollars.
    #[schema(example = "0.000012480", pattern = r"^[0-9]+(\.[0-9]+)?$")]
    pub price_usd: String,
}

/// One kind of storage operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StorageOperation {
    /// `table`, `queue` or `blob`; `sqlite` for the embedded store.
    #[schema(example = "table")]
    pub service: Cow<'static, str>,
    /// The name of the operation, as the service calls it.
    #[schema(example = "InsertEntity")]
    pub operation: String,
    /// The number of requests, including retries.
    pub count: u64,
    /// The price of the requests in US dollars.
    #[schema(example = "0.000012480")]
    pub price_usd: String,
}

/// The number of workers that is wanted, and its reasons.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Scale {
    /// The number of workers: the larger of the needs of the backlog and of the schedule, within the limits.
    #[schema(example = 3)]
    pub workers_wanted: u32,
    /// The number that the backlog needs, before the limits are applied; 0 if nothing waits.
    #[schema(example = 3)]
    pub workers_for_backlog: u32,
    /// The minimum that the schedule sets for this minute; 0 if it sets none.
    pub workers_floor: u32,
    /// The configured minimum number of workers.
    #[schema(example = 1)]
    pub workers_min: u32,
    /// The configured maximum number of workers.
    #[schema(example = 8)]
    pub workers_max: u32,
    /// The number of queue messages, visible and invisible. One message can contain many transactions.
    #[schema(example = 5120)]
    pub depth: u64,
    /// The estimated number of those messages that another worker could receive.
    #[schema(example = 5120)]
    pub waiting: u64,
    /// The age in seconds of the oldest visible message at the head of a queue; 0 if no message is visible.
    #[schema(example = 4)]
    pub oldest_age_s: u64,
    /// The number of items of open batches whose outcome is not known yet.
    #[schema(example = 0)]
    pub batch_items: u64,
    /// The number of parts of open batches that could be posted side by side now: more workers would not help them.
    #[schema(example = 0)]
    pub batch_chunks: u64,
    /// The target for the age of accepted work when it is posted, in seconds.
    #[schema(example = 10)]
    pub posting_age_target_s: u64,
    /// The number of queue messages that one worker is assumed to post per second.
    #[schema(example = 200)]
    pub worker_rate: u32,
}
