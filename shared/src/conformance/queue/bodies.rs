//! A body comes out as it went in, at any receipt.

use super::{LONG, Line};
use crate::ports::queue::{BODY_BYTES_MAX, Held};

pub(super) async fn contract(line: &impl AsyncFn() -> Line) {
    bodies_survive_byte_for_byte(&line().await).await;
    a_replaced_body_survives_byte_for_byte(&line().await).await;
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
        let renewed = line.extend(&lease, &body, std::time::Duration::ZERO).await;
        assert!(matches!(renewed, Held::Ours(_)), "the lease holds");
        let message = line.next(LONG).await;
        assert!(message.body == body, "a replaced body of {} bytes survives", body.len());
        lease = message.lease;
    }
}
