//! What open consoles cost: storage operations, whatever their number.

use std::time::Duration;

use postonce_tests::prelude::*;
use reqwest::Response;

use super::http_visit::HttpVisit;

/// Open consoles of each web process.
const CONSOLES: usize = 3;
/// How long they are open.
const OPEN: Duration = Duration::from_secs(30);
/// Most storage operations a minute of all consoles together.
const PER_MINUTE_MAX: u64 = 60;

on_both_stores![open_consoles_read_the_store_rarely];

async fn open_consoles_read_the_store_rarely(store_kind: StoreKind) {
    let bank = Plan::on(store_kind).processes(2, 0).start().await;
    let mut streams: Vec<Response> = Vec::new();
    for web in 0..2 {
        let mut visit = HttpVisit::of(&bank, web);
        visit.sign_in(bank.key()).await;
        for page in ["overview", "gate", "queues"].iter().cycle().take(CONSOLES) {
            let stream = visit.get(&format!("/console/live/{page}")).await;
            assert_eq!(stream.status().as_u16(), 200);
            streams.push(stream);
        }
    }
    let (before, watch) = (operations(&bank).await, Stopwatch::start());
    let mut events = 0_usize;
    while watch.elapsed() < OPEN {
        for stream in &mut streams {
            let next = tokio::time::timeout(Duration::from_secs(20), stream.chunk()).await;
            let part = next.expect("the stream goes on").expect("the stream can be read");
            events = events.saturating_add(part.map_or(0, |_| 1));
        }
    }
    let spent = operations(&bank).await.saturating_sub(before);
    let seconds = watch.elapsed().as_secs().saturating_add(1);
    println!("{spent} storage operations in {seconds} s with {} consoles, {events} events", streams.len());
    assert!(events > streams.len(), "the streams are alive");
    let allowed = seconds.saturating_mul(PER_MINUTE_MAX).div_ceil(60);
    assert!(spent <= allowed, "{spent} storage operations in {seconds} s; {allowed} are allowed");
}

/// The storage operations of all web processes, also those of their other work while nothing happens.
async fn operations(bank: &Scenario) -> u64 {
    let mut all = 0;
    for web in &bank.webs {
        let probe = ProcessProbe::with_key(web.address(), bank.key());
        let counts = wait::until("the metrics can be read", wait::TIMEOUT, async || {
            let counts = probe.storage_operations().await;
            if counts.is_empty() { Err("none".to_owned()) } else { Ok(counts) }
        })
        .await;
        all = counts.values().fold(all, |all: u64, count| all.saturating_add(*count));
    }
    all
}
