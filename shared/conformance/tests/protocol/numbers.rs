//! Order numbers of stores that do not find every posting by themselves: recorded behind the postings, and by the scrubber
//! when a process ended before.

use std::sync::Arc;
use std::time::Duration;

use postonce_shared::protocol::enquire;
use postonce_shared::testing::prelude::*;

use crate::protocol::fixture::{Fixture, account, deposit, submit};
use crate::protocol::scrubber::{HOUR, MANY, MINUTE, Process, Setup};

impl Setup {
    async fn recording_numbers() -> Self {
        let world = Arc::new(TestWorld::new(1));
        let store = MemoryStore::empty(world.clone()).recording_numbers();
        Self { fixture: Fixture::over(store, world.clone()).await, world }
    }

    async fn number_of(&self, message: u128) -> OrderNumber {
        let outcome = self.fixture.outcome(message).await;
        outcome.as_ref().and_then(Outcome::order_number).expect("it is posted")
    }

    async fn is_found(&self, message: u128) -> bool {
        let number = self.number_of(message).await;
        let found = enquire::by_order_number(&self.fixture.store.ports(), number).await.unwrap();
        found.is_some_and(|stored| stored.submission.key == crate::protocol::fixture::key(message))
    }

    /// Posts a deposit in a process that then ends.
    async fn post_and_crash(&self, message: u128) {
        let bank = self.fixture.process();
        let _ = submit(&bank, message, deposit("1.00")).await.unwrap();
        let work = self.fixture.receive().await;
        assert!(bank.poster.post(account(), work).await[0].1.is_ok());
    }
}

/// Reads of several rows in some hours of a process that scrubs.
async fn queries(setup: &Setup, process: &mut Process) -> u64 {
    let count = |process: &Process| -> u64 {
        let operations = process.bank.store.operations.snapshot();
        operations.iter().filter(|(operation, _)| operation.name == "query").map(|(_, count)| *count).sum()
    };
    let before = count(process);
    setup.scrub(process, 4 * HOUR).await;
    count(process) - before
}

#[tokio::test]
async fn a_posting_is_found_by_its_number_after_a_short_time() {
    let setup = Setup::recording_numbers().await;
    let bank = setup.fixture.process();
    let _ = submit(&bank, 1, deposit("1.00")).await.unwrap();
    let work = setup.fixture.receive().await;
    assert!(bank.poster.post(account(), work).await[0].1.is_ok());
    assert!(!setup.is_found(1).await && !bank.posted.is_due());
    setup.world.advance(Duration::from_secs(10));
    assert!(bank.posted.is_due());
    bank.posted.record(false).await.unwrap();
    assert!(setup.is_found(1).await);
    let unused = OrderNumber::from_counter(setup.number_of(1).await.counter() + 1);
    let nothing = enquire::by_order_number(&setup.fixture.store.ports(), unused).await.unwrap();
    assert!(nothing.is_none());
}

#[tokio::test]
async fn the_scrubber_records_the_numbers_of_a_process_that_ended() {
    let setup = Setup::recording_numbers().await;
    setup.post_and_crash(1).await;
    let mut process = setup.process(MANY, None).await;
    setup.scrub(&mut process, Duration::from_secs(300)).await;
    assert!(setup.report().await.last_round.is_some());
    assert!(!setup.is_found(1).await, "its process may still record it");
    setup.world.advance(HOUR);
    setup.scrub(&mut process, Duration::from_secs(300)).await;
    assert!(setup.is_found(1).await);
    // What a complete round has compared is not compared again.
    setup.scrub(&mut process, 2 * HOUR).await;
    let empty = Setup::recording_numbers().await;
    let mut other = empty.process(MANY, None).await;
    empty.scrub(&mut other, 4 * HOUR).await;
    assert_eq!(queries(&setup, &mut process).await, queries(&empty, &mut other).await, "reads of rows only");
    setup.post_and_crash(2).await;
    setup.world.advance(HOUR);
    setup.scrub(&mut process, 2 * HOUR).await;
    assert!(setup.is_found(2).await, "a later one is");
}

#[tokio::test]
async fn many_missing_numbers_do_not_stop_the_walk() {
    let setup = Setup::recording_numbers().await;
    for message in 0..60 {
        // Of different blocks.
        let bank = setup.fixture.process();
        bank.order_numbers.take(100).await.unwrap();
        let _ = submit(&bank, message, deposit("1.00")).await.unwrap();
        let work = setup.fixture.receive().await;
        assert!(bank.poster.post(account(), work).await[0].1.is_ok());
    }
    setup.world.advance(HOUR);
    let mut process = setup.process(MANY, None).await;
    let found = async || {
        let mut found = 0;
        for message in 0..60 {
            found += usize::from(setup.is_found(message).await);
        }
        found
    };
    let mut steps = 0;
    while setup.report().await.last_round.is_none() {
        let pause = setup.step(&mut process).await;
        setup.world.advance(pause);
        steps += 1;
    }
    assert!(steps < 10, "{steps} steps");
    assert_eq!(found().await, 60, "they are recorded at the end of the round");
    assert!(is_compared(&setup).await);
}

/// Whether a round has compared all postings.
async fn is_compared(setup: &Setup) -> bool {
    let state = setup.fixture.store.ports().sync.get("scrubber").await.unwrap().unwrap().value;
    state.contains("numbers_compared_until")
}

#[tokio::test]
async fn a_round_of_a_version_that_compares_no_numbers_proves_nothing_about_them() {
    let setup = Setup::recording_numbers().await;
    setup.post_and_crash(1).await;
    setup.fill(4400).await;
    setup.world.advance(HOUR);
    // An operation in ten minutes: the place is saved during the round.
    let mut first = setup.process(6 * 24, None).await;
    setup.scrub(&mut first, 35 * MINUTE).await;
    assert!(setup.report().await.round.is_some());
    first.bank.store.process_registry.withdraw(first.entry.id).await.unwrap();
    drop(first);
    let sync = setup.fixture.store.ports().sync;
    let saved = sync.get("scrubber").await.unwrap().unwrap();
    let without = saved.value.replace(",\"compares_numbers\":true", "");
    assert_ne!(without, saved.value);
    assert!(matches!(
        sync.swap("scrubber", Some(&saved.revision), &without).await.unwrap(),
        Swapped::Done(_)
    ));
    let mut second = setup.process(MANY, None).await;
    setup.scrub(&mut second, 5 * MINUTE).await;
    assert!(setup.report().await.last_round.is_some() && !is_compared(&setup).await);
    setup.scrub(&mut second, 2 * HOUR).await;
    assert!(is_compared(&setup).await && setup.is_found(1).await, "by the next round");
}
