//! The schemas of XML and the program, over random documents: what the program takes is valid, what is valid
//! it takes unless for a reason that no schema can see, and what it writes is valid.

use std::collections::BTreeMap;

use actix_web::web::Bytes;
use postonce_schemas::json as wire;
use postonce_shared::domain::ids::OrderNumber;
use postonce_shared::domain::instruction::TransactionKind;
use postonce_shared::domain::money::{
    AMOUNT_MINOR_UNITS_MAX, Amount, BALANCE_MINOR_UNITS_MAX, Balance, Currency,
};
use postonce_shared::domain::rejection::RejectReason;
use postonce_shared::domain::time::Timestamp;
use postonce_shared::xml::{self, Element, XmlLimits};
use postonce_tests::contracts::{schema_of, validate_xml};
use postonce_tests::samples::FORMATS;
use postonce_web::formats::table::Tables;
use postonce_web::formats::{Document, Format as _, Shape};
use postonce_web::translate::{self, InboundDocument};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use proptest::{collection, option, sample};

/// Random documents of each kind, in each format.
const CASES: usize = 300;
/// What the program says about documents that no schema can find fault with.
const BEYOND: [&str; 5] = [
    "is not a currency code of ISO 4217",
    "has more decimals than",
    "must be at most 999999999999999999 minor units",
    "2048 bytes",
    "but this is a deposit",
];

/// Text of the kinds that differ for somebody: what XML escapes or normalizes, controls, what is no letter,
/// characters of four bytes.
fn text() -> impl Strategy<Value = String> {
    let awkward = sample::select(vec![
        '<', '&', '>', '"', '\'', ' ', '\t', '\n', '\r', '\u{7f}', '\u{85}', '\u{9f}', '\u{a0}', '\u{2028}',
        '\u{200b}', '\u{feff}', '\u{fffd}', '\u{e000}', '語', '🦀',
    ]);
    let plain = || proptest::char::range('a', 'z');
    prop_oneof![
        6 => collection::vec(plain(), 1..20).prop_map(String::from_iter),
        3 => collection::vec(prop_oneof![12 => plain(), 1 => awkward], 0..12).prop_map(String::from_iter),
        1 => (138..144_usize, sample::select(vec!["x", "ü", "🦀"])).prop_map(|(count, unit)| unit.repeat(count)),
    ]
}

/// Numbers, most of them sums of some currency.
fn number() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => "(0|[1-9][0-9]{0,17})",
        6 => "(0|[1-9][0-9]{0,15})\\.[0-9]{1,4}",
        1 => "[0-9]{0,21}(\\.[0-9]{0,6})?",
        1 => sample::select(vec!["", " 1", "1 ", "-1", "+1", "1e3", "1,0", "٣", ".5", "5.", "00.1", "0.000", "1\n"])
            .prop_map(str::to_owned),
    ]
}

fn currency() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => sample::select(vec!["EUR", "JPY", "BHD", "CLF"]).prop_map(str::to_owned),
        1 => "[A-Za-z]{2,4}",
        1 => sample::select(vec!["EUR ", "", "XAU"]).prop_map(str::to_owned),
    ]
}

fn leaf(
    namespace: &'static str,
    name: &'static str,
    text: impl Strategy<Value = String> + 'static,
) -> Elements {
    text.prop_map(move |text| vec![Element::new(namespace, name).with_text(&text)]).boxed()
}

/// Elements that stand at a place: mostly one, sometimes none, rarely two.
type Elements = BoxedStrategy<Vec<Element>>;

fn sometimes(elements: Elements) -> Elements {
    prop_oneof![
        12 => elements.clone(),
        6 => Just(Vec::new()),
        1 => (elements.clone(), elements).prop_map(|(one, other)| [one, other].concat()),
    ]
    .boxed()
}

fn mostly(elements: Elements) -> Elements {
    prop_oneof![20 => elements.clone(), 1 => sometimes(elements)].boxed()
}

/// Elements in an element.
fn group(namespace: &'static str, name: &'static str, parts: Vec<Elements>) -> Elements {
    let parts = parts.into_iter().fold(Just(Vec::new()).boxed(), |all, part| {
        (all, part).prop_map(|(all, part): (Vec<Element>, Vec<Element>)| [all, part].concat()).boxed()
    });
    parts
        .prop_map(move |parts| vec![parts.into_iter().fold(Element::new(namespace, name), Element::with)])
        .boxed()
}

/// Elements that are not known: in namespaces of others, in none, in ours.
fn strangers(namespace: &'static str) -> Elements {
    let stranger = prop_oneof![
        4 => text().prop_map(|text| Element::new("urn:other", "note").with_text(&text)),
        1 => Just(Element::new("", "note")),
        1 => Just(Element::new(namespace, "note")),
    ];
    prop_oneof![9 => Just(Vec::new()), 1 => collection::vec(stranger, 1..3)].boxed()
}

fn pairs(namespace: &'static str, names: [&'static str; 4]) -> Elements {
    let [all, pair, name, value] = names;
    let name = mostly(leaf(namespace, name, prop_oneof![text(), "[ab]", "[a-z]{38,42}"]));
    let pair = group(namespace, pair, vec![name, mostly(leaf(namespace, value, text()))]);
    let some = prop_oneof![9 => collection::vec(pair.clone(), 0..4), 1 => collection::vec(pair, 19..22)];
    let some = some.prop_map(move |pairs| {
        vec![pairs.into_iter().flatten().fold(Element::new(namespace, all), Element::with)]
    });
    sometimes(some.boxed())
}

/// A request, its elements in the order of the schema.
fn request(format: &'static Tables, shape: Shape) -> Elements {
    let table = (format.of)(shape);
    let of = table.namespace;
    let (is_canonical, is_order) = (format.name == "xml", matches!(shape, Shape::Submission(_)));
    let part = |name, values: Vec<&'static str>| {
        mostly(leaf(of, name, sample::select(values).prop_map(str::to_owned)))
    };
    let sum = |name| {
        let sign =
            part("Sign", if is_order { vec!["+", "+", "+", "-", ""] } else { vec!["+", "+", "+", "-"] });
        let digits = mostly(leaf(
            of,
            "Digits",
            prop_oneof![4 => "[1-9][0-9]{0,17}", 1 => "[0-9]{0,31}", 1 => number()],
        ));
        group(of, name, vec![sign, digits, part("Decimals", vec!["0", "2", "2", "3", "4", "5", "", " 2"])])
    };
    let holder = |name, first, last| {
        sometimes(group(of, name, vec![mostly(leaf(of, first, text())), mostly(leaf(of, last, text()))]))
    };
    let limit =
        || sometimes(if is_canonical { leaf(of, "OverdraftLimit", number()) } else { sum("CreditLine") });
    let parts = match shape {
        Shape::Submission(_) if is_canonical => vec![
            mostly(leaf(of, "Amount", number())),
            mostly(leaf(of, "Currency", currency())),
            sometimes(leaf(of, "Reference", text())),
            pairs(of, ["Metadata", "Entry", "Name", "Value"]),
            strangers(of),
        ],
        Shape::Submission(_) => vec![
            mostly(group(
                of,
                "Value",
                vec![mostly(sum("Money")), mostly(leaf(of, "CurrencyCode", currency()))],
            )),
            sometimes(leaf(of, "Narrative", text())),
            pairs(of, ["Tags", "Tag", "Key", "Content"]),
            strangers(of),
        ],
        Shape::Opening => vec![
            mostly(leaf(of, if is_canonical { "Currency" } else { "CurrencyCode" }, currency())),
            limit(),
            if is_canonical {
                holder("Holder", "GivenName", "FamilyName")
            } else {
                holder("AccountHolder", "FirstName", "LastName")
            },
            strangers(of),
        ],
        Shape::Change
        | Shape::Transaction
        | Shape::TransactionPage
        | Shape::Account
        | Shape::AccountPage
        | Shape::Problem => {
            let status = if is_canonical {
                part("Status", vec!["open", "closed", "", " open"])
            } else {
                part("State", vec!["ACTIVE", "TERMINATED", "open"])
            };
            vec![limit(), sometimes(status), strangers(of)]
        }
    };
    group(of, table.root, parts)
}

/// What the program says; nothing when it takes the request.
fn refusal(format: &'static Tables, shape: Shape, body: &str) -> Option<String> {
    let document = InboundDocument::of(format, Bytes::from(body.to_owned()), XmlLimits::default());
    let translated = match shape {
        Shape::Submission(kind) => translate::instruction(kind, &document).map(drop),
        Shape::Opening => translate::account_terms(&document).map(drop),
        Shape::Change
        | Shape::Transaction
        | Shape::TransactionPage
        | Shape::Account
        | Shape::AccountPage
        | Shape::Problem => translate::account_change(&document).map(drop),
    };
    let problem = translated.err()?.problem();
    let violations = problem.violations.iter().map(|it| format!("{} {}", it.field, it.message));
    Some(std::iter::once(problem.detail.clone()).chain(violations).collect::<Vec<_>>().join("\n"))
}

#[test]
fn the_program_takes_what_the_schemas_take() {
    let mut runner = TestRunner::deterministic();
    for format in FORMATS {
        for shape in [Shape::Submission(TransactionKind::Deposit), Shape::Opening, Shape::Change] {
            let schema = schema_of((format.of)(shape).namespace).expect("a schema");
            let (strategy, mut taken) = (request(format, shape), 0_usize);
            for _ in 0..CASES {
                let mut root = strategy.new_tree(&mut runner).unwrap().current().pop().expect("one root");
                let body = xml::write(&root);
                let (valid, refusal) = (validate_xml(schema, body.as_bytes()), refusal(format, shape, &body));
                match (&valid, &refusal) {
                    (Ok(()), None) => taken = taken.saturating_add(1),
                    (Err(_), Some(_)) => {}
                    (Ok(()), Some(told)) => {
                        // All that is wrong with it has to be beyond a schema.
                        let rules = told.lines().skip(usize::from(told.contains('\n')));
                        let beyond = |rule: &str| BEYOND.iter().any(|known| rule.contains(known));
                        assert!(rules.clone().all(beyond), "{told}\nis told about what is valid:\n{body}");
                    }
                    (Err(errors), None) => panic!("{errors:?}\nand it was taken:\n{body}"),
                }
                // The order of the elements means nothing to the program.
                root.children.reverse();
                assert_eq!(
                    self::refusal(format, shape, &xml::write(&root)).is_some(),
                    refusal.is_some(),
                    "{body}"
                );
            }
            // What is always refused would prove nothing.
            assert!(taken > CASES / 20, "{} {shape:?}: {taken} were taken", format.name);
        }
    }
}

fn id() -> impl Strategy<Value = String> {
    any::<u128>().prop_map(|number| uuid::Uuid::from_u128(number).to_string())
}

fn money() -> impl Strategy<Value = Currency> {
    sample::select(vec!["EUR", "JPY", "BHD", "CLF"])
        .prop_map(|code| Currency::parse(code).expect("a currency"))
}

fn balance(currency: Currency, least: i64) -> impl Strategy<Value = String> {
    let near = (least.max(-20_000)..20_000_i64).boxed();
    prop_oneof![near, (least..=BALANCE_MINOR_UNITS_MAX).boxed()].prop_map(move |minor_units| {
        Balance::try_new(minor_units, currency).expect("within range").to_string()
    })
}

fn time() -> impl Strategy<Value = String> {
    (0..=4_102_444_800_000_i64).prop_map(|ms| Timestamp::from_unix_ms(ms).to_string())
}

fn sound_text(chars_max: usize) -> impl Strategy<Value = String> {
    let unsound = |text: &String| !text.chars().any(|c| c.is_control());
    text().prop_filter("free of controls", unsound).prop_map(move |text| {
        let short: String = text.chars().take(chars_max).collect();
        if short.is_empty() { "x".to_owned() } else { short }
    })
}

fn transaction() -> impl Strategy<Value = wire::Transaction> {
    let outcome = |currency| {
        let number = (0..=OrderNumber::COUNTER_MAX).prop_map(|it| OrderNumber::from_counter(it).to_string());
        let posted = (number, 1..u64::MAX, balance(currency, -BALANCE_MINOR_UNITS_MAX), time());
        let reason = sample::select(RejectReason::ALL.to_vec()).prop_map(RejectReason::code);
        prop_oneof![
            Just((None, None)),
            posted.prop_map(|it| (Some(it), None)),
            (reason, time()).prop_map(|it| (None, Some(it)))
        ]
    };
    let told =
        (option::of(sound_text(140)), collection::btree_map(sound_text(40), sound_text(99), 0..20)).boxed();
    let elements = collection::vec(
        sound_text(20).prop_map(|text| xml::write(&Element::new("urn:other", "note").with_text(&text))),
        0..2,
    )
    .boxed();
    let kind = sample::select(vec!["deposit", "withdrawal"]);
    money()
        .prop_flat_map(move |currency| {
            let amount = (1..=AMOUNT_MINOR_UNITS_MAX)
                .prop_map(move |it| Amount::try_new(it, currency).expect("within range"));
            let rest = (told.clone(), elements.clone(), time(), outcome(currency));
            ((id(), id(), id()), kind.clone(), amount, rest)
        })
        .prop_map(|((message_id, user_id, account_id), kind, amount, rest)| {
            let ((reference, metadata), unknown_elements, accepted_at, (posted, rejected)) = rest;
            let status = match (&posted, &rejected) {
                (Some(_), _) => "posted",
                (None, Some(_)) => "rejected",
                (None, None) => "accepted",
            };
            let (order_number, sequence, balance_after, posted_at) = posted.map_or_else(
                || (None, None, None, None),
                |(number, sequence, balance, at)| (Some(number), Some(sequence), Some(balance), Some(at)),
            );
            let (reason, rejected_at) = rejected.unzip();
            wire::Transaction {
                message_id,
                user_id,
                account_id,
                r#type: kind.into(),
                amount: amount.to_string(),
                currency: amount.currency().to_string(),
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
                unknown_members: BTreeMap::new(),
                unknown_elements,
            }
        })
}

fn account() -> impl Strategy<Value = wire::Account> {
    let holder = (sound_text(140), sound_text(140))
        .prop_map(|(given_name, family_name)| wire::Holder { given_name, family_name })
        .boxed();
    money()
        .prop_flat_map(move |currency| {
            let limit = (0..=AMOUNT_MINOR_UNITS_MAX)
                .prop_map(move |it| Balance::try_new(it, currency).unwrap().to_string());
            let sums = (balance(currency, -BALANCE_MINOR_UNITS_MAX), balance(currency, 0), limit);
            let rest =
                (sample::select(vec!["open", "closed"]), 1..u64::MAX, time(), option::of(holder.clone()));
            ((id(), id()), Just(currency), sums, rest)
        })
        .prop_map(|((user_id, account_id), currency, (balance, available, overdraft_limit), rest)| {
            let (status, version, opened_at, holder) = rest;
            wire::Account {
                user_id,
                account_id,
                currency: currency.to_string(),
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

fn answer() -> impl Strategy<Value = Document> {
    let cursor = || option::of("[A-Za-z0-9_-]{11,40}");
    let violation =
        (sound_text(40), sound_text(99)).prop_map(|(field, message)| wire::Violation { field, message });
    let problem = (sound_text(140), collection::vec(violation, 0..5)).prop_map(|(detail, violations)| {
        let (r#type, title) = ("urn:postonce:problem:validation_failed".to_owned(), "A title".into());
        wire::Problem { r#type, title, status: 422, detail, code: "validation_failed".into(), violations }
    });
    prop_oneof![
        4 => transaction().prop_map(Document::from),
        2 => account().prop_map(Document::from),
        1 => problem.prop_map(Document::from),
        1 => (collection::vec(transaction(), 0..3), cursor()).prop_map(
            |(transactions, next_cursor)| wire::TransactionPage { transactions, next_cursor }.into()
        ),
        1 => (collection::vec(account(), 0..3), cursor())
            .prop_map(|(accounts, next_cursor)| wire::AccountPage { accounts, next_cursor }.into()),
    ]
}

#[test]
fn what_the_program_writes_is_valid() {
    let (mut runner, strategy) = (TestRunner::deterministic(), answer());
    for _ in 0..CASES {
        let document = strategy.new_tree(&mut runner).unwrap().current();
        for format in FORMATS {
            let body = format.write(&document);
            let schema = schema_of((format.of)(document.shape()).namespace).expect("a schema");
            let checked = validate_xml(schema, &body);
            assert_eq!(checked, Ok(()), "{}", String::from_utf8_lossy(&body));
        }
    }
}
