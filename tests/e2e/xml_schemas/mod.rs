//! The XML schemas and the program, with random documents: what the program accepts is valid; what is valid
//! is accepted, except for reasons that a schema cannot express; and what the program writes is valid.

mod answers;

use actix_web::web::Bytes;
use postonce_shared::domain::instruction::TransactionKind;
use postonce_shared::messaging::xml::{self, Element, Node, XmlLimits};
use postonce_tests::contracts::{schema_of, validate_xml};
use postonce_tests::samples::FORMATS;
use postonce_web::api::translate::{self, InboundDocument};
use postonce_web::formats::Shape;
use postonce_web::formats::table::Tables;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use proptest::{collection, sample};

/// Number of random documents of each kind in each format.
const CASES: usize = 300;
/// Messages of the program about errors that a schema cannot detect.
const BEYOND_SCHEMAS: [&str; 5] = [
    "is not a currency code of ISO 4217",
    "has more decimals than",
    "must be at most 999999999999999999 minor units",
    "2048 bytes",
    "but this is a deposit",
];

/// Text with characters that are handled differently by some programs: characters that XML escapes or
/// normalizes, controls, symbols, and characters of four bytes.
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

/// Numbers, most of them amounts of some currency.
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

/// The elements at one position: usually one, sometimes none, rarely two.
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

/// An element with child elements.
fn group(namespace: &'static str, name: &'static str, parts: Vec<Elements>) -> Elements {
    let parts = parts.into_iter().fold(Just(Vec::new()).boxed(), |all, part| {
        (all, part).prop_map(|(all, part): (Vec<Element>, Vec<Element>)| [all, part].concat()).boxed()
    });
    parts
        .prop_map(move |parts| vec![parts.into_iter().fold(Element::new(namespace, name), Element::with)])
        .boxed()
}

/// Unknown elements: in other namespaces, in none, and in the namespace of the format, if the program refuses them as the schema
/// does.
fn unknown_elements(namespace: Option<&'static str>) -> Elements {
    let unknown = prop_oneof![
        4 => text().prop_map(|text| Element::new("urn:other", "note").with_text(&text)),
        1 => Just(Element::new("", "note")),
        1 => Just(Element::new(namespace.unwrap_or("urn:other"), "note")),
    ];
    prop_oneof![9 => Just(Vec::new()), 1 => collection::vec(unknown, 1..3)].boxed()
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

/// A request, with its elements in the order of the schema.
fn request(format: &'static Tables, shape: Shape) -> Elements {
    let table = format.of(shape);
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
            unknown_elements(None),
        ],
        Shape::Submission(_) => vec![
            mostly(group(
                of,
                "Value",
                vec![mostly(sum("Money")), mostly(leaf(of, "CurrencyCode", currency()))],
            )),
            sometimes(leaf(of, "Narrative", text())),
            pairs(of, ["Tags", "Tag", "Key", "Content"]),
            unknown_elements(Some(of)),
        ],
        Shape::Opening => vec![
            mostly(leaf(of, if is_canonical { "Currency" } else { "CurrencyCode" }, currency())),
            limit(),
            if is_canonical {
                holder("Holder", "GivenName", "FamilyName")
            } else {
                holder("AccountHolder", "FirstName", "LastName")
            },
            unknown_elements(Some(of)),
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
            vec![limit(), sometimes(status), unknown_elements(Some(of))]
        }
    };
    group(of, table.root, parts)
}

/// The message of the program; `None` if it accepts the request.
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

/// Reverses the order of the elements at every depth.
fn reverse(element: &mut Element) {
    element.children.reverse();
    for child in &mut element.children {
        if let Node::Element(inner) = child {
            reverse(inner);
        }
    }
}

#[test]
fn the_program_accepts_the_documents_that_the_schemas_accept() {
    let mut runner = TestRunner::deterministic();
    for format in FORMATS {
        for shape in [Shape::Submission(TransactionKind::Deposit), Shape::Opening, Shape::Change] {
            let schema = schema_of(format.of(shape).namespace).expect("a schema");
            let (strategy, mut accepted) = (request(format, shape), 0_usize);
            for _ in 0..CASES {
                let mut root = strategy.new_tree(&mut runner).unwrap().current().pop().expect("one root");
                let body = xml::write(&root);
                let (valid, refusal) = (validate_xml(schema, body.as_bytes()), refusal(format, shape, &body));
                match (&valid, &refusal) {
                    (Ok(()), None) => accepted = accepted.saturating_add(1),
                    (Err(_), Some(_)) => {}
                    (Ok(()), Some(message)) => {
                        // All its errors must be ones that a schema cannot express.
                        let rules = message.lines().skip(usize::from(message.contains('\n')));
                        let beyond = |rule: &str| BEYOND_SCHEMAS.iter().any(|known| rule.contains(known));
                        assert!(
                            rules.clone().all(beyond),
                            "{message}\nis the message about a valid document:\n{body}"
                        );
                    }
                    (Err(errors), None) => panic!("{errors:?}\nand it was accepted:\n{body}"),
                }
                // The program accepts the elements in any order.
                reverse(&mut root);
                assert_eq!(
                    self::refusal(format, shape, &xml::write(&root)).is_some(),
                    refusal.is_some(),
                    "{body}"
                );
            }
            // A kind of request that is always refused would prove nothing.
            assert!(accepted > CASES / 20, "{} {shape:?}: {accepted} were accepted", format.name);
        }
    }
}
