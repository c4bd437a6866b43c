//! One instruction in every format with the same id is posted once, and each format has its own answers and
//! refusals. The client checks each answer by its schema.

use postonce_shared::domain::ids::AccountKey;
use postonce_tests::dialects::{Dialect, ReportedTransaction};
use postonce_tests::prelude::*;
use reqwest::Method;
use serde_json::json;

on_both_stores![
    one_instruction_in_every_format_is_one_posting;
    on_sqlite:
    unknown_content_is_returned_in_the_same_kind_of_format,
    the_best_accepted_format_is_answered,
    a_partner_is_answered_in_its_own_format,
];

fn submission(amount: &str) -> Submission {
    let submission = Submission::deposit(amount).with("reference", "rent <May> & “tip”, 語🦀");
    submission.with("metadata", json!({"a&b": "<1>"}))
}

async fn final_transaction(
    client: &Client,
    account: AccountKey,
    id: &str,
    dialect: Dialect,
) -> ReportedTransaction {
    let path = format!("{}/transactions/{id}", path_of(account));
    let request = client.request(Method::GET, &path).header("Accept", dialect.media_type());
    dialect.transaction(&client.send(request).await.expect(200))
}

async fn one_instruction_in_every_format_is_one_posting(store_kind: StoreKind) {
    let bank = Plan::on(store_kind).start().await;
    let client = bank.client(0);
    for first in Dialect::ALL {
        let (account, id) = (fresh_account(), fresh_id());
        client.open(account).await;
        let mut answers = Vec::new();
        let others = Dialect::ALL.into_iter().filter(|other| *other != first);
        for dialect in std::iter::once(first).chain(others) {
            let request = dialect.submission(&client, account, id, &submission("125.50"));
            let mut answer = client.send(request.header("Prefer", "wait=30")).await;
            if answer.status == 202 {
                drop(client.until_final(account, id).await);
                answer = client.send(dialect.submission(&client, account, id, &submission("125.50"))).await;
            }
            let answer = answer.expect(200);
            answers.push(dialect.transaction(&answer));
            if dialect != first {
                assert_eq!(answer.header("idempotent-replayed"), "true", "{answer:?}");
            }
        }
        let first_answer = answers.first().expect("one for each format").clone();
        let expected = ReportedTransaction {
            message_id: id.to_string(),
            account: account.to_string(),
            kind: "deposit".to_owned(),
            amount: "125.50".to_owned(),
            currency: "EUR".to_owned(),
            status: "posted".to_owned(),
            reference: "rent <May> & “tip”, 語🦀".to_owned(),
            metadata: "a&b=<1>".to_owned(),
            order_number: first_answer.order_number.clone(),
            balance_after: "125.50".to_owned(),
            unknown_content: String::new(),
        };
        assert!(!first_answer.order_number.is_empty(), "{first_answer:?}");
        assert!(answers.iter().all(|answer| *answer == expected), "{answers:?}");
        assert_eq!(client.balance(account).await, "125.50", "it was posted once");
        assert_eq!(client.listing(account, None, 100).await.len(), 1);

        for dialect in Dialect::ALL {
            for other in [submission("125.51"), Submission::withdrawal("125.50")] {
                let refused = client.send(dialect.submission(&client, account, id, &other)).await.expect(422);
                assert_eq!(dialect.code(&refused), "idempotency_key_reused");
            }
            let invalid = dialect.submission(&client, account, fresh_id(), &submission("1.005"));
            assert_eq!(dialect.code(&client.send(invalid).await.expect(422)), "validation_failed");
            let nowhere = dialect.submission(&client, fresh_account(), fresh_id(), &submission("1.00"));
            assert_eq!(dialect.code(&client.send(nowhere).await.expect(404)), "account_unknown");
            let outsider = client.with_key("po_nobody").on_own_connections();
            let unknown = dialect.submission(&outsider, account, fresh_id(), &submission("1.00"));
            assert_eq!(dialect.code(&client.send(unknown).await.expect(401)), "api_key_invalid");
        }
        assert_eq!(client.balance(account).await, "125.50");
    }
}

async fn unknown_content_is_returned_in_the_same_kind_of_format(store_kind: StoreKind) {
    let bank = Plan::on(store_kind).start().await;
    let client = bank.client(0);
    let account = fresh_account();
    client.open(account).await;
    for dialect in Dialect::ALL {
        let id = fresh_id();
        let with_unknown = Dialect::with_unknown_content(submission("1.00"));
        let taken = client.send(dialect.submission(&client, account, id, &with_unknown)).await.expect(202);
        assert_eq!(dialect.transaction(&taken).unknown_content, dialect.unknown_content());
        drop(client.until_final(account, id).await);
        let replayed = client.send(dialect.submission(&client, account, id, &with_unknown)).await.expect(200);
        assert_eq!(dialect.transaction(&replayed).unknown_content, dialect.unknown_content());

        // Unknown content is part of the content.
        let without =
            client.send(dialect.submission(&client, account, id, &submission("1.00"))).await.expect(422);
        assert_eq!(dialect.code(&without), "idempotency_key_reused");
        for reader in Dialect::ALL {
            let read = final_transaction(&client, account, &id.to_string(), reader).await;
            let is_same_kind = (reader == Dialect::Json) == (dialect == Dialect::Json);
            let expected = if is_same_kind { dialect.unknown_content() } else { String::new() };
            assert_eq!(read.unknown_content, expected, "written in {dialect:?}, read in {reader:?}");
        }
        let large = dialect.body(&with_unknown).replace("gold", &"x".repeat(2048));
        let request = dialect.submission(&client, account, fresh_id(), &with_unknown).body(large);
        assert_eq!(dialect.code(&client.send(request).await.expect(422)), "validation_failed");
    }
    // The first request without unknown content, the second one with it.
    let id = fresh_id();
    drop(client.send(Dialect::Xml.submission(&client, account, id, &submission("2.00"))).await.expect(202));
    let with_unknown = Dialect::with_unknown_content(submission("2.00"));
    let refused = client.send(Dialect::Wwi.submission(&client, account, id, &with_unknown)).await.expect(422);
    assert_eq!(Dialect::Wwi.code(&refused), "idempotency_key_reused");
}

async fn the_best_accepted_format_is_answered(store_kind: StoreKind) {
    let bank = Plan::on(store_kind).start().await;
    let client = bank.client(0);
    let account = fresh_account();
    client.open(account).await;
    let check = async |sent: Dialect, accept: &str, expected: &str| {
        let id = fresh_id();
        let request = sent.submission(&client, account, id, &submission("1.00"));
        let request = if accept.is_empty() { request } else { request.header("Accept", accept) };
        let answer = client.send(request).await;
        let status = if accept == "text/html" { 406 } else { 202 };
        assert_eq!((answer.status, answer.header("content-type")), (status, expected), "{sent:?} {accept}");
    };
    let (json, xml, wwi) =
        ("application/json", "application/vnd.postonce+xml", "application/vnd.wwi.account+xml");
    for (dialect, own) in [(Dialect::Json, json), (Dialect::Xml, xml), (Dialect::Wwi, wwi)] {
        check(dialect, "", own).await;
        check(dialect, "*/*", own).await;
        check(dialect, "text/html, application/*;q=0.8", own).await;
        check(dialect, "application/json;q=0.5, application/vnd.wwi.account+xml", wwi).await;
        check(dialect, "application/json, application/vnd.wwi.account+xml;q=0.999", json).await;
        check(dialect, "application/vnd.postonce+xml;q=0, application/json;q=0.1, */*;q=0", json).await;
        check(dialect, "application/xml", "application/xml").await;
        check(dialect, "text/xml, */*;q=0.1", "text/xml; charset=utf-8").await;
        // Without an acceptable format, a refusal is in the format of the request.
        check(dialect, "text/html", dialect.problem_media_type()).await;
    }
}

async fn a_partner_is_answered_in_its_own_format(store_kind: StoreKind) {
    let bank = Plan::on(store_kind).start().await;
    let account = fresh_account();
    bank.client(0).open(account).await;
    let key = bank.operate(&["partners", "add", "shop", "--all-accounts", "--format", "wwi"]);
    let key = key.split_whitespace().find(|word| word.starts_with("po_")).expect("a key is printed");
    let shop = bank.client(0).with_key(key);
    let id = fresh_id();
    // Without Content-Type and Accept.
    let path = format!("{}/deposits", path_of(account));
    let request = shop.request(Method::POST, &path).header("Idempotency-Key", id.to_string());
    let answer = shop.send(request.body(Dialect::Wwi.body(&submission("7.00")))).await.expect(202);
    assert_eq!(Dialect::Wwi.transaction(&answer).amount, "7.00");
    let answer = shop.get(&format!("{}/transactions/{id}", path_of(account))).await.expect(200);
    assert_eq!(Dialect::Wwi.transaction(&answer).message_id, id.to_string());
    let refused = shop.get(&path_of(fresh_account())).await.expect(404);
    assert_eq!(Dialect::Wwi.code(&refused), "account_unknown");
    // For this partner, XML is its own XML format.
    let generic = shop.request(Method::GET, &path_of(account)).header("Accept", "application/xml");
    let answer = shop.send(generic).await.expect(200);
    assert!(
        answer.text.contains("<CustomerAccount xmlns=\"urn:wideworldimporters:account:1\">"),
        "{answer:?}"
    );
    // The headers of a request override the format of the partner.
    let said = shop.send(Dialect::Json.submission(&shop, account, id, &submission("7.00"))).await;
    assert_eq!(Dialect::Json.transaction(&said).amount, "7.00");
}
