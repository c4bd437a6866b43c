//! Requests that wait and are posted at once by the process that received them.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::join_all;
use postonce_shared::cluster::contention::NoNotices;
use postonce_shared::cluster::replies::NoReplies;
use postonce_shared::posting::posting_latency::{Decided, Way};
use postonce_shared::posting::waiting::QueueReason;
use postonce_shared::testing::prelude::*;

use crate::protocol::fixture::{
    Fixture, QUEUES, account, apply_gate, deposit, key, release_gate, replayed, submit, withdrawal,
};

/// Waiting time of requests that take the queue, where no worker runs.
pub const SHORT: Duration = Duration::from_millis(20);
/// Waiting time of requests that are posted at once.
pub const LONG: Duration = Duration::from_secs(20);

/// A process that may post at once.
pub fn process(fixture: &Fixture) -> Bank {
    fixture.registered_over(|_| {})
}

/// A process over a changed ledger that may post at once.
pub fn process_over<L: Ledger + 'static>(
    fixture: &Fixture,
    ledger: impl FnOnce(Arc<dyn Ledger>) -> L,
) -> Bank {
    fixture.registered_over(|store| store.ledger = Arc::new(ledger(Arc::clone(&store.ledger))))
}

pub async fn ask(bank: &Bank, message: u128, instruction: Instruction, wait: Duration) -> Accepted {
    match bank.acceptor.submit(key(message), instruction, Origin::default(), Some(wait)).await {
        Ok(Acceptance::Accepted(accepted)) => accepted,
        other => panic!("{other:?}"),
    }
}

/// Submits a request that is posted at once, and returns its balance.
pub async fn posted_at_once(bank: &Bank, message: u128, instruction: Instruction) -> String {
    let before = bank.acceptor.served().immediate();
    let accepted = ask(bank, message, instruction, LONG).await;
    assert_eq!(bank.acceptor.served().immediate(), before + 1, "{accepted:?}");
    assert!(!accepted.replayed);
    match accepted.outcome {
        Some(Outcome::Posted { balance_after, .. }) => balance_after.to_string(),
        other => panic!("{other:?}"),
    }
}

/// Submits a request that takes the queue for a reason; no worker runs.
pub async fn queued(bank: &Bank, message: u128, instruction: Instruction, reason: QueueReason) {
    let before = bank.acceptor.served().queued(reason);
    let accepted = ask(bank, message, instruction, SHORT).await;
    assert_eq!(accepted.outcome, None);
    assert_eq!(bank.acceptor.served().queued(reason), before + 1, "{reason:?} is the reason");
}

pub fn operations(bank: &Bank) -> u64 {
    bank.store.operations.snapshot().values().sum()
}

#[tokio::test]
async fn a_request_that_waits_is_posted_in_one_operation() {
    let fixture = Fixture::new().await;
    let bank = process(&fixture);
    assert_eq!(posted_at_once(&bank, 1, deposit("10.00")).await, "10.00");
    let before = operations(&bank);
    assert_eq!(posted_at_once(&bank, 2, withdrawal("4.00")).await, "6.00");
    assert_eq!(operations(&bank), before + 1, "a commit");
    assert_eq!(fixture.queued().await, 0);
    assert_eq!(fixture.account().await.balance.to_string(), "6.00");
    assert!(matches!(fixture.outcome(2).await, Some(Outcome::Posted { .. })));
    // A repetition gets the stored transaction, and another content is refused.
    let again = ask(&bank, 2, withdrawal("4.00"), LONG).await;
    assert!(again.replayed && again.outcome == fixture.outcome(2).await);
    let other = bank.acceptor.submit(key(2), withdrawal("5.00"), Origin::default(), Some(LONG)).await;
    assert_eq!(other.unwrap(), Acceptance::KeyReused);
    assert_eq!(bank.acceptor.served().queued(QueueReason::KeyTaken), 2);
    assert_eq!(fixture.account().await.balance.to_string(), "6.00");
    assert_eq!(bank.acceptor.served().accepted(), 2, "neither the repetition nor the other content is new");
    assert_eq!(bank.latency.decided(Way::Immediate), Decided { posted: 2, rejected: 0 });
}

#[tokio::test]
async fn requests_on_one_account_share_a_commit() {
    let fixture = Fixture::new().await;
    let bank = process(&fixture);
    posted_at_once(&bank, 1, deposit("1.00")).await;
    let before = operations(&bank);
    let requests = (2..=41).map(|message| ask(&bank, message, deposit("1.00"), LONG));
    let answers = join_all(requests.collect::<Vec<_>>()).await;
    assert!(answers.iter().all(|answer| answer.outcome.is_some() && !answer.replayed));
    assert_eq!(fixture.account().await.balance.to_string(), "41.00");
    assert_eq!(bank.acceptor.served().immediate(), 41);
    assert!(operations(&bank) - before <= 3, "{} operations", operations(&bank) - before);
}

#[tokio::test]
async fn a_key_that_arrives_twice_at_once_is_posted_once() {
    let fixture = Fixture::new().await;
    let bank = process(&fixture);
    let same = (0..4).map(|_| bank.acceptor.submit(key(1), deposit("5.00"), Origin::default(), Some(LONG)));
    let other = bank.acceptor.submit(key(1), deposit("6.00"), Origin::default(), Some(LONG));
    let (same, other) = futures::join!(join_all(same.collect::<Vec<_>>()), other);
    assert_eq!(same.iter().filter(|answer| replayed(answer) == Some(false)).count(), 1);
    assert_eq!(same.iter().filter(|answer| replayed(answer) == Some(true)).count(), 3);
    assert_eq!(other.unwrap(), Acceptance::KeyReused);
    assert_eq!(fixture.account().await.balance.to_string(), "5.00");
}

#[tokio::test]
async fn requests_take_the_queue_when_they_cannot_be_served_at_once() {
    let fixture = Fixture::new().await;
    let bank = process(&fixture);
    bank.gate_permits.forget();
    queued(&bank, 1, deposit("1.00"), QueueReason::GateHeld).await;
    apply_gate(&bank, GateValue { epoch: 1, state: GateState::Held { release_at: None } });
    queued(&bank, 2, deposit("1.00"), QueueReason::GateHeld).await;
    bank.gate_permits.forget();
    queued(&bank, 3, deposit("1.00"), QueueReason::GateHeld).await;
    apply_gate(&bank, GateValue { epoch: 2, state: GateState::Released });
    bank.registration.end();
    queued(&bank, 7, deposit("1.00"), QueueReason::Unregistered).await;
    let bank = process(&fixture);
    let _ = submit(&bank, 4, deposit("1.00")).await.unwrap();
    let _ = ask(&bank, 5, deposit("1.00"), Duration::ZERO).await;
    assert_eq!(bank.acceptor.served().queued(QueueReason::NotWaiting), 2);
    let links = Links {
        doorbell: Arc::new(LocalDoorbell::default()),
        completions: Arc::default(),
        replies: Arc::new(NoReplies),
        seal: seal(),
        contention: Arc::new(NoNotices),
    };
    let settings = BankSettings { immediate_posting: false, ..BankSettings::of_queues(QUEUES) };
    let off = Bank::linked(fixture.store.ports(), Arc::clone(&fixture.world), links, settings);
    release_gate(&off);
    queued(&off, 6, deposit("1.00"), QueueReason::Off).await;
    assert_eq!(fixture.receive().await.len(), 7, "all are on the queue");
    assert!(fixture.account().await.balance.is_zero());
}

#[tokio::test]
async fn a_rejection_that_depends_on_the_balance_takes_the_queue_unless_the_ledger_checks_the_order() {
    let fixture = Fixture::new().await;
    let (web, other) = (process(&fixture), process(&fixture));
    let _ = submit(&other, 1, deposit("5.00")).await.unwrap();
    queued(&web, 2, withdrawal("5.00"), QueueReason::Rejection).await;
    let fixture = Fixture::checking_order().await;
    let bank = process(&fixture);
    let rejected = ask(&bank, 2, withdrawal("5.00"), LONG).await.outcome;
    let reason = RejectReason::InsufficientFunds;
    assert!(matches!(rejected, Some(Outcome::Rejected { reason: found, .. }) if found == reason));
    assert_eq!(fixture.outcome(2).await, rejected);
}

#[tokio::test]
async fn of_a_group_only_the_rejections_take_the_queue() {
    let fixture = Fixture::new().await;
    let bank = process(&fixture);
    posted_at_once(&bank, 1, deposit("5.00")).await;
    let requests = [
        ask(&bank, 2, withdrawal("4.00"), SHORT),
        ask(&bank, 3, withdrawal("3.00"), SHORT),
        ask(&bank, 4, withdrawal("1.00"), SHORT),
    ];
    let answers = join_all(requests).await;
    let outcomes: Vec<bool> = answers.iter().map(|answer| answer.outcome.is_some()).collect();
    assert_eq!(outcomes, [true, false, true]);
    assert_eq!(fixture.receive().await.len(), 1);
    assert!(fixture.account().await.balance.is_zero());
}

#[tokio::test]
async fn a_closed_account_rejects_at_once() {
    let fixture = Fixture::new().await;
    let bank = process(&fixture);
    let ports = fixture.store.ports();
    let read = ports.ledger.account(account()).await.unwrap().unwrap();
    let closed = change_of_terms(&read.value, read.value.overdraft_limit, AccountStatus::Closed);
    ports.accounts.change(&read.revision, &closed).await.unwrap().unwrap();
    let rejected = ask(&bank, 1, deposit("5.00"), LONG).await.outcome;
    let reason = RejectReason::AccountClosed;
    assert!(matches!(rejected, Some(Outcome::Rejected { reason: found, .. }) if found == reason));
}

#[tokio::test]
async fn own_open_work_comes_first_until_it_is_known_to_be_final() {
    let world = Arc::new(TestWorld::new(1));
    let fixture = Fixture::in_world(world.clone()).await;
    let bank = process(&fixture);
    let is_open = async |message| {
        let before = bank.acceptor.served().queued(QueueReason::OpenWork);
        let mut asked = Box::pin(ask(&bank, message, deposit("1.00"), LONG));
        while (&mut asked).now_or_never().is_none() && fixture.queued().await == 0 {
            tokio::task::yield_now().await;
        }
        fixture.lose_messages().await;
        bank.acceptor.served().queued(QueueReason::OpenWork) > before
    };
    let _ = submit(&bank, 1, deposit("5.00")).await.unwrap();
    assert!(is_open(2).await, "the first request is not final");
    world.advance(Duration::from_secs(39));
    assert!(is_open(3).await);
    world.advance(Duration::from_secs(40));
    assert!(!is_open(4).await, "after two visibility timeouts");
    // Its outcome is read.
    let _ = submit(&bank, 5, deposit("5.00")).await.unwrap();
    assert!(bank.open_work.is_open(account()));
    let worker = fixture.process();
    let _ = worker.poster.post(account(), fixture.receive().await).await;
    let _ = submit(&bank, 5, deposit("5.00")).await.unwrap();
    assert!(!bank.open_work.is_open(account()));
    posted_at_once(&bank, 6, deposit("1.00")).await;
}

#[tokio::test]
async fn a_ledger_that_checks_the_order_holds_requests_back_behind_the_work_of_any_process() {
    let fixture = Fixture::checking_order().await;
    let (bank, other) = (process(&fixture), fixture.process());
    let _ = submit(&other, 1, deposit("5.00")).await.unwrap();
    queued(&bank, 2, deposit("1.00"), QueueReason::OpenWork).await;
    let _ = other.poster.post(account(), fixture.receive().await).await;
    assert_eq!(posted_at_once(&bank, 3, withdrawal("6.00")).await, "0.00");
}

#[tokio::test]
async fn processes_that_take_turns_read_and_commit() {
    let fixture = Fixture::new().await;
    let (one, two) = (process(&fixture), process(&fixture));
    posted_at_once(&one, 1, deposit("1.00")).await;
    posted_at_once(&two, 2, deposit("1.00")).await;
    let mut counts = Vec::new();
    for (message, bank) in (3..=8).zip([&one, &two].into_iter().cycle()) {
        let before = operations(bank);
        posted_at_once(bank, message, deposit("1.00")).await;
        counts.push(operations(bank) - before);
    }
    // Each process is refused once, and reads before each commit from then on.
    assert_eq!(counts, [3, 3, 2, 2, 2, 2]);
    posted_at_once(&two, 9, deposit("1.00")).await;
    let before = operations(&two);
    posted_at_once(&two, 10, deposit("1.00")).await;
    assert_eq!(operations(&two) - before, 1, "a read that found the row unchanged ends it");
}
