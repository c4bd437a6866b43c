//! When the supervisor looks at the queues. Pure.
//!
//! Looks cost operations, so an idle supervisor hardly looks. It need not: its workers hear the doorbell, and
//! tell it over their line, free of charge, how much they receive.

use std::time::Duration;

use postonce_shared::oversight::scaling::READING_AGE_MAX;
use postonce_shared::ports::queue::RECEIVE_MAX;

/// Time between two looks while there is work: a reading is not repeated earlier anyway.
const BUSY_INTERVAL: Duration = READING_AGE_MAX;
/// Least time between two looks while nothing happens.
const IDLE_INTERVAL_MIN: Duration = Duration::from_secs(600);
/// The same for each queue: a look at an empty queue is one operation, so that all looks together are at most
/// 576 operations a day.
const IDLE_INTERVAL_OF_QUEUE: Duration = Duration::from_secs(150);

/// Says when to look next.
#[derive(Debug)]
pub struct Attention {
    queue_count: u16,
    looked_at: Option<Duration>,
    interval: Duration,
    waiting: u64,
    /// Messages that the workers received since the last look.
    received: u64,
}

impl Attention {
    /// Before the first look, which is due at once.
    pub const fn new(queue_count: u16) -> Self {
        Self { queue_count, looked_at: None, interval: BUSY_INTERVAL, waiting: 0, received: 0 }
    }

    /// Whether to look now. While work is found, after a short while. When the workers received a full receive
    /// from each queue since the last look, as soon: less than that they manage as they are. Else seldom.
    pub fn is_due(&self, now: Duration) -> bool {
        let Some(looked_at) = self.looked_at else { return true };
        let passed = now.saturating_sub(looked_at);
        let full = u64::try_from(RECEIVE_MAX).unwrap_or(u64::MAX).saturating_mul(u64::from(self.queue_count));
        passed >= self.interval || (passed >= BUSY_INTERVAL && self.received >= full)
    }

    /// Notes that the workers received messages.
    pub const fn heard(&mut self, messages: u64) {
        self.received = self.received.saturating_add(messages);
    }

    /// Notes a look, and what it found. Work that nobody touches (because it is held back, or fails) does not
    /// keep it looking: each such look doubles the time to the next one.
    pub fn looked(&mut self, now: Duration, waiting: u64) {
        let moves = self.received > 0 || waiting != self.waiting;
        self.interval = match waiting {
            0 => self.idle_interval(),
            _ if moves => BUSY_INTERVAL,
            _ => self.doubled(),
        };
        self.waiting = waiting;
        self.begin(now);
    }

    /// Notes a look that failed.
    pub fn failed(&mut self, now: Duration) {
        self.interval = self.doubled();
        self.begin(now);
    }

    fn begin(&mut self, now: Duration) {
        self.looked_at = Some(now);
        self.received = 0;
    }

    fn doubled(&self) -> Duration {
        self.interval.saturating_mul(2).min(self.idle_interval())
    }

    fn idle_interval(&self) -> Duration {
        IDLE_INTERVAL_OF_QUEUE.saturating_mul(u32::from(self.queue_count)).max(IDLE_INTERVAL_MIN)
    }
}

#[cfg(test)]
#[expect(clippy::arithmetic_side_effects, reason = "test code")]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    /// When it looks within a time, given what each look finds.
    fn looks(attention: &mut Attention, within_s: u32, waiting: impl Fn(u32) -> u64) -> Vec<u32> {
        let mut looks = Vec::new();
        for second in 0..within_s {
            if attention.is_due(S * second) {
                looks.push(second);
                attention.looked(S * second, waiting(second));
            }
        }
        looks
    }

    #[test]
    fn an_idle_day_is_cheap_for_any_number_of_queues() {
        for queues in [1, 4, 16, 64] {
            let looks = looks(&mut Attention::new(queues), 86_400, |_| 0).len();
            assert!(looks * usize::from(queues) <= 600, "{queues} queues, {looks} looks");
        }
    }

    #[test]
    fn a_backlog_that_moves_is_watched_closely() {
        let mut attention = Attention::new(4);
        assert_eq!(looks(&mut attention, 20, |second| 100 - u64::from(second)), [0, 5, 10, 15]);
        assert_eq!(looks(&mut attention, 60, |_| 0), [20], "and left alone once it is gone");
    }

    #[test]
    fn a_backlog_that_nobody_touches_is_watched_less_and_less() {
        let seen = looks(&mut Attention::new(4), 86_400, |_| 100);
        assert_eq!(seen.get(..8).unwrap(), [0, 5, 15, 35, 75, 155, 315, 635]);
        assert!(seen.len() < 160, "{seen:?}");
    }

    #[test]
    fn busy_workers_draw_a_look_and_a_trickle_does_not() {
        let mut attention = Attention::new(2);
        attention.looked(S, 0);
        attention.heard(63);
        assert!(!attention.is_due(S * 100), "less than a full receive of each queue");
        attention.heard(1);
        assert!(attention.is_due(S * 6));
        assert!(!attention.is_due(S * 5), "not twice in five seconds");
        attention.looked(S * 6, 0);
        assert!(!attention.is_due(S * 100));
        assert!(attention.is_due(S * 606));
    }

    #[test]
    fn a_store_that_is_away_is_asked_less_and_less() {
        let mut attention = Attention::new(4);
        attention.failed(S);
        assert!(!attention.is_due(S * 10) && attention.is_due(S * 11));
        attention.failed(S * 11);
        assert!(!attention.is_due(S * 30) && attention.is_due(S * 31));
    }
}
