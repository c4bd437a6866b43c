//! A body comes out as it went in, at any receipt.

use std::time::Duration;

use super::{LONG, Line};
use crate::ports::fault::StoreFault;
use crate::ports::queue::{BODY_BYTES_MAX, Held};

pub(super) async fn contract(line: &impl AsyncFn() -> Line) {
    bodies_survive_byte_for_byte(&line().await).await;
    a_replaced_body_survives_byte_for_byte(&line().await).await;
    a_body_that_is_too_large_is_refused_or_kept(&line().await).await;
}

/// The largest body, of all bytes that there are.
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
        // Near the limit, where a store that marks some bodies runs out of room.
        [b"{\0".as_slice(), &[7; BODY_BYTES_MAX - 3]].concat(),
        [b"{\0".as_slice(), &[7; BODY_BYTES_MAX - 2]].concat(),
    ]
}

async fn bodies_survive_byte_for_byte(line: &Line) {
    for body in bodies() {
        line.send(&body).await;
        let message = line.next(LONG).await;
        assert!(message.body == body, "a body of {} bytes survives", body.len());
        assert_eq!(line.delete(&message.lease).await, Held::Ours(()), "the lease holds");
    }
}

async fn a_replaced_body_survives_byte_for_byte(line: &Line) {
    line.send(b"{}").await;
    let mut lease = line.next(LONG).await.lease;
    for body in bodies() {
        // Given back at once, so that it can be read again.
        let renewed = line.extend(&lease, &body, Duration::ZERO).await;
        assert!(matches!(renewed, Held::Ours(_)), "the lease holds");
        let message = line.next(LONG).await;
        assert!(message.body == body, "a replaced body of {} bytes survives", body.len());
        lease = message.lease;
    }
}

/// A foreign producer may write more than we do. Where a store takes that, it gives it back unchanged
/// and takes it again: to prolong the lease on it, and to replay it as a dead letter.
async fn a_body_that_is_too_large_is_refused_or_kept(line: &Line) {
    let text = format!("<x>{}</x>", "y & ü".repeat(10_000)).into_bytes();
    assert!(text.len() > BODY_BYTES_MAX, "{} bytes", text.len());
    for body in [text, vec![0; BODY_BYTES_MAX + 1], vec![b'{'; 1 << 20]] {
        match line.port().send(&line.name, &body, Duration::ZERO).await {
            Err(StoreFault::Refused { .. }) => line.depth(0).await,
            Err(fault) => panic!("too large is refused, but: {fault}"),
            Ok(()) => {
                let message = line.next(LONG).await;
                assert!(message.body == body, "what is too large is kept whole or not at all");
                let renewed = line.extend(&message.lease, &body, Duration::ZERO).await;
                assert!(matches!(renewed, Held::Ours(_)), "the lease holds");
                let message = line.next(LONG).await;
                assert!(message.body == body, "and prolonged whole");
                assert_eq!(line.delete(&message.lease).await, Held::Ours(()), "the lease holds");
            }
        }
    }
    line.send(b"{}").await;
    let lease = line.next(LONG).await.lease;
    let refused = line.port().extend(&line.name, &lease, &vec![0; BODY_BYTES_MAX + 1], LONG).await;
    assert!(matches!(refused, Err(StoreFault::Refused { .. })), "no body grows too large: {refused:?}");
    assert_eq!(line.delete(&lease).await, Held::Ours(()), "and what was refused cost no lease");
}
