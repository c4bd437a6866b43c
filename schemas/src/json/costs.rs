//! Responses of the operations for cost and for scaling.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What the processes that answered asked of the store since they started, and what that costs at the
/// configured prices.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StorageOperations {
    /// By service and operation.
    pub operations: Vec<StorageOperation>,
    /// All requests.
    pub count: u64,
    /// The price of all of them in US dollars.
    #[schema(example = "0.000012480", pattern = r"^[0-9]+(\.[0-9]+)?$")]
    pub price_usd: String,
    /// Transactions that their workers made final.
    pub postings: u64,
    /// Requests for each of those transactions; null when there were none.
    #[schema(required = true, example = "2.12", pattern = r"^[0-9]+(\.[0-9]+)?$")]
    pub operations_per_posting: Option<String>,
    /// The price in US dollars of a million postings at this rate; null when there were none.
    #[schema(required = true, example = "1.030000000", pattern = r"^[0-9]+(\.[0-9]+)?$")]
    pub price_usd_per_million_postings: Option<String>,
    /// The processes that are counted here.
    pub processes: Vec<ProcessCost>,
}

/// What one process asked of the store since it started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ProcessCost {
    /// Names it: the address that it listens on.
    #[schema(example = "http://127.0.0.1:8080")]
    pub process: String,
    /// Transactions that its worker made final; 0 when it has none.
    pub postings: u64,
    /// Its requests, retries included.
    pub count: u64,
    /// Their price in US dollars.
    #[schema(example = "0.000012480", pattern = r"^[0-9]+(\.[0-9]+)?$")]
    pub price_usd: String,
}

/// One kind of storage operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StorageOperation {
    /// `table`, `queue` or `blob`; the embedded store has none of them and says `sqlite`.
    pub service: Cow<'static, str>,
    /// In the service's own word.
    pub operation: String,
    /// Requests, retries included.
    pub count: u64,
    /// Their price in US dollars.
    pub price_usd: String,
}

/// How many workers are wanted, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Scale {
    /// The number: what the backlog or the schedule needs, whichever is more, within the limits.
    #[schema(example = 3)]
    pub workers_wanted: u32,
    /// What the backlog needs, without limits; 0 when nothing waits.
    #[schema(example = 3)]
    pub workers_for_backlog: u32,
    /// What the schedule asks for in this minute; 0 when it says nothing.
    pub workers_floor: u32,
    /// Fewest workers that are ever wanted.
    #[schema(example = 1)]
    pub workers_min: u32,
    /// Most workers that are ever wanted.
    #[schema(example = 8)]
    pub workers_max: u32,
    /// Queue messages, visible and not. One message holds many transactions.
    #[schema(example = 5120)]
    pub depth: u64,
    /// Those of them that another worker could receive, as far as is known.
    #[schema(example = 5120)]
    pub waiting: u64,
    /// Seconds since the oldest message at a visible head was sent; 0 when none is visible.
    #[schema(example = 4)]
    pub oldest_age_s: u64,
    /// Seconds that accepted work should wait at most.
    #[schema(example = 10)]
    pub posting_age_target_s: u64,
    /// Queue messages that one worker is taken to post in a second.
    #[schema(example = 200)]
    pub worker_rate: u32,
}
