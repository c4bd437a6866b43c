//! Accounts in the browser: the search, the balance, the statement, and the events of transactions, compared with the API.

use postonce_shared::domain::ids::{AccountKey, MessageId};
use postonce_tests::prelude::*;
use serde_json::{Value, json};

use super::shown::{list, plain, shown_time, text};
use super::visit::Visit;

/// Postings of the account: more than a page of its statement, but not twice as many.
const POSTINGS: usize = 53;
/// Lines of a page of the statement.
const LINES: usize = 50;
/// The events of the API and their names on the page.
const EVENTS: [(&str, &str); 5] = [
    ("accepted", "Accepted"),
    ("sent", "Sent to the queue"),
    ("received", "Received by the worker that decided it"),
    ("posted", "Posted"),
    ("rejected", "Rejected"),
];

on_sqlite![
    an_account_is_found_with_its_balance_and_statement,
    the_life_of_a_transaction_is_a_timeline_of_its_events,
];

async fn an_account_is_found_with_its_balance_and_statement(store_kind: StoreKind) {
    let bank = Plan::on(store_kind).start().await;
    let (client, account) = (bank.client(0), fresh_account());
    client.open_with(account, "EUR", "1000.00").await;
    let shop = client.with_key(&bank.add_partner("shop", &["deposit", "withdraw", "read"]));
    for number in 1..POSTINGS {
        let deposit = Submission::deposit(&format!("{number}.25")).with("reference", format!("no {number}"));
        drop(client.post(account, fresh_id(), &deposit).await);
    }
    drop(shop.post(account, fresh_id(), &Submission::withdrawal("2345.67")).await);
    let rejected = shop.submit_and_wait(account, fresh_id(), &Submission::withdrawal("99999.00")).await;
    assert_eq!(rejected.expect(200).transaction_status(), "rejected");

    let visit = Visit::sign_in(&bank, 0, bank.key()).await;
    find_account(&visit, account).await;
    let known = client.account(account).await;
    for (name, member) in
        [("Balance", "balance"), ("Available", "available"), ("Overdraft limit", "overdraft_limit")]
    {
        assert_eq!(plain(&visit.value(name).await), format!("{} EUR", known.text_at(&format!("/{member}"))));
    }
    assert_eq!(visit.value("Balance").await, "\u{2212}954.67 EUR");
    assert_eq!(visit.number("Version").await, known.number_at("/version"));

    let statement = statement(&client, account, "posted&order=newest_first").await;
    assert_eq!(statement.len(), POSTINGS);
    let expected: Vec<Vec<String>> = statement.iter().map(line).collect();
    assert_eq!(lines(&visit).await, expected[..LINES]);
    visit.browser.click("a[rel='next']").await;
    assert_eq!(lines(&visit).await, expected[LINES..]);
    visit.browser.wait_text(".pager", "End of the list").await;

    visit.browser.click("a[href$='?status=rejected']").await;
    let rows = visit.rows("Transactions of the account").await;
    let reason = "the withdrawal was more than the balance plus the overdraft limit";
    assert_eq!(
        (rows.len(), rows[0][2].as_str(), rows[0][3].as_str()),
        (1, "\u{2212}99\u{202f}999.00", reason)
    );
    assert_eq!(rows[0][5], "shop");
    visit.browser.click("a[href$='?status=accepted']").await;
    visit.browser.wait_text("main", "Nothing waits").await;
}

/// Finds an account in the list of those of its user, which the search shows.
async fn find_account(visit: &Visit, account: AccountKey) {
    visit.open("/console/accounts").await;
    visit.browser.fill("#field-user_id", &account.user.to_string()).await;
    visit.browser.click("form:has(#field-user_id) button[type='submit']").await;
    let rows = visit.rows("Accounts of the user").await;
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert_eq!((rows[0][0].clone(), rows[0][1].as_str()), (account.account.to_string(), "open"));
    visit.browser.fill("#field-account_id", &account.account.to_string()).await;
    visit.browser.click("form:has(#field-user_id) button[type='submit']").await;
    assert_eq!(visit.path().await, format!("/console/accounts/{}/{}", account.user, account.account));
}

/// The transactions of a status, as the API lists them.
async fn statement(client: &Client, account: AccountKey, status: &str) -> Vec<Value> {
    let path = format!("{}/transactions?limit=100&status={status}", path_of(account));
    list(&client.get(&path).await.expect(200).body, "transactions").to_vec()
}

/// The lines of the statement that is shown.
async fn lines(visit: &Visit) -> Vec<Vec<String>> {
    let rows = visit.rows("Transactions of the account").await;
    rows.iter().map(|row| row.iter().map(|cell| plain(cell)).collect()).collect()
}

/// A posted transaction as a line of the statement.
fn line(of: &Value) -> Vec<String> {
    let sign = if text(of, "type") == "withdrawal" { "-" } else { "" };
    let (id, _) = text(of, "message_id").split_once('-').expect("a UUID has hyphens");
    vec![
        shown_time(text(of, "posted_at")),
        format!("{id}\u{2026}"),
        format!("{sign}{}", text(of, "amount")),
        text(of, "balance_after").to_owned(),
        text(of, "order_number").to_owned(),
        text(of, "reference").to_owned(),
        // The own ones have none.
        of.get("partner_id").and_then(Value::as_str).unwrap_or("bootstrap").to_owned(),
    ]
}

async fn the_life_of_a_transaction_is_a_timeline_of_its_events(store_kind: StoreKind) {
    let bank = Plan::on(store_kind).through_the_queue().start().await;
    bank.until_workers_ready().await;
    let (client, account) = (bank.client(0), fresh_account());
    client.open(account).await;
    let [posted, rejected, waiting] = [fresh_id(), fresh_id(), fresh_id()];
    let answer = client.post(account, posted, &Submission::deposit("12.00")).await;
    let refused = client.submit_and_wait(account, rejected, &Submission::withdrawal("500.00")).await;
    assert_eq!(refused.transaction_status(), "rejected");
    drop(client.hold(bank.webs.len().saturating_add(bank.workers.len())).await);
    drop(client.submit_until_accepted(account, waiting, &Submission::deposit("3.00")).await);

    let visit = Visit::sign_in(&bank, 0, bank.key()).await;
    let number = answer.text_at("/order_number");
    // On Azure, a number is recorded some seconds after its posting.
    wait::until("the order number is recorded", wait::TIMEOUT, async || {
        let found = client.get(&format!("/v1/admin/transactions?order_number={number}")).await.expect(200);
        if list(&found.body, "transactions").len() == 1 { Ok(()) } else { Err(found.text) }
    })
    .await;
    visit.open("/console/accounts").await;
    visit.browser.fill("#field-order_number", number).await;
    visit.browser.click("form:has(#field-order_number) button[type='submit']").await;
    assert_eq!(visit.path().await, page_of(account, posted));
    let events = check_life(&visit, &client, account, posted).await;
    assert_eq!(
        (events.first().map(String::as_str), events.last().map(String::as_str)),
        (Some("accepted"), Some("posted"))
    );
    assert_eq!(visit.value("Order number").await, number);
    assert_eq!(visit.value("Balance after it").await, "12.00 EUR");
    visit.browser.wait_text(".timeline li:last-child", &format!("Order number {number}, ")).await;

    visit.open(&page_of(account, rejected)).await;
    assert_eq!(
        check_life(&visit, &client, account, rejected).await.last().map(String::as_str),
        Some("rejected")
    );
    visit
        .browser
        .wait_text(".timeline li:last-child", "more than the balance plus the overdraft limit")
        .await;

    visit.open(&page_of(account, waiting)).await;
    visit.browser.wait_text("main", "The transaction is not decided yet").await;
    assert!(!check_life(&visit, &client, account, waiting).await.contains(&"posted".to_owned()));
    drop(client.set_gate(&json!({"state": "released"})).await.expect(200));
    drop(client.until_final(account, waiting).await);
    visit.open(&page_of(account, waiting)).await;
    assert!(check_life(&visit, &client, account, waiting).await.contains(&"posted".to_owned()));
}

fn page_of(account: AccountKey, id: MessageId) -> String {
    format!("/console/accounts/{}/{}/{id}", account.user, account.account)
}

/// Compares the timeline of the page with the events in the API. Returns these.
async fn check_life(visit: &Visit, client: &Client, account: AccountKey, id: MessageId) -> Vec<String> {
    let query = format!("message_id={id}&user_id={}&account_id={}", account.user, account.account);
    let found = client.get(&format!("/v1/admin/transactions?{query}")).await.expect(200).body;
    let events = list(&list(&found, "transactions")[0], "events");
    let known = |code: &str| EVENTS.iter().find(|(event, _)| *event == code);
    let expected: Vec<Value> = events
        .iter()
        .map(|event| {
            let (_, title) = known(text(event, "event")).unwrap_or_else(|| panic!("{event} has no name"));
            json!([title, event["at"], shown_time(text(event, "at"))])
        })
        .collect();
    let shown = visit
        .browser
        .run(
            "return [...document.querySelectorAll('.timeline li')].map((event) => {
                const time = event.querySelector('time');
                return [event.querySelector('.timeline-title').textContent, time.dateTime, time.textContent];
            })",
        )
        .await;
    assert_eq!(shown, Value::from(expected));
    let transaction = client.transaction(account, id).await.expect(200);
    assert_eq!(visit.value("Message id").await, id.to_string());
    assert_eq!(text(&events[0], "at"), transaction.text_at("/accepted_at"));
    events.iter().map(|event| text(event, "event").to_owned()).collect()
}
