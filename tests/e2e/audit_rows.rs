//! The rows of the audit trail: acts of several processes and of commands make one chain, which anyone can compute again
//! from the listing, and `verify` finds each change of it.

use futures::future::join_all;
use postonce_shared::testing::prelude::*;
use postonce_tests::prelude::*;
use postonce_tests::verify::verify;
use reqwest::Method;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::backup::{restore, run};

on_both_stores![acts_of_all_processes_make_one_chain, verify_finds_changes_of_the_trail];

/// Number of acts of each process at the same time.
const ACTS: usize = 10;

/// The hash of a row, from the documentation and without the code of the bank.
fn hash(row: &Value) -> String {
    let text = |name: &str| row.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let bytes = |name: &str| hex::decode(text(name)).expect("hexadecimal");
    let sequence = row.get("sequence").and_then(Value::as_u64).expect("a number");
    let at = time::OffsetDateTime::parse(&text("at"), &time::format_description::well_known::Rfc3339);
    let at_ms = at.expect("a time").unix_timestamp_nanos().div_euclid(1_000_000);
    let mut hash = Sha256::new();
    let mut field = |bytes: &[u8]| {
        hash.update(u64::try_from(bytes.len()).expect("short").to_be_bytes());
        hash.update(bytes);
    };
    field(b"postonce audit row 1");
    field(&sequence.to_be_bytes());
    field(&bytes("previous_hash"));
    field(&bytes("nonce"));
    hash.update(i64::try_from(at_ms).expect("a time of today").to_be_bytes());
    for name in ["actor", "key_id", "act", "target", "origin"] {
        let text = text(name);
        hash.update(u64::try_from(text.len()).expect("short").to_be_bytes());
        hash.update(text.as_bytes());
    }
    hex::encode(hash.finalize())
}

/// Reads the whole trail in small pages, from the first row to the last one, and checks the chain.
async fn trail(client: &Client) -> Vec<Value> {
    let (mut rows, mut path) = (Vec::new(), "/v1/admin/audit?limit=7".to_owned());
    loop {
        let page = client.get(&path).await.expect(200);
        rows.extend(page.body.pointer("/rows").and_then(Value::as_array).expect("rows").clone());
        match page.body.pointer("/next_cursor").and_then(Value::as_str) {
            Some(cursor) => path = format!("/v1/admin/audit?limit=7&cursor={cursor}"),
            None => break,
        }
    }
    rows.reverse();
    let mut previous = "0".repeat(64);
    for (row, sequence) in rows.iter().zip(1_u64..) {
        assert_eq!(row.get("sequence"), Some(&json!(sequence)), "no gap: {rows:#?}");
        assert_eq!(row.get("previous_hash"), Some(&json!(previous)), "no fork: {rows:#?}");
        previous = hash(row);
        assert_eq!(row.get("hash"), Some(&json!(previous)), "{row:#?}");
    }
    rows
}

fn acts(rows: &[Value]) -> Vec<&str> {
    rows.iter().filter_map(|row| row.get("act")?.as_str()).collect()
}

async fn acts_of_all_processes_make_one_chain(store_kind: StoreKind) {
    let bank = Plan::on(store_kind).processes(2, 1).start().await;
    let (client, other) = (bank.client(0), bank.client(1));
    let account = fresh_account();
    client.open(account).await;
    drop(other.call(Method::PATCH, &path_of(account), &json!({"overdraft_limit": "5.00"})).await.expect(200));
    drop(client.set_gate(&json!({"state": "held"})).await.expect(200));
    drop(client.set_gate(&json!({"state": "released"})).await.expect(200));
    let _key = bank.add_partner("shop", &["read"]);
    // A refused act has no row.
    let refused = client.call(Method::PATCH, &path_of(fresh_account()), &json!({"status": "closed"})).await;
    assert_eq!(refused.status, 404, "{refused:?}");
    let rows = trail(&other).await;
    let expected =
        ["account.open", "account.change", "gate.change", "gate.change", "partner.change", "key.add"];
    assert_eq!(acts(&rows), expected);
    let origins: Vec<bool> =
        rows.iter().map(|row| row.get("origin") == Some(&json!("command line"))).collect();
    assert_eq!(origins, [false, false, false, false, true, true]);

    // Two processes and commands at the same time.
    let terms = json!({"reach": {"everything": true}});
    let of_processes = (0..ACTS).flat_map(|number| [(number, &client), (number, &other)]);
    let puts = of_processes.map(async |(number, client)| {
        let path = format!("/v1/admin/partners/mill{number}");
        let answer = client.call(Method::PUT, &path, &terms).await;
        assert!([200, 201].contains(&answer.status), "{answer:?}");
    });
    let command = async { assert!(run(&bank, &["partners", "suspend", "shop"]).await.status.success()) };
    futures::join!(join_all(puts), command);
    let rows = trail(&client).await;
    assert_eq!(rows.len(), expected.len().saturating_add(2 * ACTS + 1), "{:#?}", acts(&rows));
    let verified = verify(&bank, &[]).await;
    assert_eq!(verified.code, Some(0), "{:#?}", verified.lines);
    assert_eq!(verified.count("audit_rows"), u64::try_from(rows.len()).expect("few rows"));
}

/// Returns the kinds of the findings about the trail, and the exit code.
async fn audit(bank: &Scenario) -> (Option<i32>, Vec<String>) {
    let verified = verify(bank, &[]).await;
    let kind = |finding: &Value| Some(finding.get("kind")?.as_str()?.to_owned());
    (verified.code, verified.findings.iter().filter_map(kind).collect())
}

async fn verify_finds_changes_of_the_trail(store_kind: StoreKind) {
    let bank = Plan::on(store_kind).start().await;
    let client = bank.client(0);
    for _ in 0..5 {
        client.open(fresh_account()).await;
    }
    assert_eq!(audit(&bank).await, (Some(0), Vec::new()));
    let records = bank.store().await.records;
    let rows = records.list(Collection::AuditRows, "", None, 10).await.expect("the rows can be read");
    let [_, fourth, _, second, _] = rows.as_slice() else { panic!("five rows, not {rows:#?}") };
    let found =
        records.find(Collection::AuditRows, &second.id).await.expect("it can be read").expect("a row");
    let changed = second.body.replace("account.open", "account.shut");
    assert_ne!(changed, second.body);
    let saved = records.save(Collection::AuditRows, &second.id, &changed, Some(&found.revision)).await;
    drop(saved.expect("the store answers"));
    assert_eq!(audit(&bank).await, (Some(1), vec!["audit_hash".to_owned()]));
    records.remove(Collection::AuditRows, &fourth.id).await.expect("the store answers");
    let both = ["audit_missing".to_owned(), "audit_hash".to_owned()];
    assert_eq!(audit(&bank).await, (Some(1), both.to_vec()));
    // Later acts do not repair it.
    client.open(fresh_account()).await;
    assert_eq!(audit(&bank).await, (Some(1), both.to_vec()));
}

#[tokio::test]
async fn a_restore_is_a_row_of_the_restored_store() {
    let mut bank = Plan::on(StoreKind::Sqlite).start().await;
    bank.client(0).open(fresh_account()).await;
    let file = bank.directory().join("backup.db");
    assert!(run(&bank, &["backup", "backup.db"]).await.status.success());
    bank.client(0).open(fresh_account()).await;
    bank.webs.remove(0).drain().await;
    restore(&bank, &file).await;
    bank.start_web();
    let client = bank.client(0);
    client.until_ready().await;
    let rows = trail(&client).await;
    assert_eq!(
        acts(&rows),
        ["account.open", "store.restore"],
        "the act after the backup is in the replaced file"
    );
    let target = rows.last().and_then(|row| row.get("target")).and_then(Value::as_str).unwrap_or_default();
    assert!(target.contains("backup.db") && target.contains("kept="), "{target}");
    assert_eq!(audit(&bank).await, (Some(0), Vec::new()));
}
