//! Payloads that other programs store beside those of the bank: too large, or with invalid names.

use std::sync::Arc;

use async_trait::async_trait;
use postonce_shared::messaging::sweep::{AGE_MIN, Sweep, Swept};
use postonce_shared::testing::decorators::WorldDecorator;
use postonce_shared::testing::prelude::*;
use postonce_tests::forger::Forger;
use postonce_tests::prelude::*;

/// The payload is not read as a whole, however large it is.
#[tokio::test]
async fn a_payload_larger_than_any_of_the_bank_becomes_a_dead_letter() {
    let bank = Plan::on(StoreKind::Azurite)
        .through_the_queue()
        .with("POSTONCE_QUEUE_COUNT", "1")
        .processes(1, 1)
        .start()
        .await;
    let (client, account) = (bank.client(0), fresh_account());
    client.open(account).await;
    // The first message creates the queue, and the first payload creates the container.
    drop(client.post(account, fresh_id(), &Submission::deposit("1.00")).await);
    bank.store().await.payloads.put("work-1", b"makes the container").await.expect("the store answers");
    Forger::of(&bank).claim_payloads(&[vec![7; 5 * 1024 * 1024]]);
    client.until_drained(wait::TIMEOUT).await;
    let letters = client.dead_letters().await;
    let [letter] = letters.as_slice() else { panic!("one letter, not {letters:?}") };
    let reason = letter["reason"].as_str().unwrap_or_default();
    assert!(reason.contains("is damaged") && reason.contains("more than 1048576 bytes"), "{reason}");
}

/// A world whose clock is two days ahead.
struct InTwoDays(SystemWorld);

#[async_trait]
impl WorldDecorator for InTwoDays {
    fn inner(&self) -> &dyn World {
        &self.0
    }

    fn now(&self) -> Timestamp {
        World::now(&self.0).after(AGE_MIN.saturating_mul(2))
    }
}

#[tokio::test]
async fn a_sweep_ignores_payloads_with_invalid_names() {
    let bank = Plan::on(StoreKind::Azurite)
        .through_the_queue()
        .with("POSTONCE_QUEUE_COUNT", "1")
        .processes(1, 0)
        .start()
        .await;
    let store = bank.store().await;
    store.payloads.put("work-a", b"no payload").await.expect("the payload store answers");
    store.payloads.put("work-z", b"no payload either").await.expect("the payload store answers");
    let long = format!("work-{}", "l".repeat(300));
    Forger::of(&bank).store_under(&["work-X", "work-a/b", "work-b c", &long]);
    let swept = Sweep::new(&store, &seal(), Arc::new(InTwoDays(SystemWorld::new()))).run().await;
    assert_eq!(swept.expect("the store answers"), Swept { unreadable: 2, ..Swept::default() });
}
