//! Messages and payloads that the bank did not write move no money: the content of a message is used only
//! when it has a valid seal of the bank; otherwise the row of the transaction decides. All attacks use
//! Microsoft's SDK with shared access signatures.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::future::join_all;
use postonce_shared::testing::prelude::*;
use postonce_tests::attack_findings::{AttackFindings, Snapshot};
use postonce_tests::forger::{self, Forger, envelope_of};
use postonce_tests::prelude::*;
use serde_json::{Map, Value, json};

/// Longest time until a message that cannot be read is a dead letter, on a busy machine.
const DEAD_LETTER_TIME_MAX: Duration = Duration::from_secs(30);
/// The partner of the first key.
const PARTNER: &str = "bootstrap";
/// Another partner.
const OTHER_PARTNER: &str = "shop";

/// ETags that the storage may parse as a wildcard, or as a separate header. The exact wildcard has its own
/// test.
const WILDCARDS: [&str; 10] = [
    "* ",
    " *",
    "\t*",
    "*\t",
    "\"x\", *",
    "\nif-match: *",
    "x\nif-match: *",
    "x\r\nif-match: *",
    "x\r\n\r\n*",
    "",
];
/// Kind and amount in cents of forged items.
const FORGED: [(&str, &str); 2] = [("deposit", "500000000"), ("withdrawal", "1000")];

/// A posted deposit of 10.00, and the forged item for it.
struct Subject {
    what: String,
    partner: &'static str,
    /// A client of the partner.
    client: Client,
    account: AccountKey,
    id: MessageId,
    etag: String,
    change: (&'static str, &'static str),
}

/// The origin of the ETag in a forged item.
#[derive(Debug, Clone, Copy)]
enum Etag {
    /// A constant.
    Text(&'static str),
    /// Copied from the message of the bank before the transaction was posted.
    Stolen,
    /// The ETag of the final row. An attacker can guess it, because it is a timestamp.
    Guessed,
}

#[tokio::test]
async fn a_forged_envelope_does_not_post_over_a_final_row() {
    post_over_final_rows(Forger::add_envelopes).await;
}

#[tokio::test]
async fn a_forged_payload_does_not_post_over_a_final_row() {
    post_over_final_rows(Forger::claim_envelopes).await;
}

/// The exact wildcard fails an assertion of the adapter, which must not stop the posting of the account.
#[tokio::test]
async fn a_forged_wildcard_does_not_stop_the_posting_of_an_account() {
    let bank = plan().start().await;
    let (client, account, id) = (bank.client(0), fresh_account(), fresh_id());
    client.open(account).await;
    drop(client.post(account, id, &Submission::deposit("10.00")).await);
    let before = Snapshot::of(&client, account, id).await;
    let forged = envelope_of(&[forger::item(account, PARTNER, id, FORGED[0], "*")]);
    Forger::of(&bank).add_envelopes(&vec![forged; 3]);
    client.until_drained(wait::TIMEOUT).await;
    let mut findings = AttackFindings::default();
    findings.compare("readings", &Snapshot::of(&client, account, id).await, &before);
    findings.check_posting("afterwards", &client, account, "11.00").await;
    findings.check_count(&bank.probe(0)).await;
    findings.conclude(&bank).await;
}

#[tokio::test]
async fn a_changed_message_does_not_change_what_is_posted() {
    change_in_transit(&["in_front", "in_place"]).await;
}

#[tokio::test]
async fn a_changed_message_in_a_payload_does_not_change_what_is_posted() {
    change_in_transit(&["in_front_as_claim", "as_claim"]).await;
}

#[tokio::test]
async fn a_changed_payload_of_the_bank_counts_as_lost_and_nothing_in_it_is_posted() {
    const DEPOSITS: usize = 150;
    let bank = plan().start().await;
    let (client, account) = (bank.client(0), fresh_account());
    client.open(account).await;
    hold(&bank).await;
    // Only work that fills many messages is stored as a payload, so the deposits are large.
    let metadata: Map<String, Value> =
        (0..20).map(|index| (format!("{index:02}"), Value::from("\"".repeat(100)))).collect();
    let submission = Submission::deposit("1.00").with("metadata", metadata);
    let ids: Vec<MessageId> = (0..DEPOSITS).map(|_| fresh_id()).collect();
    for answer in join_all(ids.iter().map(|id| client.submit(account, *id, &submission))).await {
        drop(answer.expect(202));
    }
    let changed = Forger::of(&bank).rewrite_payloads(&json!({"a": "100000"}));
    assert!(changed > 0, "some of the deposits are in a payload");
    drop(client.release(2).await);
    let probe = bank.probe(0);
    // Their messages wait until a recovery has found the work, 15 minutes after they were sent.
    let others = DEPOSITS.saturating_sub(usize::try_from(changed).expect("few items"));
    let statement = wait::until("all others are posted", wait::TIMEOUT, async || {
        let missing = probe.count("worker_payloads_missing").await;
        let statement = client.listing(account, None, 100).await;
        let posted = statement.len();
        if missing > 0 && posted >= others { Ok(statement) } else { Err(format!("{missing}, {posted}")) }
    })
    .await;
    let mut findings = AttackFindings::default();
    let wrong = statement.iter().filter(|line| line["amount"] != "1.00").count();
    findings.compare("lines, and those with another amount", &(statement.len(), wrong), &(others, 0));
    let accepted = client.listing(account, Some("accepted"), 100).await.len();
    findings.compare("accepted", &accepted, &DEPOSITS.saturating_sub(others));
    findings.compare("dead letters", &client.dead_letters().await.len(), &0);
    let balance = format!("{}.00", others.saturating_add(1));
    findings.check_posting("afterwards", &client, account, &balance).await;
    findings.conclude(&bank).await;
}

#[tokio::test]
async fn a_forged_envelope_of_a_newer_version_becomes_a_dead_letter() {
    let bank = plan().start().await;
    let (client, account) = (bank.client(0), fresh_account());
    client.open(account).await;
    drop(client.post(account, fresh_id(), &Submission::deposit("10.00")).await);
    Forger::of(&bank).add_envelopes(&[json!({"v": 99, "items": "of an unknown format"})]);
    wait::until("it is a dead letter", DEAD_LETTER_TIME_MAX, async || {
        match (client.dead_letters().await.len(), client.over_queues("depth").await) {
            (1, 0) => Ok(()),
            (letters, depth) => Err(format!("{letters} dead letters, {depth} messages")),
        }
    })
    .await;
    let mut findings = AttackFindings::default();
    findings.check_posting("afterwards", &client, account, "11.00").await;
    findings.conclude(&bank).await;
}

/// The worker runs in the web process, whose metrics count the messages as well.
#[tokio::test]
async fn a_forged_item_of_no_transaction_moves_no_money_and_becomes_a_dead_letter() {
    let bank = plan().in_one_process().start().await;
    let (client, account) = (bank.client(0), fresh_account());
    client.open(account).await;
    drop(client.post(account, fresh_id(), &Submission::deposit("10.00")).await);
    let before = client.listing(account, None, 10).await;
    let etags = ["W/\"datetime'2026-11-22T20%3A00%3A00.0000000Z'\"", "x\nif-match: *"];
    let items = etags.map(|etag| forger::item(account, PARTNER, fresh_id(), FORGED[0], etag));
    Forger::of(&bank).add_envelopes(&items.map(|item| envelope_of(&[item])));
    wait::until("each is a dead letter", wait::TIMEOUT, async || match client.dead_letters().await.len() {
        2 => Ok(()),
        letters => Err(format!("{letters} dead letters")),
    })
    .await;
    client.until_drained(wait::TIMEOUT).await;
    let mut findings = AttackFindings::default();
    findings.compare("statement", &client.listing(account, None, 10).await, &before);
    findings.check_posting("afterwards", &client, account, "11.00").await;
    let web = bank.webs.first().expect("there is a web process");
    findings.check_count(&ProcessProbe::with_key(web.address(), bank.key())).await;
    findings.conclude(&bank).await;
}

#[tokio::test]
async fn forged_damage_does_no_harm() {
    let bank = plan().start().await;
    let (client, account, id) = (bank.client(0), fresh_account(), fresh_id());
    client.open(account).await;
    drop(client.post(account, id, &Submission::deposit("10.00")).await);
    let before = Snapshot::of(&client, account, id).await;
    let store = bank.store().await;
    store.payloads.put("seed", b"creates the container").await.expect("it can be stored");
    let forger = Forger::of(&bank);
    let item = forger::item(account, PARTNER, id, FORGED[0], "x");
    let texts = damaged_texts(&item);
    forger.add_texts(&texts);
    forger.add_envelopes(&damaged_items(&item));
    forger.claim_payloads(&damaged_payloads());
    client.until_drained(wait::TIMEOUT).await;
    let mut findings = AttackFindings::default();
    let letters = client.dead_letters().await.len();
    findings.check(&format!("{letters} dead letters of {} texts", texts.len()), letters >= texts.len());
    findings.compare("readings", &Snapshot::of(&client, account, id).await, &before);
    findings.check_posting("afterwards", &client, account, "11.00").await;
    findings.conclude(&bank).await;
}

/// Messages that cannot be read. The item is a complete one, to cut and repeat.
fn damaged_texts(item: &Value) -> Vec<String> {
    let sound = envelope_of(std::slice::from_ref(item)).to_string();
    let half = sound.split_at(sound.len() / 2).0;
    let encoded = STANDARD.encode(&sound);
    vec![
        STANDARD.encode(half),
        encoded.split_at(101).0.to_owned(),
        format!("{encoded}{encoded}"),
        "{".repeat(60_000),
        STANDARD.encode("{\"v\":".repeat(9_000)),
        STANDARD.encode("{\"v\":1,\"items\":[]}"),
        STANDARD.encode("{\"v\":-1,\"items\":[]}"),
        STANDARD.encode("{\"v\":2,\"payload\":\"../keys\"}"),
        STANDARD.encode("{\"v\":2,\"payload\":7}"),
        STANDARD.encode(b"{\xff\xfe\0"),
        "!not base64".to_owned(),
        "a|b|c|d|e".to_owned(),
    ]
}

/// The item with one damaged member each. Some of them still name a transaction.
fn damaged_items(item: &Value) -> Vec<Value> {
    let damages = [
        ("a", json!("-1")),
        ("a", json!("99999999999999999999999999")),
        ("a", json!(1)),
        ("cur", json!("EUX")),
        ("k", json!("gift")),
        ("p", json!("not a partner")),
        ("u", json!("0")),
        ("t", json!("never")),
        ("e", json!(null)),
    ];
    let damaged = damages.map(|(member, value)| {
        let mut other = item.clone();
        other[member] = value;
        envelope_of(&[other])
    });
    damaged.to_vec()
}

/// Payloads that cannot be read.
fn damaged_payloads() -> Vec<Vec<u8>> {
    let compressed = |content: &[u8]| {
        use std::io::Write as _;
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(content).expect("writing to memory does not fail");
        encoder.finish().expect("writing to memory does not fail")
    };
    let bomb = compressed(&vec![b' '; 50_000_000]);
    let half = bomb.split_at(bomb.len() / 2).0.to_vec();
    vec![b"plain".to_vec(), Vec::new(), bomb, half, compressed(b"{}"), compressed(b"[[[[[[[[[[[[[[[[")]
}

/// A bank with one queue. Its worker polls often, because forged messages ring no doorbell, and sets
/// failing messages aside soon.
fn plan() -> Plan {
    Plan::on(StoreKind::Azurite)
        .through_the_queue()
        .polling_often()
        .receipts(3, 3)
        .with("POSTONCE_QUEUE_COUNT", "1")
}

/// The terms of every deposit as it was accepted, once it is posted.
const AS_ACCEPTED: [&str; 6] = ["posted", "deposit", "10.00", "EUR", "rent", "60.00"];

/// The terms in a transaction or in a line of a statement.
fn terms(transaction: &Value) -> [String; 6] {
    ["status", "type", "amount", "currency", "reference", "balance_after"]
        .map(|member| transaction[member].as_str().unwrap_or_default().to_owned())
}

async fn hold(bank: &Scenario) {
    bank.until_workers_ready().await;
    drop(bank.client(0).hold(2).await);
}

/// Sends forged items of final transactions, and checks that they change nothing.
async fn post_over_final_rows(send: impl Fn(&Forger, &[Value])) {
    let bank = plan().start().await;
    let (client, forger) = (bank.client(0), Forger::of(&bank));
    let shop = client.with_key(&bank.add_partner(OTHER_PARTNER, &["read", "deposit", "withdraw"]));
    let store = bank.store().await;
    store.payloads.put("seed", b"creates the container").await.expect("it can be stored");
    let subjects = final_deposits(&bank, &client, &shop, &forger).await;
    let mut before = Vec::new();
    for subject in &subjects {
        before.push(Snapshot::of(&subject.client, subject.account, subject.id).await);
    }
    let envelopes: Vec<Value> = subjects
        .iter()
        .map(|it| envelope_of(&[forger::item(it.account, it.partner, it.id, it.change, &it.etag)]))
        .collect();
    send(&forger, &envelopes);
    client.until_drained(wait::TIMEOUT).await;
    let mut findings = AttackFindings::default();
    for (subject, before) in subjects.iter().zip(&before) {
        let after = Snapshot::of(&subject.client, subject.account, subject.id).await;
        findings.compare(&subject.what, &after, before);
        findings.check_posting(&subject.what, &client, subject.account, "11.00").await;
    }
    findings.check_count(&bank.probe(0)).await;
    findings.conclude(&bank).await;
}

/// One posted deposit of 10.00 for each ETag and each change.
async fn final_deposits(bank: &Scenario, client: &Client, shop: &Client, forger: &Forger) -> Vec<Subject> {
    let etags = WILDCARDS.map(Etag::Text).into_iter().chain([Etag::Stolen, Etag::Guessed]);
    let variants = etags.flat_map(|etag| FORGED.map(|change| (etag, change)));
    hold(bank).await;
    let (mut subjects, mut interceptions) = (Vec::new(), Vec::new());
    for (etag, change) in variants {
        let (account, id) = (fresh_account(), fresh_id());
        client.open(account).await;
        // Both partners are attacked, each with one kind of change.
        let (partner, client) = if change.0 == "deposit" { (PARTNER, client) } else { (OTHER_PARTNER, shop) };
        drop(client.submit_until_accepted(account, id, &Submission::deposit("10.00")).await);
        interceptions.push(forger::Interception { id, way: "untouched", change: json!({}) });
        let what = format!("{change:?} with {etag:?}");
        let client = client.clone();
        subjects.push((etag, Subject { what, partner, client, account, id, etag: String::new(), change }));
    }
    let items = forger.intercept(&interceptions);
    drop(client.release(2).await);
    client.until_drained(wait::TIMEOUT).await;
    let ledger = bank.store().await.ledger;
    let mut ready = Vec::new();
    for (etag, mut subject) in subjects {
        let Subject { account, id, partner, .. } = subject;
        let posted = subject.client.until_final(account, id).await;
        assert_eq!(posted.transaction_status(), "posted", "{posted:?}");
        let stolen = items.iter().find(|item| item["m"] == id.simple()).and_then(|item| item["e"].as_str());
        subject.etag = match etag {
            Etag::Text(text) => text.to_owned(),
            Etag::Stolen => stolen.expect("each message was read").to_owned(),
            Etag::Guessed => {
                let partner = PartnerId::parse(partner).expect("a sound name");
                let row = ledger.transaction(&TransactionKey { account, partner, message: id }).await;
                row.expect("the ledger answers").expect("it was posted").revision.as_str().to_owned()
            }
        };
        ready.push(subject);
    }
    ready
}

/// Changes messages of accepted deposits in these ways, and checks that the deposits are posted with the
/// accepted terms.
async fn change_in_transit(ways: &[&'static str]) {
    let bank = plan().start().await;
    let client = bank.client(0);
    let store = bank.store().await;
    store.payloads.put("seed", b"creates the container").await.expect("it can be stored");
    let changes = [
        json!({"a": "100000"}),
        json!({"a": "100000", "e": "* "}),
        json!({"a": "100000", "e": "*"}),
        json!({"k": "withdrawal"}),
        json!({"cur": "USD"}),
        json!({"r": "another reference", "d": {"name": "another value"}}),
    ];
    let variants = ways.iter().flat_map(|way| changes.iter().map(move |change| (*way, change.clone())));
    let variants: Vec<_> = variants.chain([("deleted", json!({})), ("untouched", json!({}))]).collect();
    let mut accounts = Vec::new();
    for _ in &variants {
        let account = fresh_account();
        client.open(account).await;
        drop(client.post(account, fresh_id(), &Submission::deposit("50.00")).await);
        accounts.push(account);
    }
    hold(&bank).await;
    let mut interceptions = Vec::new();
    for ((way, change), account) in variants.into_iter().zip(&accounts) {
        let id = fresh_id();
        let submission = Submission::deposit("10.00").with("reference", "rent");
        drop(client.submit_until_accepted(*account, id, &submission).await);
        interceptions.push(forger::Interception { id, way, change });
    }
    drop(Forger::of(&bank).intercept(&interceptions));
    drop(client.release(2).await);
    client.until_drained(wait::TIMEOUT).await;
    drop(bank.operate(&["recover"]));
    client.until_drained(wait::TIMEOUT).await;
    let mut findings = AttackFindings::default();
    for (interception, account) in interceptions.iter().zip(&accounts) {
        let what = format!("{} {}", interception.way, interception.change);
        let answer = client.transaction(*account, interception.id).await;
        findings.compare(&what, &terms(&answer.body), &AS_ACCEPTED.map(str::to_owned));
        let statement = client.listing(*account, None, 10).await;
        let lines: Vec<_> = statement.iter().skip(1).map(terms).collect();
        findings.compare(&format!("{what}: statement"), &lines, &vec![AS_ACCEPTED.map(str::to_owned)]);
        findings.check_posting(&what, &client, *account, "61.00").await;
    }
    findings.check_count(&bank.probe(0)).await;
    findings.conclude(&bank).await;
}
