//! Clients that do not take their answers, or send what takes memory: the process stays within its memory, and serves others. One
//! case for each kind; `postonce-tests floods` tries all of them, longer, and with more connections.

use std::time::Duration;

use postonce_tests::floods::{Answer, Flood, FloodBank, MEMORY_KIB_MAX, Way};

/// Short floods, one after the other, of one process.
async fn assert_bounded(floods: &[(Answer, Way, bool, usize)]) {
    let bank = FloodBank::start().await;
    for (answer, way, has_key, connections) in floods.iter().copied() {
        let flood = Flood { answer, way, has_key, connections, lasting: Duration::from_secs(2) };
        let outcome = flood.run(&bank, &bank).await;
        println!("{flood:?}: {outcome:?}");
        assert!(outcome.sent > 0, "{flood:?}: {outcome:?}");
        assert!(outcome.memory_kib <= MEMORY_KIB_MAX, "{flood:?}: {outcome:?}");
        assert!(outcome.latency.answered > 0 && outcome.latency.failed == 0, "{flood:?}: {outcome:?}");
    }
}

#[tokio::test]
async fn answers_over_http2_that_are_not_taken_are_bounded() {
    assert_bounded(&[
        (Answer::Livez, Way::Unread, false, 50),
        (Answer::Livez, Way::NoWindow, false, 50),
        (Answer::Livez, Way::Heads, false, 50),
        (Answer::Results, Way::Unread, true, 20),
        (Answer::Statement, Way::NoWindow, true, 20),
    ])
    .await;
}

#[tokio::test]
async fn answers_over_http1_that_are_not_read_are_bounded() {
    assert_bounded(&[
        (Answer::Docs, Way::Http1, false, 400),
        (Answer::Results, Way::Http1, true, 400),
        (Answer::Waiting, Way::Http1, true, 400),
    ])
    .await;
}

#[tokio::test]
async fn empty_frames_of_bodies_are_bounded() {
    assert_bounded(&[
        (Answer::Waiting, Way::EmptyFrames, true, 4),
        (Answer::Livez, Way::EmptyFrames, false, 20),
    ])
    .await;
}
