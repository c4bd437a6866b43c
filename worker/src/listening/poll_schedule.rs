//! When to look into which queue again without being rung: where something may come back, such as
//! work that was given back for later, or work in the hands of another process, which may die.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use postonce_shared::ports::queue::QueueName;

/// Looks into one queue are at least this far apart, so that much work costs no more looks than
/// little: a time is rounded up to the next multiple.
const GRID: Duration = Duration::from_secs(1);

/// The looks to come, on the clock of the process's uptime.
#[derive(Debug, Default)]
pub struct PollSchedule(BTreeMap<QueueName, BTreeSet<u32>>);

impl PollSchedule {
    /// Notes a look into a queue; it comes at most [one second](GRID) later.
    pub fn note(&mut self, queue: &QueueName, at: Duration) {
        let slot = at.as_millis().div_ceil(GRID.as_millis());
        let slot = u32::try_from(slot).unwrap_or(u32::MAX);
        self.0.entry(queue.clone()).or_default().insert(slot);
    }

    /// The time of the next look.
    pub fn next(&self) -> Option<Duration> {
        self.0.values().filter_map(BTreeSet::first).min().map(|slot| GRID.saturating_mul(*slot))
    }

    /// Takes the queues whose time has come.
    pub fn take_due(&mut self, now: Duration) -> Vec<QueueName> {
        let mut due = Vec::new();
        self.0.retain(|queue, slots| {
            let before = slots.len();
            slots.retain(|slot| GRID.saturating_mul(*slot) > now);
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
    fn looks_come_on_time_and_close_ones_are_one() {
        let (one, two) = (QueueName::of_partition("work", 1), QueueName::of_partition("work", 2));
        let ms = Duration::from_millis;
        let mut agenda = PollSchedule::default();
        assert_eq!(agenda.next(), None);
        agenda.note(&one, ms(20_001));
        agenda.note(&one, ms(20_900));
        agenda.note(&one, ms(30_000));
        agenda.note(&two, ms(25_000));
        assert_eq!(agenda.next(), Some(ms(21_000)));
        assert!(agenda.take_due(ms(20_999)).is_empty());
        assert_eq!(agenda.take_due(ms(21_000)), std::slice::from_ref(&one));
        assert_eq!(agenda.next(), Some(ms(25_000)));
        assert_eq!(agenda.take_due(ms(90_000)), [one, two]);
        assert_eq!(agenda.next(), None);
    }
}
