//! The schedule of the safety poll and of the background tasks.
//!
//! One safety poll serves all queues. It polls them in turn, and less often while it finds no messages. It becomes even rarer
//! while the rings of all processes are proven to arrive ([`Doorbell::proven_until`]).

use std::sync::Arc;
use std::time::Duration;

use postonce_process::background_task::BackgroundTask;
use postonce_shared::backoff::{Backoff, IDLE_POLL, RetryPolicy};
use postonce_shared::ports::doorbell::Doorbell;
use postonce_shared::ports::world::World;

use crate::config::IdleDelays;

/// Maximum delay between two safety polls while there is work.
const BUSY_POLL_INTERVAL: Duration = Duration::from_secs(5);

/// A safety poll that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DuePoll {
    /// Poll one queue: the one with this number, modulo the number of queues.
    Turn(usize),
    /// Poll all queues.
    All,
}

/// Schedule of the safety poll. All times are uptimes of the process.
pub struct SafetyPoll {
    delays: IdleDelays,
    idle: Backoff,
    /// End of the period with longer delays; `None` outside of it.
    proven_until: Option<Duration>,
    poll_at: Duration,
    polled_at: Duration,
    polls: usize,
    task_at: Duration,
    tasks_run: usize,
}

impl SafetyPoll {
    /// Creates the schedule of a process that starts now. The first poll is due immediately, unless polls are disabled.
    pub fn new(delays: IdleDelays, now: Duration) -> Self {
        Self {
            delays,
            idle: RetryPolicy {
                first: delays.first,
                factor: delays.factor,
                longest: delays.unproven,
                ..IDLE_POLL
            }
            .start(),
            proven_until: None,
            poll_at: if delays.is_never() { Duration::MAX } else { now },
            polled_at: now,
            polls: 0,
            task_at: now.saturating_add(delays.unproven),
            tasks_run: 0,
        }
    }

    /// Returns the time of the next poll or of the next check for a missed ping.
    pub fn next(&self) -> Duration {
        self.proven_until.map_or(self.poll_at, |until| until.min(self.poll_at))
    }

    /// Returns the time of the next background task.
    pub const fn next_task(&self) -> Duration {
        self.task_at
    }

    /// Returns whether rings may have been lost since the last check, because a process missed its ping. If so, the safety poll
    /// becomes frequent again.
    pub fn has_missed_ping(&mut self, now: Duration, doorbell: &dyn Doorbell) -> bool {
        if self.proven_until.is_none_or(|until| until > now) {
            return false;
        }
        self.proven_until = doorbell.proven_until();
        let latest = now.saturating_add(self.longest());
        self.poll_at = self.poll_at.min(latest);
        self.task_at = self.task_at.min(latest);
        self.proven_until.is_none()
    }

    /// Returns the time until which rings are proven to arrive.
    pub const fn proven_until(&self) -> Option<Duration> {
        self.proven_until
    }

    /// Returns the poll if it is due, and schedules the next one. All queues are polled before the delays become longer,
    /// because rings may have been lost until then.
    pub fn take_poll(
        &mut self,
        now: Duration,
        doorbell: &dyn Doorbell,
        world: &dyn World,
    ) -> Option<DuePoll> {
        if self.poll_at > now {
            return None;
        }
        let before = self.proven_until;
        self.proven_until = if self.delays.is_fixed() { None } else { doorbell.proven_until() };
        self.idle.set_longest(self.longest());
        self.polled_at = now;
        self.poll_at = now.saturating_add(self.idle.next(world));
        // A background task that is due at about the same time is moved to the poll, so that an idle process wakes only once.
        let near = self.longest().checked_div(10).unwrap_or_default();
        if self.task_at.abs_diff(self.poll_at) < near {
            self.task_at = self.poll_at;
        }
        let turn = self.polls;
        self.polls = self.polls.saturating_add(1);
        let is_all = before.is_none() && self.proven_until.is_some();
        Some(if is_all { DuePoll::All } else { DuePoll::Turn(turn) })
    }

    /// Returns the background task that is due, and schedules the next one. The tasks take turns. Two turns in each round run
    /// no task, so that an idle process makes few requests.
    pub fn take_task(
        &mut self,
        now: Duration,
        tasks: &[Arc<dyn BackgroundTask>],
    ) -> Option<Arc<dyn BackgroundTask>> {
        if self.task_at > now {
            return None;
        }
        self.task_at = now.saturating_add(self.longest());
        let turns = tasks.len().saturating_add(2);
        for _ in 0..turns {
            let turn = self.tasks_run.checked_rem(turns)?;
            self.tasks_run = self.tasks_run.saturating_add(1);
            let task = tasks.get(turn)?;
            if task.is_due() {
                return Some(Arc::clone(task));
            }
        }
        None
    }

    /// Makes polls frequent again after messages were received in a period of work that began at `busy_since`.
    pub fn reset(&mut self, now: Duration, busy_since: Duration, world: &dyn World) {
        if self.delays.is_never() {
            return;
        }
        self.idle.reset();
        let next = now.saturating_add(self.idle.next(world));
        // The safety poll continues while some queues are busy, because a ring for another queue may have been lost.
        let polled_at = self.polled_at.max(busy_since);
        self.poll_at = next.min(polled_at.saturating_add(BUSY_POLL_INTERVAL)).max(now);
    }

    /// Returns the current maximum delay between two polls.
    const fn longest(&self) -> Duration {
        if self.proven_until.is_some() { self.delays.proven } else { self.delays.unproven }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    use async_trait::async_trait;
    use postonce_shared::adapters::memory::world::TestWorld;
    use postonce_shared::ports::queue::QueueName;

    /// A doorbell whose rings are proven to arrive until this time.
    struct ProvenDoorbell(Option<Duration>);

    #[async_trait]
    impl Doorbell for ProvenDoorbell {
        fn ring(&self, _: &QueueName) {}

        async fn rung(&self, _: &str) -> BTreeSet<QueueName> {
            std::future::pending().await
        }

        fn proven_until(&self) -> Option<Duration> {
            self.0
        }
    }

    const fn minutes(minutes: u32) -> Duration {
        Duration::from_secs(60).saturating_mul(minutes)
    }

    /// Returns the delays in seconds between polls that find no messages.
    fn delays(poll: &mut SafetyPoll, doorbell: &ProvenDoorbell, count: usize) -> Vec<u64> {
        let world = TestWorld::new(1);
        let delay = |_| {
            let now = poll.poll_at;
            poll.take_poll(now, doorbell, &world).unwrap();
            poll.poll_at.saturating_sub(now).as_secs()
        };
        (0..count).map(delay).collect()
    }

    #[test]
    fn the_delays_become_longer_while_proven() {
        let (proven, unproven) = (ProvenDoorbell(Some(Duration::MAX)), ProvenDoorbell(None));
        let mut poll = SafetyPoll::new(IdleDelays::DEFAULT, Duration::ZERO);
        let mut last_of =
            |doorbell: &ProvenDoorbell, count| delays(&mut poll, doorbell, count).pop().unwrap();
        assert!((58..=60).contains(&last_of(&unproven, 30)));
        assert!((588..=600).contains(&last_of(&proven, 1)), "the back-off is not repeated");
        assert!((588..=600).contains(&last_of(&proven, 10)));
        assert!((58..=60).contains(&last_of(&unproven, 1)));
        let world = TestWorld::new(1);
        let mut poll_due = |doorbell| poll.take_poll(poll.poll_at, doorbell, &world).unwrap();
        assert_eq!(poll_due(&proven), DuePoll::All, "rings may have been lost before");
        assert_eq!(poll_due(&proven), DuePoll::Turn(43));
        assert_eq!(poll_due(&unproven), DuePoll::Turn(44));
        let mut poll = SafetyPoll::new(IdleDelays::fixed(minutes(1)), Duration::ZERO);
        assert!(
            (58..=60).contains(&delays(&mut poll, &proven, 30).pop().unwrap()),
            "one delay is configured"
        );
    }

    #[test]
    fn the_first_delay_and_the_factor_are_configured() {
        let idle = IdleDelays { first: Duration::from_secs(2), factor: 3, ..IdleDelays::fixed(minutes(1)) };
        let mut poll = SafetyPoll::new(idle, Duration::ZERO);
        let found = delays(&mut poll, &ProvenDoorbell(None), 5);
        for (delay, most) in found.iter().zip([2, 6, 18, 54, 60]) {
            assert!((most / 2..=most).contains(delay), "{found:?}");
        }
    }

    #[test]
    fn a_missed_ping_is_found_on_time_and_once() {
        let world = TestWorld::new(1);
        let mut poll = SafetyPoll::new(IdleDelays::DEFAULT, Duration::ZERO);
        let mut now = Duration::ZERO;
        let proven = |until| ProvenDoorbell(Some(until));
        while poll.poll_at.saturating_sub(now) < minutes(9) {
            now = poll.poll_at;
            poll.take_poll(now, &proven(now.saturating_add(minutes(1))), &world).unwrap();
        }
        let until = now.saturating_add(minutes(1));
        assert_eq!(poll.next(), until);
        assert!(
            !poll.has_missed_ping(until, &proven(now.saturating_add(minutes(2)))),
            "the next ping arrived"
        );
        let until = now.saturating_add(minutes(2));
        assert_eq!(poll.next(), until);
        assert!(!poll.has_missed_ping(until.saturating_sub(minutes(1)), &ProvenDoorbell(None)), "not due");
        assert!(poll.has_missed_ping(until, &ProvenDoorbell(None)));
        assert_eq!(poll.next(), until.saturating_add(minutes(1)));
        assert!(poll.next_task() <= until.saturating_add(minutes(1)));
        assert!(!poll.has_missed_ping(until, &ProvenDoorbell(None)), "reported once");
    }
}
