//! Anchors of a real bank: a journal that is rewritten with all of its hashes is found with a copy of an anchor, and only
//! with it.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{Signature, SigningKey, VerifyingKey};
use postonce_shared::testing::prelude::*;
use postonce_tests::journal::whole_journal;
use postonce_tests::prelude::*;
use postonce_tests::verify::{Verified, verify, verify_with};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::backup::{restore, run};

on_both_stores![
    a_rewritten_journal_is_found_only_with_an_anchor,
    anchors_are_listed_and_verified_without_the_bank,
];

const SEED: [u8; 32] = [42; 32];
/// Longest time until a round has ended.
const ROUND_MAX: Duration = Duration::from_secs(150);

/// A bank that makes anchors; only by the command, unless the scrubber has operations.
fn plan(store_kind: StoreKind, scrubber_operations: &str) -> Plan {
    Plan::on(store_kind)
        .with("POSTONCE_ANCHOR_KEY", &STANDARD.encode(SEED))
        .with("POSTONCE_SCRUBBER_OPERATIONS_PER_DAY", scrubber_operations)
}

/// Saves the output of `anchors` in a file.
fn copy(bank: &Scenario, name: &str) -> Vec<Value> {
    let printed = bank.operate(&["anchors"]);
    let is_anchor = |line: &&str| line.starts_with("{\"statement\":");
    let lines: Vec<&str> = printed.lines().filter(is_anchor).collect();
    std::fs::write(bank.directory().join(name), lines.join("\n")).expect("a file can be written");
    lines.into_iter().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn statement(anchor: &Value) -> Value {
    let text = anchor.get("statement").and_then(Value::as_str).expect("a text");
    serde_json::from_str(text).expect("JSON")
}

/// The severities and kinds of all findings.
fn found(verified: &Verified) -> Vec<(&str, &str)> {
    let mut found: Vec<(&str, &str)> = verified
        .findings
        .iter()
        .filter_map(|finding| Some((finding.get("type")?.as_str()?, finding.get("kind")?.as_str()?)))
        .collect();
    found.sort_unstable();
    found
}

async fn deposits(client: &Client, account: AccountKey) {
    client.open(account).await;
    for amount in ["1.00", "2.00", "3.00", "4.00"] {
        drop(client.submit_and_wait(account, fresh_id(), &Submission::deposit(amount)).await.expect(200));
    }
}

/// Gives the second entry of an account another order number, in journal and log, and computes all hashes again.
async fn rewrite(bank: &Scenario, account: AccountKey) {
    let (store, tamper) = (bank.store().await, bank.tamper());
    let mut pages = whole_journal(&store, account).await;
    assert_eq!(pages.len(), 5, "the opening has the first page");
    let used = pages.iter().flat_map(|page| &page.entries).map(|entry| entry.order_number.counter()).max();
    let number = OrderNumber::from_counter(used.expect("entries").saturating_add(5));
    let entry = pages.get_mut(2).and_then(|page| page.entries.first_mut()).expect("an entry");
    entry.order_number = number;
    let key = TransactionKey { account, partner: entry.partner.clone(), message: entry.message };
    tamper.number(&key, number).await;
    let mut previous = PageHash::GENESIS;
    for page in &mut pages {
        page.previous_hash = previous;
        page.hash = page.content_hash();
        previous = page.hash;
        tamper.write_page(page).await;
    }
    let mut row = store.ledger.account(account).await.expect("it can be read").expect("it was opened").value;
    row.head = previous;
    tamper.write_account(&row).await;
}

async fn a_rewritten_journal_is_found_only_with_an_anchor(store_kind: StoreKind) {
    let bank = plan(store_kind, "0").start().await;
    let client = bank.client(0);
    let (sound, changed) = (fresh_account(), fresh_account());
    deposits(&client, sound).await;
    deposits(&client, changed).await;
    drop(bank.operate(&["anchors", "append"]));
    let copies = copy(&bank, "anchors.jsonl");
    assert_eq!(copies.len(), 1);
    // Later decisions contradict nothing.
    drop(client.submit_and_wait(sound, fresh_id(), &Submission::deposit("5.00")).await.expect(200));
    let anchored = ["--anchors", "anchors.jsonl"];
    let verified = verify(&bank, &anchored).await;
    assert_eq!((verified.code, found(&verified)), (Some(0), Vec::new()), "{:#?}", verified.lines);
    assert_eq!(verified.count("anchored_accounts"), 2);

    rewrite(&bank, changed).await;
    let plain = verify(&bank, &[]).await;
    assert_eq!((plain.code, found(&plain)), (Some(0), Vec::new()), "{:#?}", plain.lines);
    let verified = verify(&bank, &anchored).await;
    assert_eq!((verified.code, verified.kinds(changed)), (Some(1), vec!["anchored_decisions"]));
    assert_eq!(verified.findings.len(), 1, "{:#?}", verified.lines);
    let one = verify(&bank, &[anchored[0], anchored[1], "--account", &changed.to_string()]).await;
    assert_eq!((one.code, one.kinds(changed)), (Some(1), vec!["anchored_decisions"]), "{:#?}", one.lines);
    // The new head is not signed, because it has the version of the last anchor.
    let refused = run(&bank, &["anchors", "append"]).await;
    assert!(!refused.status.success() && refused.printed.contains("contradict"), "{}", refused.printed);

    // With the public key, the secret key is not needed.
    let public = SigningKey::from_bytes(&SEED).verifying_key();
    let public = STANDARD.encode(public.as_bytes());
    let other_key = bank.settings.clone().with("POSTONCE_ANCHOR_KEY", STANDARD.encode([1; 32]));
    let other = verify_with(&other_key, &bank, &anchored).await;
    assert!(found(&other).contains(&("finding", "anchor_signature")), "{:#?}", other.lines);
    let arguments = [anchored[0], anchored[1], "--anchor-public-key", &public];
    let verified = verify_with(&other_key, &bank, &arguments).await;
    assert_eq!(found(&verified), [("finding", "anchored_decisions")], "{:#?}", verified.lines);

    // Without the list of leaves, nothing is proven.
    let records = bank.store().await.records;
    let parts = records.list(Collection::AnchorLeaves, "", None, 10).await.expect("the store answers");
    for part in parts {
        records.remove(Collection::AnchorLeaves, &part.id).await.expect("the store answers");
    }
    let verified = verify(&bank, &anchored).await;
    assert_eq!((verified.code, found(&verified)), (Some(1), vec![("finding", "anchor_unprovable")]));
}

/// The scrubber and operators sign with another key from now on; both public keys are accepted together, and neither is enough.
#[tokio::test]
async fn anchors_of_an_old_and_a_new_key_are_verified_with_both() {
    let mut bank = plan(StoreKind::Sqlite, "0").start().await;
    deposits(&bank.client(0), fresh_account()).await;
    drop(bank.operate(&["anchors", "append"]));
    let seeds = [SEED, [43; 32]];
    bank.settings = bank.settings.clone().with("POSTONCE_ANCHOR_KEY", STANDARD.encode(seeds[1]));
    deposits(&bank.client(0), fresh_account()).await;
    drop(bank.operate(&["anchors", "append"]));
    assert_eq!(copy(&bank, "anchors.jsonl").len(), 2);
    let [old, new] =
        seeds.map(|seed| STANDARD.encode(SigningKey::from_bytes(&seed).verifying_key().as_bytes()));
    // The other anchor, in the store and in the copy.
    let signature = vec![("finding", "anchor_signature"); 2];
    for (keys, expected) in [(format!("{old},{new}"), vec![]), (old, signature.clone()), (new, signature)] {
        let arguments = ["--anchors", "anchors.jsonl", "--anchor-public-key", &keys];
        let verified = verify(&bank, &arguments).await;
        assert_eq!(found(&verified), expected, "{:#?}", verified.lines);
    }
}

async fn anchors_are_listed_and_verified_without_the_bank(store_kind: StoreKind) {
    let bank = plan(store_kind, "0").start().await;
    let client = bank.client(0);
    client.open(fresh_account()).await;
    for _ in 0..3 {
        drop(bank.operate(&["anchors", "append"]));
    }
    let copies = copy(&bank, "anchors.jsonl");
    let (mut listed, mut path) = (Vec::new(), "/v1/admin/anchors?limit=2".to_owned());
    loop {
        let page = client.get(&path).await.expect(200).body;
        listed.extend(page.pointer("/anchors").and_then(Value::as_array).expect("anchors").clone());
        match page.pointer("/next_cursor").and_then(Value::as_str) {
            Some(cursor) => path = format!("/v1/admin/anchors?limit=2&cursor={cursor}"),
            None => break,
        }
    }
    listed.reverse();
    assert_eq!((copies.len(), listed.len()), (3, 3));
    let mut previous = "0".repeat(64);
    for ((copy, listed), sequence) in copies.iter().zip(&listed).zip(1_u64..) {
        for member in ["statement", "public_key", "signature"] {
            assert_eq!(copy.get(member), listed.get(member), "{listed:#?}");
        }
        let stated = statement(copy);
        assert_eq!((&stated["sequence"], &listed["sequence"]), (&sequence.into(), &sequence.into()));
        assert_eq!((&stated["kind"], &listed["kind"]), (&"round".into(), &"round".into()));
        assert_eq!((&stated["made_at"], &listed["accounts"]), (&listed["made_at"], &1.into()));
        assert_eq!(stated["previous"], previous.as_str(), "no gap and no fork");
        let text = copy["statement"].as_str().expect("a text");
        previous = hex::encode(Sha256::digest(text));
        let bytes = |name: &str| STANDARD.decode(copy[name].as_str().expect("a text")).expect("base64");
        let key: [u8; 32] = bytes("public_key").try_into().expect("32 bytes");
        let signature: [u8; 64] = bytes("signature").try_into().expect("64 bytes");
        let key = VerifyingKey::from_bytes(&key).expect("a key");
        assert_eq!(key, SigningKey::from_bytes(&SEED).verifying_key());
        let signed = format!("postonce anchor 1\n{text}");
        let checked = key.verify_strict(signed.as_bytes(), &Signature::from_bytes(&signature));
        checked.expect("a valid signature");
    }
    // The act of the first anchor is before the second one.
    assert_eq!(statement(&copies[1])["audit"]["sequence"], 2, "{:#?}", copies[1]);
}

#[tokio::test]
async fn a_restore_gives_up_the_anchors_after_the_backup() {
    let mut bank = plan(StoreKind::Sqlite, "0").start().await;
    let client = bank.client(0);
    let account = fresh_account();
    deposits(&client, account).await;
    drop(bank.operate(&["anchors", "append"]));
    assert!(run(&bank, &["backup", "backup.db"]).await.status.success());
    drop(client.submit_and_wait(account, fresh_id(), &Submission::deposit("5.00")).await.expect(200));
    drop(bank.operate(&["anchors", "append"]));
    let before = copy(&bank, "before.jsonl");
    assert_eq!(before.len(), 2);
    bank.webs.remove(0).drain().await;
    restore(&bank, &bank.directory().join("backup.db")).await;
    let after = copy(&bank, "after.jsonl");
    let stated = statement(&after[1]);
    assert_eq!((&stated["sequence"], &stated["kind"]), (&2.into(), &"restore".into()), "{stated}");
    let first = before[0]["statement"].as_str().expect("a text");
    assert_eq!(stated["returned_to"]["sequence"], 1);
    assert_eq!(stated["returned_to"]["hash"], hex::encode(Sha256::digest(first)).as_str());
    let verified = verify(&bank, &["--anchors", "before.jsonl"]).await;
    let given_up = [("notice", "anchor_given_up")];
    assert_eq!((verified.code, found(&verified)), (Some(0), given_up.to_vec()), "{:#?}", verified.lines);
    let verified = verify(&bank, &["--anchors", "after.jsonl"]).await;
    assert_eq!((verified.code, found(&verified)), (Some(0), Vec::new()), "{:#?}", verified.lines);

    // Without the key, the output says what is missing.
    let with_key = bank.settings.clone();
    bank.settings = bank.settings.clone().without("POSTONCE_ANCHOR_KEY");
    let restored = run(&bank, &["restore", "--yes", "backup.db"]).await;
    assert!(restored.status.success() && restored.printed.contains("append --restored"), "{restored:?}");
    let verified = verify_with(&with_key, &bank, &["--anchors", "before.jsonl"]).await;
    assert_eq!(found(&verified), [("finding", "anchor_missing")], "{:#?}", verified.lines);
    bank.settings = with_key;
    drop(bank.operate(&["anchors", "append", "--restored"]));
    let verified = verify(&bank, &["--anchors", "before.jsonl"]).await;
    assert_eq!((verified.code, found(&verified)), (Some(0), given_up.to_vec()), "{:#?}", verified.lines);
}

#[tokio::test]
async fn the_scrubber_makes_an_anchor_and_writes_it_to_the_folder() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().to_str().expect("a plain path");
    let mut bank = plan(StoreKind::Sqlite, "10000").with("POSTONCE_ANCHOR_FOLDER", path).start().await;
    let account = fresh_account();
    deposits(&bank.client(0), account).await;
    bank.start_scrubber();
    let file = folder.path().join("anchor-000001.json");
    wait::until("an anchor is in the folder", ROUND_MAX, async || {
        if file.exists() { Ok(()) } else { Err(bank.webs[0].log().lines().join("\n")) }
    })
    .await;
    let written = std::fs::read_to_string(&file).expect("it can be read");
    let copies = copy(&bank, "anchors.jsonl");
    assert_eq!(serde_json::from_str::<Value>(&written).expect("JSON"), copies[0]);
    let leaves = std::fs::read(folder.path().join("anchor-000001.leaves")).expect("it can be read");
    let stated = statement(&copies[0]);
    assert_eq!((stated["leaves"]["count"].as_u64(), leaves.len()), (Some(1), 72));
    // The tree of one leaf.
    let root = Sha256::digest([[0].as_slice(), &leaves].concat());
    assert_eq!(stated["leaves"]["root"], hex::encode(root).as_str());
    assert_eq!(leaves.get(..16), Some(account.user.as_uuid().as_bytes().as_slice()));
    let verified = verify(&bank, &["--anchors", file.to_str().expect("a plain path")]).await;
    assert_eq!((verified.code, found(&verified)), (Some(0), Vec::new()), "{:#?}", verified.lines);
}

#[tokio::test]
async fn a_key_is_needed_and_can_be_made() {
    let bank = Plan::on(StoreKind::Sqlite).start().await;
    let refused = run(&bank, &["anchors", "append"]).await;
    assert!(!refused.status.success() && refused.printed.contains("anchor-key"), "{}", refused.printed);
    let printed = bank.operate(&["anchors", "new-key"]);
    let value = |name: &str| {
        let found = printed.lines().find_map(|line| line.strip_prefix(name));
        found.unwrap_or_else(|| panic!("no {name} in {printed}")).trim().to_owned()
    };
    let seed: [u8; 32] =
        STANDARD.decode(value("anchor-key (secret):")).expect("base64").try_into().expect("32 bytes");
    let public = SigningKey::from_bytes(&seed).verifying_key();
    assert_eq!(value("public key:"), STANDARD.encode(public.as_bytes()));
}
