//! The memory adapter, the reference for the others, fulfills the contract of every port.

use std::sync::Arc;
use std::time::Duration;

use postonce_shared::domain::decision::Submission;
use postonce_shared::testing::fresh_nonce;
use postonce_shared::testing::prelude::*;

fn empty() -> MemoryStore {
    MemoryStore::empty(Arc::new(SystemWorld::new()))
}

postonce_conformance::contracts!(|_| async || empty().ports());

#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_that_checks_the_order_of_commits() {
    postonce_conformance::ledger_contract(async || empty().checking_order().ports()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_that_records_numbers() {
    postonce_conformance::order_number_index_contract(async || empty().recording_numbers().ports()).await;
}

/// As for adapters of slow stores: all cases share one store, which two processes use.
#[tokio::test(flavor = "multi_thread")]
async fn one_store_for_all_cases() {
    let store = empty();
    postonce_conformance::whole_contract(async || store.ports()).await;
}

/// Leases end by the clock of the world, not by that of the machine.
#[tokio::test]
async fn leases_follow_the_clock_of_the_world() {
    let world = Arc::new(TestWorld::new(1));
    let store = MemoryStore::new(world.clone());
    let (queue, lease_time) = (QueueName::of_partition("work", 0), Duration::from_secs(20));
    store.queue.send(&queue, b"{}", Duration::from_secs(1)).await.unwrap();
    let received = async || store.queue.receive(&queue, 1, lease_time).await.unwrap().len();
    assert_eq!(received().await, 0, "the message is delayed");
    world.advance(Duration::from_secs(1));
    assert_eq!(received().await, 1, "the delay is over");
    world.advance(lease_time - Duration::from_millis(1));
    assert_eq!(received().await, 0, "the message is leased");
    world.advance(Duration::from_millis(1));
    assert_eq!(received().await, 1, "the lease is over");
}

/// The memory adapter refuses even the newest revision of a final row. A store that only compares
/// revisions cannot promise that.
#[tokio::test]
async fn a_final_transaction_is_refused_under_any_revision() {
    let world: Arc<dyn World> = Arc::new(TestWorld::new(2));
    let store = MemoryStore::new(Arc::clone(&world));
    let key =
        AccountKey { user: UserId::from_uuid(world.uuid()), account: AccountId::from_uuid(world.uuid()) };
    let euro = Currency::parse("EUR").unwrap();
    let account = Account::open(key, euro, OverdraftLimit::none(euro), None, world.now());
    let Opened::Created(account) = store.accounts.open(&opening(account)).await.unwrap() else {
        panic!("the store was empty");
    };
    let instruction = Instruction {
        kind: TransactionKind::Deposit,
        amount: Amount::try_new(100, euro).unwrap(),
        details: Details::default(),
    };
    let transaction = TransactionKey {
        account: key,
        partner: PartnerId::parse("shop").unwrap(),
        message: MessageId::from_uuid(world.uuid()),
    };
    let new = Submission {
        key: transaction,
        instruction,
        accepted_at: world.now(),
        origin: Origin::default(),
        batch_line: None,
    };
    drop(store.ledger.accept(std::slice::from_ref(&new), fresh_nonce()).await.unwrap());
    let work = store.ledger.transaction(&new.key).await.unwrap().unwrap().work().unwrap();
    let decided = |account: &Versioned<Account>, work: &Work| {
        let numbers = [OrderNumber::from_counter(world.random() >> 8)];
        let context = DecisionContext { nonce: world.nonce(), now: world.now(), numbers: &numbers };
        decide(account, vec![work.clone().into()], &context)
    };
    let first = store.ledger.commit(&decided(&account, &work)).await.unwrap();
    assert!(matches!(first, Committed::Done { .. }), "all preconditions hold");

    let current = store.ledger.account(key).await.unwrap().unwrap();
    let revision = store.ledger.transaction(&new.key).await.unwrap().unwrap().revision;
    let forged = Work { row: revision, ..work };
    let second = store.ledger.commit(&decided(&current, &forged)).await.unwrap();
    assert_eq!(second, Committed::RowsChanged(vec![new.key]), "a final status never changes");
    assert_eq!(store.ledger.account(key).await.unwrap(), Some(current), "nothing was written");
}
