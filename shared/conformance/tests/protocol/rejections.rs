//! The rejected transactions of an account, in the order of their decisions.

use std::sync::Arc;

use async_trait::async_trait;
use postonce_shared::protocol::rejections::rejections;
use postonce_shared::testing::decorators::TransactionLogDecorator;
use postonce_shared::testing::prelude::*;
use tokio::sync::Mutex;
use uuid::Uuid;

use crate::protocol::fixture::{Fixture, account, deposit, key, submit, withdrawal};

/// Accepts transactions and decides them together. Returns the ids of those that are rejected.
async fn decide(fixture: &Fixture, bank: &Bank, first: u128, group: &[Instruction]) -> Vec<u128> {
    for (message, instruction) in (first..).zip(group) {
        let _ = submit(bank, message, instruction.clone()).await.unwrap();
    }
    let mut work = Vec::new();
    while work.len() < group.len() {
        work.extend(fixture.receive().await);
    }
    for (key, result) in bank.poster.post(account(), work).await {
        assert!(result.is_ok(), "{key}");
    }
    let ids = (first..).zip(group).map(|(message, _)| message);
    let mut rejected = Vec::new();
    for message in ids {
        if fixture.stored(message).await.status() == TransactionStatus::Rejected {
            rejected.push(message);
        }
    }
    rejected
}

async fn with_bank() -> (Fixture, Bank) {
    let fixture = Fixture::new().await;
    let bank = fixture.process();
    (fixture, bank)
}

fn too_much() -> Instruction {
    withdrawal("999999.00")
}

/// A page of the listing: the ids, and the cursor of the next page.
async fn page(bank: &Bank, cursor: Option<&str>, limit: usize) -> (Vec<u128>, Option<String>) {
    let listing = rejections(&bank.store, account(), None, cursor, limit).await.unwrap().unwrap();
    let ids = listing.items.iter().map(|it| it.submission.key.message.as_uuid().as_u128());
    (ids.collect(), listing.next)
}

/// The whole listing.
async fn listed(bank: &Bank, limit: usize) -> Vec<u128> {
    let (mut ids, mut next) = page(bank, None, limit).await;
    while let Some(cursor) = next {
        let further;
        (further, next) = page(bank, Some(&cursor), limit).await;
        assert!(further.len() <= limit);
        ids.extend(further);
    }
    ids
}

#[tokio::test]
async fn rejections_are_listed_in_the_order_of_their_decisions() {
    let (fixture, bank) = with_bank().await;
    let mut expected = Vec::new();
    // Ids descend, so that the order of keys is not that of decisions.
    let mut first = 1_000_000;
    let groups: [&[Instruction]; 6] = [
        &[deposit("5.00")],
        &[too_much()],
        &[deposit("1.00"), too_much(), deposit("1.00"), too_much()],
        &[too_much(), too_much(), too_much()],
        &[withdrawal("6.00"), too_much()],
        &[deposit("1.00"), deposit("1.00")],
    ];
    for round in 0..12 {
        expected.extend(decide(&fixture, &bank, first, groups[round % groups.len()]).await);
        first -= 10;
    }
    assert_eq!(expected.len(), 14);
    for limit in [1, 2, 3, 13, 14, 15, 1000] {
        assert_eq!(listed(&bank, limit).await, expected, "{limit}");
    }
    let nobody = PartnerId::parse("nobody").unwrap();
    let of_nobody = rejections(&bank.store, account(), Some(&nobody), None, 10).await.unwrap().unwrap();
    assert!(of_nobody.items.is_empty() && of_nobody.next.is_none());
    let shop = rejections(&bank.store, account(), Some(&key(1).partner), None, 100).await.unwrap().unwrap();
    assert_eq!(shop.items.len(), expected.len());
}

/// More pages of both kinds than one read returns.
#[tokio::test]
async fn long_histories_are_listed_completely() {
    let (fixture, bank) = with_bank().await;
    let mut expected = Vec::new();
    let mut first = 10_000_000;
    let mut step = async |group: &[Instruction]| {
        first -= 1000;
        expected.extend(decide(&fixture, &bank, first, group).await);
    };
    for _ in 0..130 {
        step(&[too_much()]).await;
    }
    let mut full = vec![deposit("1.00"); 97];
    full.push(too_much());
    for _ in 0..14 {
        step(&full).await;
    }
    for _ in 0..120 {
        step(&[too_much()]).await;
    }
    assert_eq!(expected.len(), 130 + 14 + 120);
    for limit in [7, 100, 1000] {
        assert_eq!(listed(&bank, limit).await, expected, "{limit}");
    }
}

#[tokio::test]
async fn a_repeated_page_finds_new_rejections_behind_the_old_ones() {
    let (fixture, bank) = with_bank().await;
    let mut expected = decide(&fixture, &bank, 900, &[too_much(), too_much(), too_much()]).await;
    let (first, next) = page(&bank, None, 2).await;
    let cursor = next.unwrap();
    assert_eq!(first, expected[..2]);
    for round in 1..10 {
        expected.extend(decide(&fixture, &bank, 900 - round * 10, &[deposit("1.00"), too_much()]).await);
        let (further, _) = page(&bank, Some(&cursor), 1000).await;
        assert_eq!(further, expected[2..]);
    }
}

/// Decides transactions after the pages with entries were read and before the others are.
struct DecidesBetween {
    inner: Arc<dyn TransactionLog>,
    decisions: Mutex<Option<(Fixture, Bank)>>,
}

#[async_trait]
impl TransactionLogDecorator for DecidesBetween {
    fn inner(&self) -> &dyn TransactionLog {
        &*self.inner
    }

    async fn decision_pages(
        &self,
        key: AccountKey,
        from: u64,
        limit: usize,
    ) -> Result<Vec<JournalPage>, StoreFault> {
        if let Some((fixture, bank)) = self.decisions.lock().await.take() {
            assert_eq!(decide(&fixture, &bank, 200, &[deposit("1.00"), too_much()]).await, [201]);
            assert_eq!(decide(&fixture, &bank, 100, &[too_much()]).await, [100]);
        }
        self.inner.decision_pages(key, from, limit).await
    }
}

#[tokio::test]
async fn a_decision_between_two_reads_is_not_skipped() {
    let (fixture, bank) = with_bank().await;
    assert_eq!(decide(&fixture, &bank, 300, &[too_much()]).await, [300]);
    let log = fixture.store.ports().log;
    let reader = fixture.process();
    let decisions = Mutex::new(Some((fixture, bank)));
    let between = Arc::new(DecidesBetween { inner: log, decisions });
    let mut store = reader.store.clone();
    store.log = between;
    let listing = async || {
        let found = rejections(&store, account(), None, None, 10).await.unwrap().unwrap();
        found.items.iter().map(|it| it.submission.key.message.as_uuid().as_u128()).collect::<Vec<_>>()
    };
    assert_eq!(listing().await, [300], "the later ones were not all read");
    assert_eq!(listing().await, [300, 201, 100]);
}

#[tokio::test]
async fn an_unknown_account_and_a_foreign_cursor_have_no_listing() {
    let (fixture, bank) = with_bank().await;
    assert_eq!(decide(&fixture, &bank, 20, &[deposit("1.00"), too_much()]).await, [21]);
    assert_eq!(listed(&bank, 10).await, [21]);
    let unknown = AccountKey { account: account().account, user: UserId::from_uuid(Uuid::nil()) };
    assert!(rejections(&bank.store, unknown, None, None, 10).await.unwrap().is_none());
    for cursor in ["", "1", "1.2", "1.2.3.4", "a.b.c", "-1.0.1"] {
        let refused = rejections(&bank.store, account(), None, Some(cursor), 10).await;
        assert!(matches!(refused, Err(StoreFault::ForeignCursor { .. })), "{cursor}");
    }
}
