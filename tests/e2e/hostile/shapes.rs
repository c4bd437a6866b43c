//! Ambiguous requests, and bytes that are not HTTP.

use std::time::Duration;

use postonce_tests::prelude::*;

use super::{SOON, Target};

/// A request that is hidden in another one.
const HIDDEN: &str = "GET /metrics HTTP/1.1\r\nHost: bank\r\n\r\n";
const GROWTH_KIB_MAX: u64 = 16 * 1024;

#[tokio::test]
async fn a_request_with_an_ambiguous_end_is_refused() {
    let mut target = Target::with(&[]).await;
    let length = HIDDEN.len();
    let framings = [
        format!("Content-Length: {length}\r\nTransfer-Encoding: chunked\r\n"),
        format!("Transfer-Encoding: chunked\r\nContent-Length: {length}\r\n"),
        format!("Content-Length: {length}\r\nContent-Length: 0\r\n"),
        format!("Content-Length: {length}, 0\r\n"),
        format!("Content-Length: +{length}\r\n"),
        format!("Content-Length: -{length}\r\n"),
        format!("Content-Length: 0x{length:x}\r\n"),
        "Content-Length: 99999999999999999999999\r\n".to_owned(),
        "Content-Length:\r\n".to_owned(),
        format!("Content-Length : {length}\r\n"),
        "Transfer-Encoding: xchunked\r\n".to_owned(),
        "Transfer-Encoding: chunked, identity\r\n".to_owned(),
        "Transfer-Encoding : chunked\r\n".to_owned(),
        "Transfer-Encoding: \x0bchunked\r\n".to_owned(),
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n".to_owned(),
        " Content-Length: 5\r\n".to_owned(),
        "X: a\r\n b\r\n".to_owned(),
        "X: a\0b\r\n".to_owned(),
        "X\0: a\r\n".to_owned(),
    ];
    for framing in framings {
        let mut connection = target.connect().await;
        // The body is an empty last chunk, so that a parser of chunks would find its end, and then the
        // hidden request.
        let request = format!("{}\r\n0\r\n\r\n{HIDDEN}", target.deposit(&framing));
        let _taken = connection.send(request).await;
        let answer = connection.answer(SOON).await.unwrap_or_else(|| panic!("{framing:?}: no answer"));
        assert_eq!(answer.status, 400, "{framing:?}: {answer:?}");
        assert!(connection.is_closed(SOON).await, "{framing:?}: the hidden request was answered");
    }
    target.assert_healthy(GROWTH_KIB_MAX).await;
}

#[tokio::test]
async fn bytes_that_are_not_http_are_refused() {
    let mut target = Target::with(&[]).await;
    let shapes: [&[u8]; 8] = [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\0\0\0\0\r\n\r\n",
        b"GET /livez\r\n\r\n",
        b"GET /livez HTTP/9.9\r\nHost: bank\r\n\r\n",
        b"GET /li vez HTTP/1.1\r\nHost: bank\r\n\r\n",
        b"GET /livez HTTP/1.1\rHost: bank\r\r",
        b"{\"amount\":\"1.00\"}\r\n\r\n",
    ];
    for shape in shapes {
        let mut connection = target.connect().await;
        let _taken = connection.send(shape).await;
        let shown = String::from_utf8_lossy(shape);
        // A possible start of a request is waited for, until the timeout.
        let answer = connection.answer(SOON).await.unwrap_or_else(|| panic!("{shown:?}: no answer"));
        assert!([400, 408].contains(&answer.status), "{shown:?}: {answer:?}");
        assert!(connection.is_closed(SOON).await, "{shown:?}: the connection stays open");
    }
    target.assert_healthy(GROWTH_KIB_MAX).await;
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order_until_the_first_invalid_one() {
    let mut target = Target::with(&[]).await;
    let mut connection = target.connect().await;
    // With a key: an answer without one ends the connection.
    let get = |account| {
        let (path, key) = (path_of(account), target.bank.key());
        format!("GET {path} HTTP/1.1\r\nHost: bank\r\nAuthorization: Bearer {key}\r\n\r\n")
    };
    let (found, unknown) = (get(target.account), get(fresh_account()));
    assert!(connection.send(format!("{found}{unknown}{found}garbage\r\n\r\n{found}")).await);
    for expected in [200, 404, 200, 400] {
        assert_eq!(connection.answer(SOON).await.map(|answer| answer.status), Some(expected));
    }
    assert!(connection.is_closed(SOON).await, "nothing after garbage is parsed as a request");

    // Requests of a client that never reads the answers are not read without a limit.
    let mut greedy = target.connect().await;
    let row = "GET /livez HTTP/1.1\r\nHost: bank\r\n\r\n".repeat(1000);
    for _ in 0..50 {
        let sent = tokio::time::timeout(Duration::from_secs(1), greedy.send(&row)).await;
        if sent != Ok(true) {
            break;
        }
    }
    target.assert_healthy(2 * GROWTH_KIB_MAX).await;
}

#[tokio::test]
async fn a_client_that_expects_100_continue_receives_it() {
    let mut target = Target::with(&[]).await;
    let body = r#"{"amount":"1.00","currency":"EUR"}"#;
    let mut connection = target.connect().await;
    let lines = format!("Expect: 100-continue\r\nContent-Length: {}\r\n\r\n", body.len());
    assert!(connection.send(target.deposit(&lines)).await);
    assert_eq!(connection.answer(SOON).await.map(|answer| answer.status), Some(100));
    assert!(connection.send(body).await);
    assert_eq!(connection.answer(SOON).await.map(|answer| answer.status), Some(202));

    let mut connection = target.connect().await;
    assert!(
        connection.send(target.deposit("Expect: 100-continue\r\nContent-Length: 104857600\r\n\r\n")).await
    );
    let mut answer = connection.answer(SOON).await.expect("an answer");
    if answer.status == 100 {
        answer = connection.answer(SOON).await.expect("an answer");
    }
    assert_eq!((answer.status, answer.code()), (413, "body_too_large"), "{answer:?}");
    target.assert_healthy(GROWTH_KIB_MAX).await;
}
