//! Values derived from the overview, which several pages use.

use postonce_schemas::json::{Gate, Overview, OverviewActivity};

/// Length of the window of [`last_minute`], in seconds.
const MINUTE_S: u32 = 60;

/// Returns whether the gate is held.
pub fn is_held(gate: &Gate) -> bool {
    gate.state == "held"
}

/// Returns whether work waits longer than the target. While the gate is held, work is never late.
pub fn is_late(overview: &Overview) -> bool {
    let target_s = overview.scale.posting_age_target_s;
    !is_held(&overview.gate) && overview.oldest_open_age_s.is_some_and(|age_s| age_s > target_s)
}

/// Returns whether more workers are wanted than are running.
pub const fn lacks_workers(overview: &Overview) -> bool {
    overview.scale.workers_wanted > overview.workers_running
}

/// Returns the number of messages in all queues.
pub fn depth(overview: &Overview) -> u64 {
    overview.queues.iter().fold(0, |sum: u64, queue| sum.saturating_add(queue.depth))
}

/// Sums the counts of the last minute.
pub fn last_minute(activity: &OverviewActivity, counts: &[u64]) -> u64 {
    let steps = MINUTE_S.div_ceil(activity.step_s.max(1));
    let steps = usize::try_from(steps).unwrap_or(usize::MAX);
    counts.iter().rev().take(steps).fold(0, |sum: u64, count| sum.saturating_add(*count))
}
