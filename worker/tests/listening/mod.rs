//! When a listener receives from which queue, with a handler of the tests and a clock that only they
//! advance: rings, idle polling, scaling, hold and release, leases.

#![expect(
    clippy::unwrap_used,
    clippy::arithmetic_side_effects,
    clippy::disallowed_methods,
    reason = "test code"
)]

mod clocks;
mod fixture;
mod pings;

use std::sync::atomic::Ordering;
use std::time::Duration;

use fixture::{Fixture, Process, QUEUES, VISIBILITY, queue, settle};
use postonce_shared::testing::prelude::*;
use postonce_shared::testing::registered::entry_in;
use tokio::sync::Semaphore;

const NEVER: Duration = Duration::from_secs(100_000_000);
const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_ring_wakes_the_listener_at_once_and_costs_no_extra_receive() {
    let fixture = Fixture::new();
    let process = fixture.process(NEVER, 8);
    fixture.pass(MINUTE).await;
    let before = fixture.operations();
    fixture.send(2, "hello").await;
    process.bell.ring(&QueueName::of_partition("other", 2));
    settle().await;
    assert_eq!(process.handler.handled_count(), 0, "the ring was for another queue");
    process.bell.ring(&queue(2));
    settle().await;
    assert_eq!(process.handler.handled_count(), 1, "no time has passed");
    // Send, receive, delete, and the receive that finds the queue empty.
    assert_eq!(fixture.operations() - before, 4);
}

#[tokio::test]
async fn an_idle_day_costs_few_operations() {
    for (poll, most) in [(MINUTE, 3000), (10 * MINUTE, 300)] {
        let fixture = Fixture::new();
        let _process = fixture.process(poll, 8);
        for _ in 0..24 * 60 * 60 {
            fixture.world.advance(Duration::from_secs(1));
            for _ in 0..6 {
                tokio::task::yield_now().await;
            }
        }
        let operations = fixture.operations();
        assert!(operations <= most, "{operations} operations a day with a poll of {poll:?}");
        assert!(operations > most / 3, "{operations}: too few for any polling");
    }
}

#[tokio::test]
async fn a_lost_ring_delays_work_and_loses_none() {
    let fixture = Fixture::new();
    let process = fixture.process(MINUTE, 8);
    fixture.pass(10 * MINUTE).await;
    for partition in 0..QUEUES {
        fixture.send(partition, "sent without a ring").await;
    }
    // Polls take the queues in turn; after the first find, the other queues are polled sooner.
    fixture.pass(MINUTE).await;
    assert!(process.handler.handled_count() > 0);
    fixture.pass(3 * MINUTE).await;
    assert_eq!(process.handler.handled_count(), usize::from(QUEUES));
}

#[tokio::test]
async fn the_number_of_receivers_follows_the_backlog() {
    let fixture = Fixture::new();
    for number in 0..1000 {
        fixture.send(1, &number.to_string()).await;
    }
    let process = fixture.process(NEVER, 8);
    process.block();
    settle().await;
    let active = || process.meter.listeners(&queue(1)).snapshot().active;
    let mut series = vec![active()];
    while process.handler.handled_count() < 1000 {
        process.handler.allowed.add_permits(1);
        fixture.pass(Duration::from_millis(250)).await;
        series.push(active());
    }
    fixture.pass(Duration::from_secs(1)).await;
    series.push(active());
    assert_eq!((series[0], series.iter().max(), series.last()), (1, Some(&8), Some(&0)), "{series:?}");
    assert_eq!(process.handler.handled.lock().values().max(), Some(&1), "each message is handled once");
}

#[tokio::test]
async fn a_second_ring_starts_no_second_session() {
    let fixture = Fixture::new();
    let process = fixture.process(NEVER, 1);
    process.block();
    settle().await;
    for number in 0..5 {
        fixture.deliver(&process, 0, &number.to_string()).await;
        settle().await;
    }
    process.handler.allowed.add_permits(9);
    settle().await;
    assert_eq!((process.handler.handled_count(), process.handler.at_once_max.load(Ordering::SeqCst)), (5, 1));
}

#[tokio::test]
async fn a_slow_message_does_not_delay_other_messages() {
    let fixture = Fixture::new();
    let process = fixture.process(NEVER, 2);
    process.block();
    fixture.pass(MINUTE).await;
    for body in ["slow", "next", "third"] {
        fixture.deliver(&process, 0, body).await;
        fixture.pass(Duration::from_millis(750)).await;
    }
    assert_eq!(process.meter.received.get(), 2, "one message for each receiver");
    process.handler.allowed.add_permits(9);
    settle().await;
    assert_eq!(process.handler.handled_count(), 3);
}

#[tokio::test]
async fn the_next_message_is_received_while_the_previous_one_is_settled() {
    let fixture = Fixture::new();
    let process = fixture.process(NEVER, 1);
    process.handler.settling.forget_permits(Semaphore::MAX_PERMITS);
    fixture.pass(MINUTE).await;
    for (body, read) in [("first", 1), ("second", 2), ("third", 2), ("fourth", 2)] {
        fixture.deliver(&process, 0, body).await;
        settle().await;
        assert_eq!(
            process.handler.handled_count(),
            read,
            "one message is being settled, and one more may be handled"
        );
    }
    let leased = || process.meter.listeners(&queue(0)).snapshot().leased;
    assert_eq!(leased(), 2, "they have leases until they are settled");
    process.handler.settling.add_permits(9);
    settle().await;
    assert_eq!((process.handler.handled_count(), leased()), (4, 0));
}

#[tokio::test]
async fn an_outage_while_settling_slows_receiving_down() {
    let fixture = Fixture::new();
    let process = fixture.process(NEVER, 1);
    process.handler.unavailable.store(true, Ordering::SeqCst);
    fixture.pass(MINUTE).await;
    for _ in 0..10 * RECEIVE_MAX {
        fixture.send(0, "letter").await;
    }
    process.bell.ring(&queue(0));
    settle().await;
    // One more batch was received while the first was settled.
    assert_eq!(process.handler.handled_count(), 2 * RECEIVE_MAX);
    fixture.pass(Duration::from_millis(250)).await;
    assert!(process.handler.handled_count() <= 5 * RECEIVE_MAX, "each fault doubles the wait");
    process.handler.unavailable.store(false, Ordering::SeqCst);
    fixture.pass(MINUTE).await;
    assert_eq!(process.handler.handled_count(), 10 * RECEIVE_MAX);
}

#[tokio::test]
async fn a_busy_queue_does_not_stop_the_polling_of_other_queues() {
    let fixture = Fixture::new();
    let process = fixture.process(MINUTE, 8);
    fixture.pass(10 * MINUTE).await;
    fixture.send(2, "sent without a ring").await;
    for _ in 0..120 {
        fixture.deliver(&process, 0, "busy").await;
        fixture.pass(Duration::from_millis(250)).await;
    }
    let read = process.handler.handled.lock().keys().cloned().collect::<Vec<_>>();
    assert_eq!(read, ["busy", "sent without a ring"]);
}

#[tokio::test]
async fn a_returned_message_is_received_again_when_it_becomes_visible() {
    let fixture = Fixture::new();
    let process = fixture.process(NEVER, 8);
    fixture.pass(MINUTE).await;
    *process.handler.give_back.lock() = Some(Duration::from_secs(5));
    fixture.deliver(&process, 3, "later").await;
    fixture.pass(Duration::from_millis(4750)).await;
    assert_eq!(process.handler.handled_count(), 0);
    fixture.pass(Duration::from_millis(1500)).await;
    assert_eq!(process.handler.handled_count(), 1);
}

#[tokio::test]
async fn work_of_a_dead_process_waits_no_longer_than_its_visibility_timeout() {
    let fixture = Fixture::new();
    let process = fixture.process(NEVER, 8);
    fixture.pass(MINUTE).await;
    fixture.send(1, "orphan").await;
    let taken = fixture.store.queue.receive(&queue(1), 32, VISIBILITY).await.unwrap();
    assert_eq!(taken.len(), 1);
    // The ring reaches both processes; the other one receives first, and dies.
    process.bell.ring(&queue(1));
    fixture.pass(VISIBILITY + Duration::from_secs(2)).await;
    assert_eq!(process.handler.handled_count(), 1);

    // The same for a process that started after the ring.
    fixture.send(2, "orphan").await;
    assert_eq!(fixture.store.queue.receive(&queue(2), 32, VISIBILITY).await.unwrap().len(), 1);
    let late = fixture.process(NEVER, 8);
    fixture.pass(VISIBILITY + Duration::from_secs(2)).await;
    assert_eq!(late.handler.handled_count(), 1);
}

#[tokio::test]
async fn a_hold_stops_receiving_and_a_release_starts_all_processes_at_once() {
    let fixture = Fixture::new();
    fixture.hold().await;
    let processes = [fixture.process(NEVER, 1), fixture.process(NEVER, 1)];
    for process in &processes {
        process.block();
    }
    for number in 0..200 {
        fixture.send(number % QUEUES, &number.to_string()).await;
        processes[0].bell.ring(&queue(number % QUEUES));
    }
    fixture.pass(10 * MINUTE).await;
    assert!(processes.iter().all(|process| process.meter.received.get() == 0));
    let released = fixture.release().await;
    let [one, two] = &processes;
    let epochs = futures::join!(one.process_gate.refresh(released), two.process_gate.refresh(released));
    assert_eq!(epochs, (released, released));
    settle().await;
    assert!(processes.iter().all(|process| process.meter.received.get() > 0), "no time has passed");
    processes.iter().for_each(|process| process.handler.allowed.add_permits(1000));
    settle().await;
    assert_eq!(one.handler.handled_count() + two.handler.handled_count(), 200);

    // A process that starts late gets no ring, and reads the value at its start.
    fixture.send(0, "late").await;
    let late = fixture.process(NEVER, 8);
    settle().await;
    assert_eq!(late.handler.handled_count(), 1);
}

#[tokio::test]
async fn a_release_also_starts_processes_that_left_their_queues_to_others() {
    let fixture = Fixture::new();
    let (busy, idle) = (fixture.process(NEVER, 1), fixture.process(NEVER, 1));
    for number in 0..50 {
        fixture.deliver(&busy, 0, &number.to_string()).await;
        fixture.pass(Duration::from_millis(250)).await;
        if number >= 20 {
            idle.leases.refresh().await;
        }
    }
    assert!(
        busy.leases.is_held() && !idle.leases.is_mine(&queue(0)),
        "the busy process holds the leases of all queues"
    );

    let held = fixture.hold().await;
    futures::join!(busy.process_gate.refresh(held), idle.process_gate.refresh(held));
    for process in [&busy, &idle] {
        process.block();
    }
    for number in 20..220 {
        fixture.send(number % QUEUES, &number.to_string()).await;
    }
    settle().await;
    let before = busy.meter.received.get();
    let released = fixture.release().await;
    futures::join!(busy.process_gate.refresh(released), idle.process_gate.refresh(released));
    settle().await;
    assert!(busy.meter.received.get() > before && idle.meter.received.get() > 0, "no time has passed");
}

#[tokio::test]
async fn a_hold_is_acknowledged_and_work_in_progress_is_finished() {
    let fixture = Fixture::new();
    let process = fixture.process(NEVER, 8);
    process.block();
    settle().await;
    fixture.deliver(&process, 0, "in progress").await;
    settle().await;
    let held = fixture.hold().await;
    assert_eq!(process.process_gate.refresh(held).await, held);
    fixture.deliver(&process, 0, "too late").await;
    process.handler.allowed.add_permits(9);
    fixture.pass(MINUTE).await;
    assert_eq!(process.handler.handled.lock().keys().collect::<Vec<_>>(), ["in progress"]);
    // No process gets the ring of this release: a slow poll notices it.
    fixture.release().await;
    let polling = fixture.process(MINUTE, 8);
    fixture.hold().await;
    fixture.pass(3 * MINUTE).await;
    assert!(!polling.process_gate.is_open(), "the poll notices a hold as well");
}

#[tokio::test]
async fn a_process_that_returns_to_the_registry_begins_at_once_unless_the_gate_is_held() {
    let fixture = Fixture::new();
    let process = fixture.process(NEVER, 8);
    settle().await;
    let entry = entry_in(&*fixture.world);
    for (is_held, handled_before) in [(false, 0), (true, 1)] {
        process.permits.register(&entry, Duration::ZERO);
        fixture.deliver(&process, 0, if is_held { "second" } else { "first" }).await;
        fixture.pass(MINUTE).await;
        assert_eq!(process.handler.handled_count(), handled_before, "the others do not find it");
        // The process does not hear of this.
        let epoch = if is_held { fixture.hold().await } else { 0 };
        process.permits.register(&entry, Duration::MAX);
        settle().await;
        assert_eq!((process.handler.handled_count(), process.process_gate.epoch()), (1, epoch));
    }
    let released = fixture.release().await;
    process.process_gate.refresh(released).await;
    settle().await;
    assert_eq!(process.handler.handled_count(), 2);
}

#[tokio::test]
async fn an_unreadable_gate_counts_as_held_and_a_scheduled_release_is_on_time() {
    let fixture = Fixture::new();
    let _ = fixture.store.sync.swap("gate", None, "nonsense").await.unwrap();
    let process = fixture.process(NEVER, 8);
    fixture.send(0, "waits").await;
    fixture.pass(MINUTE).await;
    assert_eq!((process.handler.handled_count(), process.process_gate.is_open()), (0, false));

    let release_at = fixture.world.now().after(MINUTE);
    let row = format!(r#"{{"v":1,"state":"held","epoch":7,"release_at":{}}}"#, release_at.unix_ms());
    let revision = fixture.store.sync.get("gate").await.unwrap().unwrap().revision;
    let _ = fixture.store.sync.swap("gate", Some(&revision), &row).await.unwrap();
    fixture.pass(MINUTE - Duration::from_secs(1)).await;
    assert_eq!((process.handler.handled_count(), process.process_gate.epoch()), (0, 7));
    fixture.pass(Duration::from_secs(2)).await;
    assert_eq!((process.handler.handled_count(), process.process_gate.epoch()), (1, 8));
}

#[tokio::test]
async fn under_load_queues_are_shared_and_those_of_a_dead_process_are_taken_over() {
    let fixture = Fixture::new();
    let (one, two) = (fixture.process(NEVER, 1), fixture.process(NEVER, 1));
    let mut sent = 0_usize;
    // Lasting load: a message for each queue, every quarter of a second.
    for _ in 0..80 {
        for partition in 0..QUEUES {
            fixture.send(partition, &sent.to_string()).await;
            sent += 1;
            // The processes take turns in being the first to be rung.
            let (first, second) = if sent.is_multiple_of(3) { (&one, &two) } else { (&two, &one) };
            first.bell.ring(&queue(partition));
            settle().await;
            second.bell.ring(&queue(partition));
        }
        fixture.pass(Duration::from_millis(250)).await;
    }
    assert_eq!(one.handler.handled_count() + two.handler.handled_count(), sent);
    assert!(one.leases.is_held() && two.leases.is_held());
    let mine = |process: &Process| {
        (0..QUEUES).filter(|partition| process.leases.is_mine(&queue(*partition))).count()
    };
    assert_eq!((mine(&one), mine(&two)), (2, 2));
    let reported = |process: &Process| process.meter.assigned().len();
    assert_eq!((reported(&one), reported(&two)), (2, 2));

    two.die();
    for partition in 0..QUEUES {
        fixture.send(partition, &sent.to_string()).await;
        sent += 1;
        one.bell.ring(&queue(partition));
    }
    let read_by_two = sent - usize::from(QUEUES) - one.handler.handled_count();
    fixture.pass(VISIBILITY + Duration::from_secs(2)).await;
    assert_eq!(one.handler.handled_count() + read_by_two, sent, "no message waits for the dead process");
    fixture.pass(MINUTE).await;
    assert!(!one.leases.is_held(), "leases are only held while there is work");
    assert_eq!(reported(&one), 0);
}

#[tokio::test]
async fn a_process_that_left_its_queues_to_others_takes_its_share_under_lasting_load() {
    let fixture = Fixture::new();
    let (one, two) = (fixture.process(NEVER, 1), fixture.process(NEVER, 1));
    settle().await;
    let work = async |seconds: usize, beside: Option<&Process>| {
        for step in 0..seconds * 4 {
            for partition in 0..QUEUES {
                fixture.send(partition, "work").await;
                // The processes take turns in being the first to be rung.
                let order = if step.is_multiple_of(2) { [&one, &two] } else { [&two, &one] };
                for process in order.into_iter().chain(beside) {
                    process.bell.ring(&queue(partition));
                    settle().await;
                }
            }
            fixture.pass(Duration::from_millis(250)).await;
        }
    };
    work(10, None).await;
    assert!(one.leases.is_held() && two.leases.is_held());
    // A process that has done no work yet, and has seen the leases.
    let three = fixture.process(NEVER, 1);
    settle().await;
    three.leases.refresh().await;
    work(5, Some(&three)).await;
    assert!(!three.leases.is_held(), "at first it leaves the queues to the others");
    work(40, Some(&three)).await;
    assert_eq!((three.leases.is_held(), three.handler.handled_count() > 0), (true, true));
}

#[tokio::test]
async fn a_release_right_after_a_hold_starts_the_listener() {
    let fixture = Fixture::new();
    let process = fixture.process(NEVER, 8);
    fixture.pass(MINUTE).await;
    let held = fixture.hold().await;
    assert_eq!(process.process_gate.refresh(held).await, held);
    fixture.send(0, "rung for while it was held").await;
    let released = fixture.release().await;
    // The listener has not run in between.
    assert_eq!(process.process_gate.refresh(released).await, released);
    settle().await;
    assert_eq!(process.handler.handled_count(), 1);
}

#[tokio::test]
async fn a_drain_finishes_work_in_progress_and_receives_no_more() {
    let fixture = Fixture::new();
    let process = fixture.process(NEVER, 1);
    process.block();
    settle().await;
    fixture.deliver(&process, 0, "in progress").await;
    settle().await;
    process.starter.start();
    assert!(process.drain.is_started());
    fixture.deliver(&process, 0, "left").await;
    settle().await;
    assert!(!process.task.is_finished());
    process.handler.allowed.add_permits(9);
    settle().await;
    assert!(process.task.is_finished());
    assert_eq!(process.handler.handled.lock().keys().collect::<Vec<_>>(), ["in progress"]);
}
