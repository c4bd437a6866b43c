//! A batch during whose work processes ended is stopped.

use postonce_shared::batches::messages::{self, Named};
use postonce_shared::batches::open::{BatchBacklog, OpenBatches};
use postonce_shared::domain::batch::HindranceReason;
use uuid::Uuid;

use super::rig::{Rig, batch_key, item};
use crate::protocol::fixture::deposit;

#[tokio::test]
async fn a_stopped_batch_waits_until_its_dead_letter_is_replayed() {
    let rig = Rig::new().await;
    let (bank, key) = (rig.process(), batch_key(1));
    let items = [item(1, 1, 1, deposit("1.00")), item(2, 2, 2, deposit("2.00"))];
    let _ = rig.submit(&bank, &key, &items).await.unwrap();
    rig.step(&bank, &messages::split_queue()).await;
    let ends_stop = bank.batches.stop(&key).await.unwrap().unwrap();
    let again = bank.batches.stop(&key).await.unwrap();
    assert_eq!(again.as_ref(), Some(&ends_stop), "one message is enough");
    bank.batches.hinder(&key, HindranceReason::GateHeld).await.unwrap();
    assert_eq!(rig.batch(&key).await.hindrance.unwrap().reason, HindranceReason::ProcessesEnded);
    // The chunks, a repeated document, a request of the upkeep, and an outcome that was reported before.
    let _ = rig.submit(&bank, &key, &items).await.unwrap();
    bank.batches.ask_initiator(&key).await.unwrap();
    rig.run(&bank).await;
    let open = OpenBatches::new(&rig.fixture.store.ports());
    assert_eq!(open.backlog().await.unwrap(), BatchBacklog::default(), "it needs no workers");
    for item in &items {
        assert_eq!(rig.row(item).await, None);
    }
    bank.batches.end_stop(&key, Uuid::from_u128(1)).await.unwrap();
    assert!(rig.batch(&key).await.stop().is_some(), "the id is not the one of the stop");
    let ends_stop = Named::decode(&ends_stop.encode()).unwrap();
    bank.batches.end_stop(&key, ends_stop.ends_stop.unwrap()).await.unwrap();
    bank.batches.ask_initiator(&key).await.unwrap();
    rig.run(&bank).await;
    rig.check(&key, &items).await;
    assert_eq!(bank.batches.stop(&key).await.unwrap(), None, "it is final");
}
