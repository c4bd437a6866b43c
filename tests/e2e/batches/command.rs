//! `postonce-web batches submit`, from the file to its results.

use std::fs;
use std::path::Path;

use postonce_tests::prelude::*;
use postonce_tests::proxy::{Mode, Proxy};

use super::hostile::gzip;
use super::{Item, bank_with_accounts, csv, mixed, ndjson, xml};

on_sqlite![
    a_document_is_submitted_and_its_results_are_written,
    a_lost_answer_and_an_outage_do_not_end_the_command,
];

fn start(bank: &Scenario, url: &str, arguments: &[&str]) -> Process {
    let settings = Settings::default().with("POSTONCE_API_KEY", bank.key()).with("POSTONCE_URL", url);
    let all = [["batches", "submit"].as_slice(), arguments].concat();
    Process::start(&launch(Binary::Web, &settings, &all, &bank.directory()))
}

/// Waits for the end of a command. Returns its exit code and its output.
fn ended(mut process: Process) -> (Option<i32>, String) {
    let status = process.wait(wait::TIMEOUT);
    process.wait_for_output();
    (status.code(), process.log().lines().join("\n"))
}

fn lines(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.lines().map(str::to_owned).collect()
}

async fn a_document_is_submitted_and_its_results_are_written(store_kind: StoreKind) {
    let (bank, client, accounts) = bank_with_accounts(store_kind, 3).await;
    let (folder, url) = (bank.directory(), bank.webs[0].address().to_owned());
    let run = |arguments: &[&str]| ended(start(&bank, &url, arguments));
    // Every fourth item is rejected.
    let items = mixed(&accounts, 40);
    fs::write(folder.join("payroll.csv"), csv(&items)).expect("a folder of the test");
    let totals = ["payroll.csv", "--wait", "--count", "40", "--sums", "EUR=10037.50"];
    let (code, output) = run(&totals);
    assert_eq!(code, Some(5), "{output}");
    assert!(output.contains("40 items: 30 posted, 10 rejected") && output.contains("37.50 EUR"), "{output}");
    let results = lines(&folder.join("payroll.csv.results.csv"));
    assert_eq!((results.len(), results[0].split(',').next()), (41, Some("line")));
    assert!(results[4].starts_with(&format!("4,{},rejected,,,insufficient_funds", items[3].message)));
    // The same file is the same batch; other totals are refused, and named.
    assert_eq!(run(&totals[..2]).0, Some(5));
    assert_eq!(client.balance(accounts[0]).await, "12.50");
    let (code, output) =
        run(&["payroll.csv", "--count", "41", "--id", "4f9d0c9e-5d3e-4c0e-9a51-1b7a4a4e2f10"]);
    assert_eq!(code, Some(3), "{output}");
    assert!(output.contains("Batch-Count: is 41, but the document has 40 items"), "{output}");
    let deposits = [Item::new(accounts[0], "deposit", "1.00")];
    fs::write(folder.join("one.xml"), xml(&deposits, true)).expect("a folder of the test");
    let (code, output) = run(&["one.xml", "--wait", "--results", "out.ndjson"]);
    assert_eq!(code, Some(0), "{output}");
    assert_eq!(lines(&folder.join("out.ndjson")).len(), 1);
    let (code, output) = run(&["one.xml", "--count", "2", "--id", "4f9d0c9e-5d3e-4c0e-9a51-1b7a4a4e2f10"]);
    assert_eq!(code, Some(3), "{output}");
    assert!(output.contains("Batch-Count: is 2, but the document has 1 items"), "{output}");
    // A byte order mark is no part of the document; a cell with text after its end refuses it.
    fs::write(folder.join("marked.csv"), format!("\u{feff}{}", csv(&deposits)))
        .expect("a folder of the test");
    let (code, output) = run(&["marked.csv", "--wait"]);
    assert!(code == Some(0) && output.contains("1 replayed"), "{output}");
    let repaired = csv(&[Item::new(accounts[0], "deposit", "\"1\"000")]);
    fs::write(folder.join("repaired.csv"), repaired).expect("a folder of the test");
    let (code, output) = run(&["repaired.csv", "--wait"]);
    assert_eq!(code, Some(3), "{output}");
    assert!(output.contains("Line 2, column") && output.contains("text after the closing quote"), "{output}");
    assert_eq!(client.balance(accounts[0]).await, "13.50");
    let (code, output) = run(&["one.pdf"]);
    assert_eq!(code, Some(1), "{output}");
    let parts = fs::read_dir(&folder).expect("a folder of the test");
    let names = parts.map(|entry| entry.expect("an entry").file_name());
    assert_eq!(names.filter(|name| name.to_string_lossy().ends_with(".part")).count(), 0);
}

async fn a_lost_answer_and_an_outage_do_not_end_the_command(store_kind: StoreKind) {
    let (bank, client, accounts) = bank_with_accounts(store_kind, 1).await;
    let port = bank.webs[0].address().rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
    let proxy = Proxy::before(port);
    let url = format!("http://127.0.0.1:{}", proxy.port());
    let items: Vec<Item> = (0..100).map(|_| Item::new(accounts[0], "deposit", "0.01")).collect();
    let file = bank.directory().join("deposits.ndjson.gz");
    fs::write(&file, gzip(ndjson(&items).as_bytes())).expect("a folder of the test");
    proxy.switch(Mode::Refuse);
    let (code, output) = ended(start(&bank, &url, &["deposits.ndjson.gz", "--give-up-after", "0"]));
    assert_eq!(code, Some(4), "{output}");
    proxy.switch(Mode::LoseAnswers);
    let process = start(&bank, &url, &["deposits.ndjson.gz", "--wait"]);
    wait::until("the batch is posted, and its answer is lost", wait::TIMEOUT, async || {
        let lost = process.log().find(|line| line.contains("the next attempt").then_some(()));
        let balance = client.balance(accounts[0]).await;
        if lost.is_some() && balance == "1.00" { Ok(()) } else { Err(balance) }
    })
    .await;
    proxy.switch(Mode::Forward);
    let (code, output) = ended(process);
    assert_eq!(code, Some(0), "{output}");
    assert_eq!(client.balance(accounts[0]).await, "1.00");
    assert_eq!(lines(&bank.directory().join("deposits.ndjson.gz.results.ndjson")).len(), 100);
}
