//! A process whose clock differs from that of the store.

use std::sync::Arc;
use std::time::Duration;

use postonce_shared::ports::store_clock::{ClockSkew, StoreClock};
use postonce_shared::testing::prelude::*;

use super::fixture::Fixture;
use super::{MINUTE, NEVER};

/// The clock of one process decides a scheduled release for all of them.
#[tokio::test]
async fn a_process_with_a_wrong_clock_performs_no_scheduled_release_and_asks_rarely() {
    let mut fixture = Fixture::new();
    let clock = Arc::new(StoreClock::of_responses());
    fixture.store.clock = Arc::clone(&clock);
    let set_skew = |min_ms, max_ms| {
        let _warning = clock.record(ClockSkew { min_ms, max_ms }, Duration::ZERO);
    };
    set_skew(840_000, 841_000);
    let release_at = Some(fixture.world.now().after(MINUTE));
    fixture.gate().set(GateState::Held { release_at }, &GateAct::by("a test")).await.unwrap();
    let process = fixture.process(NEVER, 8);
    fixture.send(0, "waits").await;
    fixture.pass(5 * MINUTE).await;
    assert_eq!((process.handler.handled_count(), process.process_gate.epoch()), (0, 1));
    let before = fixture.operations();
    fixture.pass(10 * MINUTE).await;
    let asked = fixture.operations() - before;
    assert!((9..=11).contains(&asked), "{asked} operations in ten minutes");
    // The clock was corrected.
    set_skew(0, 999);
    fixture.pass(2 * MINUTE).await;
    assert_eq!((process.handler.handled_count(), process.process_gate.epoch()), (1, 2));
}
