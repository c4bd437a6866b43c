//! Bodies and heads that are too large.

use super::{SOON, Target};

/// The size of a huge body: 100 MB.
const HUGE_BYTES: usize = 100 * 1024 * 1024;
/// Largest memory growth that hostile requests may cause, in KiB.
const GROWTH_KIB_MAX: u64 = 16 * 1024;
/// Bytes that the buffers of the kernel and the server accept before the refusal.
const ACCEPTED_BYTES_MAX: usize = 16 * 1024 * 1024;

#[tokio::test]
async fn a_body_of_100_mb_is_refused_and_not_read() {
    let mut target = Target::with(&[]).await;
    let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
    let block = "x".repeat(64 * 1024);
    let with_length = format!("Content-Length: {HUGE_BYTES}\r\n\r\n");
    let chunked = "Transfer-Encoding: chunked\r\n\r\n".to_owned();
    for (lines, block) in [(&with_length, &block), (&chunked, &chunk)] {
        let mut connection = target.connect().await;
        assert!(connection.send(target.deposit(lines)).await);
        let taken = connection.flood(block.as_bytes(), HUGE_BYTES).await;
        let answer = connection.answer(SOON).await.expect("an answer");
        assert_eq!((answer.status, answer.code()), (413, "body_too_large"), "{answer:?}");
        assert_eq!(answer.detail(), "A body has at most 65536 bytes.");
        assert!(taken <= ACCEPTED_BYTES_MAX, "{taken} bytes were accepted");
        assert!(connection.is_closed(SOON).await, "the rest is not parsed as a request");
    }
    target.assert_healthy(GROWTH_KIB_MAX).await;
}

#[tokio::test]
async fn a_huge_body_of_a_request_without_a_body_is_not_read() {
    let mut target = Target::with(&[]).await;
    let block = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
    let requests = [
        ("GET /livez HTTP/1.1\r\nHost: bank\r\n", 200),
        ("POST /nowhere HTTP/1.1\r\nHost: bank\r\n", 404),
        ("POST /v1/users/x/accounts/y/deposits HTTP/1.1\r\nHost: bank\r\n", 401),
        ("POST /internal/ring HTTP/1.1\r\nHost: bank\r\n", 404),
    ];
    let with_length = format!("Content-Length: {HUGE_BYTES}\r\n\r\n");
    for (number, (request, status)) in requests.iter().cycle().take(8).enumerate() {
        let framing = if number < 4 { with_length.as_str() } else { "Transfer-Encoding: chunked\r\n\r\n" };
        let mut connection = target.connect().await;
        assert!(connection.send(format!("{request}{framing}")).await);
        let taken = connection.flood(block.as_bytes(), HUGE_BYTES).await;
        let answer = connection.answer(SOON).await.expect("an answer");
        assert_eq!(answer.status, *status, "{request}: {answer:?}");
        assert!(taken <= ACCEPTED_BYTES_MAX, "{request}: {taken} bytes were accepted");
        assert!(connection.is_closed(SOON).await, "{request}: the rest is not parsed as a request");
    }
    target.assert_healthy(GROWTH_KIB_MAX).await;
}

#[tokio::test]
async fn a_huge_body_with_an_invalid_signature_is_refused() {
    let mut target = Target::with(&[("POSTONCE_INTERNAL_ON_BIND", "true")]).await;
    let mut connection = target.connect().await;
    let head = format!(
        "POST /internal/completions HTTP/1.1\r\nHost: bank\r\nX-Postonce-Timestamp: 1\r\n\
         X-Postonce-Signature: 00\r\nContent-Length: {HUGE_BYTES}\r\n\r\n"
    );
    assert!(connection.send(head).await);
    let _taken = connection.flood("x".repeat(64 * 1024).as_bytes(), HUGE_BYTES).await;
    let answer = connection.answer(SOON).await.expect("an answer");
    assert_eq!((answer.status, answer.detail()), (413, "A body has at most 320064 bytes."), "{answer:?}");
    target.assert_healthy(GROWTH_KIB_MAX).await;
}

#[tokio::test]
async fn a_head_that_is_too_large_is_refused() {
    let mut target = Target::with(&[]).await;
    let lines: String = (0..10_000).map(|number| format!("X-Line-{number}: {number}\r\n")).collect();
    let long = |bytes| format!("X-Long: {}\r\n", "x".repeat(bytes));
    let path = |bytes| format!("/livez?{}", "x".repeat(bytes));
    let heads = [
        (path(0), lines, 431),
        (path(0), long(1024 * 1024), 431),
        (path(0), long(100_000), 431),
        (path(60_000), String::new(), 431),
        (path(0), long(16_000), 200),
        (path(1024 * 1024), String::new(), 431),
    ];
    for (path, lines, status) in heads {
        let mut connection = target.connect().await;
        // The process may close the connection before it has read everything.
        let _taken = connection.send(format!("GET {path} HTTP/1.1\r\nHost: bank\r\n{lines}\r\n")).await;
        let answer = connection.answer(SOON).await.expect("an answer");
        assert_eq!(answer.status, status, "{} bytes of lines: {answer:?}", lines.len());
        // A head that the framework accepts is refused with a problem document; a larger one is refused by
        // the framework without one.
        let bytes = path.len().saturating_add(lines.len());
        let code = if (16_384..131_072).contains(&bytes) { "headers_too_large" } else { "" };
        assert_eq!(answer.code(), code, "{bytes} bytes: {answer:?}");
    }
    target.assert_healthy(GROWTH_KIB_MAX).await;
}

#[tokio::test]
async fn json_that_is_deep_wide_or_ambiguous_is_refused() {
    let mut target = Target::with(&[("POSTONCE_BODY_BYTES_MAX", "1048576")]).await;
    let deep =
        |open: &str, close: &str, depth| format!("{{\"x\":{}{}}}", open.repeat(depth), close.repeat(depth));
    let wide: String = (0..80_000).map(|number| format!(",\"{number}\":1")).collect();
    let known = r#""amount":"1.00","currency":"EUR""#;
    let odd: String = (0..50_000).map(|number| format!(",\"{number}\":1")).collect();
    let metadata = odd.trim_start_matches(',');
    let cases: [(String, u16, &str); 12] = [
        (deep("[", "]", 100_000), 400, "nested deeper than 16"),
        (deep("{\"a\":", "}", 100_000), 400, "body_invalid"),
        ("[".repeat(100_000), 400, "not valid JSON"),
        (format!("{{{known}{wide}}}"), 422, "unknown members of"),
        (format!("{{{known},\"metadata\":{{{metadata}}}}}"), 422, "see violations for the first 100"),
        (format!("{{{known},\"amount\":\"2.00\"}}"), 400, "occurs twice"),
        (format!("{{{known},\"reference\":\"\\u0000\"}}"), 422, "control characters"),
        (format!("{{{known},\"reference\":\"\0\"}}"), 400, "not valid JSON"),
        (format!("{{{known},\"{}\":1}}", "n".repeat(500_000)), 422, "unknown members of"),
        (format!("{{{known},\"x\":{}}}", "9".repeat(500_000)), 400, "not valid JSON"),
        (format!("{{{known},\"reference\":\"{}\"}}", "\\ud83d".repeat(100)), 400, "not valid JSON"),
        (format!("{{{known}}}{}", " ".repeat(1_048_576)), 413, "at most 1048576 bytes"),
    ];
    for (body, status, expected) in cases {
        let mut connection = target.connect().await;
        let request = format!("{}\r\n{body}", target.deposit(&format!("Content-Length: {}\r\n", body.len())));
        let _taken = connection.send(request).await;
        let answer = connection.answer(SOON).await.expect("an answer");
        let start: String = body.chars().take(60).collect();
        assert_eq!(answer.status, status, "{start}: {answer:?}");
        assert!(format!("{} {}", answer.code(), answer.body).contains(expected), "{start}: {answer:?}");
    }
    let mut connection = target.connect().await;
    let head = target.deposit("Content-Length: 4\r\n\r\n");
    assert!(connection.send([head.as_bytes(), b"{\"\xff\""].concat()).await);
    let answer = connection.answer(SOON).await.expect("an answer");
    assert_eq!((answer.status, answer.code()), (400, "body_invalid"), "{answer:?}");
    // Both HTTP threads keep the memory of the largest body that they parsed.
    target.assert_healthy(2 * GROWTH_KIB_MAX).await;
}
