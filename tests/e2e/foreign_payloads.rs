//! What others store beside the payloads of the bank: too large for one, or under names that none has.

use std::sync::Arc;

use async_trait::async_trait;
use postonce_shared::adapters::system::SystemWorld;
use postonce_shared::domain::time::Timestamp;
use postonce_shared::messaging::sweep::{AGE_MIN, Sweep, Swept};
use postonce_shared::ports::world::World;
use postonce_shared::testing::decorators::WorldDecorator;
use postonce_tests::client::Wish;
use postonce_tests::forger::Forger;
use postonce_tests::scenario::{Plan, Stand, fresh_account, fresh_id};
use postonce_tests::wait;

/// It is not read whole, however large it is.
#[tokio::test]
async fn a_payload_larger_than_any_of_the_bank_is_for_a_person() {
    let bank = Plan::on(Stand::Azurite).with("POSTONCE_QUEUE_COUNT", "1").processes(1, 1).start().await;
    let (client, account) = (bank.client(0), fresh_account());
    client.open(account).await;
    // The queue is there from its first message on, and the container from its first payload on.
    drop(client.post(account, fresh_id(), &Wish::deposit("1.00")).await);
    bank.store().await.payloads.put("work-1", b"makes the container").await.expect("the store answers");
    Forger::of(&bank).claim_payloads(&[vec![7; 5 * 1024 * 1024]]);
    client.until_drained(wait::PATIENCE).await;
    let letters = client.dead_letters().await;
    let [letter] = letters.as_slice() else { panic!("one letter, not {letters:?}") };
    let reason = letter["reason"].as_str().unwrap_or_default();
    assert!(reason.contains("is damaged") && reason.contains("more than 1048576 bytes"), "{reason}");
}

/// Two days from now.
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
async fn a_sweep_passes_over_what_others_store_under_names_that_are_none() {
    let bank = Plan::on(Stand::Azurite).with("POSTONCE_QUEUE_COUNT", "1").processes(1, 0).start().await;
    let store = bank.store().await;
    store.payloads.put("work-a", b"no payload").await.expect("the payload store answers");
    store.payloads.put("work-z", b"no payload either").await.expect("the payload store answers");
    let long = format!("work-{}", "l".repeat(300));
    Forger::of(&bank).store_under(&["work-X", "work-a/b", "work-b c", &long]);
    let swept = Sweep::new(&store, Arc::new(InTwoDays(SystemWorld::new()))).run().await;
    assert_eq!(swept.expect("the store answers"), Swept { unreadable: 2, ..Swept::default() });
}
