//! Answers: every document that the program writes is valid.

use postonce_schemas::json as wire;
use postonce_shared::messaging::xml::{self, Element};
use postonce_shared::testing::prelude::*;
use postonce_tests::contracts::{schema_of, validate_xml};
use postonce_tests::samples::FORMATS;
use postonce_web::formats::{Document, Format as _};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use proptest::{collection, option, sample};

use super::{CASES, text};

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

fn printable_text(chars_max: usize) -> impl Strategy<Value = String> {
    let printable = |text: &String| !text.chars().any(|c| c.is_control());
    text().prop_filter("free of controls", printable).prop_map(move |text| {
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
    let details = (
        option::of(printable_text(140)),
        collection::btree_map(printable_text(40), printable_text(99), 0..20),
    )
        .boxed();
    let elements = collection::vec(
        printable_text(20).prop_map(|text| xml::write(&Element::new("urn:other", "note").with_text(&text))),
        0..2,
    )
    .boxed();
    let kind = sample::select(vec!["deposit", "withdrawal"]);
    money()
        .prop_flat_map(move |currency| {
            let amount = (1..=AMOUNT_MINOR_UNITS_MAX)
                .prop_map(move |it| Amount::try_new(it, currency).expect("within range"));
            let rest = (details.clone(), elements.clone(), time(), outcome(currency));
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
                partner_id: None,
                unknown_members: wire::RawMembers::default(),
                flattened_members: wire::RawMembers::default(),
                unknown_elements,
            }
        })
}

fn account() -> impl Strategy<Value = wire::Account> {
    let holder = (printable_text(140), printable_text(140))
        .prop_map(|(given_name, family_name)| wire::Holder { given_name, family_name })
        .boxed();
    money()
        .prop_flat_map(move |currency| {
            let limit = (0..=AMOUNT_MINOR_UNITS_MAX)
                .prop_map(move |it| Balance::try_new(it, currency).expect("within range").to_string());
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
    let violation = (printable_text(40), printable_text(99))
        .prop_map(|(field, message)| wire::Violation { field, message });
    let reason = option::of(sample::select(RejectReason::ALL.map(RejectReason::code).to_vec()));
    let problem = (printable_text(140), reason, collection::vec(violation, 0..5));
    let problem = problem.prop_map(|(detail, reason, violations)| {
        let (r#type, title) = ("urn:postonce:problem:validation_failed".to_owned(), "A title".into());
        let code = "validation_failed".into();
        wire::Problem {
            r#type,
            title,
            status: 422,
            detail,
            code,
            reason: reason.map(Into::into),
            violations,
            request_id: None,
            trace_id: None,
        }
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
fn every_document_of_the_program_is_valid() {
    let (mut runner, strategy) = (TestRunner::deterministic(), answer());
    for _ in 0..CASES {
        let document = strategy.new_tree(&mut runner).unwrap().current();
        for format in FORMATS {
            let body = format.write(&document);
            let schema = schema_of(format.of(document.shape()).namespace).expect("a schema");
            let checked = validate_xml(schema, &body);
            assert_eq!(checked, Ok(()), "{}", String::from_utf8_lossy(&body));
        }
    }
}
