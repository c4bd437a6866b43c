//! The number of workers needed, as a pure function of the backlog, the age target and the time.
//!
//! Kubernetes reads the number over HTTP; `postonce-worker --scale` applies it on one machine. [`DemandWatch`] reads
//! the backlog at most once per interval. [`StabilizationWindow`] keeps the number of workers from oscillating.

mod demand;
mod schedule;
mod stabilization;

use std::time::Duration;

pub use self::demand::{Demand, DemandWatch, READING_AGE_MAX, SharedFault};
pub use self::schedule::{Schedule, ScheduleError, TimeZone};
pub use self::stabilization::StabilizationWindow;
use crate::domain::journal::PAGE_ENTRIES_MAX;
use crate::domain::time::Timestamp;
use crate::ports::queue::RECEIVE_MAX;

/// Parameters for the number of workers.
#[derive(Debug, Clone)]
pub struct ScalingPolicy {
    /// Maximum time between acceptance and posting. At least 1 ms.
    pub age_target: Duration,
    /// Messages that one worker posts per second. At least 1.
    pub worker_rate: u32,
    /// Minimum number of workers.
    pub workers_min: u32,
    /// Maximum number of workers.
    pub workers_max: u32,
    /// Minimum number of workers at scheduled times.
    pub floors: Schedule,
    /// How long fewer workers must have been needed before workers are stopped.
    pub down_delay: Duration,
}

/// The number of workers needed, and how it was computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkersWanted {
    /// The maximum of backlog and schedule, within the limits.
    pub workers: u32,
    /// The number needed for the backlog; 0 if neither a message nor a batch waits.
    pub for_backlog: u32,
    /// The scheduled minimum; 0 if no entry matches.
    pub floor: u32,
}

/// Returns the number of workers needed.
///
/// Posting the waiting messages within the age target takes `waiting / (rate × target)` workers. While the oldest message
/// is younger than the target, this suffices for every message, because older messages are posted first. If the oldest
/// message is late, the rate or the number of workers was overestimated, and the result grows in proportion to the delay.
///
/// Open batches are additional work: a full commit of their items counts as one message that is not late.
///
/// The result is at most one worker per full receive that waits and per chunk that can be posted, because further
/// workers would receive nothing. An old message that cannot be posted now therefore does not start more workers.
pub fn workers_wanted(demand: &Demand, policy: &ScalingPolicy, now: Timestamp) -> WorkersWanted {
    let for_backlog = for_backlog(demand, policy);
    let floor = policy.floors.floor(now);
    let workers = for_backlog.max(floor).max(policy.workers_min).min(policy.workers_max);
    WorkersWanted { workers, for_backlog, floor }
}

fn for_backlog(demand: &Demand, policy: &ScalingPolicy) -> u32 {
    let (waiting, target_ms) = (u128::from(demand.waiting), policy.age_target.as_millis());
    let late_ms = demand.oldest_age.as_millis().max(target_ms);
    let commits = u128::from(demand.batches.items).div_ceil(wide(PAGE_ENTRIES_MAX));
    // (waiting × late + commits × target) / (rate × target²), with the rate in messages per millisecond.
    let work = waiting.saturating_mul(late_ms).saturating_add(commits.saturating_mul(target_ms));
    let work = work.saturating_mul(1000);
    let ability = u128::from(policy.worker_rate).saturating_mul(target_ms).saturating_mul(target_ms);
    let receives = waiting.div_ceil(wide(RECEIVE_MAX));
    let workers = work.div_ceil(ability.max(1)).min(receives.saturating_add(demand.batches.chunks.into()));
    u32::try_from(workers).unwrap_or(u32::MAX)
}

/// Converts a constant to the type of the computation, at least 1.
fn wide(number: usize) -> u128 {
    u128::try_from(number).unwrap_or(u128::MAX).max(1)
}

#[cfg(test)]
mod tests;
