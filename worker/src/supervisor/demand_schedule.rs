//! Decides when the supervisor reads the demand: waiting messages and items of batches. A pure data structure.
//!
//! Each read costs store operations, so an idle supervisor reads rarely. That is enough, because its workers are woken by the
//! doorbell. They report the number of received messages through their sockets, which costs no operation.

use std::time::Duration;

use postonce_shared::oversight::scaling::READING_AGE_MAX;
use postonce_shared::ports::queue::RECEIVE_MAX;

/// Interval between reads while there is work. More frequent reads would return a cached value.
const BUSY_INTERVAL: Duration = READING_AGE_MAX;
/// Minimum interval between reads while there is no work.
const IDLE_INTERVAL_MIN: Duration = Duration::from_secs(600);
/// The same per operation of a read, one for each queue and one for the list of open batches: at most 576 operations a day.
const IDLE_INTERVAL_OF_OPERATION: Duration = Duration::from_secs(150);

#[derive(Debug)]
pub struct DemandSchedule {
    queue_count: u16,
    read_at: Option<Duration>,
    interval: Duration,
    waiting: u64,
    /// Messages received by the workers since the last read.
    received: u64,
}

impl DemandSchedule {
    /// Creates a schedule whose first read is due immediately.
    pub const fn new(queue_count: u16) -> Self {
        Self { queue_count, read_at: None, interval: BUSY_INTERVAL, waiting: 0, received: 0 }
    }

    /// Returns whether a read is due. Reads are frequent while they find work, and when the workers have received at least one
    /// full batch per queue since the last read. With fewer messages, the workers need no help, and reads are rare.
    pub fn is_due(&self, now: Duration) -> bool {
        let Some(read_at) = self.read_at else { return true };
        let passed = now.saturating_sub(read_at);
        let full = u64::try_from(RECEIVE_MAX).unwrap_or(u64::MAX).saturating_mul(u64::from(self.queue_count));
        passed >= self.interval || (passed >= BUSY_INTERVAL && self.received >= full)
    }

    pub const fn received(&mut self, messages: u64) {
        self.received = self.received.saturating_add(messages);
    }

    /// Records a read and its result. If waiting messages are held back or fail, each read doubles the interval.
    pub fn read(&mut self, now: Duration, waiting: u64) {
        let is_moving = self.received > 0 || waiting != self.waiting;
        self.interval = match waiting {
            0 => self.idle_interval(),
            _ if is_moving => BUSY_INTERVAL,
            _ => self.doubled(),
        };
        self.waiting = waiting;
        self.restart(now);
    }

    /// Records a failed read.
    pub fn failed(&mut self, now: Duration) {
        self.interval = self.doubled();
        self.restart(now);
    }

    fn restart(&mut self, now: Duration) {
        self.read_at = Some(now);
        self.received = 0;
    }

    fn doubled(&self) -> Duration {
        self.interval.saturating_mul(2).min(self.idle_interval())
    }

    fn idle_interval(&self) -> Duration {
        let operations = u32::from(self.queue_count).saturating_add(1);
        IDLE_INTERVAL_OF_OPERATION.saturating_mul(operations).max(IDLE_INTERVAL_MIN)
    }
}

#[cfg(test)]
#[expect(clippy::arithmetic_side_effects, reason = "test code")]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    /// Returns the times of the reads within a period, given the result of each read.
    fn reads(schedule: &mut DemandSchedule, within_s: u32, waiting: impl Fn(u32) -> u64) -> Vec<u32> {
        let mut reads = Vec::new();
        for second in 0..within_s {
            if schedule.is_due(S * second) {
                reads.push(second);
                schedule.read(S * second, waiting(second));
            }
        }
        reads
    }

    #[test]
    fn an_idle_day_costs_few_reads_for_any_number_of_queues() {
        for queues in [1, 4, 16, 64] {
            // Without the first read at the start.
            let reads = reads(&mut DemandSchedule::new(queues), 86_400, |_| 0).len() - 1;
            assert!(reads * (usize::from(queues) + 1) <= 576, "{queues} queues, {reads} reads");
        }
    }

    #[test]
    fn a_backlog_that_changes_is_read_often() {
        let mut schedule = DemandSchedule::new(4);
        assert_eq!(reads(&mut schedule, 20, |second| 100 - u64::from(second)), [0, 5, 10, 15]);
        assert_eq!(reads(&mut schedule, 60, |_| 0), [20], "reads are rare once it is gone");
    }

    #[test]
    fn a_backlog_that_does_not_change_is_read_less_and_less_often() {
        let reads = reads(&mut DemandSchedule::new(4), 86_400, |_| 100);
        assert_eq!(reads.get(..8).unwrap(), [0, 5, 15, 35, 75, 155, 315, 635]);
        assert!(reads.len() < 160, "{reads:?}");
    }

    #[test]
    fn many_received_messages_cause_a_read_and_few_do_not() {
        let mut schedule = DemandSchedule::new(2);
        schedule.read(S, 0);
        schedule.received(63);
        assert!(!schedule.is_due(S * 100), "less than a full receive of each queue");
        schedule.received(1);
        assert!(schedule.is_due(S * 6));
        assert!(!schedule.is_due(S * 5), "not twice in five seconds");
        schedule.read(S * 6, 0);
        assert!(!schedule.is_due(S * 100));
        assert!(schedule.is_due(S * 606));
    }

    #[test]
    fn an_unavailable_store_is_read_less_and_less_often() {
        let mut schedule = DemandSchedule::new(4);
        schedule.failed(S);
        assert!(!schedule.is_due(S * 10) && schedule.is_due(S * 11));
        schedule.failed(S * 11);
        assert!(!schedule.is_due(S * 30) && schedule.is_due(S * 31));
    }
}
