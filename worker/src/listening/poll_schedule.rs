//! Scheduled polls of queues: for released messages, and for messages that another process received and may fail to settle.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use postonce_shared::ports::queue::QueueName;

/// Minimum time between two scheduled polls of a queue, so that much work needs no more polls than little work. Times are
/// rounded up to a multiple of it.
const RESOLUTION: Duration = Duration::from_secs(1);

/// Scheduled polls, by uptime.
#[derive(Debug, Default)]
pub struct PollSchedule(BTreeMap<QueueName, BTreeSet<u32>>);

impl PollSchedule {
    /// Schedules a poll of a queue. It runs at most [one second](RESOLUTION) late.
    pub fn add(&mut self, queue: &QueueName, at: Duration) {
        let slot = at.as_millis().div_ceil(RESOLUTION.as_millis());
        let slot = u32::try_from(slot).unwrap_or(u32::MAX);
        self.0.entry(queue.clone()).or_default().insert(slot);
    }

    /// Returns the time of the next poll; `None` if none is scheduled.
    pub fn next(&self) -> Option<Duration> {
        self.0.values().filter_map(BTreeSet::first).min().map(|slot| RESOLUTION.saturating_mul(*slot))
    }

    /// Removes and returns the queues whose polls are due.
    pub fn take_due(&mut self, now: Duration) -> Vec<QueueName> {
        let mut due = Vec::new();
        self.0.retain(|queue, slots| {
            let before = slots.len();
            slots.retain(|slot| RESOLUTION.saturating_mul(*slot) > now);
            if slots.len() < before {
                due.push(queue.clone());
            }
            !slots.is_empty()
        });
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polls_are_on_time_and_close_ones_are_merged() {
        let (one, two) = (QueueName::of_partition("work", 1), QueueName::of_partition("work", 2));
        let ms = Duration::from_millis;
        let mut schedule = PollSchedule::default();
        assert_eq!(schedule.next(), None);
        schedule.add(&one, ms(20_001));
        schedule.add(&one, ms(20_900));
        schedule.add(&one, ms(30_000));
        schedule.add(&two, ms(25_000));
        assert_eq!(schedule.next(), Some(ms(21_000)));
        assert!(schedule.take_due(ms(20_999)).is_empty());
        assert_eq!(schedule.take_due(ms(21_000)), std::slice::from_ref(&one));
        assert_eq!(schedule.next(), Some(ms(25_000)));
        assert_eq!(schedule.take_due(ms(90_000)), [one, two]);
        assert_eq!(schedule.next(), None);
    }
}
