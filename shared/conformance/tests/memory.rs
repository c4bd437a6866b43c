//! The memory adapter, the reference for the others, fulfills the contract of every port.

use std::sync::Arc;
use std::time::Duration;

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
