use std::sync::Arc;

use super::*;
use crate::batches::open::BatchBacklog;
use crate::messaging::envelope::queues;
use crate::messaging::queue_count::QueueCount;
use crate::testing::prelude::*;

fn policy() -> ScalingPolicy {
    ScalingPolicy {
        age_target: Duration::from_secs(10),
        worker_rate: 100,
        workers_min: 1,
        workers_max: 8,
        floors: Schedule::parse("* 7-9 * * MON = 4; * 9 * * MON = 20", &TimeZone::named("UTC").unwrap())
            .unwrap(),
        down_delay: Duration::ZERO,
    }
}

fn wanted(waiting: u64, age_s: u64, policy: &ScalingPolicy, now: &str) -> WorkersWanted {
    let oldest_age = Duration::from_secs(age_s);
    let demand = Demand { depth: waiting, waiting, oldest_age, ..Demand::default() };
    workers_wanted(&demand, policy, Timestamp::parse(now).unwrap())
}

/// A day without a scheduled floor, and a Monday.
const FRIDAY: &str = "2026-11-20T08:00:00Z";
const MONDAY: &str = "2026-11-23T08:00:00Z";
const LATER_ON_MONDAY: &str = "2026-11-23T09:00:00Z";

#[test]
fn workers_follow_backlog_age_and_schedule_within_the_limits() {
    let check = |(waiting, age_s, now), expected: (u32, u32, u32)| {
        let WorkersWanted { workers, for_backlog, floor } = wanted(waiting, age_s, &policy(), now);
        assert_eq!((workers, for_backlog, floor), expected, "{waiting} messages, {age_s} s, {now}");
    };
    // One worker posts 1,000 messages within the target.
    check((0, 0, FRIDAY), (1, 0, 0));
    check((1, 0, FRIDAY), (1, 1, 0));
    check((1_000, 0, FRIDAY), (1, 1, 0));
    check((1_001, 0, FRIDAY), (2, 2, 0));
    check((5_000, 10, FRIDAY), (5, 5, 0));
    // At twice the age target, twice as many workers are needed.
    check((1_000, 20, FRIDAY), (2, 2, 0));
    check((1_000, 21, FRIDAY), (3, 3, 0));
    check((20_000, 0, FRIDAY), (8, 20, 0));
    check((20_000, 600, FRIDAY), (8, 625, 0));
    // The number does not exceed the number of full receives, even for old messages.
    check((1, 86_400, FRIDAY), (1, 1, 0));
    check((33, 86_400, FRIDAY), (2, 2, 0));
    check((0, 0, MONDAY), (4, 0, 4));
    check((6_000, 0, MONDAY), (6, 6, 4));
    check((0, 0, LATER_ON_MONDAY), (8, 0, 20));
    check((u64::MAX, u64::MAX, FRIDAY), (8, u32::MAX, 0));
}

#[test]
fn a_batch_wants_more_workers_but_not_more_than_it_has_chunks() {
    let check = |waiting, (items, chunks), expected: u32| {
        let batches = BatchBacklog { items, chunks };
        let demand = Demand { depth: waiting, waiting, batches, ..Demand::default() };
        let wanted = workers_wanted(&demand, &policy(), Timestamp::parse(FRIDAY).unwrap());
        assert_eq!(wanted.for_backlog, expected, "{waiting} messages, {items} items, {chunks} chunks");
    };
    // One worker posts 1,000 messages within the target, or 1,000 commits of 98 items.
    check(0, (1, 1), 1);
    check(0, (98_000, 50), 1);
    check(0, (98_001, 50), 2);
    check(0, (1_000_000, 600), 11);
    check(0, (1_000_000, 3), 3);
    check(0, (1_000_000, 0), 0);
    // Combined with single requests.
    check(500, (49_000, 25), 1);
    check(500, (49_001, 25), 2);
    check(u64::MAX, (u64::MAX, u64::MAX), u32::MAX);
}

#[test]
fn limits_of_the_policy_are_kept() {
    let none = ScalingPolicy { workers_min: 0, ..policy() };
    assert_eq!(wanted(0, 0, &none, FRIDAY).workers, 0);
    assert_eq!(wanted(1, 0, &none, FRIDAY).workers, 1);
    let slow = ScalingPolicy { worker_rate: 1, age_target: Duration::from_secs(1), ..policy() };
    assert_eq!(wanted(64, 0, &slow, FRIDAY).for_backlog, 2);
    assert_eq!(wanted(640, 0, &slow, FRIDAY).for_backlog, 20);
}

#[test]
fn queues_without_a_visible_message_count_as_depth_only() {
    let now = Timestamp::parse(FRIDAY).unwrap();
    let at = |seconds: i64| Some(Timestamp::from_unix_ms(now.unix_ms() - seconds * 1000));
    let backlogs = [
        Backlog { depth: 5, head_inserted_at: at(3), ..Backlog::default() },
        Backlog { depth: 70, head_inserted_at: None, ..Backlog::default() },
        Backlog { depth: 2, head_inserted_at: at(9), ..Backlog::default() },
        // The clock of another machine is slightly ahead.
        Backlog { depth: 1, head_inserted_at: at(-2), ..Backlog::default() },
    ];
    let batches = BatchBacklog { items: 7, chunks: 2 };
    let expected = Demand { depth: 78, waiting: 8, oldest_age: Duration::from_secs(9), batches };
    assert_eq!(Demand::of(backlogs, now, batches), expected);
}

#[tokio::test]
async fn the_queues_are_read_once_per_interval_for_all_callers() {
    let world = Arc::new(TestWorld::new(1));
    let store = MemoryStore::new(world.clone());
    let asked = || store.operations.snapshot().values().sum::<u64>();
    let send = async || {
        let queue = queues(3).swap_remove(2);
        store.queue.send(&queue, b"work", Duration::ZERO).await.unwrap();
    };
    let watch = DemandWatch::new(&store, 2, world.clone());
    // An earlier configuration had more queues.
    QueueCount::new(&store, world.clone()).record(3).await.unwrap();
    send().await;
    world.advance(Duration::from_secs(2));
    let (before, first) = (asked(), watch.demand().await.unwrap());
    let oldest_age = Duration::from_secs(2);
    assert_eq!(first, Demand { depth: 1, waiting: 1, oldest_age, ..Demand::default() });
    assert_eq!(asked() - before, 5, "the number of queues, one request for each, and the open batches");
    send().await;
    let before = asked();
    world.advance(READING_AGE_MAX - Duration::from_millis(1));
    let many = futures::future::join_all((0..100).map(|_| watch.demand())).await;
    assert!(many.into_iter().all(|demand| demand.unwrap() == first));
    assert_eq!(asked(), before);
    world.advance(Duration::from_millis(1));
    let many = futures::future::join_all((0..100).map(|_| watch.demand())).await;
    assert!(many.into_iter().all(|demand| demand.unwrap().depth == 2));
    assert_eq!(asked() - before, 4, "concurrent callers share one reading");
}

#[tokio::test]
async fn a_reading_continues_when_its_first_caller_is_canceled() {
    let world = Arc::new(TestWorld::new(1));
    let store = MemoryStore::new(world.clone());
    let watch = DemandWatch::new(&store, 2, world);
    let before = store.operations.snapshot().values().sum::<u64>();
    {
        let asking = std::pin::pin!(watch.demand());
        assert!(futures::poll!(asking).is_pending(), "the reading runs in a task of its own");
    }
    assert_eq!(watch.demand().await.unwrap(), Demand::default());
    assert_eq!(store.operations.snapshot().values().sum::<u64>() - before, 4);
}
