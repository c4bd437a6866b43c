//! The clock of the store, as its responses show it.

use std::sync::Arc;
use std::time::Duration;

use postonce_shared::cluster::gate::{ClockError, Gate, GateState};
use postonce_shared::testing::prelude::*;
use time::OffsetDateTime;
use time::macros::format_description;

use super::fixture::Fixture;
use postonce_tests::fake_storage::Fault::Refuse;

impl Fixture {
    /// Lets the clock of the store be behind that of this process, by a time that begins now.
    fn put_store_behind(&self, by: Duration) {
        let by_ms = i64::try_from(by.as_millis()).unwrap();
        let second = World::now(&*self.world).unix_ms().saturating_sub(by_ms).div_euclid(1000);
        let format = format_description!(
            "[weekday repr:short], [day] [month repr:short] [year] [hour]:[minute]:[second] GMT"
        );
        self.fake.set_date(&OffsetDateTime::from_unix_timestamp(second).unwrap().format(&format).unwrap());
    }

    fn gate(&self) -> Gate {
        let world: Arc<dyn World> = self.world.clone();
        Gate::new(&self.store, &world)
    }
}

/// The worst clock that Azure accepts requests from is 15 minutes off.
#[tokio::test]
async fn a_process_whose_clock_is_ahead_of_the_store_does_not_release_the_gate() {
    const AHEAD: Duration = Duration::from_secs(14 * 60);
    let fixture = Fixture::new();
    let gate = fixture.gate();
    assert_eq!(gate.untrusted_clock(), Some(ClockError::NotCompared));
    fixture.put_store_behind(AHEAD);
    // Due in ten minutes by the clock of the store.
    let release_at = Timestamp::from_unix_ms(World::now(&*fixture.world).unix_ms().saturating_sub(240_000));
    let held = GateState::Held { release_at: Some(release_at) };
    gate.set(held, &GateAct::by("a test")).await.unwrap();
    let skew = fixture.store.clock.skew().unwrap();
    assert!(skew.min_ms > 837_000 && skew.max_ms < 843_000, "{skew:?}");
    assert_eq!(gate.release_if_due().await.unwrap().value.state, held);
    // The clock is corrected. The request that reads the gate shows it.
    fixture.put_store_behind(Duration::ZERO);
    assert_eq!(gate.release_if_due().await.unwrap().value.state, GateState::Released);
}

#[tokio::test]
async fn every_response_shows_the_clock_of_the_store() {
    let fixture = Fixture::new();
    fixture.put_store_behind(Duration::from_secs(60));
    // The response of a failed request shows it as well.
    fixture.fake.fail("get", &[Refuse(403)]);
    assert!(fixture.store.sync.get("gate").await.is_err());
    let skew = fixture.store.clock.skew().unwrap();
    assert!(skew.certain_ms() > 57_000, "{skew:?}");
    fixture.fake.set_date("yesterday");
    let _absent = fixture.store.sync.get("gate").await;
    assert_eq!(fixture.store.clock.skew(), Some(skew), "a date that cannot be read says nothing");
}
