//! Tests that a body is received unchanged at every receipt.

use std::time::Duration;

use super::{LONG, TestQueue};
use postonce_shared::testing::prelude::*;

pub(super) async fn contract(queue: &impl AsyncFn() -> TestQueue) {
    bodies_survive_byte_for_byte(&queue().await).await;
    a_replaced_body_survives_byte_for_byte(&queue().await).await;
    a_body_that_is_too_large_is_refused_or_stored_unchanged(&queue().await).await;
}

/// Returns the largest body, which contains all byte values.
fn largest() -> Vec<u8> {
    std::iter::once(b'{').chain((0..=u8::MAX).cycle()).take(BODY_BYTES_MAX).collect()
}

fn bodies() -> Vec<Vec<u8>> {
    vec![
        b"{}".to_vec(),
        b"{".to_vec(),
        b"{ \"text\": \"<a>&amp;\x00\x01\xff\xfe]]>\" }\r\n".to_vec(),
        r#"{"text":"Grüße 🦀"}"#.as_bytes().to_vec(),
        largest(),
        // Near the limit: a store that adds a marker to some bodies has no room left.
        [b"{\0".as_slice(), &[7; BODY_BYTES_MAX - 3]].concat(),
        [b"{\0".as_slice(), &[7; BODY_BYTES_MAX - 2]].concat(),
    ]
}

async fn bodies_survive_byte_for_byte(queue: &TestQueue) {
    for body in bodies() {
        queue.send(&body).await;
        let message = queue.next(LONG).await;
        assert!(message.body == body, "a body of {} bytes survives", body.len());
        assert_eq!(queue.delete(&message.lease).await, Held::Ours(()), "the lease is valid");
    }
}

async fn a_replaced_body_survives_byte_for_byte(queue: &TestQueue) {
    queue.send(b"{}").await;
    let mut lease = queue.next(LONG).await.lease;
    for body in bodies() {
        // Released at once, so that it can be received again.
        let renewed = queue.extend(&lease, &body, Duration::ZERO).await;
        assert!(matches!(renewed, Held::Ours(_)), "the lease is valid");
        let message = queue.next(LONG).await;
        assert!(message.body == body, "a replaced body of {} bytes survives", body.len());
        lease = message.lease;
    }
}

/// A direct producer may write larger bodies than this program. A store that accepts them returns them unchanged and
/// accepts them again: to extend the lease, and to replay them as dead letters.
async fn a_body_that_is_too_large_is_refused_or_stored_unchanged(queue: &TestQueue) {
    let text = format!("<x>{}</x>", "y & ü".repeat(10_000)).into_bytes();
    assert!(text.len() > BODY_BYTES_MAX, "{} bytes", text.len());
    for body in [text, vec![0; BODY_BYTES_MAX + 1], vec![b'{'; 1 << 20]] {
        match queue.port().send(&queue.name, &body, Duration::ZERO).await {
            Err(StoreFault::Refused { .. }) => queue.depth(0).await,
            Err(fault) => panic!("a body that is too large is refused, but the result was: {fault}"),
            Ok(()) => {
                let message = queue.next(LONG).await;
                assert!(message.body == body, "a body that is too large is stored unchanged or refused");
                let renewed = queue.extend(&message.lease, &body, Duration::ZERO).await;
                assert!(matches!(renewed, Held::Ours(_)), "the lease is valid");
                let message = queue.next(LONG).await;
                assert!(message.body == body, "an extended lease keeps the body");
                assert_eq!(queue.delete(&message.lease).await, Held::Ours(()), "the lease is valid");
            }
        }
    }
    queue.send(b"{}").await;
    let lease = queue.next(LONG).await.lease;
    let refused = queue.port().extend(&queue.name, &lease, &vec![0; BODY_BYTES_MAX + 1], LONG).await;
    assert!(
        matches!(refused, Err(StoreFault::Refused { .. })),
        "a new body that is too large is refused: {refused:?}"
    );
    assert_eq!(queue.delete(&lease).await, Held::Ours(()), "the lease is kept after a refusal");
}
