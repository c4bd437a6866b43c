//! The largest batch, in a process that is measured.

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use postonce_tests::process_probe::memory_peak_kib;
use postonce_tests::scenario::StoreKind;

use super::*;

const ITEMS: u32 = 1_000_000;
/// The lines of a document of which the last one is not valid.
const BROKEN_ITEMS: u32 = 100_000;
const ACCOUNTS: usize = 1_000;
/// Longest time of the batch on a busy machine.
const COMPLETED_WITHIN: Duration = Duration::from_secs(420);
/// Largest memory of the process that receives, divides, posts and completes it.
const MEMORY_KIB_MAX: u64 = 256 * 1024;

fn message(prefix: u128, line: u32) -> String {
    uuid::Uuid::from_u128(prefix + u128::from(line)).to_string()
}

/// A compressed document of so many lines, with one cent for each; `end` is the last line.
fn document(lines: u32, accounts: &[AccountKey], prefix: u128, end: &[u8]) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    let mut text = String::new();
    for (line, AccountKey { user, account }) in (1..lines).zip(accounts.iter().cycle()) {
        text.clear();
        let message = message(prefix, line);
        let written = writeln!(
            text,
            r#"{{"user_id":"{user}","account_id":"{account}","message_id":"{message}","type":"deposit","amount":"0.01","currency":"EUR"}}"#,
        );
        written.expect("memory");
        gzip.write_all(text.as_bytes()).expect("memory");
    }
    gzip.write_all(end).expect("memory");
    gzip.finish().expect("memory")
}

#[tokio::test]
async fn a_million_items_are_posted_in_bounded_memory() {
    let (bank, client, accounts) = bank_with_accounts(StoreKind::Sqlite, ACCOUNTS).await;
    let prefix = fresh_id().as_uuid().as_u128() & !u128::from(u32::MAX);
    let send = async |id, body: Vec<u8>| {
        let request = batch_request(&client, id, "application/x-ndjson", body);
        client.send(request.header("Content-Encoding", "gzip").timeout(COMPLETED_WITHIN)).await
    };
    let broken = document(BROKEN_ITEMS, &accounts, prefix, b"{\"user_id\":\"\xff\"}\n");
    let broken = send(fresh_id(), broken).await.expect(422);
    assert_eq!(broken.text_at("/violations/0/field"), "line 100000", "{broken:?}");
    let last = Item { message: fresh_id(), ..Item::new(accounts[0], "withdrawal", "1000000.00") };
    let id = fresh_id();
    drop(send(id, document(ITEMS, &accounts, prefix, last.json().to_string().as_bytes())).await.expect(202));
    let path = format!("/v1/batches/{id}");
    let batch = wait::until("the batch is completed", COMPLETED_WITHIN, async || {
        let answer = client.get(&path).await.expect(200);
        if answer.text_at("/phase") == "completed" { Ok(answer) } else { Err(answer.text) }
    })
    .await;
    assert_eq!((batch.number_at("/posted"), batch.number_at("/rejected")), (u64::from(ITEMS) - 1, 1));
    assert_eq!(batch.text_at("/sums/0/posted"), "9999.99");
    for account in [accounts[1], accounts[ACCOUNTS - 2]] {
        assert_eq!(client.balance(account).await, "10.00");
    }
    assert_results(&client, &path, prefix).await;
    let peak = memory_peak_kib(bank.webs[0].pid());
    println!("{peak} KiB at most");
    assert!(peak <= MEMORY_KIB_MAX, "{peak} KiB");
}

/// There is one result for each line, in the order of the document.
async fn assert_results(client: &Client, path: &str, prefix: u128) {
    let results = client.request(Method::GET, &format!("{path}/results")).timeout(COMPLETED_WITHIN);
    let mut answer = results.send().await.expect("an answer");
    let (mut text, mut line) = (Vec::new(), 0_u32);
    while let Some(piece) = answer.chunk().await.expect("the results are complete") {
        text.extend_from_slice(&piece);
        let complete = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        for result in text[..complete].split_inclusive(|byte| *byte == b'\n') {
            line += 1;
            let result: Value = serde_json::from_slice(result).expect("a line of JSON");
            assert_eq!(result.get("line"), Some(&json!(line)));
            if line < ITEMS {
                assert_eq!(result["message_id"], message(prefix, line), "{result}");
            }
            assert_eq!(result["status"], if line < ITEMS { "posted" } else { "rejected" }, "{result}");
        }
        text.drain(..complete);
    }
    assert_eq!((line, text.len()), (ITEMS, 0));
}
