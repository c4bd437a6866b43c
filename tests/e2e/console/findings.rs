//! The scrubber in the browser: a round, and what it found.

use std::time::Duration;

use postonce_tests::prelude::*;
use serde_json::Value;

use super::shown::{list, plain, shown_time, text};
use super::visit::Visit;

/// Longest time until a round has ended.
const ROUND_MAX: Duration = Duration::from_secs(150);

on_sqlite![a_changed_row_is_shown_with_its_account];

async fn a_changed_row_is_shown_with_its_account(store_kind: StoreKind) {
    let mut bank = Plan::on(store_kind).start().await;
    let (client, changed) = (bank.client(0), fresh_account());
    client.open(changed).await;
    drop(client.post(changed, fresh_id(), &Submission::deposit("1.00")).await);
    let visit = Visit::sign_in(&bank, 0, bank.key()).await;
    visit.open("/console/scrubber").await;
    visit.browser.wait_text("main", "No round has ended yet").await;
    bank.tamper().garble_page(changed, 1).await;
    bank.start_scrubber();
    let scrubber = wait::until("a round of the scrubber", ROUND_MAX, async || {
        let scrubber = client.get("/v1/admin/scrubber").await.expect(200).body;
        if scrubber["last_round"].is_object() { Ok(scrubber) } else { Err(scrubber.to_string()) }
    })
    .await;
    visit.open("/console/scrubber").await;
    visit.browser.wait_text("[role='alert']", "The ledger differs from what the bank wrote").await;
    let known = list(&scrubber, "findings");
    let rows = visit.rows("Findings").await;
    assert_eq!((rows.len(), known.len()), (1, 1), "{rows:?} {known:?}");
    let (row, finding) = (&rows[0], &known[0]);
    assert_eq!(
        row[..3],
        [
            shown_time(text(finding, "at")),
            "difference\npage_unreadable".to_owned(),
            text(finding, "text").to_owned()
        ]
    );
    assert!(row[3].contains(&format!("postonce-web verify --account {changed}")), "{row:?}");

    let round = &scrubber["last_round"];
    let rounds = visit.rows("Rounds").await;
    let shown = rounds.iter().find(|row| row[0] == "last").expect("the last round");
    let times = ["started_at", "ended_at"].map(|member| shown_time(text(round, member)));
    assert_eq!(shown[1..3], times);
    let numbers = ["accounts", "rows", "operations", "findings", "accepted", "enqueued"];
    let shown: Vec<String> = shown[3..].iter().map(|cell| plain(cell)).collect();
    assert_eq!(shown, numbers.map(|member| round[member].to_string()));
    assert_eq!(Value::from(visit.number("Storage operations").await), scrubber["operations_per_day"]);

    visit.browser.click(&format!("main td a[href$='{}']", changed.account)).await;
    let account = format!("/console/accounts/{}/{}", changed.user, changed.account);
    let is_there = format!("return location.pathname === '{account}'");
    visit.browser.wait_until("the page of the account is opened", &is_there).await;
}
