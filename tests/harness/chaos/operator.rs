//! An operator who holds the gate now and then, and releases it soon.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use reqwest::Method;
use serde_json::json;

use super::door::Door;
use super::tally::Tally;
use super::watch::Watch;
use crate::client::Client;
use crate::wait;

/// Between two times at which the gate is held, and how long it is, in milliseconds.
const PAUSE_MS: std::ops::Range<u64> = 2_000..9_000;
const HELD_MS: std::ops::Range<u64> = 100..1_500;

/// Holds and releases while it is rough; in the end the gate is released.
pub async fn work_the_gate(door: &Door<'_>, watch: &Watch, tally: &Tally, seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    loop {
        wait::pass(Duration::from_millis(rng.random_range(PAUSE_MS))).await;
        if !watch.is_rough() {
            return;
        }
        set(door, "held", &mut rng).await;
        wait::pass(Duration::from_millis(rng.random_range(HELD_MS))).await;
        set(door, "released", &mut rng).await;
        tally.count(|counts| counts.gates_held = counts.gates_held.saturating_add(1));
    }
}

async fn set(door: &Door<'_>, state: &str, rng: &mut StdRng) {
    let put =
        |client: &Client| client.request(Method::PUT, "/v1/admin/gate").json(&json!({ "state": state }));
    drop(door.insist(rng, "changing the gate", &[200], put).await);
}
