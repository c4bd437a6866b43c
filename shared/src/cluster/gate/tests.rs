#![expect(clippy::arithmetic_side_effects, reason = "test code")]

use std::time::Duration;

use super::*;
use crate::adapters::memory::MemoryStore;
use crate::adapters::memory::world::TestWorld;

fn gate() -> (Gate, Arc<TestWorld>, Arc<dyn SyncStore>) {
    let world = Arc::new(TestWorld::new(1));
    let sync = MemoryStore::new(world.clone()).sync;
    (Gate::new(Arc::clone(&sync), world.clone()), world, sync)
}

const HELD: GateState = GateState::Held { release_at: None };

#[tokio::test]
async fn the_epoch_grows_with_every_change_and_with_nothing_else() {
    let (gate, _, _) = gate();
    assert_eq!(gate.read().await.unwrap(), GateOrder { epoch: 0, state: GateState::Released });
    assert_eq!(gate.set(GateState::Released).await.unwrap().epoch, 0);
    assert_eq!(gate.set(HELD).await.unwrap(), GateOrder { epoch: 1, state: HELD });
    assert_eq!(gate.set(HELD).await.unwrap().epoch, 1);
    assert_eq!(gate.set(GateState::Released).await.unwrap().epoch, 2);
    assert_eq!(gate.read().await.unwrap(), GateOrder { epoch: 2, state: GateState::Released });
}

#[tokio::test]
async fn only_an_untouched_gate_is_held_at_start() {
    let (gate, _, _) = gate();
    assert_eq!(gate.hold_if_untouched().await.unwrap(), GateOrder { epoch: 1, state: HELD });
    assert_eq!(gate.set(GateState::Released).await.unwrap().epoch, 2);
    let released = GateOrder { epoch: 2, state: GateState::Released };
    assert_eq!(gate.hold_if_untouched().await.unwrap(), released, "somebody released it meanwhile");
}

#[tokio::test]
async fn a_scheduled_release_happens_once_and_not_early() {
    let (gate, world, _) = gate();
    let release_at = Some(world.now().after(Duration::from_secs(60)));
    let held = gate.set(GateState::Held { release_at }).await.unwrap();
    assert_eq!(gate.release_if_due().await.unwrap(), held);
    world.advance(Duration::from_secs(60));
    let (one, two) = futures::join!(gate.release_if_due(), gate.release_if_due());
    let released = GateOrder { epoch: held.epoch + 1, state: GateState::Released };
    assert_eq!((one.unwrap(), two.unwrap()), (released, released));
}

#[tokio::test]
async fn a_value_that_cannot_be_read_is_a_fault_and_stays() {
    let (gate, _, sync) = gate();
    for value in ["", "{}", r#"{"v":1,"state":"open","epoch":1}"#, r#"{"v":2,"state":"held","epoch":1}"#] {
        let revision = sync.get(NAME).await.unwrap().map(|stored| stored.revision);
        let _ = sync.swap(NAME, revision.as_ref(), value).await.unwrap();
        assert!(matches!(gate.read().await, Err(StoreFault::Corrupt { .. })), "{value}");
        assert!(gate.set(GateState::Released).await.is_err(), "{value}");
        assert_eq!(sync.get(NAME).await.unwrap().unwrap().value, value);
    }
}
