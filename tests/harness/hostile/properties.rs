//! Sound values of every kind, made by `proptest`, and what must hold for them: they are written and
//! read back, and the fingerprint tells equal content from other content. Mangled ones go through the same
//! functions as the inventions of the fuzzer.

use std::collections::BTreeMap;

use postonce_shared::cluster::completions::{Completion, reply_body};
use postonce_shared::domain::account::Revision;
use postonce_shared::domain::decision::Work;
use postonce_shared::domain::ids::{
    AccountId, AccountKey, MessageId, OrderNumber, PartnerId, TransactionKey, UserId,
};
use postonce_shared::domain::instruction::{Details, Instruction, TransactionKind, UnknownMembers};
use postonce_shared::domain::money::{
    AMOUNT_MINOR_UNITS_MAX, Amount, BALANCE_MINOR_UNITS_MAX, Balance, Currency,
};
use postonce_shared::domain::rejection::RejectReason;
use postonce_shared::domain::time::Timestamp;
use postonce_shared::domain::transaction::Outcome;
use postonce_shared::messaging::envelope::{Envelope, pack};
use postonce_shared::ports::queue::BODY_BYTES_MAX;
use postonce_shared::testing::conformance::sealed::{envelope_in, seal, unsealed};
use postonce_web::api::pages::cursor;
use postonce_web::api::translate::json;
use postonce_web::formats::{wwi, xml};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use serde_json::Value;
use uuid::Uuid;

use super::json_request::{changed, reordered, written};

/// Texts with what is awkward in JSON, XML and storage keys, but no control characters.
fn text(chars_max: usize) -> impl Strategy<Value = String> {
    let awkward = prop::sample::select(vec![
        '"', '\\', '/', '\'', '|', '<', '&', 'ü', '語', '🦀', '\u{202e}', ' ', '%',
    ]);
    vec(prop_oneof![awkward, prop::char::range('a', 'z')], 1..=chars_max).prop_map(String::from_iter)
}

fn amount() -> impl Strategy<Value = Amount> {
    let currency = prop::sample::select(vec!["EUR", "USD", "JPY", "BHD", "CLF"]);
    (1..=AMOUNT_MINOR_UNITS_MAX, currency)
        .prop_map(|(minor_units, code)| Amount::try_new(minor_units, Currency::parse(code).unwrap()).unwrap())
}

fn unknown() -> impl Strategy<Value = BTreeMap<String, Value>> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        // As many digits as are kept.
        (-999_999_999_999_999_999..=999_999_999_999_999_999_i64).prop_map(Value::from),
        text(8).prop_map(Value::from),
    ];
    let value = leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            btree_map(text(4), inner, 0..4).prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    });
    btree_map(text(6).prop_map(|name| format!("x_{name}")), value, 0..4)
}

fn instruction() -> impl Strategy<Value = Instruction> {
    let details = (prop::option::of(text(140)), btree_map(text(10), text(20), 0..5), unknown());
    let details = details.prop_map(|(reference, metadata, unknown)| {
        Details::try_new(reference, metadata, &UnknownMembers::Members(unknown)).unwrap()
    });
    (amount(), details).prop_map(|(amount, details)| Instruction {
        kind: TransactionKind::Deposit,
        amount,
        details,
    })
}

fn key() -> impl Strategy<Value = TransactionKey> {
    let id = || any::<u128>().prop_map(Uuid::from_u128);
    (id(), id(), "[a-z][a-z0-9_]{0,31}", id()).prop_map(|(user, account, partner, message)| TransactionKey {
        account: AccountKey { user: UserId::from_uuid(user), account: AccountId::from_uuid(account) },
        partner: PartnerId::parse(&partner).unwrap(),
        message: MessageId::from_uuid(message),
    })
}

fn time() -> impl Strategy<Value = Timestamp> {
    (0..=253_402_300_799_999_i64).prop_map(Timestamp::from_unix_ms)
}

fn work() -> impl Strategy<Value = Work> {
    (key(), instruction(), time(), text(40)).prop_map(|(key, instruction, accepted_at, revision)| Work {
        key,
        instruction,
        accepted_at,
        revision: Revision::new(revision),
    })
}

fn completion() -> impl Strategy<Value = Completion> {
    let balance = (-BALANCE_MINOR_UNITS_MAX..=BALANCE_MINOR_UNITS_MAX)
        .prop_map(|minor_units| Balance::try_new(minor_units, Currency::parse("EUR").unwrap()).unwrap());
    let number = (0..=OrderNumber::COUNTER_MAX).prop_map(OrderNumber::from_counter);
    let posted = (number, any::<u64>(), balance, time()).prop_map(
        |(order_number, sequence, balance_after, posted_at)| Outcome::Posted {
            order_number,
            sequence,
            balance_after,
            posted_at,
        },
    );
    let rejected = (prop::sample::select(RejectReason::ALL.to_vec()), time())
        .prop_map(|(reason, rejected_at)| Outcome::Rejected { reason, rejected_at });
    (key(), prop_oneof![posted, rejected]).prop_map(|(key, outcome)| Completion { key, outcome })
}

fn read(body: &str) -> Option<Instruction> {
    json::instruction(TransactionKind::Deposit, body.as_bytes()).ok()
}

proptest! {
    #[test]
    fn an_amount_is_read_back_as_it_is_printed(amount in amount()) {
        super::amount::check(amount.to_string().as_bytes());
        prop_assert_eq!(Amount::parse(&amount.to_string(), amount.currency()), Ok(amount));
    }

    #[test]
    fn the_fingerprint_is_of_the_content(one in instruction(), other in instruction()) {
        let body = written(&one);
        prop_assert_eq!(read(&body), Some(one.clone()), "{}", body);
        let again = read(&reordered(body.as_bytes()));
        prop_assert_eq!(again.map(|again| again.fingerprint()), Some(one.fingerprint()));
        for different in changed(&one) {
            prop_assert!(!different.matches(&one.fingerprint()), "{:?}", different);
        }
        prop_assert_eq!(one == other, one.matches(&other.fingerprint()));
    }

    #[test]
    fn a_body_that_was_cut_or_changed_is_answered(
        instruction in instruction(), cut in any::<prop::sample::Index>(), byte in any::<u8>(),
    ) {
        let mut body = written(&instruction).into_bytes();
        let place = cut.index(body.len());
        super::json_request::check(&body[..place]);
        body[place] = byte;
        super::json_request::check(&body);
    }

    #[test]
    fn a_document_that_was_cut_or_changed_is_answered(
        instruction in instruction(), cut in any::<prop::sample::Index>(), byte in any::<u8>(),
    ) {
        let checks: [fn(&[u8]); 2] = [super::xml_request::check, super::wwi_request::check];
        for (format, check) in [&xml::CANONICAL, &wwi::WWI].into_iter().zip(checks) {
            let mut body = super::xml_request::written(format, &instruction).into_bytes();
            check(&body);
            super::xml_tree::check(&body);
            let place = cut.index(body.len());
            check(&body[..place]);
            body[place] = byte;
            check(&body);
            super::xml_tree::check(&body);
        }
    }

    #[test]
    fn work_is_read_back_from_its_messages(items in vec(work(), 1..60)) {
        let packed = pack(&items, Some("00-ab"));
        let mut unpacked = Vec::new();
        for envelope in packed {
            let body = envelope.encode(&seal());
            prop_assert!(body.len() <= BODY_BYTES_MAX);
            super::envelope::check(&body);
            super::envelope::check(&unsealed(&body));
            unpacked.extend(envelope_in(&body).items);
        }
        prop_assert_eq!(unpacked, items);
    }

    #[test]
    fn a_message_that_was_cut_or_changed_is_sorted(
        items in vec(work(), 1..3), place in any::<prop::sample::Index>(), byte in any::<u8>(),
    ) {
        let mut body = Envelope::of(items, None).encode(&seal());
        super::envelope::check(&unsealed(&body));
        let place = place.index(body.len());
        super::envelope::check(&body[..place]);
        super::payload::check(&body[..place]);
        body[place] = byte;
        super::envelope::check(&body);
    }

    #[test]
    fn a_note_is_read_back(completions in vec(completion(), 0..20)) {
        prop_assert_eq!(reply_body::decode(&reply_body::encode(&completions)).ok(), Some(completions));
    }

    #[test]
    fn an_order_of_a_direct_producer_is_read_in_both_forms(
        key in key(), amount in amount(), is_withdrawal in any::<bool>(),
    ) {
        let sign = if is_withdrawal { "-" } else { "" };
        let TransactionKey { account, message, .. } = key;
        let body = format!("{}|{}|{message}|{sign}{amount}", account.user, account.account);
        let order = postonce_shared::messaging::direct_producers::parse(body.as_bytes()).unwrap().unwrap();
        prop_assert_eq!(order.instruction(amount.currency()).map(|it| it.amount), Ok(amount));
        super::legacy_body::check(body.as_bytes());
    }

    #[test]
    fn any_position_survives_in_a_cursor(position in any::<String>(), listing in text(20)) {
        super::cursor::check(position.as_bytes());
        super::cursor::check(format!("cursor={}", cursor(&listing, &position)).as_bytes());
    }

    #[test]
    fn any_text_can_be_sent_anywhere(text in any::<String>(), bytes in vec(any::<u8>(), 0..200)) {
        for target in super::TARGETS {
            (target.check)(text.as_bytes());
            (target.check)(&bytes);
        }
    }
}
