//! Slow clients are disconnected after a timeout, and do not block others.

use std::time::Duration;

use futures::future::join_all;
use postonce_tests::prelude::*;

use super::{SOON, Target};

/// Time between two bytes of a slow client.
const BYTE_PACE: Duration = Duration::from_millis(100);
/// Number of concurrent slow clients.
const SLOW_CLIENTS: usize = 500;
/// Largest memory growth that they may cause, in KiB: two buffers of 8 KiB each, with overhead.
const GROWTH_KIB_MAX: u64 = 48 * 1024;

/// Sends a text byte by byte until the other side answers or disconnects. Returns whether all of it was
/// accepted.
async fn trickle(connection: &mut RawConnection, text: &str) -> bool {
    for byte in text.as_bytes() {
        if !connection.send([*byte]).await || connection.is_closed(BYTE_PACE).await {
            return false;
        }
    }
    true
}

#[tokio::test]
async fn a_head_that_takes_too_long_times_out() {
    let mut target = Target::with(&[]).await;
    let mut connection = target.connect().await;
    let started = Stopwatch::start();
    let lines = format!("X-Slow: {}\r\n\r\n", "x".repeat(100_000));
    assert!(!trickle(&mut connection, &target.deposit(&lines)).await, "the whole head was accepted");
    assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
    target.assert_healthy(GROWTH_KIB_MAX).await;
}

#[tokio::test]
async fn a_head_that_takes_too_long_times_out_on_a_kept_connection() {
    let mut target = Target::with(&[("POSTONCE_KEEP_ALIVE_S", "3")]).await;
    let mut connection = target.connect().await;
    let (path, key) = (path_of(target.account), target.bank.key());
    let head = format!("GET {path} HTTP/1.1\r\nHost: bank\r\nAuthorization: Bearer {key}\r\n\r\n");
    assert!(connection.send(head).await);
    assert_eq!(connection.answer(SOON).await.map(|answer| answer.status), Some(200));
    assert!(connection.send("GET /li").await);
    let ended = connection.answer(SOON).await;
    assert!(ended.is_none_or(|answer| answer.status == 408));
    assert!(connection.is_closed(SOON).await, "half a head is waited for without end");
    target.assert_healthy(GROWTH_KIB_MAX).await;
}

#[tokio::test]
async fn a_body_that_takes_too_long_times_out() {
    let mut target = Target::with(&[]).await;
    let mut connection = target.connect().await;
    assert!(connection.send(target.deposit("Content-Length: 10000\r\n\r\n{")).await);
    let _ended = trickle(&mut connection, &" ".repeat(200)).await;
    let answer = connection.answer(SOON).await.expect("an answer");
    assert_eq!((answer.status, answer.code()), (408, "request_timeout"), "{answer:?}");
    assert_eq!(answer.detail(), "The body took longer than 2s.");
    assert!(connection.is_closed(SOON).await, "the rest of the body is not parsed as a request");
    target.assert_healthy(GROWTH_KIB_MAX).await;
}

#[tokio::test]
async fn many_slow_clients_delay_no_other_request() {
    let mut target =
        Target::with(&[("POSTONCE_HEAD_TIMEOUT_S", "20"), ("POSTONCE_BODY_TIMEOUT_S", "20")]).await;
    let mut slow = Vec::new();
    for number in 0..SLOW_CLIENTS {
        let mut connection = target.connect().await;
        let (head, end) = (target.deposit("Content-Length: 100\r\n"), "\r\n{");
        let begun = if number % 2 == 0 { head } else { format!("{head}{end}") };
        assert!(connection.send(begun).await, "connection {number}");
        slow.push(connection);
    }
    let client = target.bank.client(0);
    let posted = async {
        let started = Stopwatch::start();
        drop(client.post(target.account, fresh_id(), &Submission::deposit("1.00")).await);
        started.elapsed()
    };
    let took = posted.await;
    assert!(took < Duration::from_secs(10), "a regular deposit took {took:?}");
    target.assert_healthy(GROWTH_KIB_MAX).await;
    let ended = join_all(slow.iter_mut().map(async |connection| connection.answer(wait::TIMEOUT).await));
    let statuses: Vec<_> = ended.await.into_iter().map(|answer| answer.map(|it| it.status)).collect();
    assert!(statuses.iter().all(|status| *status == Some(408)), "{statuses:?}");
}
