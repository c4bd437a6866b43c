//! The body of a queue message of ours: work, or a claim on work in the payload store.

use postonce_shared::envelope::{Body, Envelope, Unreadable, pack, pack_raw};
use postonce_shared::ports::queue::BODY_BYTES_MAX;

use super::legacy_body;

/// Any bytes, as the body of a message.
pub fn check(input: &[u8]) {
    match Body::decode(input) {
        Ok(Body::Work(envelope)) => {
            assert_eq!(Body::decode(&envelope.encode()).ok(), Some(Body::Work(envelope.clone())));
            check_packing(&envelope);
        }
        Ok(Body::Claim(claim)) => {
            assert_eq!(Body::decode(&claim.encode()).ok(), Some(Body::Claim(claim)));
        }
        Err(unreadable) => check_unreadable(unreadable),
    }
    // Whatever it is, its parts fit a message again, unless a single item does not.
    let parts = pack_raw(input);
    assert!(!parts.is_empty());
    if parts.len() == 1 && input.len() <= BODY_BYTES_MAX {
        assert_eq!(parts.first().map(Vec::as_slice), Some(input), "it fits, and was changed");
    }
    let form = legacy_body::form_of(input);
    assert!(form.is_none() || Body::decode(input).is_err(), "{form:?} and an envelope at once");
}

fn check_packing(envelope: &Envelope) {
    let packed = pack(&envelope.items, envelope.traceparent.as_deref());
    let items: Vec<_> = packed.iter().flat_map(|envelope| envelope.items.clone()).collect();
    assert_eq!(items, envelope.items, "packing keeps all work in its order");
    for some in packed {
        let bytes = some.encode().len();
        assert!(bytes <= BODY_BYTES_MAX || some.items.len() == 1, "{bytes} bytes in one message");
    }
}

fn check_unreadable(unreadable: Unreadable) {
    let told = unreadable.to_string();
    assert!(!told.is_empty(), "{unreadable:?}");
    match unreadable {
        Unreadable::Items { why: _, readable, bad, bad_count } => {
            assert!(bad_count > 0);
            // What cannot be read is kept as it came, and nothing that can be is among it.
            match Envelope::decode(&bad) {
                Err(Unreadable::Items { readable: none, bad_count: again, .. }) => {
                    assert_eq!((none.len(), again), (0, bad_count));
                }
                other => panic!("the bad items of an envelope became {other:?}"),
            }
            if !readable.is_empty() {
                let sound = Envelope::of(readable.clone(), None);
                assert_eq!(Envelope::decode(&sound.encode()).ok().map(|it| it.items), Some(readable));
            }
        }
        Unreadable::Newer(version) => assert!(version > postonce_shared::envelope::VERSION),
        Unreadable::Malformed(_) | Unreadable::Damaged { .. } | Unreadable::Empty => {}
    }
}
