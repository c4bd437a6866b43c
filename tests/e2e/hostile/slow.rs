//! Whoever sends slowly is not waited for without end, and takes no place that others need.

use std::time::Duration;

use futures::future::join_all;
use postonce_tests::client::Wish;
use postonce_tests::raw_http::RawConnection;
use postonce_tests::scenario::fresh_id;
use postonce_tests::wait::{self, Stopwatch};

use super::{SOON, Target};

/// Between two bytes of a slow sender.
const BYTE_PACE: Duration = Duration::from_millis(100);
/// Slow senders at once.
const CROWD: usize = 500;
/// What they may cost, in KiB: two buffers of 8 KiB each, and what is around them.
const GROWTH_KIB_MAX: u64 = 48 * 1024;

/// Sends a text byte by byte until somebody answers or hangs up; whether all of it was taken.
async fn trickle(connection: &mut RawConnection, text: &str) -> bool {
    for byte in text.as_bytes() {
        if !connection.send([*byte]).await || connection.is_closed(BYTE_PACE).await {
            return false;
        }
    }
    true
}

#[tokio::test]
async fn a_head_that_takes_too_long_is_given_up() {
    let mut target = Target::with(&[]).await;
    let mut connection = target.connect().await;
    let started = Stopwatch::start();
    let lines = format!("X-Slow: {}\r\n\r\n", "x".repeat(100_000));
    assert!(!trickle(&mut connection, &target.deposit(&lines)).await, "somebody waited for all of it");
    assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
    target.is_well(GROWTH_KIB_MAX).await;
}

#[tokio::test]
async fn a_head_that_takes_too_long_is_given_up_on_a_connection_that_was_good_before() {
    let mut target = Target::with(&[("POSTONCE_KEEP_ALIVE_S", "3")]).await;
    let mut connection = target.connect().await;
    assert!(connection.send("GET /livez HTTP/1.1\r\nHost: bank\r\n\r\n").await);
    assert_eq!(connection.answer(SOON).await.map(|answer| answer.status), Some(200));
    assert!(connection.send("GET /li").await);
    let ended = connection.answer(SOON).await;
    assert!(ended.is_none_or(|answer| answer.status == 408));
    assert!(connection.is_closed(SOON).await, "half a head is waited for without end");
    target.is_well(GROWTH_KIB_MAX).await;
}

#[tokio::test]
async fn a_body_that_takes_too_long_is_given_up() {
    let mut target = Target::with(&[]).await;
    let mut connection = target.connect().await;
    assert!(connection.send(target.deposit("Content-Length: 10000\r\n\r\n{")).await);
    let _ended = trickle(&mut connection, &" ".repeat(200)).await;
    let answer = connection.answer(SOON).await.expect("an answer");
    assert_eq!((answer.status, answer.code()), (408, "request_timeout"), "{answer:?}");
    assert_eq!(answer.detail(), "The body took longer than 2s.");
    assert!(connection.is_closed(SOON).await, "the rest of the body is no request");
    target.is_well(GROWTH_KIB_MAX).await;
}

#[tokio::test]
async fn a_crowd_of_slow_senders_keeps_nobody_waiting() {
    let mut target =
        Target::with(&[("POSTONCE_HEAD_TIMEOUT_S", "20"), ("POSTONCE_BODY_TIMEOUT_S", "20")]).await;
    let mut crowd = Vec::new();
    for number in 0..CROWD {
        let mut connection = target.connect().await;
        let (head, end) = (target.deposit("Content-Length: 100\r\n"), "\r\n{");
        let begun = if number % 2 == 0 { head } else { format!("{head}{end}") };
        assert!(connection.send(begun).await, "connection {number}");
        crowd.push(connection);
    }
    let client = target.bank.client(0);
    let posted = async {
        let started = Stopwatch::start();
        drop(client.post(target.account, fresh_id(), &Wish::deposit("1.00")).await);
        started.elapsed()
    };
    let took = posted.await;
    assert!(took < Duration::from_secs(10), "an honest deposit took {took:?}");
    target.is_well(GROWTH_KIB_MAX).await;
    let ended = join_all(crowd.iter_mut().map(async |connection| connection.answer(wait::PATIENCE).await));
    let statuses: Vec<_> = ended.await.into_iter().map(|answer| answer.map(|it| it.status)).collect();
    assert!(statuses.iter().all(|status| *status == Some(408)), "{statuses:?}");
}

#[tokio::test]
async fn no_more_connections_are_served_than_are_allowed_and_the_next_ones_wait() {
    let target = Target::with(&[("POSTONCE_CONNECTIONS_MAX", "16"), ("POSTONCE_HEAD_TIMEOUT_S", "3")]).await;
    let mut crowd = Vec::new();
    for _ in 0..64 {
        let mut connection = target.connect().await;
        assert!(connection.send("GET /livez HTTP/1.1\r\n").await);
        crowd.push(connection);
    }
    // They are given up in turn, and then it is an honest client's turn.
    let client = target.bank.client(0).on_own_connections();
    drop(client.post(target.account, fresh_id(), &Wish::deposit("1.00")).await);
    let statuses = join_all(crowd.iter_mut().map(async |it| it.answer(wait::PATIENCE).await)).await;
    assert!(statuses.iter().flatten().all(|answer| answer.status == 408), "{statuses:?}");
}
