//! The pages of oversight in the browser: order numbers, costs, the audit trail, and anchors, compared with the API.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use postonce_shared::domain::ids::OrderNumber;
use postonce_tests::prelude::*;
use serde_json::{Value, json};

use super::shown::{list, plain, shown_time, text};
use super::visit::Visit;

/// The place and the width of each range in the picture, in thousandths of its track as it is drawn, and the two ends in words.
const PICTURE: &str = "return [...document.querySelectorAll('.ranges li')].map((range) => {
    const [track, part] = ['.range-track', '.range-part'].map((it) => range.querySelector(it).getBoundingClientRect());
    const permille = (length) => Math.round(length / track.width * 1000);
    const words = range.querySelector('.range-foot span').textContent;
    return [permille(part.left - track.left), permille(part.width), range.querySelector('code').textContent, words];
})";

on_both_stores![
    costs_are_shown_by_kind_of_operation;
    on_sqlite:
    order_numbers_are_shown_as_a_picture,
    acts_in_the_browser_appear_in_the_audit_trail,
    anchors_are_listed_with_what_they_sign,
];

async fn order_numbers_are_shown_as_a_picture(store_kind: StoreKind) {
    let bank = Plan::on(store_kind).processes(2, 1).start().await;
    bank.until_workers_ready().await;
    let account = fresh_account();
    bank.client(0).open(account).await;
    for web in [0, 1] {
        for _ in 0..3 {
            drop(bank.client(web).post(account, fresh_id(), &Submission::deposit("1.00")).await);
        }
    }
    let client = bank.client(0);
    let visit = Visit::sign_in(&bank, 0, bank.key()).await;
    // Processes reserve and return ranges at any time: the register must be the same before and after.
    let register = wait::until("a register at rest", wait::TIMEOUT, async || {
        let before = client.get("/v1/admin/order-numbers").await.expect(200).body;
        visit.open("/console/order-numbers").await;
        let after = client.get("/v1/admin/order-numbers").await.expect(200).body;
        if before == after { Ok(after) } else { Err(format!("{before} {after}")) }
    })
    .await;
    for (name, member) in
        [("Reserved", "reserved"), ("Issued", "issued"), ("Returned", "returned"), ("Lost", "lost")]
    {
        assert_eq!(Some(visit.number(name).await), register[member].as_u64(), "{member}");
    }
    let ranges = list(&register, "ranges");
    assert!(!ranges.is_empty(), "{register}");
    let end = |range: &Value, member: &str| text(range, member).parse::<u64>().expect("a number");
    let first = ranges.iter().map(|range| end(range, "first")).min().expect("a range");
    let last = ranges.iter().map(|range| end(range, "last")).max().expect("a range");
    let permille = |length: u64| {
        let span = last.saturating_sub(first).max(1);
        length.saturating_mul(1000).checked_div(span).expect("not zero")
    };
    let pictures = visit.browser.run(PICTURE).await;
    let pictures: Vec<(u64, u64, String, String)> =
        serde_json::from_value(pictures).expect("one for each range");
    let rows = visit.rows("Ranges in use").await;
    assert_eq!((pictures.len(), rows.len()), (ranges.len(), ranges.len()));
    let mut in_ranges = 0_u64;
    for ((range, (left, width, holder, words)), row) in ranges.iter().zip(pictures).zip(rows) {
        let (from, to) = (end(range, "first"), end(range, "last"));
        // A narrow range is drawn wide enough to be seen.
        let expected =
            [permille(from.saturating_sub(first)).min(994), permille(to.saturating_sub(from)).max(6)];
        assert!(
            expected[0].abs_diff(left) <= 2 && expected[1].abs_diff(width) <= 2,
            "{range}: at {left}, {width} wide; expected {expected:?}"
        );
        assert_eq!((holder.as_str(), plain(&words)), (text(range, "holder"), format!("{from}\u{2013}{to}")));
        let counter = |member| OrderNumber::parse(text(range, member)).expect("an order number").counter();
        let size = counter("last").saturating_sub(counter("first")).saturating_add(1);
        in_ranges = in_ranges.saturating_add(size);
        let cells = row.iter().map(|cell| plain(cell)).collect::<Vec<_>>();
        let reserved = shown_time(text(range, "at"));
        let expected = [holder, from.to_string(), to.to_string(), size.to_string(), reserved];
        assert_eq!(cells, expected);
    }
    assert_eq!(visit.number("In use").await, in_ranges);
}

async fn costs_are_shown_by_kind_of_operation(store_kind: StoreKind) {
    let bank = Plan::on(store_kind).start().await;
    let (client, account) = (bank.client(0), fresh_account());
    client.open(account).await;
    for _ in 0..5 {
        drop(client.post(account, fresh_id(), &Submission::deposit("1.00")).await);
    }
    let visit = Visit::sign_in(&bank, 0, bank.key()).await;
    let before = client.get("/v1/admin/storage-operations").await.expect(200).body;
    visit.open("/console/costs").await;
    let after = client.get("/v1/admin/storage-operations").await.expect(200).body;
    let kinds = |costs: &Value| -> BTreeMap<(String, String), u64> {
        let of = |it: &Value| (text(it, "service").to_owned(), text(it, "operation").to_owned());
        let count = |it: &Value| it["count"].as_u64().expect("a number");
        list(costs, "operations").iter().map(|it| (of(it), count(it))).collect()
    };
    let (least, most) = (kinds(&before), kinds(&after));
    assert!(least.len() > 2, "{before}");
    let rows = visit.rows("Storage operations by kind, the most expensive ones first").await;
    let shown: BTreeMap<(String, String), u64> = rows
        .iter()
        .map(|row| ((row[0].clone(), row[1].clone()), plain(&row[2]).parse().expect("a number")))
        .collect();
    for (kind, count) in &least {
        let shown = shown.get(kind).unwrap_or_else(|| panic!("{kind:?} is not shown: {shown:?}"));
        assert!((count..=&most[kind]).contains(&shown), "{kind:?}: {count} {shown} {}", most[kind]);
    }
    assert_eq!(visit.number("Postings").await, 5);
    let operations = visit.number("Storage operations").await;
    assert_eq!(operations, shown.values().sum::<u64>(), "the total is that of the kinds");
    let prices: Vec<u64> = rows.iter().map(|row| nano_usd(&row[3])).collect();
    assert!(prices.is_sorted_by(|one, next| one >= next), "the most expensive ones first: {rows:?}");
    assert_eq!(nano_usd(&visit.value("Price of all").await), prices.iter().sum::<u64>());
}

/// A price such as `$0.000123400` in nano-dollars.
fn nano_usd(shown: &str) -> u64 {
    let digits = plain(shown).replace(['$', '.'], "");
    digits.parse().unwrap_or_else(|_| panic!("{shown} is no price with nine decimals"))
}

async fn acts_in_the_browser_appear_in_the_audit_trail(store_kind: StoreKind) {
    let bank = Plan::on(store_kind).start().await;
    drop(bank.add_partner("shop", &["deposit"]));
    let key = bank.add_partner("night_shift", &["admin"]);
    let client = bank.client(0);
    let own = client.with_key(&key).get("/v1/key").await.expect(200);
    let visit = Visit::sign_in(&bank, 0, &key).await;
    let browser = &visit.browser;
    visit.open("/console/gate?confirm=hold").await;
    browser.fill("#field-reason", "nightly close").await;
    browser.click("form[action='/console/gate'] button[type='submit']").await;
    browser.wait_for(".gate-panel[data-state='held']").await;
    visit.open("/console/partners/shop?confirm=suspend").await;
    browser.click("#confirm").await;
    browser.click("form[action='/console/partners/shop'] button[type='submit']").await;
    browser.wait_text(".notice-title", "shop is suspended").await;

    visit.open("/console/audit").await;
    let rows = visit.rows("Audit trail").await;
    let known = client.get("/v1/admin/audit?limit=100").await.expect(200).body;
    let known = list(&known, "rows");
    assert_eq!(rows.len(), known.len());
    let who = format!("night_shift\nkey {}", own.text_at("/key_id"));
    for (number, act, target) in
        [(0, "Changed a partner\npartner.change", "shop"), (1, "Changed the gate\ngate.change", "state=held")]
    {
        let (row, known) = (&rows[number], &known[number]);
        assert_eq!((plain(&row[0]), &row[2], row[3].as_str()), (known["sequence"].to_string(), &who, act));
        assert_eq!(row[1], shown_time(text(known, "at")));
        assert!(row[4].starts_with(text(known, "target")) && row[4].contains(target), "{row:?}");
        assert_eq!(row[5], text(known, "origin"));
        assert!(row[5].starts_with("127.0.0.1:"), "the browser, and not the process itself: {row:?}");
        assert!(text(known, "hash").starts_with(&row[6]) && !row[6].is_empty(), "{row:?}");
    }
    // Partners were added by commands.
    assert_eq!(rows.last().map(|row| row[2].as_str()), Some("an operator, by a command"));
    assert_eq!(client.gate().await.text_at("/state"), "held");
}

async fn anchors_are_listed_with_what_they_sign(store_kind: StoreKind) {
    let bank = Plan::on(store_kind).with("POSTONCE_ANCHOR_KEY", &STANDARD.encode([42; 32])).start().await;
    let client = bank.client(0);
    let visit = Visit::sign_in(&bank, 0, bank.key()).await;
    visit.open("/console/anchors").await;
    visit.browser.wait_text("main", "There are no anchors").await;
    for deposits in [1, 2] {
        post_to_new_account(&client).await;
        drop(bank.operate(&["anchors", "append"]));
        visit.open("/console/anchors").await;
        let page = client.get("/v1/admin/anchors").await.expect(200).body;
        let known = list(&page, "anchors");
        let rows = visit.rows("Anchors").await;
        assert_eq!((rows.len(), known.len()), (deposits, deposits));
        for (row, known) in rows.iter().zip(known) {
            let [number, accounts] = ["sequence", "accounts"].map(|member| known[member].to_string());
            assert_eq!(row[..2], [number, shown_time(text(known, "made_at"))]);
            assert_eq!(
                (&row[3], row[4].trim_end_matches('\u{2026}')),
                (&accounts, prefix(text(known, "public_key")))
            );
        }
        assert_eq!(rows[0][3], deposits.to_string(), "the last one first");
        visit.browser.click("main table summary").await;
        let details = visit.browser.run(
            "const details = document.querySelector('main table details');
            return [details.open, ...[...details.querySelectorAll('code')].map((code) => code.textContent)]",
        );
        let signed = &known[0];
        let expected = json!([true, signed["public_key"], signed["statement"], signed["signature"]]);
        assert_eq!(details.await, expected);
    }
}

fn prefix(key: &str) -> &str {
    key.get(..12).expect("a key in Base64 is longer")
}

async fn post_to_new_account(client: &Client) {
    let account = fresh_account();
    client.open(account).await;
    drop(client.post(account, fresh_id(), &Submission::deposit("1.00")).await);
}
