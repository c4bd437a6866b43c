//! The scrubber of a real process: it reports a round, and what it found.

use std::time::Duration;

use postonce_tests::prelude::*;
use serde_json::json;

on_both_stores![a_round_is_reported_with_what_it_found];

/// Longest time until a round has ended.
const ROUND_MAX: Duration = Duration::from_secs(150);

async fn a_round_is_reported_with_what_it_found(store_kind: StoreKind) {
    let mut bank = Plan::on(store_kind).start().await;
    let client = bank.client(0);
    let (sound, changed) = (fresh_account(), fresh_account());
    for account in [sound, changed] {
        client.open(account).await;
        for _ in 0..2 {
            drop(client.submit_and_wait(account, fresh_id(), &Submission::deposit("1.00")).await.expect(200));
        }
    }
    // A transaction that stays accepted.
    drop(client.set_gate(&json!({"state": "held"})).await.expect(200));
    drop(client.submit_until_accepted(sound, fresh_id(), &Submission::deposit("1.00")).await);
    bank.tamper().garble_page(changed, 2).await;
    bank.start_scrubber();
    let scrubber = wait::until("a round of the scrubber", ROUND_MAX, async || {
        let scrubber = client.get("/v1/admin/scrubber").await.expect(200).body;
        if scrubber["last_round"].is_object() { Ok(scrubber) } else { Err(scrubber.to_string()) }
    })
    .await;
    let round = &scrubber["last_round"];
    assert_eq!(round["progress_permille"], 1000, "{round}");
    assert_eq!(round["accounts"], 2, "{round}");
    // The opening of an account has a page if it came after the process began to chain every decision.
    let (mut rows, store) = (11_usize, bank.store().await);
    for account in [sound, changed] {
        let openings = store.log.decision_pages(account, 0, 10).await.expect("the pages can be read");
        rows = rows.saturating_add(openings.len());
    }
    assert_eq!(round["rows"], rows, "{round}");
    assert_eq!((&round["findings"], &round["enqueued"]), (&1.into(), &0.into()), "{round}");
    // Half of the pages that the storage of the tests returns on Azurite end early, and are continued.
    let operations_max = if store_kind == StoreKind::Sqlite { 20 } else { 40 };
    assert!(round["operations"].as_u64().is_some_and(|count| count < operations_max), "{round}");
    assert_eq!(scrubber["operations_per_day"], 10_000);
    let oldest = &scrubber["oldest_accepted_at"];
    assert!(oldest.is_string(), "{scrubber}");
    let scrubbing = bank.workers.last().expect("a worker that scrubs");
    let probe = ProcessProbe::with_key(scrubbing.address(), bank.key());
    let metrics = probe.metrics().await;
    for line in ["postonce_dead_letters_open 0", "postonce_scrubber_oldest_accepted_age_seconds "] {
        assert!(metrics.lines().any(|it| it.starts_with(line)), "{line} is missing in\n{metrics}");
    }
    let health = probe.health().await.expect("it answers");
    assert_eq!(&health["oldest_accepted_at"], oldest, "{health}");
    let finding = &scrubber["findings"][0];
    assert_eq!(finding["kind"], "page_unreadable", "{finding}");
    assert!(finding["text"].as_str().is_some_and(|text| text.contains(&changed.to_string())), "{finding}");
}
