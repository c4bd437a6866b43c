//! Documents of batches as spreadsheets and editors write them, and documents that are not whole.

use actix_web::test::TestRequest;
use serde_json::json;

use super::test_bank::{Answer, TestBank, id};

const MARK: &str = "\u{feff}";
const HEADER: &str = "user_id,account_id,message_id,type,currency,amount\r\n";
const USER: &str = "0b1c6f0a-54f2-4f0c-9c64-2f4b6a3f0d11";
const ACCOUNT: &str = "77aa0b9e-7c2f-4c35-8f0d-0a4f6f1f2e22";

fn csv(amounts: &[&str]) -> String {
    let record =
        |(number, amount): (u32, &&str)| format!("{USER},{ACCOUNT},{},deposit,EUR,{amount}\r\n", id(number));
    format!("{HEADER}{}", (100..).zip(amounts).map(record).collect::<String>())
}

fn ndjson(fee: &str) -> String {
    let line = json!({
        "user_id": USER, "account_id": ACCOUNT, "message_id": id(100), "type": "deposit", "amount": "12.50",
        "currency": "EUR"
    });
    line.to_string().replace('{', &format!("{{\"fee\":{fee},")) + "\n"
}

async fn submit(
    bank: &TestBank,
    number: u32,
    content_type: &'static str,
    query: &str,
    document: &str,
) -> Answer {
    let request = TestRequest::post()
        .uri(&format!("/v1/batches{query}"))
        .insert_header(("content-type", content_type))
        .insert_header(("idempotency-key", id(number)))
        .set_payload(document.to_owned());
    bank.call_as_shop(request).await
}

#[actix_web::test]
async fn a_cell_that_is_cut_off_or_followed_by_text_refuses_the_batch() {
    let bank = TestBank::with_account().await;
    let whole = submit(&bank, 1, "text/csv", "", &csv(&["\"1250.00\"", "2.00"])).await;
    assert_eq!((whole.status, &whole.body["items"]), (202, &json!(2)), "{whole:?}");
    let cut = |document: String, from: &str| document.split(from).next().unwrap().to_owned();
    for (document, place) in [
        (cut(csv(&["2.00", "\"1250.00\""]), "50.00"), "Line 3, column 124: a quoted cell begins"),
        (csv(&["2.00", "\"1\"000"]), "Line 3, column 127: text after the closing quote"),
        (csv(&["\"12\".50", "2.00"]), "Line 2, column 128: text after the closing quote"),
        (csv(&["2.00", "12\"\".50"]), "Line 3, column 126: a quote within a cell"),
        (csv(&["2.00\r", "2.00"]), "Line 2, column 128: a carriage return"),
    ] {
        for (media_type, query) in [
            ("text/csv", ""),
            ("text/csv", "?on-invalid=skip"),
            ("application/octet-stream", "?on-invalid=skip"),
        ] {
            let refused = submit(&bank, 2, media_type, query, &document).await;
            assert_eq!(refused.problem(), (400, "body_invalid"), "{document}");
            assert!(refused.text.contains(place), "{document}: {refused:?}");
        }
    }
    // Nothing was kept of them.
    assert_eq!(bank.get(&format!("/v1/batches/{}", id(2))).await.problem(), (404, "batch_unknown"));
}

#[actix_web::test]
async fn one_byte_order_mark_before_a_document_is_no_part_of_it() {
    let bank = TestBank::with_account().await;
    let documents = [("text/csv", csv(&["12.50"])), ("application/x-ndjson", ndjson("1"))];
    for (number, (media_type, document)) in (1..).zip(&documents) {
        // The first payment is not left out.
        let query = "?on-invalid=skip";
        let accepted = submit(&bank, number, media_type, query, &format!("{MARK}{document}")).await;
        assert_eq!(
            (accepted.status, &accepted.body["items"], &accepted.body["invalid"]),
            (202, &json!(1), &json!(0))
        );
        for (media_type, document) in
            [(media_type, document.clone()), (&"application/octet-stream", format!("{MARK}{document}"))]
        {
            let again = submit(&bank, number, media_type, query, &document).await;
            assert_eq!((again.status, again.header("idempotent-replayed")), (202, Some("true")), "{again:?}");
        }
        let twice = submit(&bank, 3, media_type, query, &format!("{MARK}{MARK}{document}")).await;
        assert_eq!(twice.problem(), (400, "body_invalid"));
        assert!(twice.text.contains("at most one byte order mark"), "{twice:?}");
    }
}

#[actix_web::test]
async fn a_repeated_batch_can_write_numbers_in_another_form() {
    let bank = TestBank::with_account().await;
    let submit = async |fee: &str| submit(&bank, 1, "application/x-ndjson", "", &ndjson(fee)).await;
    assert_eq!(submit("50").await.status, 202);
    for fee in ["50.0", "5e1", "50"] {
        let again = submit(fee).await;
        assert_eq!(
            (again.status, again.header("idempotent-replayed")),
            (202, Some("true")),
            "{fee}: {again:?}"
        );
    }
    assert_eq!(submit("51").await.problem(), (422, "idempotency_key_reused"));
}

#[actix_web::test]
async fn the_separator_and_the_charset_of_a_spreadsheet_are_named() {
    let bank = TestBank::with_account().await;
    let document = csv(&["12.50"]);
    for (separator, named) in [
        (";", "separated by ;, expected ,"),
        ("; ", "separated by ;, expected ,"),
        ("|", "separated by |, expected ,"),
        ("\t", "separated by tabs, expected ,"),
    ] {
        let refused = submit(&bank, 1, "text/csv", "", &document.replace(',', separator)).await;
        assert_eq!(refused.problem(), (400, "body_invalid"));
        assert!(refused.text.contains(named), "{refused:?}");
    }
    let dépôt = document.replace("deposit", "dépôt");
    let refused = submit(&bank, 1, "text/csv; charset=us-ascii", "?on-invalid=skip", &dépôt).await;
    assert_eq!(refused.problem(), (400, "body_invalid"));
    assert!(refused.text.contains("US-ASCII") && refused.text.contains("0xC3 at byte"), "{refused:?}");
    let refused = submit(&bank, 1, "text/csv; charset=windows-1252", "", &document).await;
    assert_eq!(refused.problem(), (415, "media_type_unsupported"));
    for (number, charset) in (1..).zip(["text/csv; charset=us-ascii", "text/csv; charset=\"utf8\""]) {
        assert_eq!(submit(&bank, number, charset, "", &document).await.status, 202, "{charset}");
    }
}
