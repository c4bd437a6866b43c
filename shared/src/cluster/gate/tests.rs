#![expect(clippy::arithmetic_side_effects, reason = "test code")]

use std::time::Duration;

use super::*;
use crate::testing::prelude::*;

fn gate() -> (Gate, Arc<TestWorld>, Arc<dyn SyncStore>) {
    let world = Arc::new(TestWorld::new(1));
    let store = MemoryStore::new(world.clone());
    (gate_on(&store, &world), world, store.sync)
}

fn gate_on(store: &Store, world: &Arc<TestWorld>) -> Gate {
    let world: Arc<dyn World> = world.clone();
    Gate::new(store, &world)
}

const HELD: GateState = GateState::Held { release_at: None };

#[tokio::test]
async fn the_epoch_grows_only_with_changes() {
    let (gate, _, _) = gate();
    assert_eq!(gate.read().await.unwrap(), GateValue { epoch: 0, state: GateState::Released });
    assert_eq!(gate.set(GateState::Released, &GateAct::by("a test")).await.unwrap().value.epoch, 0);
    assert_eq!(
        gate.set(HELD, &GateAct::by("a test")).await.unwrap().value,
        GateValue { epoch: 1, state: HELD }
    );
    assert_eq!(gate.set(HELD, &GateAct::by("a test")).await.unwrap().value.epoch, 1);
    assert_eq!(gate.set(GateState::Released, &GateAct::by("a test")).await.unwrap().value.epoch, 2);
    assert_eq!(gate.read().await.unwrap(), GateValue { epoch: 2, state: GateState::Released });
}

#[tokio::test]
async fn only_an_unset_gate_is_held_at_start() {
    let (gate, _, _) = gate();
    assert_eq!(gate.hold_if_unset().await.unwrap().value, GateValue { epoch: 1, state: HELD });
    assert_eq!(gate.read_record().await.unwrap().by.as_deref(), Some("start"));
    assert_eq!(gate.set(GateState::Released, &GateAct::by("a test")).await.unwrap().value.epoch, 2);
    let released = GateValue { epoch: 2, state: GateState::Released };
    assert_eq!(gate.hold_if_unset().await.unwrap().value, released, "it was released in the meantime");
}

#[tokio::test]
async fn a_scheduled_release_happens_once_and_not_early() {
    let (gate, world, _) = gate();
    let release_at = Some(world.now().after(Duration::from_secs(60)));
    let held = gate.set(GateState::Held { release_at }, &GateAct::by("a test")).await.unwrap().value;
    assert_eq!(gate.release_if_due().await.unwrap().value, held);
    world.advance(Duration::from_secs(60));
    let (one, two) = futures::join!(gate.release_if_due(), gate.release_if_due());
    let released = GateValue { epoch: held.epoch + 1, state: GateState::Released };
    assert_eq!((one.unwrap().value, two.unwrap().value), (released, released));
}

#[tokio::test]
async fn an_invalid_value_is_a_fault_and_is_kept() {
    let (gate, _, sync) = gate();
    for value in ["", "{}", r#"{"v":1,"state":"open","epoch":1}"#, r#"{"v":2,"state":"held","epoch":1}"#] {
        let revision = sync.get(NAME).await.unwrap().map(|stored| stored.revision);
        let _ = sync.swap(NAME, revision.as_ref(), value).await.unwrap();
        assert!(matches!(gate.read().await, Err(StoreFault::Corrupt { .. })), "{value}");
        assert!(gate.set(GateState::Released, &GateAct::by("a test")).await.is_err(), "{value}");
        assert_eq!(sync.get(NAME).await.unwrap().unwrap().value, value);
    }
}

#[tokio::test]
async fn only_a_process_whose_clock_agrees_with_the_store_releases_the_gate() {
    let world = Arc::new(TestWorld::new(1));
    let clock = Arc::new(StoreClock::of_responses());
    let store = Store { clock: Arc::clone(&clock), ..MemoryStore::new(world.clone()) };
    let gate = gate_on(&store, &world);
    let held = gate
        .set(GateState::Held { release_at: Some(world.now()) }, &GateAct::by("a test"))
        .await
        .unwrap()
        .value;
    world.advance(Duration::from_secs(60));
    assert_eq!(gate.untrusted_clock(), Some(ClockError::NotCompared));
    assert_eq!(gate.release_if_due().await.unwrap().value, held, "the time of the store is unknown");
    let set_skew = |min_ms, max_ms| {
        let _warning = clock.record(ClockSkew { min_ms, max_ms }, Duration::ZERO);
    };
    for (min_ms, max_ms) in [(839_000, 840_000), (4_000, 5_001), (-5_001, -4_000), (-900_000, -800_000)] {
        set_skew(min_ms, max_ms);
        assert!(matches!(gate.untrusted_clock(), Some(ClockError::Differs(_))), "{min_ms} to {max_ms} ms");
        assert_eq!(gate.release_if_due().await.unwrap().value, held, "{min_ms} to {max_ms} ms");
    }
    set_skew(4_000, 5_000);
    assert_eq!(gate.untrusted_clock(), None);
    assert_eq!(gate.release_if_due().await.unwrap().value.state, GateState::Released);
}

#[tokio::test]
async fn the_last_change_is_stored_with_its_time_author_and_reason() {
    let (gate, world, sync) = gate();
    assert_eq!(gate.read_record().await.unwrap(), GateRecord::UNSET);
    let at = world.now();
    let reason = Some("nightly close".to_owned());
    let act = GateAct { reason, ..GateAct::by("partner=ops key=7") };
    let held = gate.set(HELD, &act).await.unwrap();
    let expected = GateRecord {
        value: GateValue { epoch: 1, state: HELD },
        since: Some(at),
        by: Some("partner=ops key=7".to_owned()),
        reason: Some("nightly close".to_owned()),
    };
    assert_eq!((&held, &gate.read_record().await.unwrap()), (&expected, &expected));
    world.advance(Duration::from_secs(60));
    let again = gate.set(HELD, &GateAct::by("another one")).await.unwrap();
    assert_eq!(again, expected, "who repeats a change has not made it");
    let released = gate.set(GateState::Released, &GateAct::by("command")).await.unwrap();
    assert_eq!((released.since, released.by.as_deref()), (Some(world.now()), Some("command")));
    assert_eq!(released.reason, None, "the reason of the hold is not that of the release");
    let release_at = Some(world.now());
    gate.set(GateState::Held { release_at }, &act).await.unwrap();
    gate.release_if_due().await.unwrap();
    let by = async || gate.read_record().await.unwrap().by.unwrap();
    assert_eq!(by().await, "schedule");
    gate.hold_ahead(7, &GateAct::by("command os_user=ada")).await.unwrap();
    assert_eq!(by().await, "command os_user=ada");
    assert!(sync.get(NAME).await.unwrap().unwrap().value.starts_with(r#"{"v":1,"state":"held","epoch":"#));
}
