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
async fn the_epoch_grows_only_with_changes() {
    let (gate, _, _) = gate();
    assert_eq!(gate.read().await.unwrap(), GateValue { epoch: 0, state: GateState::Released });
    assert_eq!(gate.set(GateState::Released).await.unwrap().epoch, 0);
    assert_eq!(gate.set(HELD).await.unwrap(), GateValue { epoch: 1, state: HELD });
    assert_eq!(gate.set(HELD).await.unwrap().epoch, 1);
    assert_eq!(gate.set(GateState::Released).await.unwrap().epoch, 2);
    assert_eq!(gate.read().await.unwrap(), GateValue { epoch: 2, state: GateState::Released });
}

#[tokio::test]
async fn only_an_unset_gate_is_held_at_start() {
    let (gate, _, _) = gate();
    assert_eq!(gate.hold_if_unset().await.unwrap(), GateValue { epoch: 1, state: HELD });
    assert_eq!(gate.set(GateState::Released).await.unwrap().epoch, 2);
    let released = GateValue { epoch: 2, state: GateState::Released };
    assert_eq!(gate.hold_if_unset().await.unwrap(), released, "it was released in the meantime");
}

#[tokio::test]
async fn a_scheduled_release_happens_once_and_not_early() {
    let (gate, world, _) = gate();
    let release_at = Some(world.now().after(Duration::from_secs(60)));
    let held = gate.set(GateState::Held { release_at }).await.unwrap();
    assert_eq!(gate.release_if_due().await.unwrap(), held);
    world.advance(Duration::from_secs(60));
    let (one, two) = futures::join!(gate.release_if_due(), gate.release_if_due());
    let released = GateValue { epoch: held.epoch + 1, state: GateState::Released };
    assert_eq!((one.unwrap(), two.unwrap()), (released, released));
}

#[tokio::test]
async fn an_invalid_value_is_a_fault_and_is_kept() {
    let (gate, _, sync) = gate();
    for value in ["", "{}", r#"{"v":1,"state":"open","epoch":1}"#, r#"{"v":2,"state":"held","epoch":1}"#] {
        let revision = sync.get(NAME).await.unwrap().map(|stored| stored.revision);
        let _ = sync.swap(NAME, revision.as_ref(), value).await.unwrap();
        assert!(matches!(gate.read().await, Err(StoreFault::Corrupt { .. })), "{value}");
        assert!(gate.set(GateState::Released).await.is_err(), "{value}");
        assert_eq!(sync.get(NAME).await.unwrap().unwrap().value, value);
    }
}
