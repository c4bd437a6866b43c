//! Statements in pages, and transactions by status.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use actix_web::test::TestRequest;
use futures::future::join;
use postonce_shared::config::HttpLimits;
use postonce_shared::testing::prelude::*;
use postonce_web::access::shares::{Capacity, PartnerShares};
use postonce_web::access::slots::Slots;
use postonce_web::access::turns::Turns;
use postonce_web::api::pages;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::test_bank::{ACCOUNT, TestBank, id};

/// A bank whose account has three posted deposits, one rejected withdrawal and one accepted deposit.
async fn busy() -> TestBank {
    let bank = TestBank::with_account().await;
    for number in 1..=3 {
        bank.submit("deposits", number, r#"{"amount":"1","currency":"EUR"}"#).await;
        bank.post_all().await;
    }
    bank.submit("withdrawals", 4, r#"{"amount":"50","currency":"EUR"}"#).await;
    bank.post_all().await;
    bank.submit("deposits", 5, r#"{"amount":"2","currency":"EUR"}"#).await;
    bank
}

fn ids(page: &Value) -> Vec<&str> {
    page["transactions"].as_array().unwrap().iter().map(|it| it["message_id"].as_str().unwrap()).collect()
}

#[actix_web::test]
async fn the_statement_is_paged_and_starts_with_the_oldest_entry() {
    let bank = busy().await;
    let whole = bank.get(&format!("{ACCOUNT}/transactions")).await.body;
    assert_eq!(ids(&whole), [id(1), id(2), id(3)]);
    assert_eq!(whole["next_cursor"], Value::Null);
    let first = bank.get(&format!("{ACCOUNT}/transactions?limit=2")).await.body;
    assert_eq!(ids(&first), [id(1), id(2)]);
    let cursor = first["next_cursor"].as_str().unwrap();
    let second = bank.get(&format!("{ACCOUNT}/transactions?limit=2&cursor={cursor}")).await.body;
    assert_eq!((ids(&second), &second["next_cursor"]), (vec![id(3).as_str()], &Value::Null));
    let exact = bank.get(&format!("{ACCOUNT}/transactions?limit=3")).await.body;
    assert_eq!(exact["next_cursor"], Value::Null);
    let entry = &whole["transactions"][1];
    assert_eq!(*entry, bank.get(&format!("{ACCOUNT}/transactions/{}", id(2))).await.body);
    let foreign = bank.get(&format!("{ACCOUNT}/transactions?status=accepted&cursor={cursor}")).await;
    assert_eq!(foreign.problem(), (400, "cursor_invalid"));
}

#[actix_web::test]
async fn transactions_are_listed_by_status() {
    let bank = busy().await;
    let check = async |status: &str, expected: &[String]| {
        let page = bank.get(&format!("{ACCOUNT}/transactions?status={status}")).await.body;
        assert_eq!(ids(&page), expected, "{status}");
    };
    check("posted", &[id(1), id(2), id(3)]).await;
    check("rejected", &[id(4)]).await;
    check("accepted", &[id(5)]).await;
}

#[actix_web::test]
async fn an_empty_statement_is_not_an_unknown_account() {
    let bank = TestBank::with_account().await;
    let unknown = ACCOUNT.replace("77aa", "88bb");
    for status in ["posted", "accepted", "rejected"] {
        let empty = bank.get(&format!("{ACCOUNT}/transactions?status={status}")).await.body;
        assert_eq!(empty, json!({"transactions": [], "next_cursor": null}));
        let answer = bank.get(&format!("{unknown}/transactions?status={status}")).await;
        assert_eq!(answer.problem(), (404, "account_unknown"));
    }
}

#[actix_web::test]
async fn invalid_queries_are_refused() {
    let bank = TestBank::with_account().await;
    let check = async |query: &str, code: &str| {
        let answer = bank.get(&format!("{ACCOUNT}/transactions?{query}")).await;
        assert_eq!(answer.problem(), (400, code), "{query}");
    };
    check("limit=0", "query_invalid").await;
    check("limit=1001", "query_invalid").await;
    check("status=lost&limit=x", "query_invalid").await;
    check("cursor=17", "cursor_invalid").await;
    check("cursor=", "cursor_invalid").await;
    check("status=rejected&cursor=abcd", "cursor_invalid").await;
}

#[actix_web::test]
async fn a_forged_cursor_is_an_error_of_the_client() {
    let bank = busy().await;
    // The name of the listing of ACCOUNT: the check value of a cursor can be computed from the source code.
    let (user, account) = ACCOUNT.trim_start_matches("/v1/users/").split_once("/accounts/").unwrap();
    for status in ["posted", "accepted", "rejected"] {
        for position in ["", "nonsense", "-1", "18446744073709551616", "🦀"] {
            let cursor = pages::cursor(&format!("{status} of {user}/{account}"), position);
            let answer = bank.get(&format!("{ACCOUNT}/transactions?status={status}&cursor={cursor}")).await;
            assert_eq!(answer.problem(), (400, "cursor_invalid"), "{status} from {position:?}");
        }
    }
    assert_eq!(bank.get("/readyz").await.status, 200);
}

#[actix_web::test]
async fn unknown_query_parameters_are_refused_by_name() {
    let bank = TestBank::with_account().await;
    let check = async |path: &str, fields: &[&str]| {
        let refused = bank.get(path).await;
        assert_eq!(
            (refused.problem(), refused.fields()),
            ((400, "query_invalid"), fields.to_vec()),
            "{path}"
        );
    };
    let statement = format!("{ACCOUNT}/transactions");
    check(&format!("{statement}?cursr=abc"), &["cursr"]).await;
    check(&format!("{statement}?limit=1&Limit=2&%6Cimi=3"), &["Limit", "limi"]).await;
    check(&format!("{ACCOUNT}?limit=1"), &["limit"]).await;
    check(&format!("{statement}/{}?wait=1", id(1)), &["wait"]).await;
    check("/v1/batches?status=posting", &["status"]).await;
    check("/v1/batches?partner_id=shop", &["partner_id"]).await;
    check("/v1/admin/batches?partner=shop", &["partner"]).await;
    check("/v1/admin/gate?state=held", &["state"]).await;
    check("/v1/admin/dead-letters?resolved=include&page=2", &["page"]).await;
    let refused = bank.get(&format!("{statement}?cursr=abc")).await;
    assert!(
        refused.text.contains("this operation has amount_max, amount_min, cursor, from, limit, "),
        "{refused:?}"
    );
    assert_eq!(bank.get(&format!("{statement}?limit=1&status=posted")).await.status, 200);
    // A change with a parameter that would be ignored is not made.
    let path = format!("{ACCOUNT}?dry_run=true");
    assert_eq!(bank.patch(&path, r#"{"overdraft_limit":"5"}"#).await.fields(), ["dry_run"]);
    assert_eq!(bank.get(ACCOUNT).await.body["version"], 1);
    // Public pages accept what load balancers and browsers add.
    assert_eq!(bank.get("/livez?x=1").await.status, 200);
    // A client without a key learns nothing about the operation.
    let without = bank.call(TestRequest::get().uri(&format!("{statement}?cursr=abc"))).await;
    assert_eq!(without.problem(), (401, "api_key_missing"));
}

/// A bank whose account has 300 transactions with 2 KB of metadata each, and the number of the first one.
async fn bank_with_large_transactions(kind: &str, is_posted: bool) -> TestBank {
    let bank = TestBank::with_account().await;
    let metadata = format!(r#"{{"amount":"1","currency":"EUR","metadata":{{"a":"{}"}}}}"#, "&".repeat(2000));
    for number in 0..300 {
        bank.submit(kind, number, &metadata).await;
    }
    while is_posted && bank.queued().await > 0 {
        bank.post_all().await;
    }
    bank
}

#[actix_web::test]
async fn a_page_has_at_most_a_mebibyte_and_the_pages_have_every_transaction() {
    let cases =
        [("deposits", true, "posted"), ("deposits", false, "accepted"), ("withdrawals", true, "rejected")];
    for (kind, is_posted, status) in cases {
        let bank = bank_with_large_transactions(kind, is_posted).await;
        for (accept, own_size) in [("application/json", 2_300), ("application/xml", 10_500)] {
            let mut path = format!("{ACCOUNT}/transactions?limit=1000&status={status}");
            let (mut ids, mut pages) = (std::collections::BTreeSet::new(), 0);
            loop {
                let page =
                    bank.call_as_shop(TestRequest::get().uri(&path).insert_header(("accept", accept))).await;
                assert_eq!(page.status, 200, "{page:?}");
                assert!(page.text.len() < 1024 * 1024 + 4096, "{status} {accept}: {} bytes", page.text.len());
                let (before, tag) =
                    (ids.len(), if accept.ends_with("xml") { "<MessageId>" } else { "\"message_id\":\"" });
                ids.extend(
                    page.text.match_indices(tag).map(|(at, _)| page.text[at + tag.len()..][..36].to_owned()),
                );
                pages += 1;
                let end = if accept.ends_with("xml") { "<NextCursor>" } else { "\"next_cursor\":\"" };
                let Some((_, rest)) = page.text.split_once(end) else { break };
                let cursor: String =
                    rest.chars().take_while(|c| c.is_ascii_alphanumeric() || "-_".contains(*c)).collect();
                assert!(ids.len() > before, "{status} {accept}: a page without an end has something");
                path = format!("{ACCOUNT}/transactions?limit=1000&status={status}&cursor={cursor}");
            }
            assert_eq!(ids.len(), 300, "{status} {accept}");
            assert!(pages <= 3 + 2 * (300 * own_size) / (1024 * 1024), "{status} {accept}: {pages} pages");
        }
    }
}

#[actix_web::test]
async fn large_answers_that_were_not_received_are_limited_for_each_partner_and_in_all() {
    for (slots, expected) in [
        (Slots::new(100_000, usize::MAX), (429, "rate_limited")),
        (Slots::new(usize::MAX, 100_000), (503, "overloaded")),
    ] {
        let mut bank = bank_with_large_transactions("deposits", false).await;
        let shares = PartnerShares::of(&HttpLimits::default());
        let of_partners = Capacity { unread_bytes: slots, ..shares.of_partners };
        bank.app.shares = Arc::new(PartnerShares { of_partners, ..shares });
        let page = format!("{ACCOUNT}/transactions?status=accepted");
        let before = bank.operations();
        let refused = bank.get(&page).await;
        assert_eq!(refused.problem(), expected, "{refused:?}");
        assert_eq!(bank.operations(), before, "it is refused before it is made");
        assert!(refused.header("retry-after").is_some());
        assert_eq!(bank.get(&format!("{page}&limit=40")).await.status, 200, "a smaller page");
        // Each answer was received.
        assert_eq!(bank.get(&format!("{page}&limit=40")).await.status, 200);
    }
}

#[actix_web::test]
async fn pages_of_a_partner_are_made_in_turns() {
    let mut bank = TestBank::with_account().await;
    let shares = PartnerShares::of(&HttpLimits::default());
    let pages = Turns::new(1, 2, Duration::from_millis(50));
    let of_partners = Capacity { pages, ..shares.of_partners };
    bank.app.shares = Arc::new(PartnerShares { of_partners, ..shares });
    let turn = bank.app.shares.of_partners.pages.wait(&PartnerId::parse("shop").unwrap()).await;
    let user = ACCOUNT.split_once("/accounts/").unwrap().0;
    let pages = [format!("{ACCOUNT}/transactions"), format!("{user}/accounts"), "/v1/batches".to_owned()];
    for page in &pages {
        let refused = bank.get(page).await;
        assert_eq!(refused.problem(), (429, "rate_limited"), "{page}: {refused:?}");
        assert_eq!(refused.header("retry-after"), Some("1"));
    }
    assert_eq!(bank.get(ACCOUNT).await.status, 200, "an account is no page");
    drop(turn);
    for page in &pages {
        assert_eq!(bank.get(page).await.status, 200, "{page}");
    }
}

#[actix_web::test]
async fn operators_act_while_the_partner_of_their_key_uses_all_that_it_may() {
    let mut bank = TestBank::with_account().await;
    let shares = PartnerShares::of(&HttpLimits::default());
    let pages = Turns::new(0, 0, Duration::from_millis(50));
    let of_partners = Capacity { unread_bytes: Slots::new(0, 0), body_bytes: Slots::new(0, 0), pages };
    bank.app.shares = Arc::new(PartnerShares { of_partners, ..shares });
    let deposit = bank.submit("deposits", 1, r#"{"amount":"1","currency":"EUR"}"#).await;
    assert_eq!(deposit.problem(), (429, "rate_limited"));
    assert_eq!(bank.get(&format!("{ACCOUNT}/transactions")).await.problem(), (429, "rate_limited"));
    let metrics = bank.get("/metrics").await;
    assert!(metrics.status == 200 && metrics.text.len() > 10_000, "a large answer: {}", metrics.text.len());
    assert_eq!(bank.put("/v1/admin/gate", r#"{"state":"held"}"#).await.status, 200);
}

#[actix_web::test]
async fn a_statement_has_its_turn_until_it_is_made() {
    let (begun, permits) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
    // Each read of a journal waits for a permit.
    let mut bank = TestBank::over(|store| {
        let (begun, permits) = (Arc::clone(&begun), Arc::clone(&permits));
        faults::apply(store, move |call| {
            if call != "TransactionLog::pages" {
                return Effect::Passes;
            }
            begun.fetch_add(1, Ordering::SeqCst);
            let permits = Arc::clone(&permits);
            Effect::Waits(Box::pin(async move { permits.acquire().await.unwrap().forget() }))
        });
    })
    .await;
    assert_eq!(bank.put(ACCOUNT, r#"{"currency":"EUR"}"#).await.status, 201);
    let shares = PartnerShares::of(&HttpLimits::default());
    let pages = Turns::new(1, 2, Duration::from_millis(50));
    let of_partners = Capacity { pages, ..shares.of_partners };
    bank.app.shares = Arc::new(PartnerShares { of_partners, ..shares });
    let statement = format!("{ACCOUNT}/transactions");
    let second = async {
        while begun.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(bank.get(&statement).await.problem(), (429, "rate_limited"));
        assert_eq!(begun.load(Ordering::SeqCst), 1, "the second one read nothing");
        permits.add_permits(100);
    };
    let both = join(bank.get(&statement), second);
    let (first, ()) = timeout(Duration::from_secs(20), both).await.expect("the second one is answered");
    assert_eq!(first.status, 200, "{first:?}");
    assert_eq!(bank.get(&statement).await.status, 200);
}

#[actix_web::test]
async fn a_partner_has_a_share_of_the_requests_in_progress() {
    let mut bank = TestBank::with_account().await;
    let in_progress = Slots::new(1, usize::MAX);
    let shares = PartnerShares::of(&HttpLimits::default());
    bank.app.shares = Arc::new(PartnerShares { in_progress: Arc::clone(&in_progress), ..shares });
    let slot = in_progress.take(&PartnerId::parse("shop").unwrap(), 1).unwrap();
    assert_eq!(bank.get(ACCOUNT).await.problem(), (429, "rate_limited"));
    assert_eq!(bank.get("/v1/admin/gate").await.status, 200, "operators act while their partner is busy");
    drop(slot);
    for _ in 0..3 {
        assert_eq!(bank.get(ACCOUNT).await.status, 200);
    }
}

/// A bank whose account has deposits of 1, 2, … 6 euro, a second apart, the even ones with a reference, and a withdrawal of 3.
async fn bank_with_a_history() -> TestBank {
    let bank = TestBank::with_account().await;
    for number in 1..=6 {
        let reference = if number % 2 == 0 { r#","reference":"even""# } else { "" };
        let body = format!(r#"{{"amount":"{number}","currency":"EUR"{reference}}}"#);
        bank.submit("deposits", number, &body).await;
        bank.post_all().await;
        bank.world.advance(Duration::from_secs(1));
    }
    bank.submit("withdrawals", 7, r#"{"amount":"3","currency":"EUR"}"#).await;
    bank.post_all().await;
    bank
}

#[actix_web::test]
async fn a_statement_can_start_with_the_newest_entry() {
    let bank = bank_with_a_history().await;
    let newest: Vec<String> = (1..=7).rev().map(id).collect();
    for limit in [1, 2, 3, 6, 7, 8, 1000] {
        let first = format!("{ACCOUNT}/transactions?order=newest_first&limit={limit}");
        let (mut seen, mut path) = (Vec::new(), first.clone());
        loop {
            let page = bank.get(&path).await;
            assert_eq!(page.status, 200, "{page:?}");
            seen.extend(ids(&page.body).into_iter().map(str::to_owned));
            let Some(cursor) = page.body["next_cursor"].as_str() else { break };
            // A later posting moves nothing on the pages that follow.
            if seen.len() == limit {
                bank.submit("deposits", 100, r#"{"amount":"9","currency":"EUR"}"#).await;
                bank.post_all().await;
            }
            path = format!("{first}&cursor={cursor}");
        }
        seen.retain(|it| *it != id(100));
        assert_eq!(seen, newest, "{limit}");
    }
    let cursor = bank.get(&format!("{ACCOUNT}/transactions?limit=1")).await.body["next_cursor"].clone();
    let mixed =
        format!("{ACCOUNT}/transactions?limit=1&order=newest_first&cursor={}", cursor.as_str().unwrap());
    assert_eq!(bank.get(&mixed).await.problem(), (400, "cursor_invalid"));
    let unknown = ACCOUNT.replace('7', "8");
    let unknown = bank.get(&format!("{unknown}/transactions?order=newest_first")).await;
    assert_eq!(unknown.problem(), (404, "account_unknown"));
    let empty = TestBank::with_account().await;
    let page = empty.get(&format!("{ACCOUNT}/transactions?order=newest_first")).await.body;
    assert_eq!(page, json!({"transactions": [], "next_cursor": null}));
}

/// New ones follow those that were listed before, so a partner can poll for them.
#[actix_web::test]
async fn rejected_transactions_can_be_listed_in_the_order_of_their_decisions() {
    let bank = TestBank::new().await;
    assert_eq!(bank.put(ACCOUNT, r#"{"currency":"EUR"}"#).await.status, 201);
    let mut expected = Vec::new();
    let mut cursor = String::new();
    for number in (1..=9).rev() {
        bank.submit("withdrawals", number, r#"{"amount":"50","currency":"EUR"}"#).await;
        if number % 2 == 0 {
            bank.submit("deposits", number + 100, r#"{"amount":"1","currency":"EUR"}"#).await;
        }
        bank.post_all().await;
        expected.push(id(number));
        let path = format!("{ACCOUNT}/transactions?status=rejected&order=by_decision&limit=2");
        let mut found = Vec::new();
        let mut next = cursor.clone();
        loop {
            let page = bank.get(&format!("{path}{next}")).await;
            assert_eq!(page.status, 200, "{page:?}");
            found.extend(ids(&page.body).into_iter().map(str::to_owned));
            let Some(following) = page.body["next_cursor"].as_str() else { break };
            next = format!("&cursor={following}");
            if cursor.is_empty() {
                cursor.clone_from(&next);
            }
        }
        let known = if found.len() < expected.len() { 2 } else { 0 };
        assert_eq!(found, expected[known..], "{number}");
    }
    let by_id = bank.get(&format!("{ACCOUNT}/transactions?status=rejected&order=oldest_first")).await.body;
    assert_eq!(ids(&by_id), (1..=9).map(id).collect::<Vec<_>>());
    let filtered = "status=rejected&order=by_decision&type=deposit";
    let filtered = bank.get(&format!("{ACCOUNT}/transactions?{filtered}")).await.body;
    assert_eq!(filtered, json!({"transactions": [], "next_cursor": null}));
    for (status, order) in [
        ("posted", "by_decision"),
        ("accepted", "by_decision"),
        ("rejected", "newest_first"),
        ("rejected", "by_id"),
    ] {
        let refused = bank.get(&format!("{ACCOUNT}/transactions?status={status}&order={order}")).await;
        assert_eq!(
            (refused.problem(), refused.fields()),
            ((400, "query_invalid"), vec!["order"]),
            "{status}"
        );
    }
    let refused = bank.get(&format!("{ACCOUNT}/transactions?status=lost&order=by_decision&limit=0")).await;
    assert_eq!(refused.fields(), ["limit", "status"], "which orders there are depends on the status");
}

#[actix_web::test]
async fn a_statement_can_be_filtered() {
    let bank = bank_with_a_history().await;
    let check = async |query: &str, expected: &[u32]| {
        let expected: Vec<String> = expected.iter().copied().map(id).collect();
        let page = bank.get(&format!("{ACCOUNT}/transactions?{query}")).await;
        assert_eq!(page.status, 200, "{page:?}");
        assert_eq!(ids(&page.body), expected, "{query}");
    };
    check("type=withdrawal", &[7]).await;
    check("type=deposit&order=newest_first", &[6, 5, 4, 3, 2, 1]).await;
    check("amount_min=3&amount_max=5", &[3, 4, 5, 7]).await;
    check("amount_min=3.0001&amount_max=4.00", &[4]).await;
    check("reference=even", &[2, 4, 6]).await;
    check("reference=odd", &[]).await;
    check("reference=", &[]).await;
    check("from=2026-01-01T00:00:02Z&until=2026-01-01T00:00:04Z", &[3, 4]).await;
    check("until=2026-01-01T01:00:01%2B01:00", &[1]).await;
    check("reference=even&amount_min=3&order=newest_first", &[6, 4]).await;
    // Each filter belongs to the cursor.
    let first = bank.get(&format!("{ACCOUNT}/transactions?reference=even&limit=2")).await.body;
    let cursor = first["next_cursor"].as_str().unwrap();
    check(&format!("reference=even&limit=2&cursor={cursor}"), &[6]).await;
    let other = bank.get(&format!("{ACCOUNT}/transactions?reference=odd&limit=2&cursor={cursor}")).await;
    assert_eq!(other.problem(), (400, "cursor_invalid"));
    // Other statuses have the same filters.
    for number in [8, 9] {
        let body = format!(r#"{{"amount":"{number}","currency":"EUR"}}"#);
        bank.submit("deposits", number, &body).await;
    }
    check("status=accepted&amount_max=8", &[8]).await;
    check("status=accepted&from=2026-01-01T00:00:06Z", &[8, 9]).await;
    check("status=accepted&until=2026-01-01T00:00:06Z", &[]).await;
}

#[actix_web::test]
async fn every_invalid_filter_is_named() {
    let bank = TestBank::with_account().await;
    let wrong = "order=up&from=yesterday&until=12&type=gift&amount_min=-1&amount_max=1.23456";
    let refused = bank.get(&format!("{ACCOUNT}/transactions?{wrong}")).await;
    assert_eq!(refused.problem(), (400, "query_invalid"));
    assert_eq!(refused.fields(), ["order", "from", "until", "type", "amount_min", "amount_max"]);
    let refused = bank.get(&format!("{ACCOUNT}/transactions?status=rejected&order=newest_first")).await;
    assert_eq!((refused.problem(), refused.fields()), ((400, "query_invalid"), vec!["order"]));
    assert_eq!(bank.get(&format!("{ACCOUNT}/transactions?type=deposit&type=deposit")).await.status, 400);
}
