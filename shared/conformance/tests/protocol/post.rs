use futures::future::join;
use postonce_shared::posting::PostFault;
use postonce_shared::testing::prelude::*;
use uuid::Uuid;

use crate::protocol::fixture::{Fixture, account, deposit, key, submit, withdrawal};

fn is_posted(outcome: Option<Outcome>) -> bool {
    matches!(outcome, Some(Outcome::Posted { .. }))
}

#[tokio::test]
async fn a_stale_cached_balance_rejects_no_covered_withdrawal() {
    let fixture = Fixture::new().await;
    let (web, old, other) = (fixture.process(), fixture.process(), fixture.process());
    // The first worker caches a balance of 1.00 …
    let _ = submit(&web, 1, deposit("1.00")).await.unwrap();
    let _ = old.poster.post(account(), fixture.receive().await).await;
    // … the second one posts 99.00 …
    let _ = submit(&web, 2, deposit("99.00")).await.unwrap();
    let _ = other.poster.post(account(), fixture.receive().await).await;
    // … and the first one has to pay 100.00.
    let _ = submit(&web, 3, withdrawal("100.00")).await.unwrap();
    let settled = old.poster.post(account(), fixture.receive().await).await;
    assert!(settled.iter().all(|(_, result)| result.is_ok()));
    assert!(is_posted(fixture.outcome(3).await), "{:?}", fixture.outcome(3).await);
    assert!(fixture.account().await.balance.is_zero());
}

#[tokio::test]
async fn a_rejection_stays_final_when_the_same_work_comes_again() {
    let fixture = Fixture::new().await;
    let bank = fixture.process();
    let _ = submit(&bank, 1, withdrawal("5.00")).await.unwrap();
    let work = fixture.receive().await;
    let _ = bank.poster.post(account(), work.clone()).await;
    let rejected = fixture.outcome(1).await;
    assert!(matches!(rejected, Some(Outcome::Rejected { reason: RejectReason::InsufficientFunds, .. })));
    let _ = submit(&bank, 2, deposit("100.00")).await.unwrap();
    let _ = bank.poster.post(account(), fixture.receive().await).await;
    // The same work again, after a deposit that would cover it.
    let settled = bank.poster.post(account(), work).await;
    assert!(settled[0].1.is_ok());
    assert_eq!(fixture.outcome(1).await, rejected);
    assert_eq!(fixture.account().await.balance.to_string(), "100.00");
}

#[tokio::test]
async fn a_commit_whose_response_was_lost_posts_once() {
    let fixture = Fixture::new().await;
    let (web, plain) = (fixture.process(), fixture.process());
    let bank = fixture.process_over(|store| lose_answers(store, "Ledger::commit", 1));
    let _ = submit(&web, 1, deposit("1.00")).await.unwrap();
    let work = fixture.receive().await;
    let settled = bank.poster.post(account(), work.clone()).await;
    assert!(matches!(&settled[0].1, Err(fault @ PostFault::Ledger(_)) if fault.is_transient()));
    for redelivery in [&bank, &plain, &bank] {
        let settled = redelivery.poster.post(account(), work.clone()).await;
        assert!(settled[0].1.is_ok());
    }
    let account = fixture.account().await;
    assert_eq!((account.balance.to_string().as_str(), account.sequence), ("1.00", 1));
}

#[tokio::test]
async fn the_order_numbers_of_a_lost_commit_are_not_used_again() {
    let fixture = Fixture::new().await;
    let bank = fixture.process_over(|store| lose(store, "Ledger::commit", 1));
    let _ = submit(&bank, 1, deposit("1.00")).await.unwrap();
    let work = fixture.receive().await;
    assert!(bank.poster.post(account(), work.clone()).await[0].1.is_err());
    assert!(bank.poster.post(account(), work).await[0].1.is_ok());
    let Some(Outcome::Posted { order_number, .. }) = fixture.outcome(1).await else { panic!() };
    assert_eq!(order_number.counter(), 1_000_001, "1,000,000 was part of a write that may still arrive");
}

#[tokio::test]
async fn two_workers_with_the_same_work_post_it_once() {
    for _ in 0..50 {
        let fixture = Fixture::new().await;
        let (web, one, two) = (fixture.process(), fixture.process(), fixture.process());
        for message in 0..30 {
            let _ = submit(&web, message, deposit("1.00")).await.unwrap();
        }
        let work = fixture.receive().await;
        assert_eq!(work.len(), 30);
        let mut reversed = work.clone();
        reversed.reverse();
        let (first, second) = join(
            tokio::spawn(async move { one.poster.post(account(), work).await }),
            tokio::spawn(async move { two.poster.post(account(), reversed).await }),
        )
        .await;
        assert!(first.unwrap().into_iter().chain(second.unwrap()).all(|(_, result)| result.is_ok()));
        let account = fixture.account().await;
        assert_eq!((account.balance.to_string().as_str(), account.sequence), ("30.00", 30));
    }
}

#[tokio::test]
async fn more_work_than_a_page_holds_is_posted_in_order() {
    let fixture = Fixture::new().await;
    let bank = fixture.process();
    for message in 0..250 {
        let _ = submit(&bank, message, deposit("1.00")).await.unwrap();
    }
    let mut work = Vec::new();
    while work.len() < 250 {
        work.extend(fixture.receive().await);
    }
    let settled = bank.poster.post(account(), work).await;
    assert!(settled.len() == 250 && settled.iter().all(|(_, result)| result.is_ok()));
    let pages = fixture.store.ports().log.pages(account(), 1, 1000).await.unwrap();
    assert_eq!(pages.iter().map(|page| page.entries.len()).collect::<Vec<_>>(), [98, 98, 54]);
    assert!(pages.windows(2).all(|pair| pair[1].previous_hash == pair[0].hash));
}

#[tokio::test]
async fn work_that_was_never_accepted_is_distinguished_from_an_outage() {
    let fixture = Fixture::new().await;
    let bank = fixture.process();
    let _ = submit(&bank, 1, deposit("1.00")).await.unwrap();
    let mut work = fixture.receive().await;
    work[0].submission.key = key(2);
    let settled = bank.poster.post(account(), work.clone()).await;
    assert!(matches!(&settled[0].1, Err(PostFault::NeverAccepted)));
    let mut elsewhere = account();
    elsewhere.account = AccountId::from_uuid(Uuid::from_u128(99));
    work[0].submission.key.account = elsewhere;
    let settled = bank.poster.post(elsewhere, work).await;
    assert!(matches!(&settled[0].1, Err(PostFault::AccountUnknown)));
    assert!(settled.iter().all(|(_, result)| !result.as_ref().unwrap_err().is_transient()));
}
