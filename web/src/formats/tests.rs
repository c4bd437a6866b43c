//! Properties of all formats: written documents can be parsed without loss, and the same request gives the same instruction
//! in every format.

use std::collections::BTreeMap;

use actix_web::web::Bytes;
use postonce_shared::messaging::xml::{self as trees, Element, Node};
use postonce_shared::testing::prelude::*;
use proptest::prelude::*;
use proptest::{collection, option, sample};
use serde_json::{Map, Value, json};

use super::table::{Table, Tables, members_of};
use super::*;
use crate::api::translate::{self, InboundDocument};

const TABLES: [&Tables; 2] = [&xml::CANONICAL, &wwi::WWI];
const DEPOSIT: Shape = Shape::Submission(TransactionKind::Deposit);

/// Generates texts that XML can represent and that are valid references.
fn text() -> impl Strategy<Value = String> {
    let allowed =
        |text: &String| !text.contains(|c: char| c.is_control() || ('\u{FFFE}'..='\u{FFFF}').contains(&c));
    prop_oneof!["[ <>&\"'a-z\\]]{1,12}", "\\PC{1,20}"].prop_filter("XML can hold it", allowed)
}

fn id() -> impl Strategy<Value = String> {
    any::<u128>().prop_map(|number| uuid::Uuid::from_u128(number).to_string())
}

fn amount() -> impl Strategy<Value = String> {
    prop_oneof!["(0|[1-9][0-9]{0,14})", "(0|[1-9][0-9]{0,12})\\.[0-9]{1,4}"]
}

fn balance() -> impl Strategy<Value = String> {
    // Negative zero does not exist.
    (any::<bool>(), amount()).prop_map(|(negative, amount)| {
        let is_zero = amount.chars().all(|c| c == '0' || c == '.');
        if negative && !is_zero { format!("-{amount}") } else { amount }
    })
}

/// Generates times within a century, many of them near changes to and from daylight saving time.
fn time() -> impl Strategy<Value = String> {
    let folds = sample::select(vec![1_793_523_600_000_i64, 1_772_964_000_000, 1_762_070_400_000]);
    let near = (folds, -7_200_000..7_200_000_i64).prop_map(|(fold, off)| fold.saturating_add(off));
    prop_oneof![0..3_155_760_000_000_i64, near].prop_map(|ms| Timestamp::from_unix_ms(ms).to_string())
}

fn metadata() -> impl Strategy<Value = BTreeMap<String, String>> {
    collection::btree_map(text(), prop_oneof![Just(String::new()), text()], 0..4)
}

fn elements() -> impl Strategy<Value = Vec<String>> {
    let element = (text(), text()).prop_map(|(value, content)| {
        let name = |local: &str| trees::Name {
            prefix: "p".to_owned(),
            namespace: "urn:other".to_owned(),
            local: local.to_owned(),
        };
        let attribute = trees::Attribute { name: name("kind"), value };
        let inner = Element::new("urn:third", "inner").with_text(&content);
        let outer = Element {
            name: name("note"),
            declarations: Vec::new(),
            attributes: vec![attribute],
            children: Vec::new(),
        };
        trees::write(&outer.with(inner))
    });
    collection::vec(element, 0..3)
}

fn transaction() -> impl Strategy<Value = wire::Transaction> {
    let kind = sample::select(vec!["deposit", "withdrawal"]);
    let names = (id(), id(), id(), kind, amount(), "[A-Z]{3}");
    let content = (option::of(text()), metadata(), time(), elements());
    let posted = ("[0-9]{2,10}", any::<u64>(), balance(), time()).prop_map(Some);
    let reasons = [
        "insufficient_funds",
        "account_closed",
        "account_frozen",
        "account_unknown",
        "currency_mismatch",
        "amount_out_of_range",
        "discarded",
    ];
    let rejected = (sample::select(reasons.to_vec()), time()).prop_map(Some);
    let outcome = prop_oneof![
        Just((None, None)),
        posted.prop_map(|posted| (posted, None)),
        rejected.prop_map(|rejected| (None, rejected))
    ];
    (names, content, outcome).prop_map(|(names, content, (posted, rejected))| {
        let (message_id, user_id, account_id, r#type, amount, currency) = names;
        let (reference, metadata, accepted_at, unknown_elements) = content;
        let status = match (&posted, &rejected) {
            (Some(_), _) => "posted",
            (None, Some(_)) => "rejected",
            (None, None) => "accepted",
        };
        let (order_number, sequence, balance_after, posted_at) = match posted {
            None => (None, None, None, None),
            Some((number, sequence, balance, at)) => (Some(number), Some(sequence), Some(balance), Some(at)),
        };
        let (reason, rejected_at) = rejected.unzip();
        // Not written to XML, where clients could confuse unknown JSON members with known elements.
        let unknown_members = wire::RawMembers::new(r#"{"x":[1],"":["<a/>"]}"#);
        wire::Transaction {
            message_id,
            user_id,
            account_id,
            r#type: r#type.into(),
            amount,
            currency,
            status: status.into(),
            reference,
            metadata,
            accepted_at,
            order_number,
            sequence,
            balance_after,
            posted_at,
            reason: reason.map(Into::into),
            rejected_at,
            partner_id: None,
            flattened_members: unknown_members.clone(),
            unknown_members,
            unknown_elements,
        }
    })
}

fn account() -> impl Strategy<Value = wire::Account> {
    let holder =
        (text(), text()).prop_map(|(given_name, family_name)| wire::Holder { given_name, family_name });
    let money = (balance(), amount(), amount());
    let rest = (sample::select(vec!["open", "frozen", "closed"]), any::<u64>(), time(), option::of(holder));
    (id(), id(), "[A-Z]{3}", money, rest).prop_map(|(user_id, account_id, currency, money, rest)| {
        let ((balance, available, overdraft_limit), (status, version, opened_at, holder)) = (money, rest);
        wire::Account {
            user_id,
            account_id,
            currency,
            status: status.into(),
            balance,
            available,
            overdraft_limit,
            version,
            opened_at,
            holder,
        }
    })
}

fn problem() -> impl Strategy<Value = wire::Problem> {
    let violation = (text(), text()).prop_map(|(field, message)| wire::Violation { field, message });
    let reason = option::of(sample::select(RejectReason::ALL.map(RejectReason::code).to_vec()));
    (text(), text(), reason, collection::vec(violation, 0..3)).prop_map(
        |(r#type, detail, reason, violations)| {
            let (title, code) = ("A title".into(), "a_code".into());
            let reason = reason.map(Into::into);
            wire::Problem {
                r#type,
                title,
                status: 422,
                detail,
                code,
                reason,
                violations,
                request_id: None,
                trace_id: None,
            }
        },
    )
}

fn document() -> impl Strategy<Value = Document> {
    prop_oneof![
        transaction().prop_map(Document::from),
        account().prop_map(Document::from),
        problem().prop_map(Document::from),
        (collection::vec(transaction(), 0..3), option::of("[a-z]{1,9}")).prop_map(
            |(transactions, next_cursor)| { wire::TransactionPage { transactions, next_cursor }.into() }
        ),
        (collection::vec(account(), 0..3), option::of("[a-z]{1,9}"))
            .prop_map(|(accounts, next_cursor)| { wire::AccountPage { accounts, next_cursor }.into() }),
    ]
}

/// Removes nulls, empty objects and empty lists, which are equal to absent members.
fn present(value: Value) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::Object(members) => {
            let present = members.into_iter().filter_map(|(name, value)| Some((name, present(value)?)));
            Some(Value::Object(present.collect::<Map<_, _>>()))
                .filter(|it| it.as_object().is_some_and(|it| !it.is_empty()))
        }
        Value::Array(items) if items.is_empty() => None,
        Value::Array(items) => Some(items.into_iter().filter_map(present).collect()),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => Some(value),
    }
}

fn parsed(bytes: &[u8]) -> Element {
    trees::read(bytes, &XmlLimits::default())
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(bytes)))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn written_documents_can_be_parsed_without_loss(document in document()) {
        for format in TABLES {
            let root = parsed(&format.write(&document));
            let table = format.of(document.shape());
            prop_assert!(root.is(table.namespace, table.root));
            let (members, violations) = table.read(&root).into_object("");
            prop_assert!(violations.is_empty(), "{:?}", violations);
            let expected = members_of(&document);
            prop_assert_eq!(present(Value::Object(members)), present(Value::Object(expected)));
        }
    }

    #[test]
    fn the_same_request_gives_the_same_instruction_in_every_format(
        kind in sample::select(vec![TransactionKind::Deposit, TransactionKind::Withdrawal]),
        minor in 1..10_000_000_i64,
        reference in option::of(text()),
        metadata in metadata(),
        elements in elements(),
    ) {
        let amount = format!("{}.{:02}", minor / 100, minor % 100);
        let mut members = json!({"amount": amount, "currency": "EUR", "metadata": metadata, "type": kind.code()});
        members["reference"] = reference.into();
        let members = members.as_object().unwrap().clone();
        let mut body = members.clone();
        body.remove("type");
        let plain = instruction(&json::Json, kind, serde_json::to_vec(&body).unwrap());
        let read: Vec<_> = TABLES.iter().map(|format| instruction(*format, kind, request(format, kind, &members, &[]))).collect();
        for (instruction, format) in read.iter().zip(TABLES) {
            prop_assert_eq!(instruction.as_ref().ok(), plain.as_ref().ok(), "{}", format.name);
        }
        let kept = TABLES.map(|format| instruction(format, kind, request(format, kind, &members, &elements)).ok());
        prop_assert_eq!(&kept[0], &kept[1]);
        if let (Some(with), Ok(without)) = (&kept[0], &plain) {
            prop_assert_eq!(with.matches(&without.fingerprint()), elements.is_empty());
        }
    }
}

/// Writes a request as a partner would, with elements of other namespaces.
fn request(
    format: &Tables,
    kind: TransactionKind,
    members: &Map<String, Value>,
    elements: &[String],
) -> Vec<u8> {
    let mut root = format.of(Shape::Submission(kind)).write(members);
    root.children.extend(elements.iter().map(|element| Node::Serialized(element.clone())));
    trees::write(&root).into_bytes()
}

fn instruction(
    format: &'static dyn Format,
    kind: TransactionKind,
    body: Vec<u8>,
) -> Result<Instruction, String> {
    let document = InboundDocument::of(format, Bytes::from(body), XmlLimits::default());
    translate::instruction(kind, &document).map_err(|error| violations_of(&error))
}

/// Returns the code and the violations of an error as one text.
fn violations_of(error: &ApiError) -> String {
    let problem = error.problem();
    let violations = problem.violations.iter().map(|it| format!("{} {}", it.field, it.message));
    std::iter::once(problem.code.clone().into_owned()).chain(violations).collect::<Vec<_>>().join("; ")
}

fn refused(format: &'static Tables, inner: &str, expected: &str) {
    let table: &Table = format.of(DEPOSIT);
    let body = format!("<{0} xmlns=\"{1}\">{inner}</{0}>", table.root, table.namespace);
    let refusal = instruction(format, TransactionKind::Deposit, body.into_bytes());
    assert_eq!(refusal, Err(format!("validation_failed; {expected}")), "{inner}");
}

#[test]
fn every_xml_format_is_tested_and_has_a_schema() {
    let names: Vec<&str> = FORMATS.iter().filter(|it| it.is_xml()).map(|it| it.name()).collect();
    assert_eq!(names, TABLES.map(|table| table.name));
    for shape in [DEPOSIT, Shape::Problem] {
        for table in TABLES.map(|format| format.of(shape)) {
            let target = format!("targetNamespace=\"{}\"", table.namespace);
            assert!(
                postonce_schemas::XSDS.iter().any(|(_, xsd)| xsd.contains(&target)),
                "no XSD has {target}"
            );
        }
    }
}

#[test]
fn violations_use_the_field_names_of_the_format() {
    let check = |inner: &str, expected: &str| refused(&xml::CANONICAL, inner, expected);
    let money = "<Amount>1.00</Amount><Currency>EUR</Currency>";
    check("<Currency>EUR</Currency>", "Amount is missing; it must be a string such as \"12.50\"");
    check("<Amount>0.00</Amount><Currency>EUR</Currency>", "Amount must be greater than zero");
    check("<Amount> 1.00</Amount><Currency>EUR</Currency>", "Amount must be a decimal number such as 12.50");
    check(&format!("{money}<Amount>1.00</Amount>"), "Amount must not occur more than once");
    check(&format!("{money}<Status/>"), "Status is not a known field");
    check(&format!("{money}<UnknownElements/>"), "UnknownElements is not a known field");
    check(&format!("{money}<x xmlns=\"\"/>"), "x must be in the namespace urn:postonce:xml:1");
    check(&format!("{money}text"), "TransactionRequest must not contain text between its elements");
    check("<Amount a=\"1\">1.00</Amount><Currency>EUR</Currency>", "Amount must not have the attribute a");
    check("<Amount><b/></Amount><Currency>EUR</Currency>", "Amount must contain text only");
    check(&format!("{money}<Reference></Reference>"), "Reference must have 1 to 140 characters");
    check(
        &format!("{money}<Metadata><Entry><Name>a</Name></Entry></Metadata>"),
        "Metadata must contain only elements Entry, each with Name and Value",
    );
    let entry = "<Entry><Name>a</Name><Value>b</Value></Entry>";
    check(
        &format!("{money}<Metadata>{entry}{entry}</Metadata>"),
        "Metadata must not contain the Name a twice",
    );

    let check = |inner: &str, expected: &str| refused(&wwi::WWI, inner, expected);
    let value = |sign: &str, digits: &str, decimals: &str| {
        format!(
            "<Value><Money><Sign>{sign}</Sign><Digits>{digits}</Digits><Decimals>{decimals}</Decimals></Money>\
                 <CurrencyCode>EUR</CurrencyCode></Value>"
        )
    };
    check(&value("-", "100", "2"), "Value/Money describes a withdrawal, but this is a deposit");
    check(&value("+", "0", "2"), "Value/Money must be greater than zero");
    check(&value("", "1", "2"), "Value/Money must have the Sign + or -");
    check(
        &value("+", "01", "2"),
        "Value/Money must have Digits that are a whole number of at most 30 digits",
    );
    check(&value("+", "1", "9"), "Value/Money must have Decimals from 0 to 4");
    check(
        &value("+", "1", "2").replace("<Sign>+</Sign>", ""),
        "Value/Money must contain the elements Sign, Digits, Decimals, each exactly once and with text only",
    );
    check(&value("+", "1", "3"), "Value/Money has more decimals than EUR has (2)");
    let surplus = format!("{}<Surplus/>", value("+", "1", "2"));
    check(&surplus, "Surplus is not a known field");
    check(
        "<Value><CurrencyCode>EUR</CurrencyCode></Value>",
        "Value/Money is missing; it must be a string such as \"12.50\"",
    );
}

#[test]
fn elements_of_other_namespaces_are_kept_only_where_they_are_allowed() {
    let read = |inner: &str| {
        let body = format!(
            "<TransactionRequest xmlns=\"urn:postonce:xml:1\" xmlns:x=\"urn:x\">{inner}</TransactionRequest>"
        );
        instruction(&xml::CANONICAL, TransactionKind::Deposit, body.into_bytes())
    };
    let found = read("<x:a/><Amount>1.00</Amount><x:b k='1'>t</x:b><Currency>EUR</Currency>").unwrap();
    assert_eq!(
        found.details.unknown_members(),
        r#"["<x:a xmlns:x=\"urn:x\"></x:a>","<x:b xmlns:x=\"urn:x\" k=\"1\">t</x:b>"]"#
    );
    for reserved in ["urn:postonce:soap:1", "urn:wideworldimporters:account:1", "urn:ietf:rfc:7807"] {
        let forged = format!(
            "<Amount>1.00</Amount><Currency>EUR</Currency><f:State xmlns:f=\"{reserved}\">BOOKED</f:State>"
        );
        let refusal = read(&forged).unwrap_err();
        assert!(refusal.contains("State must not be in a namespace that the service uses"), "{refusal}");
    }
    let large =
        read(&format!("<Amount>1.00</Amount><Currency>EUR</Currency><x:a>{}</x:a>", "y".repeat(2048)));
    assert!(large.unwrap_err().contains("unknown members of more than 2048 bytes"));
    let inside = read("<Amount>1.00</Amount><Currency>EUR</Currency><Metadata><x:a/></Metadata>");
    assert!(inside.unwrap_err().starts_with("validation_failed; Metadata must contain only elements Entry"));
}

#[test]
fn unknown_elements_of_the_same_namespace_are_kept_and_set_apart_in_answers() {
    let read = |inner: &str| {
        let body = format!(
            "<TransactionRequest xmlns=\"urn:postonce:xml:1\"><Amount>1.00</Amount>{inner}<Currency>EUR</Currency>\
             </TransactionRequest>"
        );
        instruction(&xml::CANONICAL, TransactionKind::Deposit, body.into_bytes()).unwrap()
    };
    let (plain, memo) = (read(""), read("<Memo k=\"1\">a<b/></Memo><x xmlns=\"urn:x\"/>"));
    assert_eq!(
        memo.details.unknown_members(),
        r#"["<Memo xmlns=\"urn:postonce:xml:1\" k=\"1\">a<b></b></Memo>","<x xmlns=\"urn:x\"></x>"]"#
    );
    assert!(!memo.matches(&plain.fingerprint()));
    assert!(!memo.matches(&read("<Memo k=\"2\">a<b/></Memo><x xmlns=\"urn:x\"/>").fingerprint()));
    assert!(memo.matches(&read("<Memo k=\"1\">a<b/></Memo><x xmlns=\"urn:x\"/>").fingerprint()));

    let mut members = Map::new();
    members.insert("status".to_owned(), "accepted".into());
    let elements: Value = serde_json::from_str(memo.details.unknown_members()).unwrap();
    members.insert(String::new(), elements.clone());
    let written = trees::write(&xml::TRANSACTION.write(&members));
    let apart = "<UnknownElements><Memo xmlns=\"urn:postonce:xml:1\" k=\"1\">a<b></b></Memo></UnknownElements>\
                 <x xmlns=\"urn:x\"></x></Transaction>";
    assert!(written.ends_with(apart), "{written}");
    let (again, violations) = xml::TRANSACTION.read(&parsed(written.as_bytes())).into_object("");
    assert_eq!((again.get(""), violations.len()), (Some(&elements), 0));
}
