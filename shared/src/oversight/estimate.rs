//! An estimate of the queue operations of a system before it runs: with listeners that poll, and with listeners that are
//! notified. A pure calculation.

use std::time::Duration;

use super::prices::{Cost, Price};

/// Number of days of a month in estimates and projections.
pub const DAYS_PER_MONTH: u64 = 30;
/// The month of estimates and projections.
pub const MONTH: Duration = Duration::from_secs(DAYS_PER_MONTH.saturating_mul(24 * 60 * 60));
/// Operations of one message: it is sent, received and deleted.
const OPERATIONS_PER_MESSAGE: u64 = 3;
/// Interval of the polls that a notified process makes in case a notification was lost. It reads one queue in turn.
const SAFETY_POLL_INTERVAL: Duration = Duration::from_secs(600);

/// The planned load of the queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Number of listening processes.
    pub listeners: u64,
    /// Number of threads of each listener that poll on their own.
    pub threads: u64,
    /// Number of queues that each thread polls.
    pub queues: u64,
    /// Time between two polls of an empty queue.
    pub poll_interval: Duration,
    /// Time that the listeners run each day.
    pub running: Duration,
    /// Number of messages a day.
    pub messages: u64,
}

impl Plan {
    /// Returns the operations of a day if every thread polls every queue, also while it handles messages.
    pub fn polling(&self) -> u64 {
        let polls = self.listeners.saturating_mul(self.threads).saturating_mul(self.queues);
        self.operations(polls.saturating_mul(intervals(self.running, self.poll_interval)))
    }

    /// Returns the operations of a day if senders notify the listeners, which then poll only in case a notification was lost.
    pub fn notified(&self) -> u64 {
        self.operations(self.listeners.saturating_mul(intervals(self.running, SAFETY_POLL_INTERVAL)))
    }

    const fn operations(&self, empty_receives: u64) -> u64 {
        empty_receives.saturating_add(self.messages.saturating_mul(OPERATIONS_PER_MESSAGE))
    }
}

/// Returns how often an interval fits into a time.
fn intervals(time: Duration, interval: Duration) -> u64 {
    let count = time.as_millis().checked_div(interval.as_millis()).unwrap_or_default();
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// Operations and their price, each day and each month of [`DAYS_PER_MONTH`] days.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Estimate {
    /// Operations a day.
    pub operations_per_day: u64,
    /// Operations a month.
    pub operations_per_month: u64,
    /// Their price a day.
    pub per_day: Cost,
    /// Their price a month.
    pub per_month: Cost,
}

impl Estimate {
    /// Computes the estimate of this number of operations a day.
    pub fn of(operations_per_day: u64, price: Price) -> Self {
        let operations_per_month = operations_per_day.saturating_mul(DAYS_PER_MONTH);
        Self {
            operations_per_day,
            operations_per_month,
            per_day: price.of(operations_per_day),
            per_month: price.of(operations_per_month),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    /// A thread that polls a queue each second for 22 hours a day.
    const ONE_THREAD: Plan = Plan {
        listeners: 1,
        threads: 1,
        queues: 1,
        poll_interval: Duration::from_secs(1),
        running: HOUR.saturating_mul(22),
        messages: 0,
    };

    #[test]
    fn the_known_figures_of_polling_come_out() {
        let price = Price::parse("0.01").unwrap();
        let month = |plan: Plan| {
            let Estimate { operations_per_day, per_month, .. } = Estimate::of(plan.polling(), price);
            (operations_per_day, per_month.dollars())
        };
        assert_eq!(month(ONE_THREAD), (79_200, "2.38".to_owned()));
        let all = (15_840_000, "475.20".to_owned());
        assert_eq!(month(Plan { listeners: 200, ..ONE_THREAD }), all);
        assert_eq!(month(Plan { listeners: 10, threads: 4, queues: 5, ..ONE_THREAD }), all);
    }

    #[test]
    fn notified_listeners_poll_rarely_and_messages_cost_the_same() {
        let day = Plan { running: HOUR.saturating_mul(24), messages: 1_000, ..ONE_THREAD };
        assert_eq!((day.polling(), day.notified()), (86_400 + 3_000, 144 + 3_000));
        let more = Plan { listeners: 4, threads: 8, queues: 16, messages: 0, ..day };
        assert_eq!(
            (more.polling(), more.notified()),
            (86_400 * 512, 144 * 4),
            "a process polls one queue in turn"
        );
        let quarter = Plan { poll_interval: Duration::from_millis(250), ..ONE_THREAD };
        assert_eq!(quarter.polling(), 4 * 79_200);
        let most = Plan { listeners: u64::MAX, messages: u64::MAX, ..day };
        assert_eq!((most.polling(), most.notified()), (u64::MAX, u64::MAX));
    }
}
