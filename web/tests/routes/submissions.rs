//! Deposits and withdrawals, by the table of the API contract.

use std::collections::BTreeMap;

use futures::join;
use postonce_shared::testing::prelude::*;
use postonce_web::access::api_keys::NewKey;
use postonce_web::access::scopes::Scope;
use serde_json::json;

use super::test_bank::{ACCOUNT, TestBank, id, json as with_json, submission, with_key};

const TEN: &str = r#"{"amount":"10.00","currency":"EUR","reference":"invoice 7","metadata":{"shop":"12"}}"#;

#[actix_web::test]
async fn a_new_submission_is_accepted_with_its_location() {
    let bank = TestBank::with_account().await;
    let answer = bank.submit("deposits", 1, TEN).await;
    assert_eq!(answer.status, 202, "{answer:?}");
    let path = format!("{ACCOUNT}/transactions/{}", id(1));
    assert_eq!(answer.header("location"), Some(path.as_str()));
    assert_eq!(answer.header("idempotent-replayed"), None);
    let expected = json!({
        "message_id": id(1), "user_id": "0b1c6f0a-54f2-4f0c-9c64-2f4b6a3f0d11",
        "account_id": "77aa0b9e-7c2f-4c35-8f0d-0a4f6f1f2e22", "type": "deposit", "amount": "10.00",
        "currency": "EUR", "status": "accepted", "reference": "invoice 7", "metadata": {"shop": "12"},
        "accepted_at": "2026-01-01T00:00:00.000Z",
    });
    assert_eq!(answer.body, expected);
    assert_eq!(bank.get(&path).await.body, expected);
}

#[actix_web::test]
async fn a_repeated_submission_returns_the_current_transaction() {
    let bank = TestBank::with_account().await;
    bank.submit("deposits", 1, TEN).await;
    let spaced = r#"{ "metadata": {"shop":"12"}, "currency":"EUR", "amount":"10", "reference":"invoice 7" }"#;
    let accepted = bank.submit("deposits", 1, spaced).await;
    assert_eq!((accepted.status, accepted.header("idempotent-replayed")), (202, Some("true")));
    bank.post_all().await;
    let posted = bank.submit("deposits", 1, TEN).await;
    assert_eq!((posted.status, posted.header("idempotent-replayed")), (200, Some("true")));
    assert_eq!(posted.body["status"], "posted");
    assert_eq!(posted.body["balance_after"], "10.00");
    assert_eq!(posted.body["sequence"], 1);
    assert!(posted.body["order_number"].is_string() && posted.body["posted_at"].is_string());
    assert_eq!(bank.get(ACCOUNT).await.body["balance"], "10.00");
}

#[actix_web::test]
async fn a_message_id_with_other_content_is_always_refused() {
    let bank = TestBank::with_account().await;
    bank.submit("withdrawals", 1, TEN).await;
    let check = async |kind: &str, body: &str| {
        let answer = bank.submit(kind, 1, body).await;
        assert_eq!(answer.problem(), (422, "idempotency_key_reused"), "{kind} {body}");
    };
    for _ in 0..2 {
        check("deposits", TEN).await;
        check("withdrawals", &TEN.replace("10.00", "10.01")).await;
        check("withdrawals", &TEN.replace("invoice 7", "invoice 8")).await;
        check("withdrawals", &TEN.replace("12", "13")).await;
        check("withdrawals", &TEN.replacen('{', r#"{"purpose":null,"#, 1)).await;
        // In the second round, the transaction is rejected already.
        bank.post_all().await;
    }
    let rejected = bank.submit("withdrawals", 1, TEN).await;
    assert_eq!(rejected.status, 200);
    assert_eq!(rejected.body["status"], "rejected");
    assert_eq!(rejected.body["reason"], "insufficient_funds");
    assert!(rejected.body["rejected_at"].is_string());
}

#[actix_web::test]
async fn a_request_that_waits_gets_the_final_transaction() {
    let bank = TestBank::with_account().await;
    let request = || submission("deposits", 1, TEN).insert_header(("prefer", "respond-async, wait=40"));
    let worker = async {
        while bank.store.operations.snapshot().keys().all(|operation| operation.name != "send") {
            tokio::task::yield_now().await;
        }
        bank.post_all().await;
    };
    let (answer, ()) = join!(bank.call_as_shop(request()), worker);
    assert_eq!((answer.status, answer.header("preference-applied")), (200, Some("wait=30")), "{answer:?}");
    assert_eq!(answer.body["status"], "posted");
    let again = bank.call_as_shop(request()).await;
    assert_eq!((again.status, again.header("idempotent-replayed")), (200, Some("true")));
}

#[actix_web::test]
async fn checks_are_made_in_the_order_of_the_contract() {
    let bank = TestBank::new().await;
    let reader = NewKey::random();
    bank.add_key(&reader, "shop", &[Scope::Read]).await;
    let path = format!("{ACCOUNT}/deposits");
    let bad_path = path.replace("0b1c6f0a", "nobody");
    let bad_body = r#"{"amount":"-1","currency":"EUR"}"#;
    let request = |path: &str| actix_web::test::TestRequest::post().uri(path);
    let check = async |request: actix_web::test::TestRequest, expected: (u16, &str)| {
        assert_eq!(bank.call(request).await.problem(), expected);
    };
    let wrong = |request| with_key(request, &NewKey::random());
    check(request(&bad_path), (401, "api_key_missing")).await;
    check(wrong(request(&bad_path)), (401, "api_key_invalid")).await;
    check(with_key(request(&bad_path), &reader), (403, "scope_missing")).await;
    let check = async |request: actix_web::test::TestRequest, expected: (u16, &str)| {
        assert_eq!(bank.call_as_shop(request).await.problem(), expected);
    };
    check(request(&bad_path), (400, "path_invalid")).await;
    check(request(&path).set_payload("x".repeat(70_000)), (415, "media_type_unsupported")).await;
    check(with_json(request(&path), &"x".repeat(70_000)), (413, "body_too_large")).await;
    check(with_json(request(&path), "{"), (400, "body_invalid")).await;
    check(with_json(request(&path), bad_body), (422, "validation_failed")).await;
    check(with_json(request(&path), TEN), (400, "idempotency_key_missing")).await;
    let with_id = |id: &'static str| with_json(request(&path), TEN).insert_header(("idempotency-key", id));
    check(with_id("17"), (400, "idempotency_key_invalid")).await;
    check(submission("deposits", 1, TEN), (404, "account_unknown")).await;
    bank.put(ACCOUNT, r#"{"currency":"USD"}"#).await;
    check(submission("deposits", 1, TEN), (422, "currency_mismatch")).await;
    // None of the refused requests used up the id.
    assert_eq!(bank.submit("deposits", 1, &TEN.replace("EUR", "USD")).await.status, 202);
}

#[actix_web::test]
async fn other_media_types_and_large_bodies_are_refused() {
    let bank = TestBank::with_account().await;
    let check = async |content_type: &str, encoding: Option<&str>, status: u16| {
        let mut request =
            submission("deposits", 1, TEN).insert_header(("content-type", content_type.to_owned()));
        if let Some(encoding) = encoding {
            request = request.insert_header(("content-encoding", encoding.to_owned()));
        }
        assert_eq!(bank.call_as_shop(request).await.status, status, "{content_type} {encoding:?}");
    };
    check("application/json; charset=utf-8", None, 202).await;
    check("Application/JSON", Some("identity"), 202).await;
    check("application/json", Some("gzip"), 415).await;
    for label in ["utf8", "UTF8", "unicode-1-1-utf-8", "us-ascii", "ANSI_X3.4-1968", "\"utf8\""] {
        check(&format!("application/json;charset={label}"), None, 202).await;
    }
    check("application/json; charset=utf-16", None, 415).await;
    check("application/json; charset=iso-8859-1", None, 415).await;
    check("application/json; charset=utf-8; charset=iso-8859-1", None, 415).await;
    check("application/soap+xml", None, 415).await;
    check("text/json", None, 415).await;
    check("", None, 415).await;
    let padded = |bytes: usize| format!("{TEN}{}", " ".repeat(bytes - TEN.len()));
    assert_eq!(bank.submit("deposits", 1, &padded(64 * 1024)).await.status, 202);
    assert_eq!(bank.submit("deposits", 1, &padded(64 * 1024 + 1)).await.problem(), (413, "body_too_large"));
}

#[actix_web::test]
async fn a_body_is_text_in_its_charset_after_one_byte_order_mark() {
    let bank = TestBank::with_account().await;
    let xml = "<?xml version=\"1.0\" encoding=\"utf8\"?><TransactionRequest xmlns=\"urn:postonce:xml:1\"><Amount>10.00</Amount>\
               <Currency>EUR</Currency></TransactionRequest>";
    let send = async |number: u32, content_type: &'static str, body: &str| {
        let request = submission("deposits", number, body).insert_header(("content-type", content_type));
        bank.call_as_shop(request).await
    };
    for (number, content_type, body) in [(1, "application/json", TEN), (2, "application/xml", xml)] {
        assert_eq!(send(number, content_type, body).await.status, 202);
        let marked = format!("\u{feff}{body}");
        let again = send(number, content_type, &marked).await;
        assert_eq!((again.status, again.header("idempotent-replayed")), (202, Some("true")), "{again:?}");
        let refused = send(3, content_type, &format!("\u{feff}{marked}")).await;
        assert_eq!(refused.status, 400, "{refused:?}");
        assert!(refused.text.contains("at most one byte order mark"), "{refused:?}");
    }
    let opened = ACCOUNT.replace("77aa", "77ab");
    assert_eq!(bank.put(&opened, "\u{feff}{\"currency\":\"EUR\"}").await.status, 201);
    let accented = TEN.replace("invoice", "facturé");
    let refused = send(3, "application/json; charset=us-ascii", &accented).await;
    assert_eq!(refused.problem(), (400, "body_invalid"));
    assert!(refused.text.contains("US-ASCII"), "{refused:?}");
    let xml =
        xml.replace("utf8", "us-ascii").replace("</Currency>", "</Currency><Reference>facturé</Reference>");
    let refused = send(3, "application/xml", &xml).await;
    assert!(refused.status == 400 && refused.text.contains("declares US-ASCII"), "{refused:?}");
}

#[actix_web::test]
async fn a_retry_can_write_the_numbers_of_its_own_members_in_another_form() {
    let bank = TestBank::with_account().await;
    let with =
        |fee: &str| format!(r#"{{"amount":"10","currency":"EUR","fee":{fee},"all":[{{"of":{fee}}}]}}"#);
    for (number, (first, others)) in (1..).zip([
        ("50", ["50.0", "5e1", "500E-1"]),
        ("0", ["-0", "0.0", "-0.0"]),
        ("1e17", ["100000000000000000", "1E+17", "10e16"]),
        ("0.5", ["0.50", "5e-1", "5.0E-1"]),
    ]) {
        assert_eq!(bank.submit("deposits", number, &with(first)).await.status, 202);
        for other in others {
            let again = bank.submit("deposits", number, &with(other)).await;
            assert_eq!(
                (again.status, again.header("idempotent-replayed")),
                (202, Some("true")),
                "{first} {other}"
            );
        }
        let reused = bank.submit("deposits", number, &with("7.25")).await;
        assert_eq!(reused.problem(), (422, "idempotency_key_reused"));
    }
    // What is refused for its precision stays refused.
    for inexact in ["1e18", "0.12345678901234567890", "123456789012345678.0", "1e-400"] {
        let refused = bank.submit("deposits", 9, &with(inexact)).await;
        assert_eq!(refused.problem(), (422, "validation_failed"), "{inexact}");
    }
}

#[actix_web::test]
async fn message_ids_of_partners_are_independent() {
    let bank = TestBank::with_account().await;
    let other = NewKey::random();
    bank.add_key(&other, "other", Scope::ALL).await;
    bank.submit("deposits", 1, TEN).await;
    let path = format!("{ACCOUNT}/transactions/{}", id(1));
    let read = || with_key(actix_web::test::TestRequest::get().uri(&path), &other);
    assert_eq!(bank.call(read()).await.problem(), (404, "transaction_unknown"));
    let five = TEN.replace("10.00", "5.00");
    let answer = bank.call(with_key(submission("deposits", 1, &five), &other)).await;
    assert_eq!((answer.status, answer.header("idempotent-replayed")), (202, None));
    bank.post_all().await;
    assert_eq!(bank.call(read()).await.body["amount"], "5.00");
    assert_eq!(bank.get(&path).await.body["amount"], "10.00");
    assert_eq!(bank.get(ACCOUNT).await.body["balance"], "15.00");
}

#[actix_web::test]
async fn a_rejected_transaction_is_an_error_for_clients_that_ask_for_it() {
    let bank = TestBank::with_account().await;
    let strict = |format: &'static str| {
        let request = submission("withdrawals", 1, TEN).insert_header(("prefer", "wait=0, handling=strict"));
        request.insert_header(("accept", format))
    };
    let accepted = bank.call_as_shop(strict("application/json")).await;
    assert_eq!((accepted.status, accepted.header("preference-applied")), (202, Some("handling=strict")));
    bank.post_all().await;
    let rejected = bank.call_as_shop(strict("application/json")).await;
    assert_eq!(rejected.problem(), (422, "transaction_rejected"), "{rejected:?}");
    assert_eq!(rejected.body["reason"], "insufficient_funds");
    let path = format!("{ACCOUNT}/transactions/{}", id(1));
    let headers = ["location", "idempotent-replayed", "preference-applied"].map(|name| rejected.header(name));
    assert_eq!(headers, [Some(path.as_str()), Some("true"), Some("handling=strict")]);
    let xml = bank.call_as_shop(strict("application/xml")).await;
    assert_eq!((xml.status, xml.header("location")), (422, Some(path.as_str())));
    assert!(xml.text.contains("<reason>insufficient_funds</reason>"), "{xml:?}");
    // Without the preference it is the result of a successful request.
    let lenient = bank.submit("withdrawals", 1, TEN).await;
    assert_eq!((lenient.status, &lenient.body["status"]), (200, &json!("rejected")));
    bank.submit("deposits", 2, TEN).await;
    bank.post_all().await;
    let posted = submission("deposits", 2, TEN).insert_header(("prefer", "handling=strict"));
    assert_eq!(bank.call_as_shop(posted).await.status, 200);
}

#[actix_web::test]
async fn a_member_that_looks_like_a_known_one_is_refused_for_a_new_id_only() {
    let bank = TestBank::with_account().await;
    let misspelt = r#"{"amount":"10","currency":"EUR","Reference":"invoice 7","metdata":{},"own":1}"#;
    let refused = bank.submit("deposits", 1, misspelt).await;
    assert_eq!(refused.problem(), (422, "validation_failed"));
    assert_eq!(refused.fields(), ["Reference", "metdata"]);
    assert!(refused.text.contains("did you mean metadata?"), "{refused:?}");
    assert_eq!(bank.queued().await, 0);
    // As a version accepted it that does not know these members.
    let members = UnknownMembers::of_canonical(r#"{"Reference":"invoice 7","metdata":{},"own":1}"#);
    let details = Details::new(None, BTreeMap::new(), &members);
    let amount = Amount::parse("10", Currency::parse("EUR").unwrap()).unwrap();
    let instruction = Instruction { kind: TransactionKind::Deposit, amount, details };
    let mut ids = ACCOUNT.split('/').skip(3).step_by(2);
    let (user, account) = (ids.next().unwrap().parse().unwrap(), ids.next().unwrap().parse().unwrap());
    let (partner, message) = (PartnerId::parse("shop").unwrap(), id(1).parse().unwrap());
    let key = TransactionKey { account: AccountKey { user, account }, partner, message };
    let _accepted = bank.app.acceptor.submit(key, instruction, Origin::default(), None).await.unwrap();
    let replayed = bank.submit("deposits", 1, misspelt).await;
    assert_eq!(
        (replayed.status, replayed.header("idempotent-replayed")),
        (202, Some("true")),
        "{replayed:?}"
    );
    let other = bank.submit("deposits", 1, &misspelt.replace("10", "11")).await;
    assert_eq!(other.problem(), (422, "idempotency_key_reused"));
}

#[actix_web::test]
async fn own_members_are_returned_in_a_member_of_their_own() {
    let bank = TestBank::with_account().await;
    let body = r#"{"amount":"10","currency":"EUR","purpose":{"a":1.50}}"#;
    let answer = bank.submit("deposits", 1, body).await;
    assert_eq!(answer.body["unknown_members"], json!({"purpose": {"a": 1.50}}));
    assert_eq!(answer.body["purpose"], json!({"a": 1.50}), "and beside the known members");
    let refused = bank.submit("deposits", 2, &body.replace("purpose", "unknown_members")).await;
    assert_eq!((refused.problem(), refused.fields()), ((422, "validation_failed"), vec!["unknown_members"]));
}
