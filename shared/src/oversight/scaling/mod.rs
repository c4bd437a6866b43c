//! How many workers are wanted: a pure function of what waits, what is promised, and the time.
//!
//! Kubernetes asks for the number over HTTP, and `postonce-worker --scale` acts on it on one machine.
//! [`DemandWatch`] reads what waits, at most once in a while; [`Steady`] keeps a number that is acted
//! upon from flapping.

mod demand;
mod schedule;
mod steady;

use std::time::Duration;

pub use self::demand::{Demand, DemandWatch, READING_AGE_MAX, SharedFault};
pub use self::schedule::{InvalidSchedule, Schedule, TimeZone};
pub use self::steady::Steady;
use crate::domain::time::Timestamp;
use crate::ports::queue::RECEIVE_MAX;

/// What the number of workers goes by.
#[derive(Debug, Clone)]
pub struct ScalingPolicy {
    /// How long accepted work may wait at most before it is posted. At least 1 ms.
    pub age_target: Duration,
    /// Messages in a second that one worker posts. At least 1.
    pub worker_rate: u32,
    /// Fewest workers.
    pub workers_min: u32,
    /// Most workers.
    pub workers_max: u32,
    /// Fewest workers at known times.
    pub floors: Schedule,
    /// For how long fewer workers must have been wanted before there are fewer.
    pub down_delay: Duration,
}

/// How many workers are wanted, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkersWanted {
    /// The number: what the backlog or the schedule needs, whichever is more, within the limits.
    pub workers: u32,
    /// What the backlog needs; 0 when nothing waits.
    pub for_backlog: u32,
    /// What the schedule asks for at this time; 0 when it says nothing.
    pub floor: u32,
}

/// How many workers are wanted.
///
/// The messages that wait, worked off within the age target, need `waiting / (rate × target)` workers. As
/// long as the oldest is younger than the target, this also is in time for each of them: work that came
/// earlier stands further ahead. Once the oldest is late, the rate or the workers were fewer than thought,
/// and the number grows by as much as the work is late.
///
/// There are never more than one worker for each full receive that waits: more would find nothing. So an old
/// message that cannot be posted for now does not call for workers that could not help it.
pub fn workers_wanted(demand: &Demand, policy: &ScalingPolicy, now: Timestamp) -> WorkersWanted {
    let for_backlog = for_backlog(demand, policy);
    let floor = policy.floors.floor(now);
    let workers = for_backlog.max(floor).max(policy.workers_min).min(policy.workers_max);
    WorkersWanted { workers, for_backlog, floor }
}

fn for_backlog(demand: &Demand, policy: &ScalingPolicy) -> u32 {
    let (waiting, target_ms) = (u128::from(demand.waiting), policy.age_target.as_millis());
    let late_ms = demand.oldest_age.as_millis().max(target_ms);
    // waiting × late / (rate × target²), with the rate in messages per millisecond.
    let work = waiting.saturating_mul(late_ms).saturating_mul(1000);
    let ability = u128::from(policy.worker_rate).saturating_mul(target_ms).saturating_mul(target_ms);
    let receives = waiting.div_ceil(u128::try_from(RECEIVE_MAX).unwrap_or(u128::MAX));
    let workers = work.div_ceil(ability.max(1)).min(receives);
    u32::try_from(workers).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
