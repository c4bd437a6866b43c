//! When a listener looks into which queue, told with a handler of its own and a clock that moves
//! only when told: wake at once, cost nothing when idle, scale, be held and released, pass on.

#![expect(
    clippy::unwrap_used,
    clippy::arithmetic_side_effects,
    clippy::disallowed_methods,
    reason = "test code"
)]

mod stage;

use std::sync::atomic::Ordering;
use std::time::Duration;

use postonce_shared::cluster::gate::GateState;
use postonce_shared::ports::doorbell::Doorbell as _;
use postonce_shared::ports::queue::{QueueName, RECEIVE_MAX};
use postonce_shared::ports::world::World as _;
use stage::{Process, QUEUES, Stage, VISIBILITY, letter, settle};
use tokio::sync::Semaphore;

const NEVER: Duration = Duration::from_secs(100_000_000);
const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_ring_wakes_at_once_and_nothing_is_looked_into_twice() {
    let stage = Stage::new();
    let process = stage.process(NEVER, 8);
    stage.pass(MINUTE).await;
    let before = stage.operations();
    stage.send(2, "hello").await;
    process.bell.ring(&QueueName::of_partition("other", 2));
    settle().await;
    assert_eq!(process.reader.read(), 0, "that bell was for others");
    process.bell.ring(&letter(2));
    settle().await;
    assert_eq!(process.reader.read(), 1, "no time has passed");
    // Send, receive, delete, and the receive that finds nothing more.
    assert_eq!(stage.operations() - before, 4);
}

#[tokio::test]
async fn an_idle_day_costs_few_operations() {
    for (poll, most) in [(MINUTE, 3000), (10 * MINUTE, 300)] {
        let stage = Stage::new();
        let _process = stage.process(poll, 8);
        for _ in 0..24 * 60 * 60 {
            stage.world.advance(Duration::from_secs(1));
            for _ in 0..6 {
                tokio::task::yield_now().await;
            }
        }
        let operations = stage.operations();
        assert!(operations <= most, "{operations} operations a day with a poll of {poll:?}");
        assert!(operations > most / 3, "{operations}: does it poll at all?");
    }
}

#[tokio::test]
async fn a_lost_ring_costs_delay_and_no_work() {
    let stage = Stage::new();
    let process = stage.process(MINUTE, 8);
    stage.pass(10 * MINUTE).await;
    for place in 0..QUEUES {
        stage.send(place, "unheard").await;
    }
    // One poll takes the queues in turn; the first find brings the others along quickly.
    stage.pass(MINUTE).await;
    assert!(process.reader.read() > 0);
    stage.pass(3 * MINUTE).await;
    assert_eq!(process.reader.read(), usize::from(QUEUES));
}

#[tokio::test]
async fn receivers_grow_with_the_backlog_and_fall_with_it() {
    let stage = Stage::new();
    for number in 0..1000 {
        stage.send(1, &number.to_string()).await;
    }
    let process = stage.process(NEVER, 8);
    process.reader.allowed.forget_permits(Semaphore::MAX_PERMITS);
    settle().await;
    let active = || process.meter.listeners(&letter(1)).look().active;
    let mut series = vec![active()];
    while process.reader.read() < 1000 {
        process.reader.allowed.add_permits(1);
        stage.pass(Duration::from_millis(250)).await;
        series.push(active());
    }
    stage.pass(Duration::from_secs(1)).await;
    series.push(active());
    assert_eq!((series[0], series.iter().max(), series.last()), (1, Some(&8), Some(&0)), "{series:?}");
    assert_eq!(process.reader.read.lock().values().max(), Some(&1), "each of them once");
}

#[tokio::test]
async fn a_second_ring_starts_no_second_session() {
    let stage = Stage::new();
    let process = stage.process(NEVER, 1);
    process.reader.allowed.forget_permits(Semaphore::MAX_PERMITS);
    settle().await;
    for number in 0..5 {
        stage.send(0, &number.to_string()).await;
        process.bell.ring(&letter(0));
        settle().await;
    }
    process.reader.allowed.add_permits(9);
    settle().await;
    assert_eq!((process.reader.read(), process.reader.at_once_max.load(Ordering::SeqCst)), (5, 1));
}

#[tokio::test]
async fn a_slow_message_keeps_nobody_waiting() {
    let stage = Stage::new();
    let process = stage.process(NEVER, 2);
    process.reader.allowed.forget_permits(Semaphore::MAX_PERMITS);
    stage.pass(MINUTE).await;
    for body in ["slow", "next", "third"] {
        stage.send(0, body).await;
        process.bell.ring(&letter(0));
        stage.pass(Duration::from_millis(750)).await;
    }
    assert_eq!(process.meter.received.get(), 2, "as many as there may be receivers");
    process.reader.allowed.add_permits(9);
    settle().await;
    assert_eq!(process.reader.read(), 3);
}

#[tokio::test]
async fn what_comes_next_is_received_while_the_last_is_settled() {
    let stage = Stage::new();
    let process = stage.process(NEVER, 1);
    process.reader.settling.forget_permits(Semaphore::MAX_PERMITS);
    stage.pass(MINUTE).await;
    for (body, read) in [("first", 1), ("second", 2), ("third", 2), ("fourth", 2)] {
        stage.send(0, body).await;
        process.bell.ring(&letter(0));
        settle().await;
        assert_eq!(process.reader.read(), read, "one settles, and for one more there is room");
    }
    process.reader.settling.add_permits(9);
    settle().await;
    assert_eq!(process.reader.read(), 4);
}

#[tokio::test]
async fn an_outage_that_settling_meets_slows_receiving_down() {
    let stage = Stage::new();
    let process = stage.process(NEVER, 1);
    process.reader.away.store(true, Ordering::SeqCst);
    stage.pass(MINUTE).await;
    for _ in 0..10 * RECEIVE_MAX {
        stage.send(0, "letter").await;
    }
    process.bell.ring(&letter(0));
    settle().await;
    // One more was received while the first was settled.
    assert_eq!(process.reader.read(), 2 * RECEIVE_MAX);
    stage.pass(Duration::from_millis(250)).await;
    assert!(process.reader.read() <= 5 * RECEIVE_MAX, "each fault doubles the wait");
    process.reader.away.store(false, Ordering::SeqCst);
    stage.pass(MINUTE).await;
    assert_eq!(process.reader.read(), 10 * RECEIVE_MAX);
}

#[tokio::test]
async fn a_busy_queue_keeps_no_other_one_from_being_looked_into() {
    let stage = Stage::new();
    let process = stage.process(MINUTE, 8);
    stage.pass(10 * MINUTE).await;
    stage.send(2, "nobody rings for this").await;
    for _ in 0..120 {
        stage.send(0, "busy").await;
        process.bell.ring(&letter(0));
        stage.pass(Duration::from_millis(250)).await;
    }
    let read = process.reader.read.lock().keys().cloned().collect::<Vec<_>>();
    assert_eq!(read, ["busy", "nobody rings for this"]);
}

#[tokio::test]
async fn what_was_given_back_is_looked_for_when_it_is_due() {
    let stage = Stage::new();
    let process = stage.process(NEVER, 8);
    stage.pass(MINUTE).await;
    *process.reader.give_back.lock() = Some(Duration::from_secs(5));
    stage.send(3, "later").await;
    process.bell.ring(&letter(3));
    stage.pass(Duration::from_millis(4750)).await;
    assert_eq!(process.reader.read(), 0);
    stage.pass(Duration::from_millis(1500)).await;
    assert_eq!(process.reader.read(), 1);
}

#[tokio::test]
async fn work_in_the_hands_of_a_dead_process_waits_no_longer_than_its_visibility_timeout() {
    let stage = Stage::new();
    let process = stage.process(NEVER, 8);
    stage.pass(MINUTE).await;
    stage.send(1, "orphan").await;
    let taken = stage.store.queue.receive(&letter(1), 32, VISIBILITY).await.unwrap();
    assert_eq!(taken.len(), 1);
    // The ring reaches both; the other one is faster, and dies.
    process.bell.ring(&letter(1));
    stage.pass(VISIBILITY + Duration::from_secs(2)).await;
    assert_eq!(process.reader.read(), 1);

    // The same for a process that was not there when it rang.
    stage.send(2, "orphan").await;
    assert_eq!(stage.store.queue.receive(&letter(2), 32, VISIBILITY).await.unwrap().len(), 1);
    let late = stage.process(NEVER, 8);
    stage.pass(VISIBILITY + Duration::from_secs(2)).await;
    assert_eq!(late.reader.read(), 1);
}

#[tokio::test]
async fn held_nothing_is_received_and_released_everybody_starts_at_once() {
    let stage = Stage::new();
    stage.gate().set(GateState::Held { release_at: None }).await.unwrap();
    let processes = [stage.process(NEVER, 1), stage.process(NEVER, 1)];
    for process in &processes {
        process.reader.allowed.forget_permits(Semaphore::MAX_PERMITS);
    }
    for number in 0..200 {
        stage.send(number % QUEUES, &number.to_string()).await;
        processes[0].bell.ring(&letter(number % QUEUES));
    }
    stage.pass(10 * MINUTE).await;
    assert!(processes.iter().all(|process| process.meter.received.get() == 0));
    let released = stage.gate().set(GateState::Released).await.unwrap();
    let [one, two] = &processes;
    let heard = futures::join!(one.gatekeeper.heard(released.epoch), two.gatekeeper.heard(released.epoch));
    assert_eq!(heard, (released.epoch, released.epoch));
    settle().await;
    assert!(processes.iter().all(|process| process.meter.received.get() > 0), "no time has passed");
    processes.iter().for_each(|process| process.reader.allowed.add_permits(1000));
    settle().await;
    assert_eq!(one.reader.read() + two.reader.read(), 200);

    // A process that starts late reads the value, and hears no ring.
    stage.send(0, "late").await;
    let late = stage.process(NEVER, 8);
    settle().await;
    assert_eq!(late.reader.read(), 1);
}

#[tokio::test]
async fn a_release_starts_those_as_well_who_left_their_queues_to_others() {
    let stage = Stage::new();
    let (busy, idle) = (stage.process(NEVER, 1), stage.process(NEVER, 1));
    for number in 0..50 {
        stage.send(0, &number.to_string()).await;
        busy.bell.ring(&letter(0));
        stage.pass(Duration::from_millis(250)).await;
        if number >= 20 {
            idle.leases.look().await;
        }
    }
    assert!(busy.leases.is_held() && !idle.leases.is_mine(&letter(0)), "the busy one tends to all queues");

    let held = stage.gate().set(GateState::Held { release_at: None }).await.unwrap();
    futures::join!(busy.gatekeeper.heard(held.epoch), idle.gatekeeper.heard(held.epoch));
    for process in [&busy, &idle] {
        process.reader.allowed.forget_permits(Semaphore::MAX_PERMITS);
    }
    for number in 20..220 {
        stage.send(number % QUEUES, &number.to_string()).await;
    }
    settle().await;
    let before = busy.meter.received.get();
    let released = stage.gate().set(GateState::Released).await.unwrap();
    futures::join!(busy.gatekeeper.heard(released.epoch), idle.gatekeeper.heard(released.epoch));
    settle().await;
    assert!(busy.meter.received.get() > before && idle.meter.received.get() > 0, "no time has passed");
}

#[tokio::test]
async fn a_hold_is_acknowledged_and_finishes_what_is_in_hand() {
    let stage = Stage::new();
    let process = stage.process(NEVER, 8);
    process.reader.allowed.forget_permits(Semaphore::MAX_PERMITS);
    settle().await;
    stage.send(0, "in hand").await;
    process.bell.ring(&letter(0));
    settle().await;
    let held = stage.gate().set(GateState::Held { release_at: None }).await.unwrap();
    assert_eq!(process.gatekeeper.heard(held.epoch).await, held.epoch);
    stage.send(0, "too late").await;
    process.bell.ring(&letter(0));
    process.reader.allowed.add_permits(9);
    stage.pass(MINUTE).await;
    assert_eq!(process.reader.read.lock().keys().collect::<Vec<_>>(), ["in hand"]);
    // The release rings into the void: a slow poll notices it.
    stage.gate().set(GateState::Released).await.unwrap();
    let polling = stage.process(MINUTE, 8);
    stage.gate().set(GateState::Held { release_at: None }).await.unwrap();
    stage.pass(3 * MINUTE).await;
    assert!(!polling.gatekeeper.is_open(), "and so it does a hold");
}

#[tokio::test]
async fn an_unreadable_gate_is_held_and_a_scheduled_release_comes_on_time() {
    let stage = Stage::new();
    let _ = stage.store.sync.swap("gate", None, "nonsense").await.unwrap();
    let process = stage.process(NEVER, 8);
    stage.send(0, "waits").await;
    stage.pass(MINUTE).await;
    assert_eq!((process.reader.read(), process.gatekeeper.is_open()), (0, false));

    let release_at = stage.world.now().after(MINUTE);
    let row = format!(r#"{{"v":1,"state":"held","epoch":7,"release_at":{}}}"#, release_at.unix_ms());
    let revision = stage.store.sync.get("gate").await.unwrap().unwrap().revision;
    let _ = stage.store.sync.swap("gate", Some(&revision), &row).await.unwrap();
    stage.pass(MINUTE - Duration::from_secs(1)).await;
    assert_eq!((process.reader.read(), process.gatekeeper.epoch()), (0, 7));
    stage.pass(Duration::from_secs(2)).await;
    assert_eq!((process.reader.read(), process.gatekeeper.epoch()), (1, 8));
}

#[tokio::test]
async fn while_work_lasts_queues_are_shared_out_and_pass_on_when_a_process_dies() {
    let stage = Stage::new();
    let (one, two) = (stage.process(NEVER, 1), stage.process(NEVER, 1));
    let mut sent = 0_usize;
    // Work that lasts: a message for each queue, every quarter of a second.
    for _ in 0..80 {
        for place in 0..QUEUES {
            stage.send(place, &sent.to_string()).await;
            sent += 1;
            // Now the one is faster, now the other.
            let (first, second) = if sent.is_multiple_of(3) { (&one, &two) } else { (&two, &one) };
            first.bell.ring(&letter(place));
            settle().await;
            second.bell.ring(&letter(place));
        }
        stage.pass(Duration::from_millis(250)).await;
    }
    assert_eq!(one.reader.read() + two.reader.read(), sent);
    assert!(one.leases.is_held() && two.leases.is_held());
    let mine =
        |process: &Process| (0..QUEUES).filter(|place| process.leases.is_mine(&letter(*place))).count();
    assert_eq!((mine(&one), mine(&two)), (2, 2));

    two.die();
    for place in 0..QUEUES {
        stage.send(place, &sent.to_string()).await;
        sent += 1;
        one.bell.ring(&letter(place));
    }
    let read_by_two = sent - usize::from(QUEUES) - one.reader.read();
    stage.pass(VISIBILITY + Duration::from_secs(2)).await;
    assert_eq!(one.reader.read() + read_by_two, sent, "nothing waits for the dead");
    stage.pass(MINUTE).await;
    assert!(!one.leases.is_held(), "leases are only held while there is work");
}

#[tokio::test]
async fn who_left_a_queue_to_others_joins_them_while_work_lasts() {
    let stage = Stage::new();
    let (one, two) = (stage.process(NEVER, 1), stage.process(NEVER, 1));
    settle().await;
    let work = async |seconds: usize, beside: Option<&Process>| {
        for step in 0..seconds * 4 {
            for place in 0..QUEUES {
                stage.send(place, "work").await;
                // Now the one is faster, now the other.
                let order = if step.is_multiple_of(2) { [&one, &two] } else { [&two, &one] };
                for process in order.into_iter().chain(beside) {
                    process.bell.ring(&letter(place));
                    settle().await;
                }
            }
            stage.pass(Duration::from_millis(250)).await;
        }
    };
    work(10, None).await;
    assert!(one.leases.is_held() && two.leases.is_held());
    // One that had no part in it, but has seen the leases.
    let three = stage.process(NEVER, 1);
    settle().await;
    three.leases.look().await;
    work(5, Some(&three)).await;
    assert!(!three.leases.is_held(), "at first it leaves the queues to the others");
    work(40, Some(&three)).await;
    assert_eq!((three.leases.is_held(), three.reader.read() > 0), (true, true));
}

#[tokio::test]
async fn a_hold_for_a_moment_is_followed_by_a_start() {
    let stage = Stage::new();
    let process = stage.process(NEVER, 8);
    stage.pass(MINUTE).await;
    let held = stage.gate().set(GateState::Held { release_at: None }).await.unwrap();
    assert_eq!(process.gatekeeper.heard(held.epoch).await, held.epoch);
    stage.send(0, "rung for while it was held").await;
    let released = stage.gate().set(GateState::Released).await.unwrap();
    // The listener has not run in between.
    assert_eq!(process.gatekeeper.heard(released.epoch).await, released.epoch);
    settle().await;
    assert_eq!(process.reader.read(), 1);
}

#[tokio::test]
async fn a_drain_finishes_what_is_in_hand_and_takes_no_more() {
    let stage = Stage::new();
    let process = stage.process(NEVER, 1);
    process.reader.allowed.forget_permits(Semaphore::MAX_PERMITS);
    settle().await;
    stage.send(0, "in hand").await;
    process.bell.ring(&letter(0));
    settle().await;
    process.starter.start();
    assert!(process.drain.is_started());
    stage.send(0, "left").await;
    process.bell.ring(&letter(0));
    settle().await;
    assert!(!process.task.is_finished());
    process.reader.allowed.add_permits(9);
    settle().await;
    assert!(process.task.is_finished());
    assert_eq!(process.reader.read.lock().keys().collect::<Vec<_>>(), ["in hand"]);
}
