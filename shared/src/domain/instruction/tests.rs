use super::*;
use crate::domain::money::Currency;

fn instruction(kind: TransactionKind, amount: &str, code: &str, details: Details) -> Instruction {
    let amount = Amount::parse(amount, Currency::parse(code).unwrap()).unwrap();
    Instruction { kind, amount, details }
}

fn details(reference: Option<&str>, metadata: &[(&str, &str)], unknown: &str) -> Details {
    let metadata = metadata.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    let unknown = UnknownMembers::of_canonical(unknown);
    Details::new(reference.map(str::to_owned), metadata, &unknown)
}

#[test]
fn every_part_of_the_content_changes_the_fingerprint() {
    use TransactionKind::{Deposit, Withdrawal};
    let none = || details(None, &[], "{}");
    let all = [
        instruction(Deposit, "1.00", "EUR", none()),
        instruction(Withdrawal, "1.00", "EUR", none()),
        instruction(Deposit, "1.01", "EUR", none()),
        instruction(Deposit, "1.00", "USD", none()),
        instruction(Deposit, "100", "JPY", none()),
        instruction(Deposit, "1.00", "EUR", details(Some("a"), &[], "{}")),
        instruction(Deposit, "1.00", "EUR", details(None, &[("a", "b")], "{}")),
        instruction(Deposit, "1.00", "EUR", details(None, &[("ab", "")], "{}")),
        instruction(Deposit, "1.00", "EUR", details(None, &[], r#"{"a":"b"}"#)),
        instruction(Deposit, "1.00", "EUR", details(None, &[], r#"{"a":null}"#)),
        instruction(Deposit, "1.00", "EUR", details(None, &[], r#"["<a></a>"]"#)),
    ];
    for (i, one) in all.iter().enumerate() {
        for (j, other) in all.iter().enumerate() {
            assert_eq!(one.matches(&other.fingerprint()), i == j, "{i} {j}");
        }
    }
}

#[test]
fn the_fingerprint_is_of_the_content_and_not_of_the_bytes() {
    use TransactionKind::Deposit;
    let one = instruction(Deposit, "1", "EUR", details(None, &[], r#"{"b":[1,{"y":1,"x":2}],"a":"ü"}"#));
    let other = instruction(
        Deposit,
        "1.00",
        "EUR",
        details(None, &[], "{\"a\":\"\\u00fc\", \"b\": [1, {\"x\":2,\"y\":1}]}"),
    );
    assert_eq!(one.fingerprint(), other.fingerprint());
    assert_eq!(Fingerprint::parse(&one.fingerprint().to_string()), Some(one.fingerprint()));
}

#[test]
fn a_number_has_one_fingerprint_in_every_form() {
    use TransactionKind::Deposit;
    let of = |fee: &str| {
        instruction(Deposit, "1", "EUR", details(None, &[], &format!("{{\"fee\":{fee},\"all\":[{fee}]}}")))
    };
    for (one, others) in [
        ("50", ["50.0", "5e1", "50.00", "500E-1"].as_slice()),
        ("0", &["-0", "0.0", "-0.0", "0e7"]),
        ("100000000000000000", &["1e17", "1.0E+17", "100000000000000000.0"]),
        ("1.5", &["1.50", "15e-1"]),
        ("-7", &["-7.0", "-70e-1"]),
    ] {
        for other in others {
            assert!(of(other).matches(&of(one).fingerprint()), "{one} {other}");
            assert!(of(one).matches(&of(other).fingerprint()), "{one} {other}");
        }
        assert_eq!(of(one).details.unknown_members(), format!("{{\"all\":[{one}],\"fee\":{one}}}"));
    }
    for (one, other) in [("50", "50.1"), ("0", "1"), ("100000000000000001", "1e17"), ("1", "-1")] {
        assert!(!of(other).matches(&of(one).fingerprint()), "{one} {other}");
    }
}

#[test]
fn version_1_never_changes() {
    // Stored rows contain this value for years, so it must not change.
    let one = instruction(
        TransactionKind::Deposit,
        "125.50",
        "EUR",
        details(Some("invoice 7"), &[("shop", "12")], r#"{"x":1}"#),
    );
    assert_eq!(
        one.fingerprint().to_string(),
        "1:14109c07dce5cfe265b1d86767ba0aa5bc9b91a87bf9ec96306b0d66e6ea7406"
    );
}

#[test]
fn unknown_members_are_returned_unchanged() {
    for text in ["", r#"{"a":[1,{"b":"c"}]}"#, r#"["<x:a xmlns:x=\"u\">\"&amp;</x:a>","<b></b>"]"#] {
        assert_eq!(UnknownMembers::of_canonical(text).canonical(), text);
    }
    assert_eq!(UnknownMembers::of_canonical("{"), UnknownMembers::default());
}

#[test]
fn a_fingerprint_of_an_unknown_version_never_matches() {
    let one = instruction(TransactionKind::Deposit, "1", "EUR", Details::default());
    let newer = one.fingerprint().to_string().replacen("1:", "2:", 1);
    assert!(!one.matches(&Fingerprint::parse(&newer).unwrap()));
}
