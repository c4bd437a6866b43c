//! An operator that repeatedly holds the gate and releases it shortly afterwards.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use reqwest::Method;
use serde_json::json;

use super::phase::CurrentPhase;
use super::results::RunResults;
use super::retrying_client::RetryingClient;
use crate::prelude::*;

/// Pause between two holds of the gate, and duration of a hold, in milliseconds.
const PAUSE_MS: std::ops::Range<u64> = 2_000..9_000;
const HELD_MS: std::ops::Range<u64> = 100..1_500;

/// Holds and releases the gate during the fault phase. At the end the gate is released.
pub async fn hold_and_release(
    client: &RetryingClient<'_>,
    phase: &CurrentPhase,
    results: &RunResults,
    seed: u64,
) {
    let mut rng = StdRng::seed_from_u64(seed);
    loop {
        wait::pass(Duration::from_millis(rng.random_range(PAUSE_MS))).await;
        if !phase.has_faults() {
            return;
        }
        set(client, "held", &mut rng).await;
        wait::pass(Duration::from_millis(rng.random_range(HELD_MS))).await;
        set(client, "released", &mut rng).await;
        results.count(|counts| counts.gates_held = counts.gates_held.saturating_add(1));
    }
}

async fn set(retrying: &RetryingClient<'_>, state: &str, rng: &mut StdRng) {
    let put =
        |client: &Client| client.request(Method::PUT, "/v1/admin/gate").json(&json!({ "state": state }));
    drop(retrying.send(rng, "changing the gate", &[200], put).await);
}
