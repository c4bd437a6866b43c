use actix_web::http::header::{HeaderMap, HeaderName, HeaderValue};
use postonce_shared::domain::batch::Tally;
use postonce_shared::domain::instruction::TransactionKind;
use postonce_shared::domain::money::{Amount, Currency};

use super::*;

fn headers(values: &[(&'static str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in values {
        headers.append(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
    }
    headers
}

#[test]
fn control_totals_are_compared_exactly() {
    let mut valid = Tally::default();
    let amount = |text: &str, code: &str| Amount::parse(text, Currency::parse(code).unwrap()).unwrap();
    valid.add(TransactionKind::Deposit, amount("9999999999999999.99", "EUR"));
    valid.add(TransactionKind::Withdrawal, amount("0.01", "EUR"));
    valid.add(TransactionKind::Deposit, amount("7", "JPY"));
    let check = |count: &str, sums: &str, expected: &[&str]| {
        let totals = ControlTotals::of(&headers(&[("batch-count", count), ("batch-sums", sums)])).unwrap();
        let found = totals.violations(3, &valid);
        let found: Vec<&str> = found.iter().map(|violation| violation.message.as_str()).collect();
        assert_eq!(found, expected, "{count} {sums}");
    };
    check("3", "EUR=10000000000000000.00, JPY=7", &[]);
    check("3", "JPY=7,EUR=10000000000000000", &[]);
    check("2", "EUR=10000000000000000.0,JPY=7", &["is 2, but the document has 3 items"]);
    check(
        "3",
        "EUR=9999999999999999.99, JPY=7",
        &["has 9999999999999999.99 EUR, but the items have 10000000000000000.00 EUR"],
    );
    check("3", "EUR=10000000000000000", &["has no sum for JPY, but the document has items in it"]);
    check("3", "EUR=10000000000000000, JPY=7, USD=1", &["has 1.00 USD, but the items have 0.00 USD"]);
    assert_eq!(ControlTotals::of(&headers(&[])).unwrap().violations(3, &valid), []);
}

#[test]
fn wrong_control_totals_are_named() {
    for (name, wrong) in [
        ("batch-count", "-1"),
        ("batch-count", "3.0"),
        ("batch-count", ""),
        ("batch-sums", "EUR"),
        ("batch-sums", "EUR=1,EUR=2"),
        ("batch-sums", "EUR=1.234"),
        ("batch-sums", "EUR=1."),
        ("batch-sums", "EUR=.5"),
        ("batch-sums", "EUR=-1"),
        ("batch-sums", "euro=1"),
        ("batch-sums", ""),
    ] {
        let error = ControlTotals::of(&headers(&[(name, wrong)])).unwrap_err();
        let fields: Vec<&str> = error.fields().collect();
        assert_eq!(fields.len(), 1, "{name}: {wrong}");
        assert!(fields[0].eq_ignore_ascii_case(name));
    }
}

#[test]
fn the_encoding_is_one_of_three() {
    let check = |values: &[&str], expected: Option<Encoding>| {
        let values: Vec<_> = values.iter().map(|value| ("content-encoding", *value)).collect();
        assert_eq!(Encoding::of(&headers(&values)).ok(), expected, "{values:?}");
    };
    check(&[], Some(Encoding::Identity));
    check(&["GZIP"], Some(Encoding::Gzip));
    check(&["zstd"], Some(Encoding::Zstd));
    check(&["br"], None);
    check(&["gzip, zstd"], None);
    check(&["gzip", "zstd"], None);
}
