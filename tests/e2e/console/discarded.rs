//! Dead letters in the browser: one is discarded, and all of a reason are replayed or discarded.

use postonce_shared::domain::ids::{AccountKey, MessageId};
use postonce_tests::dead_letters::{one_letter, set_aside};
use postonce_tests::prelude::*;
use serde_json::Value;

use super::shown::{list, text};
use super::visit::Visit;

const REASON: &str = "the account cannot be read <yet>";
const OTHER_REASON: &str = "the amount has too many digits";

on_sqlite![
    a_dead_letter_is_discarded_in_the_browser,
    all_dead_letters_of_a_reason_are_decided_about_and_no_others,
];

/// Submits that many deposits, one after the other. Without a worker, each is a message of its own.
async fn submit(client: &Client, account: AccountKey, count: usize) -> Vec<MessageId> {
    let ids: Vec<MessageId> = (0..count).map(|_| fresh_id()).collect();
    for id in &ids {
        drop(client.submit_until_accepted(account, *id, &Submission::deposit("1.00")).await);
    }
    ids
}

async fn statuses(client: &Client, account: AccountKey, ids: &[MessageId]) -> Vec<String> {
    let mut found = Vec::new();
    for id in ids {
        let transaction = client.transaction(account, *id).await;
        found.push(format!("{} {}", transaction.transaction_status(), transaction.text_at("/reason")));
    }
    found
}

/// The last acts in the audit trail, the latest one first.
async fn acts(client: &Client, count: usize) -> Vec<String> {
    let trail = client.get(&format!("/v1/admin/audit?limit={count}")).await.expect(200);
    list(&trail.body, "rows").iter().map(|row| text(row, "act").to_owned()).collect()
}

async fn a_dead_letter_is_discarded_in_the_browser(store_kind: StoreKind) {
    let bank = Plan::on(store_kind).processes(1, 0).start().await;
    let (client, account) = (bank.client(0), fresh_account());
    client.open(account).await;
    let ids = submit(&client, account, 1).await;
    set_aside(&bank, REASON).await;
    let letter = one_letter(&client).await;
    let page = format!("/console/dead-letters/{}", text(&letter, "id"));
    let visit = Visit::sign_in(&bank, 0, bank.key()).await;
    let browser = &visit.browser;

    visit.open("/console/dead-letters").await;
    browser.click(&format!("a[href='{page}']")).await;
    browser.wait_text(".notice", REASON).await;
    let work = visit.rows("Transactions in the message").await;
    assert_eq!(work, [[ids[0].to_string(), account.account.to_string(), "bootstrap".to_owned()]]);
    assert_eq!(browser.texts(".timeline-title").await, ["Message sent", "Set aside"]);
    assert_eq!(browser.texts(".timeline-note").await, [format!("After 1 delivery: {REASON}")]);

    browser.click("a[href$='?confirm=discard']").await;
    browser.wait_text(".consequence", "1 transaction: those that are not final are rejected").await;
    browser.wait_text(".consequence", "It cannot be undone.").await;
    let discard = format!("form[action='{page}'] button[type='submit']");
    assert!(browser.attribute(&discard, "disabled").await.is_some(), "it is not confirmed");
    browser.click("#confirm").await;
    browser.click(&discard).await;
    browser.wait_text(".notice", "The dead letter is discarded").await;
    assert_eq!(browser.texts(".timeline-title").await[2..], ["Dead letter discarded"]);
    assert_eq!(browser.texts(".timeline-note").await[1..], ["By bootstrap"]);
    assert_eq!(browser.count("a[href*='confirm=']").await, 0, "nothing is left to decide");

    assert_eq!(statuses(&client, account, &ids).await, ["rejected discarded"]);
    assert_eq!(client.balance(account).await, "0.00");
    assert_eq!(client.dead_letters().await, Vec::<Value>::new());
    assert_eq!(acts(&client, 1).await, ["dead_letter.discard"]);
    visit.open("/console/dead-letters?resolved=include").await;
    assert_eq!(visit.rows("Dead letters").await[0].last().map(String::as_str), Some("discarded"));
}

async fn all_dead_letters_of_a_reason_are_decided_about_and_no_others(store_kind: StoreKind) {
    let mut bank = Plan::on(store_kind).processes(1, 0).start().await;
    let (client, account) = (bank.client(0), fresh_account());
    client.open(account).await;
    let replayed = submit(&client, account, 3).await;
    set_aside(&bank, REASON).await;
    let discarded = submit(&client, account, 2).await;
    set_aside(&bank, OTHER_REASON).await;
    let visit = Visit::sign_in(&bank, 0, bank.key()).await;
    let browser = &visit.browser;

    visit.open("/console/dead-letters").await;
    browser.wait_text(".notice", "5 dead letters wait for a decision").await;
    let reasons = visit.rows("Open dead letters by reason").await;
    assert_eq!(reasons[0][..3], [REASON, "3", "3"]);
    assert_eq!(reasons[1][..3], [OTHER_REASON, "2", "2"]);

    let of_other = "tbody tr:nth-child(2) a[href*='confirm=discard']";
    browser.click(&format!("main [aria-label='Open dead letters by reason'] {of_other}")).await;
    browser.wait_text(".consequence", "All open dead letters with this reason: 2 dead letters.").await;
    browser.wait_text(".consequence", OTHER_REASON).await;
    let confirm = "form[action='/console/dead-letters'] button[type='submit']";
    browser.fill("#confirm", "discar").await;
    assert!(browser.attribute(confirm, "disabled").await.is_some(), "the word is not complete");
    browser.fill("#confirm", "discard").await;
    browser.click(confirm).await;
    browser.wait_text(".notice", "2 dead letters discarded").await;
    assert_eq!((visit.number("Decided now").await, visit.number("Failed").await), (2, 0));
    assert_eq!(statuses(&client, account, &discarded).await, ["rejected discarded"; 2]);
    assert_eq!(statuses(&client, account, &replayed).await, ["accepted "; 3], "they have another reason");
    assert_eq!(client.dead_letters().await.len(), 3);

    bank.start_worker();
    browser.click("main a[href='/console/dead-letters']").await;
    assert_eq!(visit.rows("Open dead letters by reason").await.len(), 1);
    browser.click("a[href*='confirm=replay']").await;
    browser.wait_text(".consequence", "All open dead letters with this reason: 3 dead letters.").await;
    browser.click("#confirm").await;
    browser.click(confirm).await;
    browser.wait_text(".notice", "3 dead letters replayed").await;
    for id in &replayed {
        assert_eq!(client.until_final(account, *id).await.transaction_status(), "posted");
    }
    assert_eq!(client.balance(account).await, "3.00");
    assert_eq!(client.dead_letters().await, Vec::<Value>::new());
    let (replay, discard) = ("dead_letter.replay", "dead_letter.discard");
    assert_eq!(acts(&client, 5).await, [replay, replay, replay, discard, discard]);
    visit.open("/console/dead-letters").await;
    browser.wait_text("main", "No open dead letters").await;
}
