//! Tests that texts and amounts are read unchanged.

use std::collections::BTreeMap;

use crate::case::{Case, currency, details, instruction, partner};
use postonce_shared::domain::decision::Submission;
use postonce_shared::domain::instruction::{METADATA_BYTES_MAX, METADATA_ENTRIES_MAX, REFERENCE_CHARS_MAX};
use postonce_shared::testing::prelude::*;

/// How transactions become final.
#[derive(Clone, Copy)]
enum Way {
    /// They are accepted, and a commit makes them final.
    Accepted,
    /// A commit inserts them.
    Inserted,
}

pub(super) async fn contract(case: &impl AsyncFn() -> Case) {
    for way in [Way::Accepted, Way::Inserted] {
        contract_of(way, case).await;
    }
}

async fn contract_of(way: Way, case: &impl AsyncFn() -> Case) {
    texts_survive_byte_for_byte(way, &case().await).await;
    a_full_commit_of_long_metadata_fits(way, &case().await).await;
    a_full_commit_of_the_largest_details_fits(way, &case().await).await;
    the_largest_amounts_and_balances_survive(way, &case().await).await;
    negative_balances_survive(way, &case().await).await;
    every_number_of_decimals_survives(way, &case().await).await;
}

/// Posts the group, and asserts that the rows and the journal contain exactly the instructions.
async fn check(way: Way, case: &Case, account: AccountKey, group: &[Submission]) {
    let commit = match way {
        Way::Accepted => case.settled(group).await,
        Way::Inserted => case.inserted(group).await,
    };
    for (new, (_, outcome)) in group.iter().zip(commit.outcomes()) {
        let stored = case.stored(&new.key).await;
        assert_eq!(stored.submission.instruction, new.instruction, "a row keeps the instruction");
        assert_eq!(stored.submission.accepted_at, new.accepted_at, "a row keeps the time");
        assert_eq!(stored.fingerprint, new.instruction.fingerprint(), "a row keeps the fingerprint");
        assert_eq!(stored.outcome.as_ref(), Some(outcome), "a row keeps the outcome");
    }
    assert_eq!(case.account(account).await.value, commit.after, "the decided account is stored");
    let pages = case.journal(account).await;
    assert_eq!(pages.last(), Some(&commit.page), "the journal keeps all fields of the entries");
    case.assert_chain(&commit.after).await;
}

async fn texts_survive_byte_for_byte(way: Way, case: &Case) {
    let texts = [
        "Grüße, Ångström & Søn",
        "e\u{301} and é are not the same",
        "日本語 العربية עברית",
        "👩‍👩‍👧‍👦 🦀 \u{10ffff}",
        "\u{feff}\u{200b}\u{202e}\u{2028}",
        "<![CDATA[ ]]> &amp; &#0; <a href=\"x\">",
        r#"\ \\ \u0041 " ' ` $ % _ ; -- {} [] | / # ? +"#,
        "  spaces around  ",
        "'; drop table ledger; --",
        "null",
        "0012",
        "2026-01-01T00:00:00Z",
        "true",
        // Parts of batch requests and responses.
        "If-Match: *",
        "HTTP/1.1 412 Precondition Failed",
        "DELETE http://h/t(PartitionKey='a',RowKey='b') HTTP/1.1",
        "--changeset_00000000-0000-0000-0000-000000000000--",
        "--changesetresponse_00000000-0000-0000-0000-000000000000",
        "ETag: W/\"datetime'2026'\"",
        r#"{"odata.error":{"code":"X","message":{"value":"0:no"}}}"#,
    ];
    let lines = "\r\nif-match: *\r\n\r\n--changeset_\nHTTP/1.1 200 OK\nETag: *\n";
    let account = case.opened().await.value.key;
    let mut group: Vec<Submission> = Vec::new();
    for text in texts {
        let unknown =
            serde_json::json!({ text: [text, { "": null, "z": 1.5e300, "a": u64::MAX, "l": lines }] });
        let name: String = text.chars().take(40).collect();
        let metadata = [(name.as_str(), text), ("__proto__", "x"), ("PartitionKey", ""), ("a.b$c", " ")];
        let mut new = case.deposit(account, 1);
        new.instruction.details = details(text, &metadata, &unknown.to_string());
        group.push(new);
    }
    // Absent texts differ from empty ones.
    let mut bare = case.deposit(account, 1);
    bare.instruction.details = Details::new(None, BTreeMap::new(), &UnknownMembers::default());
    bare.key.partner = partner("p_23456789_123456789_123456789_1");
    bare.accepted_at = Timestamp::from_unix_ms(0);
    let mut late = case.deposit(account, 1);
    late.accepted_at = Timestamp::from_unix_ms(i64::MAX);
    group.extend([bare, late]);
    check(way, case, account, &group).await;
}

async fn a_full_commit_of_long_metadata_fits(way: Way, case: &Case) {
    let account = case.opened().await.value.key;
    let value = "m".repeat(METADATA_BYTES_MAX - 1);
    let group: Vec<Submission> = (0..PAGE_ENTRIES_MAX)
        .map(|_| {
            let mut new = case.deposit(account, 1);
            new.instruction.details = details("long", &[("n", &value)], "{}");
            new
        })
        .collect();
    check(way, case, account, &group).await;
}

async fn a_full_commit_of_the_largest_details_fits(way: Way, case: &Case) {
    // All limits are used, with characters that become longer in JSON. If a valid batch did not fit, its account could
    // never post again.
    let account = case.opened().await.value.key;
    let name = |index| format!("{index:02}");
    let value = "\"".repeat(METADATA_BYTES_MAX / METADATA_ENTRIES_MAX - 2);
    let metadata: BTreeMap<String, String> =
        (0..METADATA_ENTRIES_MAX).map(|index| (name(index), value.clone())).collect();
    let unknown = BTreeMap::from([("u".to_owned(), serde_json::Value::from("\"".repeat(1020)))]);
    let reference = "🦀".repeat(REFERENCE_CHARS_MAX);
    let unknown = UnknownMembers::Members(unknown);
    let largest = Details::new(Some(reference), metadata, &unknown);
    let group: Vec<Submission> = (0..PAGE_ENTRIES_MAX)
        .map(|_| {
            let mut new = case.deposit(account, AMOUNT_MINOR_UNITS_MAX / 100);
            new.instruction.details = largest.clone();
            new
        })
        .collect();
    check(way, case, account, &group).await;
}

async fn the_largest_amounts_and_balances_survive(way: Way, case: &Case) {
    let account = case.opened().await.value.key;
    let rest = BALANCE_MINOR_UNITS_MAX - 9 * AMOUNT_MINOR_UNITS_MAX;
    let mut group = vec![AMOUNT_MINOR_UNITS_MAX; 9];
    group.push(rest);
    let group: Vec<Submission> = group.into_iter().map(|cents| case.deposit(account, cents)).collect();
    check(way, case, account, &group).await;
    let balance = case.account(account).await.value.balance;
    assert_eq!(balance.minor_units(), BALANCE_MINOR_UNITS_MAX, "the largest balance is kept exactly");
}

async fn negative_balances_survive(way: Way, case: &Case) {
    let account = case.opened_in(currency("EUR"), AMOUNT_MINOR_UNITS_MAX).await.value.key;
    let all_but_one = case.withdrawal(account, AMOUNT_MINOR_UNITS_MAX - 1);
    check(way, case, account, &[all_but_one, case.withdrawal(account, 1)]).await;
    let read = case.account(account).await.value;
    assert_eq!(read.balance.minor_units(), -AMOUNT_MINOR_UNITS_MAX, "a negative balance is kept exactly");
    assert_eq!(read.overdraft_limit.minor_units(), AMOUNT_MINOR_UNITS_MAX, "the limit is kept exactly");
    check(way, case, account, &[case.deposit(account, 1)]).await;
}

async fn every_number_of_decimals_survives(way: Way, case: &Case) {
    for code in ["JPY", "EUR", "BHD", "CLF"] {
        let currency = currency(code);
        let account = case.opened_in(currency, 10_000).await.value.key;
        let new_transaction =
            |kind, minor_units| case.new_transaction(account, instruction(kind, minor_units, currency));
        let group = [
            new_transaction(TransactionKind::Deposit, AMOUNT_MINOR_UNITS_MAX),
            new_transaction(TransactionKind::Withdrawal, 9_007_199_254_740_993),
            new_transaction(TransactionKind::Deposit, 1),
        ];
        check(way, case, account, &group).await;
    }
}
