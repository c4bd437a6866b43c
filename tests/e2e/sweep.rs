//! `postonce-web sweep`: an operator removes payloads that are no longer needed: old ones whose work is
//! final.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use postonce_shared::messaging::sweep::AGE_MIN;
use postonce_shared::testing::decorators::WorldDecorator;
use postonce_shared::testing::prelude::*;
use postonce_tests::prelude::*;

on_both_stores![a_sweep_keeps_young_payloads];

/// A world whose clock is behind by the minimum age of a swept payload, plus one minute.
struct LongAgo(SystemWorld);

#[async_trait]
impl WorldDecorator for LongAgo {
    fn inner(&self) -> &dyn World {
        &self.0
    }

    fn now(&self) -> Timestamp {
        let age = AGE_MIN.saturating_add(Duration::from_secs(60)).as_millis();
        let age = i64::try_from(age).expect("a day is short");
        Timestamp::from_unix_ms(World::now(&self.0).unix_ms().saturating_sub(age))
    }
}

/// An accepted transaction, and its work in the log.
async fn accepted(bank: &Scenario, account: AccountKey) -> (MessageId, Work) {
    let message = fresh_id();
    drop(bank.client(0).submit_until_accepted(account, message, &Submission::deposit("1.00")).await);
    let partner = PartnerId::parse("bootstrap").expect("the first key is of that partner");
    let key = TransactionKey { account, partner, message };
    let stored = bank.store().await.ledger.transaction(&key).await.expect("the ledger answers");
    (message, stored.expect("it was accepted").work().expect("it is not final"))
}

/// Stores work in a payload. Returns the name of the payload.
async fn store_payload(store: &Store, world: Arc<dyn World>, work: &[&Work]) -> String {
    let work = work.iter().map(|&work| work.clone()).collect();
    let kept = ClaimCheck::new(store, &seal(), world).put(Envelope::of(work)).await;
    kept.expect("the payload store answers").payload.expect("it is a claim")
}

async fn payloads(store: &Store) -> Vec<String> {
    let listing = store.payloads.list("", None, 100).await.expect("the payload store answers");
    listing.items.into_iter().map(|entry| entry.name).collect()
}

/// Only a file store can store a payload with an old time.
#[tokio::test]
async fn a_sweep_removes_old_payloads_of_final_work_and_nothing_else() {
    let mut bank = Plan::on(StoreKind::Sqlite).processes(1, 1).start().await;
    let account = fresh_account();
    bank.client(0).open(account).await;
    bank.workers.remove(0).drain().await;
    let (posted, of_posted) = accepted(&bank, account).await;
    bank.start_worker();
    assert_eq!(bank.client(0).until_final(account, posted).await.transaction_status(), "posted");
    bank.workers.remove(0).drain().await;
    let (_, of_open) = accepted(&bank, account).await;

    let (now, then): (Arc<dyn World>, Arc<dyn World>) =
        (Arc::new(SystemWorld::new()), Arc::new(LongAgo(SystemWorld::new())));
    let (store, old) = (bank.store().await, bank.store_in(Arc::clone(&then)).await);
    let needless = store_payload(&old, Arc::clone(&then), &[&of_posted]).await;
    let open = store_payload(&old, then, &[&of_posted, &of_open]).await;
    let young = store_payload(&store, now, &[&of_posted]).await;
    for (name, body) in [("work-0", "not readable"), ("keys", "not work")] {
        old.payloads.put(name, body.as_bytes()).await.expect("the payload store answers");
    }

    let printed = bank.operate(&["sweep"]);
    let expected =
        "removed 1 payloads; kept 1 with open work, 1 that cannot be read and 1 younger than a day";
    assert!(printed.contains(expected), "{printed}");
    let mut kept = vec!["keys".to_owned(), "work-0".to_owned(), open.clone(), young];
    kept.sort();
    assert_eq!(payloads(&store).await, kept);
    assert!(!kept.contains(&needless));

    // The payload is removed after the rest of its work is final.
    bank.start_worker();
    bank.client(0).until_drained(wait::TIMEOUT).await;
    let printed = bank.operate(&["sweep"]);
    assert!(printed.contains("removed 1 payloads; kept 0 with open work"), "{printed}");
    kept.retain(|name| *name != open);
    assert_eq!(payloads(&store).await, kept);
    assert_eq!(bank.client(0).balance(account).await, "2.00");
}

async fn a_sweep_keeps_young_payloads(store_kind: StoreKind) {
    let bank = Plan::on(store_kind).processes(1, 0).start().await;
    let account = fresh_account();
    bank.client(0).open(account).await;
    let (_, work) = accepted(&bank, account).await;
    let store = bank.store().await;
    let name = store_payload(&store, Arc::new(SystemWorld::new()), &[&work]).await;
    let printed = bank.operate(&["sweep"]);
    let expected =
        "removed 0 payloads; kept 0 with open work, 0 that cannot be read and 1 younger than a day";
    assert!(printed.contains(expected), "{printed}");
    assert_eq!(payloads(&store).await, [name]);
}
