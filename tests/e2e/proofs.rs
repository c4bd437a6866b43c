//! A partner checks that an anchor of the bank covers its transaction, with the script in `schemas` and nothing else.

use std::path::Path;
use std::process::{Command, Output};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::SigningKey;
use postonce_shared::domain::ids::{AccountKey, MessageId};
use postonce_tests::prelude::*;
use serde_json::{Value, json};

on_sqlite![a_script_checks_the_proof_of_a_posting_and_of_a_rejection];

const SEED: [u8; 32] = [7; 32];
const SCRIPT: &str = "schemas/proofs/check_inclusion.py";
/// Prints the verdict of the script on each line of a file.
const DRIVER: &str = r#"
import json, sys
from check_inclusion import Invalid, check
for line in open(sys.argv[1], encoding="utf-8"):
    try:
        check(json.loads(line), sys.argv[2])
        print("valid")
    except Invalid as why:
        print(f"not valid: {why}".splitlines()[0])
"#;

async fn a_script_checks_the_proof_of_a_posting_and_of_a_rejection(store_kind: StoreKind) {
    let plan = Plan::on(store_kind).with("POSTONCE_ANCHOR_KEY", &STANDARD.encode(SEED));
    let bank = plan.start().await;
    let client = bank.client(0);
    let (account, other) = (fresh_account(), fresh_account());
    let mut ids = Vec::new();
    for account in [account, other] {
        client.open(account).await;
        for submission in [
            Submission::deposit("7.25"),
            Submission::withdrawal("99.00"),
            Submission::deposit("0.50"),
            Submission::withdrawal("1.00"),
        ] {
            let id = fresh_id();
            drop(client.submit_and_wait(account, id, &submission).await.expect(200));
            ids.push(id);
        }
    }
    bank.operate(&["anchors", "append"]);
    let later = fresh_id();
    drop(client.submit_and_wait(account, later, &Submission::deposit("3.00")).await.expect(200));

    let posted = prove(&bank, account, ids[0]);
    let checked = check(&bank, &posted);
    for part in ["valid: covered by anchor 1 ", "amount_minor_units: 725", &account.to_string()] {
        assert!(printed(&checked).contains(part), "{part}: {checked:?}");
    }
    let rejected = check(&bank, &prove(&bank, account, ids[1]));
    assert!(printed(&rejected).contains("reason: insufficient_funds"), "{rejected:?}");

    // Every change of the proof makes it invalid.
    let mut changed = posted.clone();
    changed["decision"]["fields"][5]["number"] = json!("726");
    let invalid = check(&bank, &changed);
    assert_eq!(invalid.status.code(), Some(1), "{invalid:?}");
    assert!(
        String::from_utf8_lossy(&invalid.stderr).contains("not valid: the decision differs"),
        "{invalid:?}"
    );
    let (places, proofs): (Vec<String>, Vec<Value>) = changes(&posted).into_iter().unzip();
    let verdicts = check_all(&bank, proofs.iter().chain([&posted]));
    let Some((sound, verdicts)) = verdicts.split_last() else { panic!("no verdicts") };
    assert_eq!((sound.as_str(), verdicts.len()), ("valid", places.len()));
    for (place, verdict) in places.iter().zip(verdicts) {
        assert!(verdict.starts_with("not valid: "), "{place} was changed: {verdict}");
    }
}

/// Checks many proofs with the functions of the script in one process. Returns a line for each.
fn check_all<'a>(bank: &Scenario, proofs: impl Iterator<Item = &'a Value>) -> Vec<String> {
    let file = bank.directory().join("proofs.ndjson");
    std::fs::write(&file, proofs.map(|proof| format!("{proof}\n")).collect::<String>())
        .expect("it can be written");
    let mut driver = Command::new(python::program());
    driver.args(["-c", DRIVER]).arg(&file).arg(public_key());
    driver.env("PYTHONPATH", workspace::root().join("schemas/proofs")).env("PYTHONDONTWRITEBYTECODE", "1");
    let output = driver.output().expect("Python can be started");
    assert!(output.status.success(), "{output:?}");
    printed(&output).lines().map(str::to_owned).collect()
}

fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn prove(bank: &Scenario, account: AccountKey, id: MessageId) -> Value {
    let printed = bank.operate(&["anchors", "prove", &account.to_string(), "bootstrap", &id.to_string()]);
    let (start, end) = (printed.find("\n{").map_or(0, |at| at.saturating_add(1)), printed.rfind('}'));
    let json = end.and_then(|end| printed.get(start..=end)).expect("a JSON object");
    serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {printed}"))
}

fn check(bank: &Scenario, proof: &Value) -> Output {
    let file = bank.directory().join("proof.json");
    std::fs::write(&file, proof.to_string()).expect("a file can be written");
    run_script(&file)
}

fn run_script(file: &Path) -> Output {
    let mut script = Command::new(python::program());
    script.arg(workspace::root().join(SCRIPT)).arg(file).arg(public_key());
    script.output().expect("the script can be started")
}

fn public_key() -> String {
    STANDARD.encode(SigningKey::from_bytes(&SEED).verifying_key().as_bytes())
}

/// Returns copies of the proof, with another value in one place each.
fn changes(proof: &Value) -> Vec<(String, Value)> {
    let mut places = Vec::new();
    leaves(proof, String::new(), &mut places);
    assert!(places.len() > 40, "{places:?}");
    places
        .into_iter()
        .map(|place| {
            let mut changed = proof.clone();
            let value = changed.pointer_mut(&place).expect("it is there");
            *value = match &*value {
                Value::String(text) => json!(other_text(text)),
                Value::Number(number) => json!(number.as_u64().unwrap_or(0).saturating_add(1)),
                Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => Value::Null,
            };
            (place, changed)
        })
        .collect()
}

/// Returns a text of the same form: another first digit, or another last letter.
fn other_text(text: &str) -> String {
    let mut changed = text.to_owned();
    let last = changed.pop();
    changed.push(if last == Some('1') { '2' } else { '1' });
    changed
}

fn leaves(value: &Value, place: String, places: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            members.iter().for_each(|(name, value)| leaves(value, format!("{place}/{name}"), places));
        }
        Value::Array(items) => {
            items
                .iter()
                .enumerate()
                .for_each(|(index, item)| leaves(item, format!("{place}/{index}"), places));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => places.push(place),
    }
}
