//! Requests that wait for their outcome, and the replies to them.

use std::sync::Arc;
use std::time::Duration;

use postonce_shared::cluster::replies::PendingReplies;
use postonce_shared::testing::prelude::*;

use crate::protocol::fixture::{Fixture, account, address, deposit, key, submit};

/// Longest wait of a request in these tests.
const WAIT: Duration = Duration::from_secs(20);

async fn wait_for(bank: &Bank, message: u128, wait: Duration) -> Result<Acceptance, AcceptFault> {
    bank.acceptor.submit(key(message), deposit("1.00"), Origin::default(), Some(wait)).await
}

fn accepted(answer: Result<Acceptance, AcceptFault>) -> Accepted {
    match answer {
        Ok(Acceptance::Accepted(accepted)) => accepted,
        other => panic!("{other:?}"),
    }
}

/// Waits for messages, and returns their envelopes.
async fn envelopes(fixture: &Fixture) -> Vec<Envelope> {
    loop {
        let envelopes = fixture.receive_envelopes().await;
        if !envelopes.is_empty() {
            return envelopes;
        }
        tokio::task::yield_now().await;
    }
}

/// Posts an envelope and sends its replies, as a worker does.
async fn post_envelope(worker: &Bank, envelope: Envelope) {
    let mut pending = PendingReplies::new(&worker.completions, &worker.replies);
    for work in &envelope.items {
        envelope.reply_to.iter().for_each(|to| pending.add(&work.submission.key, to));
    }
    let settled = worker.poster.post(account(), envelope.items).await;
    assert!(settled.iter().all(|(_, result)| result.is_ok()), "{settled:?}");
    pending.send();
}

async fn post_next(fixture: &Fixture, worker: &Bank) {
    for envelope in envelopes(fixture).await {
        post_envelope(worker, envelope).await;
    }
}

#[tokio::test]
async fn a_waiting_request_gets_its_outcome_from_a_worker_of_any_process() {
    let fixture = Fixture::in_world(Arc::new(TestWorld::new(1))).await;
    let (web, elsewhere) = (fixture.linked_process(1, |_| {}), fixture.linked_process(2, |_| {}));
    for (message, worker) in [(7, &web), (8, &elsewhere)] {
        // The clock stands still, so only an announcement can end the wait.
        let asked = wait_for(&web, message, WAIT);
        let (answer, ()) = futures::join!(asked, post_next(&fixture, worker));
        let answered = accepted(answer);
        assert!(answered.outcome.is_some());
        assert_eq!(answered.outcome, fixture.outcome(message).await);
    }
}

#[tokio::test]
async fn only_the_work_of_waiting_requests_asks_for_a_reply() {
    let fixture = Fixture::in_world(Arc::new(TestWorld::new(2))).await;
    let (web, alone) = (fixture.linked_process(1, |_| {}), fixture.process());
    accepted(submit(&web, 7, deposit("1.00")).await);
    let sent = envelopes(&fixture).await;
    assert_eq!(sent.iter().map(|envelope| fixture.reply_address(envelope)).collect::<Vec<_>>(), [None]);
    for (message, bank, reply_to) in [(8, &web, Some(address(1))), (9, &alone, None)] {
        let mut asked = Box::pin(wait_for(bank, message, WAIT));
        let sent = futures::future::select(&mut asked, Box::pin(envelopes(&fixture))).await;
        let futures::future::Either::Right((sent, _)) = sent else { panic!("answered without a posting") };
        assert_eq!(fixture.reply_address(&sent[0]), reply_to);
    }
}

#[tokio::test]
async fn a_late_waiting_request_sends_its_work_again_once() {
    let fixture = Fixture::in_world(Arc::new(TestWorld::new(3))).await;
    let (web, worker) = (fixture.linked_process(1, |_| {}), fixture.linked_process(2, |_| {}));
    accepted(submit(&web, 7, deposit("1.00")).await);
    let first = envelopes(&fixture).await;
    assert_eq!(first[0].reply_to, None, "no request waited for it");
    let late = async {
        let again = envelopes(&fixture).await;
        assert_eq!((again.len(), fixture.reply_address(&again[0])), (1, Some(address(1))));
        // Another request that waits for the same work finds that a reply was asked for.
        let another = async {
            let mut asked = Box::pin(wait_for(&web, 7, WAIT));
            for _ in 0..50 {
                assert!(futures::poll!(asked.as_mut()).is_pending());
                tokio::task::yield_now().await;
            }
            assert_eq!(fixture.queued().await, 2, "the first and the second envelope, and no third");
            for envelope in first {
                post_envelope(&worker, envelope).await;
            }
            for envelope in again {
                post_envelope(&worker, envelope).await;
            }
            accepted(asked.await)
        };
        another.await
    };
    let (one, other) = futures::join!(wait_for(&web, 7, WAIT), late);
    let one = accepted(one);
    assert!(one.outcome.is_some());
    assert_eq!(one, other);
}

#[tokio::test]
async fn requests_that_wait_in_two_processes_both_get_their_reply() {
    let fixture = Fixture::in_world(Arc::new(TestWorld::new(4))).await;
    let webs = [fixture.linked_process(1, |_| {}), fixture.linked_process(2, |_| {})];
    let worker = fixture.linked_process(3, |_| {});
    let both = async {
        let mut sent = envelopes(&fixture).await;
        while sent.len() < 2 {
            sent.extend(envelopes(&fixture).await);
        }
        let mut addresses: Vec<_> =
            sent.iter().filter_map(|envelope| fixture.reply_address(envelope)).collect();
        addresses.sort();
        assert_eq!(addresses, [address(1), address(2)]);
        for envelope in sent {
            post_envelope(&worker, envelope).await;
        }
    };
    let (one, other, ()) = futures::join!(wait_for(&webs[0], 7, WAIT), wait_for(&webs[1], 7, WAIT), both);
    let outcome = fixture.outcome(7).await;
    assert!(outcome.is_some());
    assert_eq!((accepted(one).outcome, accepted(other).outcome), (outcome.clone(), outcome));
}

#[tokio::test]
async fn if_the_reply_is_lost_the_row_is_read_once_at_the_deadline() {
    let world = Arc::new(TestWorld::new(5));
    let fixture = Fixture::in_world(world.clone()).await;
    let control = Arc::<Control>::default();
    let web = fixture.linked_process(1, |store| control.apply(store));
    let worker = fixture.linked_process(2, |_| {});
    fixture.lose_replies();
    let posted = async {
        post_next(&fixture, &worker).await;
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
        assert_eq!(control.count("Ledger::transaction"), 0, "nothing is read during the wait");
        world.advance(WAIT);
    };
    let (answer, ()) = futures::join!(wait_for(&web, 7, WAIT), posted);
    assert_eq!(accepted(answer).outcome, fixture.outcome(7).await);
    assert_eq!(control.count("Ledger::transaction"), 1);
}

/// Waits until the row has been read that often. Returns false if it was not.
async fn until_read(control: &Control, times: usize) -> bool {
    for _ in 0..1000 {
        if control.count("Ledger::transaction") == times {
            return true;
        }
        tokio::task::yield_now().await;
    }
    false
}

#[tokio::test]
async fn a_hint_makes_a_waiting_request_read_the_row_and_is_not_trusted_itself() {
    let fixture = Fixture::in_world(Arc::new(TestWorld::new(8))).await;
    let control = Arc::<Control>::default();
    let web = fixture.linked_process(1, |store| control.apply(store));
    let worker = fixture.linked_process(2, |_| {});
    fixture.lose_replies();
    let hinted = async {
        let envelopes = envelopes(&fixture).await;
        web.completions.hint(&key(7));
        assert!(until_read(&control, 1).await, "the row is read");
        // A hint for a transaction for which no request waits.
        web.completions.hint(&key(8));
        for envelope in envelopes {
            post_envelope(&worker, envelope).await;
        }
        web.completions.hint(&key(7));
    };
    // The clock stands still, so only a hint can end the wait.
    let (answer, ()) = futures::join!(wait_for(&web, 7, WAIT), hinted);
    let outcome = fixture.outcome(7).await;
    assert!(outcome.is_some());
    assert_eq!(accepted(answer).outcome, outcome);
    assert_eq!(control.count("Ledger::transaction"), 2);
}

#[tokio::test]
async fn hints_cause_at_most_three_early_reads_of_the_row() {
    let world = Arc::new(TestWorld::new(9));
    let fixture = Fixture::in_world(world.clone()).await;
    let control = Arc::<Control>::default();
    let web = fixture.linked_process(1, |store| control.apply(store));
    let flood = async {
        drop(envelopes(&fixture).await);
        for hint in 1..=100 {
            web.completions.hint(&key(7));
            assert_eq!(until_read(&control, hint).await, hint <= 3, "{hint}");
        }
        // A trusted announcement still ends the wait.
        let outcome = Outcome::Rejected {
            reason: RejectReason::AccountClosed,
            rejected_at: world.now(),
            version: None,
        };
        web.completions.complete(&key(7), &outcome);
        outcome
    };
    let (answer, outcome) = futures::join!(wait_for(&web, 7, WAIT), flood);
    assert_eq!(accepted(answer).outcome, Some(outcome));
    assert_eq!(control.count("Ledger::transaction"), 3);
}

#[tokio::test]
async fn a_request_whose_wait_expired_stays_accepted() {
    let world = Arc::new(TestWorld::new(6));
    let fixture = Fixture::in_world(world.clone()).await;
    let web = fixture.linked_process(1, |_| {});
    let expired = async {
        drop(envelopes(&fixture).await);
        while world.sleepers() == 0 {
            tokio::task::yield_now().await;
        }
        world.advance(WAIT);
    };
    let (answer, ()) = futures::join!(wait_for(&web, 7, WAIT), expired);
    let Ok(Acceptance::Accepted(Accepted { outcome, replayed: false, .. })) = answer else {
        panic!("{answer:?}")
    };
    assert_eq!(outcome, None, "it was not posted in time");
}

#[tokio::test]
async fn a_process_sends_no_reply_to_itself() {
    let fixture = Fixture::in_world(Arc::new(TestWorld::new(7))).await;
    let web = fixture.linked_process(1, |_| {});
    fixture.lose_replies();
    let (answer, ()) = futures::join!(wait_for(&web, 7, WAIT), post_next(&fixture, &web));
    assert!(accepted(answer).outcome.is_some(), "its own worker announced it directly");
}
