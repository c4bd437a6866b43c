use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use uuid::Uuid;

use super::*;
use crate::cluster::attempts::{ATTEMPTS_MAX, Attempt};
use crate::domain::decision::Submission;
use crate::testing::prelude::*;

fn work(id: u128, reference: &str) -> Work {
    let account = AccountKey {
        user: UserId::from_uuid(Uuid::from_u128(1)),
        account: AccountId::from_uuid(Uuid::from_u128(2)),
    };
    let metadata = BTreeMap::from([("shop".to_owned(), "ü\"12".to_owned())]);
    Work {
        submission: Submission {
            key: TransactionKey {
                account,
                partner: PartnerId::parse("shop").unwrap(),
                message: MessageId::from_uuid(Uuid::from_u128(id)),
            },
            instruction: Instruction {
                kind: TransactionKind::Withdrawal,
                amount: Amount::parse("12.50", Currency::parse("EUR").unwrap()).unwrap(),
                details: Details::from_stored(Some(reference.to_owned()), metadata, r#"{"x":1}"#.to_owned()),
            },
            accepted_at: Timestamp::from_unix_ms(1_795_248_000_123),
            origin: Origin {
                request_id: RequestId::parse(&format!("request-{id:04}")).ok(),
                traceparent: TraceParent::parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
            },
            batch_line: None,
        },
        row: Revision::new("W/\"datetime'2026'\""),
        delivered: None,
    }
}

#[test]
fn an_item_without_a_readable_origin_is_still_work() {
    let body = String::from_utf8(Envelope::of(vec![work(1, "a")]).encode(&seal())).unwrap();
    let strange = body.replace("request-0001", "a\\u0000b").replace("\"00-4bf9", "\"ff-4bf9");
    let origin = envelope_in(&resealed(strange.as_bytes())).items.remove(0).submission.origin;
    assert_eq!(origin, Origin::default(), "{strange}");
    // A newer process may write a later version of the trace.
    let later = body.replace("\"00-4bf9", "\"01-4bf9").replace("ba902b7-01\"", "ba902b7-01-more\"");
    let origin = envelope_in(&resealed(later.as_bytes())).items.remove(0).submission.origin;
    assert_eq!(origin, work(1, "a").submission.origin, "{later}");
}

/// Returns attempts of this number of processes.
fn attempts(processes: usize) -> Attempts {
    let attempt = |number: u128| Attempt {
        process: ProcessId::from_uuid(Uuid::from_u128(u128::MAX.wrapping_sub(number))),
        attempts_survived: u64::MAX,
    };
    (0..).take(processes).fold(Attempts::NONE, |attempts, number| attempts.with(attempt(number)))
}

#[test]
fn an_envelope_survives_a_round_trip() {
    let mut envelope = Envelope::of(vec![work(1, "a"), work(2, "b")]);
    (envelope.forgiven, envelope.attempts) = (3, attempts(1));
    assert_eq!(envelope_in(&envelope.encode(&seal())), envelope);
    envelope.reply_to = Some(reply_to());
    let body = String::from_utf8(envelope.encode(&seal())).unwrap();
    assert_eq!(envelope_in(body.as_bytes()), envelope);
    let elsewhere = body.replace("http://10.0.0.7:8080", "https://thief.example/");
    let unknown = Envelope { reply_to: None, ..envelope };
    assert_eq!(envelope_in(&resealed(elsewhere.as_bytes())), unknown, "an invalid reply address is ignored");
}

#[test]
fn both_decoders_give_the_same_envelope() {
    let escaped = work(2, "tab\t, quote\", \u{1F4B6}");
    let envelope =
        Envelope { reply_to: Some(reply_to()), forgiven: 3, ..Envelope::of(vec![work(1, "a"), escaped]) };
    let body = String::from_utf8(envelope.encode(&seal())).unwrap();
    let newer_members =
        body.replacen("{\"u\"", "{\"new\":[1],\"u\"", 1).replacen("{\"v\"", "{\"new\":{},\"v\"", 1);
    for body in [body, newer_members] {
        assert_eq!(Envelope::read_at_once(body.as_bytes()).as_ref(), Some(&envelope), "{body}");
        assert_eq!(Envelope::read_in_parts(body.as_bytes()).unwrap(), envelope, "{body}");
    }
}

#[test]
fn both_decoders_refuse_invalid_bodies() {
    let body = String::from_utf8(unsealed(&Envelope::of(vec![work(1, "a")]).encode(&seal()))).unwrap();
    let items = &body[body.find('[').unwrap()..=body.rfind(']').unwrap()];
    let array = format!("[1,null,null,null,0,0,{items}]").into_bytes();
    let mut no_text = body.replacen("{\"u\"", "{\"new\":\"?\",\"u\"", 1).into_bytes();
    let mark = no_text.iter().position(|byte| *byte == b'?').unwrap();
    no_text[mark] = 0xFF;
    for body in [array, no_text] {
        assert_eq!(Envelope::read_at_once(&body), None);
        assert!(matches!(Body::decode(&body, &seal()), Err(Unreadable::Malformed(_))));
    }
}

#[test]
fn items_that_were_encoded_in_advance_give_the_same_messages() {
    let work: Vec<Work> = (0..400).map(|id| work(id, "a reference")).collect();
    let written: Vec<EncodedItem> = work
        .iter()
        .map(|work| {
            EncodedItem::of(
                &work.submission.key,
                &work.submission.instruction,
                work.submission.accepted_at,
                &work.row,
                &work.submission.origin,
            )
        })
        .collect();
    let last = &work[399].submission.key;
    let bodies = bodies(
        &written.iter().collect::<Vec<_>>(),
        |part| part.iter().any(|work| work.key() == last).then(reply_to),
        &seal(),
    );
    let mut expected = pack(&work);
    assert!(expected.len() > 1, "the work fills several messages");
    expected.last_mut().unwrap().reply_to = Some(reply_to());
    assert_eq!(bodies, expected.iter().map(|envelope| envelope.encode(&seal())).collect::<Vec<_>>());
}

/// Returns a valid reply address.
fn reply_to() -> ReplyTo {
    let proof = format!("1795248090000.{}", "0a".repeat(32));
    ReplyTo::read(Some("http://10.0.0.7:8080"), Some(&proof)).unwrap()
}

#[test]
fn a_reply_address_without_a_proof_is_ignored() {
    let with = Envelope { reply_to: Some(reply_to()), ..Envelope::of(vec![work(1, "a")]) };
    let claim = Claim { reply_to: Some(reply_to()), ..Claim::on("work-1".to_owned()) };
    for (body, claimed) in [(with.encode(&seal()), false), (claim.encode(&seal()), true)] {
        let mut without: serde_json::Value = serde_json::from_slice(&unsealed(&body)).unwrap();
        assert!(without.as_object_mut().unwrap().remove("reply_proof").is_some());
        assert_eq!(without["reply_to"], "http://10.0.0.7:8080");
        let without = resealed(without.to_string().as_bytes());
        if claimed {
            assert_eq!(claim_in(&without), Claim { reply_to: None, ..claim.clone() });
        } else {
            assert_eq!(envelope_in(&without), Envelope { reply_to: None, ..with.clone() });
        }
    }
}

#[test]
fn an_envelope_with_the_longest_frame_fits_a_message() {
    let proof = format!("253402300799999.{}", "0a".repeat(32));
    let longest = format!("http://{}:65535", "h".repeat(187));
    let reply_to = ReplyTo::read(Some(&longest), Some(&proof));
    assert!(reply_to.is_some() && longest.len() == crate::ports::process_registry::ADDRESS_CHARS_MAX);
    for envelope in pack(&many(1000)) {
        let attempts = attempts(ATTEMPTS_MAX);
        let full = Envelope { reply_to: reply_to.clone(), forgiven: u32::MAX, attempts, ..envelope };
        assert!(full.encode(&seal()).len() <= BODY_BYTES_MAX);
    }
}

#[test]
fn undecodable_bodies_are_classified() {
    let check = |body: &str, newer: bool| {
        let sealed = seal().seal(Purpose::Message, body.as_bytes().to_vec());
        let unreadable = Body::decode(&sealed, &seal()).unwrap_err();
        assert_eq!(matches!(unreadable, Unreadable::Newer(_)), newer, "{body}: {unreadable}");
        let unsealed = Body::decode(body.as_bytes(), &seal());
        assert_eq!(matches!(unsealed, Err(Unreadable::Unsealed(_))), newer, "{body}: it has no seal");
    };
    check(r#"{"v":3,"anything":"else"}"#, true);
    check(r#"{"v":2,"anything":"else"}"#, false);
    check(r#"{"v":2,"payload":"keys"}"#, false);
    check(r#"{"v":2,"payload":"work-../keys"}"#, false);
    check(r#"{"v":4000000000}"#, true);
    check("", false);
    check("{", false);
    check("<UserAccountTransaction/>", false);
    check(r#"{"v":1}"#, false);
    check(r#"{"v":1,"items":[]}"#, false);
    check(r#"{"v":1,"items":[{"u":"x"}]}"#, false);
    let valid = Envelope::of(vec![work(1, "a")]).encode(&seal());
    let valid = String::from_utf8(unsealed(&valid)).unwrap();
    check(&valid.replace("1250", "-1250"), false);
    check(&valid.replace("EUR", "EUX"), false);
    envelope_in(&resealed(valid.replace(r#""v":1"#, r#""v":1,"new":true"#).as_bytes()));
}

#[test]
fn an_invalid_item_does_not_hide_its_neighbors() {
    let items = vec![work(1, "a"), work(2, "b"), work(3, "c")];
    let body = String::from_utf8(Envelope::of(items.clone()).encode(&seal())).unwrap();
    let damaged = body.replacen("withdrawal", "withdrawn", 2).replacen("withdrawn", "withdrawal", 1);
    let decoded = Body::decode(&resealed(damaged.as_bytes()), &seal());
    let Err(Unreadable::Items { readable, bad, bad_count, why }) = decoded else {
        panic!("one item is damaged");
    };
    assert_eq!((readable, bad_count), (vec![items[0].clone(), items[2].clone()], 1));
    assert!(why.contains("field k"), "{why}");
    assert!(String::from_utf8(bad).unwrap().contains("withdrawn"));
}

#[test]
fn packing_keeps_order_and_size() {
    let items: Vec<Work> = (0..400).map(|id| work(id, &"r".repeat(140))).collect();
    let envelopes = pack(&items);
    assert!(envelopes.len() > 1 && envelopes.len() < 8, "{} envelopes", envelopes.len());
    assert!(envelopes.iter().all(|envelope| envelope.encode(&seal()).len() <= BODY_BYTES_MAX));
    let unpacked: Vec<Work> = envelopes.into_iter().flat_map(|envelope| envelope.items).collect();
    assert_eq!(unpacked, items);
    assert!(pack(&[]).is_empty());
}

#[test]
fn a_claim_has_another_version_than_work() {
    let claim = Claim::on("work-1".to_owned());
    assert!(matches!(Envelope::read(&claim.encode(&seal())), Err(Unreadable::Newer(2))));
    let plain = Envelope::of(vec![work(1, "a")]).encode(&seal());
    assert!(unsealed(&plain).starts_with(b"{\"v\":1,"), "the version comes first");
    assert!(Envelope::read(&plain).is_ok());
}

#[test]
fn a_claim_survives_a_round_trip_and_gives_its_work() {
    let claim = Claim {
        reply_to: Some(reply_to()),
        forgiven: 3,
        attempts: attempts(2),
        ..Claim::on("work-1".to_owned())
    };
    assert_eq!(claim_in(&claim.encode(&seal())), claim);
    let envelope = Envelope::of(many(1500));
    let payload = claim::payload("work-1", &envelope, &seal());
    assert!(payload.len() < envelope.encode(&seal()).len() / 4, "{} bytes", payload.len());
    let Ok(Content::Work(opened)) = claim.open(&payload, &seal()) else { panic!("it is sealed work") };
    assert_eq!(opened.items, envelope.items);
    assert_eq!((&opened.reply_to, opened.payload.as_deref()), (&claim.reply_to, Some("work-1")));
    assert_eq!(opened.encode(&seal()), claim.encode(&seal()), "the message still contains the claim");
    assert_eq!((opened.forgiven, &opened.attempts), (3, &claim.attempts));
}

#[test]
fn a_damaged_payload_is_detected() {
    let claim = Claim::on("work-1".to_owned());
    let valid = claim::payload("work-1", &Envelope::of(many(10)), &seal());
    let damaged = |payload: &[u8]| match claim.open(payload, &seal()).unwrap_err() {
        Unreadable::Damaged { name, source } => format!("{name}: {source}"),
        other @ (Unreadable::Newer(_)
        | Unreadable::Unsealed(_)
        | Unreadable::Malformed(_)
        | Unreadable::Items { .. }
        | Unreadable::Empty) => panic!("{other}"),
    };
    for cut in [0, 1, 10, valid.len() / 2, valid.len() - 1] {
        assert!(damaged(&valid[..cut]).starts_with("work-1: "), "only {cut} bytes");
    }
    for place in [12, valid.len() / 2, valid.len() - 3] {
        let mut flipped = valid.clone();
        flipped[place] ^= 0x10;
        assert!(claim.open(&flipped, &seal()).is_err(), "byte {place} was changed");
    }
    let mut bomb = GzEncoder::new(Vec::new(), Compression::best());
    bomb.write_all(&vec![b' '; 100 * claim::PAYLOAD_BYTES_MAX]).unwrap();
    assert!(damaged(&bomb.finish().unwrap()).contains("more than 786432 bytes"));
}

#[test]
fn much_work_is_claimed_and_little_is_not() {
    let full = u128::try_from(pack(&many(1000))[0].items.len()).unwrap();
    assert!(full > 50, "{full} fill a message");
    let check = |count: u128, expected: &[&str]| {
        let items = many(count);
        let messages = outgoing_messages(&items);
        let kinds: Vec<String> = messages
            .iter()
            .map(|message| match message {
                OutgoingMessage::Inline(_) => "message".to_owned(),
                OutgoingMessage::Claimed(envelopes) => format!("payload of {}", envelopes.len()),
            })
            .collect();
        assert_eq!(kinds, expected, "{count} items");
        let envelopes = messages.into_iter().flat_map(|message| match message {
            OutgoingMessage::Inline(envelope) => vec![envelope],
            OutgoingMessage::Claimed(envelopes) => envelopes,
        });
        let unpacked: Vec<Work> = envelopes.flat_map(|envelope| envelope.items).collect();
        assert_eq!(unpacked, items, "in order");
    };
    check(0, &[]);
    check(1, &["message"]);
    check(4 * full, &["message"; 4]);
    check(4 * full + 1, &["payload of 5"]);
    check(16 * full, &["payload of 16"]);
    check(16 * full + 1, &["payload of 9", "payload of 8"]);
}

#[test]
fn an_envelope_that_is_too_large_for_a_message_is_split_unchanged() {
    let body = Envelope::of(many(1000)).encode(&seal());
    let body = String::from_utf8(body).unwrap();
    let strange = body.replace("withdrawal", "withdrawn");
    let bodies = pack_raw(strange.as_bytes());
    assert!(bodies.len() > 5 && bodies.iter().all(|body| body.len() <= BODY_BYTES_MAX));
    let items: Vec<String> = bodies
        .iter()
        .flat_map(|body| serde_json::from_slice::<Row<Box<RawValue>>>(body).unwrap().items)
        .map(|item| item.get().to_owned())
        .collect();
    let whole: Vec<String> = serde_json::from_str::<Row<Box<RawValue>>>(&strange)
        .unwrap()
        .items
        .iter()
        .map(|item| item.get().to_owned())
        .collect();
    assert_eq!(items, whole);
    for small in [b"<xml/>".as_slice(), b"{\"v\":7}", b"{\"v\":1,\"items\":[]}"] {
        assert_eq!(pack_raw(small), [small]);
    }
}

/// The content of a message without a seal only names a transaction, whatever else it contains.
#[test]
fn a_body_without_a_valid_seal_only_names_transactions() {
    let items = vec![work(1, "a"), work(2, "b")];
    let keys: BTreeSet<_> = items.iter().map(|work| work.submission.key.clone()).collect();
    let envelope = Envelope { forgiven: 9, attempts: attempts(3), ..Envelope::of(items) };
    let sealed = String::from_utf8(envelope.encode(&seal())).unwrap();
    let forged = [
        unsealed(sealed.as_bytes()),
        sealed.replacen("1250", "500000000", 1).into_bytes(),
        envelope.encode(&seal_of("the-secret-of-another-bank")),
        br#"{"v":1,"items":[{"u":"U","c":"C","p":"shop","m":"1"},{"u":"U","c":"C","p":"shop","m":"2"}]}"#
            .to_vec(),
    ];
    for body in forged {
        let text = String::from_utf8(body).unwrap();
        let text = text.replace("\"U\"", &format!("{:?}", "00000000000000000000000000000001"));
        let text = text.replace("\"C\"", &format!("{:?}", "00000000000000000000000000000002"));
        let text = text.replace("\"m\":\"1\"", "\"m\":\"00000000000000000000000000000001\"");
        let text = text.replace("\"m\":\"2\"", "\"m\":\"00000000000000000000000000000002\"");
        let Ok(Body::Content(Content::Names(names))) = Body::decode(text.as_bytes(), &seal()) else {
            panic!("{text} was trusted or refused");
        };
        assert_eq!(names.keys().into_iter().cloned().collect::<BTreeSet<_>>(), keys, "{text}");
        let again = Names::body_of(names.items());
        assert!(!seal().verify(Purpose::Message, &again), "it stays without a seal");
    }
}

#[test]
fn a_claim_without_a_seal_has_no_counters_and_is_never_sealed() {
    let claim = Claim { forgiven: 7, attempts: attempts(3), ..Claim::on("work-1".to_owned()) };
    let read = claim_in(&unsealed(&claim.encode(&seal())));
    assert_eq!(read, Claim { sealed: false, ..Claim::on("work-1".to_owned()) });
    assert!(!seal().verify(Purpose::Message, &read.encode(&seal())));
    // The payload has a separate seal, which covers its name.
    let envelope = Envelope::of(many(3));
    let payload = claim::payload("work-1", &envelope, &seal());
    assert!(
        matches!(read.open(&payload, &seal()), Ok(Content::Work(opened)) if opened.items == envelope.items)
    );
    let moved = claim::payload("work-2", &envelope, &seal());
    assert!(matches!(claim.open(&moved, &seal()), Ok(Content::Names(names)) if names.items().len() == 3));
}

fn claim_in(body: &[u8]) -> Claim {
    match Body::decode(body, &seal()) {
        Ok(Body::Claim(claim)) => claim,
        other => panic!("no claim: {other:?}"),
    }
}

fn many(count: u128) -> Vec<Work> {
    (0..count).map(|id| work(id, &"r".repeat(140))).collect()
}
