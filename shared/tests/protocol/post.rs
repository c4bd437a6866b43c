use std::sync::Arc;

use futures::future::join;
use postonce_shared::domain::ids::AccountId;
use postonce_shared::domain::rejection::RejectReason;
use postonce_shared::domain::transaction::Outcome;
use postonce_shared::protocol::post::PostFault;
use uuid::Uuid;

use crate::stage::{Countdown, Stage, TroubledLedger, account, deposit, key, submit, withdrawal};

fn is_posted(outcome: Option<Outcome>) -> bool {
    matches!(outcome, Some(Outcome::Posted { .. }))
}

#[tokio::test]
async fn an_old_cached_balance_does_not_refuse_what_the_account_can_pay() {
    let stage = Stage::new().await;
    let (web, old, other) = (stage.process(), stage.process(), stage.process());
    // The old worker learns a balance of 1.00 …
    let _ = submit(&web, 1, deposit("1.00")).await.unwrap();
    let _ = old.poster.post(account(), stage.receive().await).await;
    // … the other one posts 99.00 …
    let _ = submit(&web, 2, deposit("99.00")).await.unwrap();
    let _ = other.poster.post(account(), stage.receive().await).await;
    // … and the old one has to pay 100.00.
    let _ = submit(&web, 3, withdrawal("100.00")).await.unwrap();
    let settled = old.poster.post(account(), stage.receive().await).await;
    assert!(settled.iter().all(|(_, result)| result.is_ok()));
    assert!(is_posted(stage.outcome(3).await), "{:?}", stage.outcome(3).await);
    assert!(stage.account().await.balance.is_zero());
}

#[tokio::test]
async fn a_rejection_is_final_and_replayed_whatever_comes_later() {
    let stage = Stage::new().await;
    let bank = stage.process();
    let _ = submit(&bank, 1, withdrawal("5.00")).await.unwrap();
    let work = stage.receive().await;
    let _ = bank.poster.post(account(), work.clone()).await;
    let rejected = stage.outcome(1).await;
    assert!(matches!(rejected, Some(Outcome::Rejected { reason: RejectReason::InsufficientFunds, .. })));
    let _ = submit(&bank, 2, deposit("100.00")).await.unwrap();
    let _ = bank.poster.post(account(), stage.receive().await).await;
    // The same work once more, now that there is money.
    let settled = bank.poster.post(account(), work).await;
    assert!(settled[0].1.is_ok());
    assert_eq!(stage.outcome(1).await, rejected);
    assert_eq!(stage.account().await.balance.to_string(), "100.00");
}

#[tokio::test]
async fn a_commit_whose_answer_was_lost_posts_once() {
    let stage = Stage::new().await;
    let (web, plain) = (stage.process(), stage.process());
    let bank = stage.process_over(|store| {
        let mut ledger = TroubledLedger::over(&store.ledger);
        ledger.commit_answers_lost = Countdown::of(1);
        store.ledger = Arc::new(ledger);
    });
    let _ = submit(&web, 1, deposit("1.00")).await.unwrap();
    let work = stage.receive().await;
    let settled = bank.poster.post(account(), work.clone()).await;
    assert!(matches!(&settled[0].1, Err(fault @ PostFault::Ledger(_)) if fault.is_transient()));
    for redelivery in [&bank, &plain, &bank] {
        let settled = redelivery.poster.post(account(), work.clone()).await;
        assert!(settled[0].1.is_ok());
    }
    let account = stage.account().await;
    assert_eq!((account.balance.to_string().as_str(), account.sequence), ("1.00", 1));
}

#[tokio::test]
async fn a_commit_that_never_arrived_burns_its_numbers() {
    let stage = Stage::new().await;
    let bank = stage.process_over(|store| {
        let mut ledger = TroubledLedger::over(&store.ledger);
        ledger.commits_lost = Countdown::of(1);
        store.ledger = Arc::new(ledger);
    });
    let _ = submit(&bank, 1, deposit("1.00")).await.unwrap();
    let work = stage.receive().await;
    assert!(bank.poster.post(account(), work.clone()).await[0].1.is_err());
    assert!(bank.poster.post(account(), work).await[0].1.is_ok());
    let Some(Outcome::Posted { order_number, .. }) = stage.outcome(1).await else { panic!() };
    assert_eq!(order_number.counter(), 1_000_001, "1,000,000 was in a write that may still land");
}

#[tokio::test]
async fn two_workers_with_the_same_work_post_it_once() {
    for _ in 0..50 {
        let stage = Stage::new().await;
        let (web, one, two) = (stage.process(), stage.process(), stage.process());
        for message in 0..30 {
            let _ = submit(&web, message, deposit("1.00")).await.unwrap();
        }
        let work = stage.receive().await;
        assert_eq!(work.len(), 30);
        let mut reversed = work.clone();
        reversed.reverse();
        let (first, second) = join(
            tokio::spawn(async move { one.poster.post(account(), work).await }),
            tokio::spawn(async move { two.poster.post(account(), reversed).await }),
        )
        .await;
        assert!(first.unwrap().into_iter().chain(second.unwrap()).all(|(_, result)| result.is_ok()));
        let account = stage.account().await;
        assert_eq!((account.balance.to_string().as_str(), account.sequence), ("30.00", 30));
    }
}

#[tokio::test]
async fn more_than_a_page_is_posted_in_order() {
    let stage = Stage::new().await;
    let bank = stage.process();
    for message in 0..250 {
        let _ = submit(&bank, message, deposit("1.00")).await.unwrap();
    }
    let mut work = Vec::new();
    while work.len() < 250 {
        work.extend(stage.receive().await);
    }
    let settled = bank.poster.post(account(), work).await;
    assert!(settled.len() == 250 && settled.iter().all(|(_, result)| result.is_ok()));
    let pages = stage.store.ports().log.pages(account(), 1, 1000).await.unwrap();
    assert_eq!(pages.iter().map(|page| page.entries.len()).collect::<Vec<_>>(), [98, 98, 54]);
    assert!(pages.windows(2).all(|pair| pair[1].previous_hash == pair[0].hash));
}

#[tokio::test]
async fn work_that_nobody_accepted_is_told_apart_from_an_outage() {
    let stage = Stage::new().await;
    let bank = stage.process();
    let _ = submit(&bank, 1, deposit("1.00")).await.unwrap();
    let mut work = stage.receive().await;
    work[0].key = key(2);
    let settled = bank.poster.post(account(), work.clone()).await;
    assert!(matches!(&settled[0].1, Err(PostFault::NeverAccepted)));
    let mut elsewhere = account();
    elsewhere.account = AccountId::from_uuid(Uuid::from_u128(99));
    work[0].key.account = elsewhere;
    let settled = bank.poster.post(elsewhere, work).await;
    assert!(matches!(&settled[0].1, Err(PostFault::AccountUnknown)));
    assert!(settled.iter().all(|(_, result)| !result.as_ref().unwrap_err().is_transient()));
}
