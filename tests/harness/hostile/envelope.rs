//! The body of a queue message of the bank: work, or a claim check for work in the payload store.

use postonce_shared::messaging::envelope::{Body, Content, Envelope, Names, Unreadable, pack, pack_raw};
use postonce_shared::testing::prelude::*;

use super::legacy_body;

/// Decodes any bytes as the body of a message: unchanged, with the seal of the bank, and with the seal of another bank.
pub fn check(input: &[u8]) {
    // Samples in the corpus can have the seal of the bank.
    match seal().verify(Purpose::Message, input) {
        true => check_sealed(input),
        false => check_unsealed(input),
    }
    let sealed = seal().seal(Purpose::Message, input.to_vec());
    if seal().verify(Purpose::Message, &sealed) {
        check_sealed(&sealed);
    }
    check_unsealed(&seal_of("the-secret-of-another-bank").seal(Purpose::Message, input.to_vec()));
    // The parts of any body fit into messages, unless a single item is too large.
    let parts = pack_raw(input);
    assert!(!parts.is_empty());
    if parts.len() == 1 && input.len() <= BODY_BYTES_MAX {
        assert_eq!(parts.first().map(Vec::as_slice), Some(input), "a body that fits must not change");
    }
    assert!(
        !legacy_body::has_order(input) || Body::decode(input, &seal()).is_err(),
        "an order and an envelope at once"
    );
}

/// Checks that only the names of transactions are used without a seal, and that a rewritten body has no seal either.
fn check_unsealed(body: &[u8]) {
    match Body::decode(body, &seal()) {
        Ok(Body::Content(Content::Work(_))) => panic!("work without a seal is trusted"),
        Ok(Body::Content(Content::Names(names))) => {
            let again = Names::body_of(names.items());
            assert!(!seal().verify(Purpose::Message, &again), "a seal for what came without one");
            let read = Names::read(&again).expect("it was read before");
            assert_eq!(read.keys(), names.keys());
        }
        Ok(Body::Claim(claim)) => {
            assert!(!claim.sealed && claim.forgiven == 0 && claim.attempts.is_empty(), "{claim:?}");
            assert!(
                !seal().verify(Purpose::Message, &claim.encode(&seal())),
                "a seal for a claim without one"
            );
        }
        Err(unreadable) => {
            assert!(!matches!(unreadable, Unreadable::Newer(_) | Unreadable::Items { .. }), "{unreadable:?}");
            check_unreadable(unreadable);
        }
    }
}

fn check_sealed(body: &[u8]) {
    match Body::decode(body, &seal()) {
        Ok(Body::Content(Content::Work(envelope))) => {
            assert_eq!(envelope_in(&envelope.encode(&seal())), envelope);
            check_packing(&envelope);
        }
        Ok(Body::Content(Content::Names(names))) => panic!("a sealed body is not trusted: {names:?}"),
        Ok(Body::Claim(claim)) => match Body::decode(&claim.encode(&seal()), &seal()) {
            Ok(Body::Claim(read)) => assert_eq!(read, claim),
            other => panic!("a claim became {other:?}"),
        },
        Err(unreadable) => check_unreadable(unreadable),
    }
}

fn check_packing(envelope: &Envelope) {
    let packed = pack(&envelope.items);
    let items: Vec<_> = packed.iter().flat_map(|envelope| envelope.items.clone()).collect();
    assert_eq!(items, envelope.items, "packing keeps all work in its order");
    for some in packed {
        let bytes = some.encode(&seal()).len();
        assert!(bytes <= BODY_BYTES_MAX || some.items.len() == 1, "{bytes} bytes in one message");
    }
}

fn check_unreadable(unreadable: Unreadable) {
    let message = unreadable.to_string();
    assert!(!message.is_empty(), "{unreadable:?}");
    match unreadable {
        Unreadable::Items { why: _, readable, bad, bad_count } => {
            assert!(bad_count > 0);
            // Unreadable items are kept unchanged, without any readable item.
            match Body::decode(&seal().seal(Purpose::Message, bad), &seal()) {
                Err(Unreadable::Items { readable: none, bad_count: again, .. }) => {
                    assert_eq!((none.len(), again), (0, bad_count));
                }
                other => panic!("the bad items of an envelope became {other:?}"),
            }
            if !readable.is_empty() {
                let readable_only = Envelope::of(readable.clone());
                assert_eq!(envelope_in(&readable_only.encode(&seal())).items, readable);
            }
        }
        Unreadable::Newer(version) | Unreadable::Unsealed(version) => {
            assert!(version > postonce_shared::messaging::envelope::VERSION)
        }
        Unreadable::Malformed(_) | Unreadable::Damaged { .. } | Unreadable::Empty => {}
    }
}
