//! Connections of consoles: streams of current values, and forms.

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{Either, join_all, select};
use postonce_tests::prelude::*;

use super::http_visit::HttpVisit;

/// More than these settings together, in parts of about a second.
const SHORT: [(&str, &str); 2] = [("POSTONCE_KEEP_ALIVE_S", "1"), ("POSTONCE_HEAD_TIMEOUT_S", "1")];
const PARTS: usize = 8;
/// The streams that the keys of one partner may have in a process.
pub const PARTNER_STREAMS_MAX: usize = 20;
/// The forms of one address that are received at once.
const ADDRESS_SIGN_INS_MAX: usize = 4;
/// The forms of all addresses that are received at once.
const SIGN_INS_MAX: usize = 32;
/// Longest time in which an operator signs in, also on a busy machine.
const AT_ONCE: Duration = Duration::from_secs(8);

#[tokio::test]
async fn an_open_page_is_in_use_while_it_receives_values() {
    let plan = Plan::on(StoreKind::Sqlite).processes(1, 0);
    let bank = SHORT.iter().fold(plan, |plan, (name, value)| plan.with(name, value)).start().await;
    let mut visit = HttpVisit::of(&bank, 0);
    visit.sign_in(bank.key()).await;
    let mut stream = visit.get("/console/live/overview").await;
    for part in 0..PARTS {
        let next = tokio::time::timeout(wait::TIMEOUT, stream.chunk()).await.expect("there is a next part");
        let next = next.unwrap_or_else(|fault| panic!("part {part}: {fault}"));
        assert!(next.is_some(), "the stream ended before part {part}");
    }
}

#[tokio::test]
async fn streams_are_limited_for_each_partner_and_need_the_right_to_read_their_page() {
    let bank = Plan::on(StoreKind::Sqlite).processes(1, 0).start().await;
    let (one, other) =
        (bank.add_partner("one", &["metrics"]), bank.add_partner("other", &["metrics", "read"]));
    let reader = bank.add_partner("reader", &["read"]);
    let visit_of = async |key: &str| {
        let mut visit = HttpVisit::of(&bank, 0);
        visit.sign_in(key).await;
        visit
    };
    let status = async |visit: &HttpVisit| {
        let answer = visit.get("/console/live/gate").await;
        (answer.status().as_u16(), answer)
    };
    let reader = visit_of(&reader).await;
    for _ in 0..=PARTNER_STREAMS_MAX {
        assert_eq!(status(&reader).await.0, 403, "and it takes no place of others");
    }
    let (one, other) = (visit_of(&one).await, visit_of(&other).await);
    let mut open = Vec::new();
    for _ in 0..PARTNER_STREAMS_MAX {
        let (status, stream) = status(&one).await;
        assert_eq!(status, 200);
        open.push(stream);
    }
    let (refused, answer) = status(&one).await;
    assert_eq!(refused, 429);
    let page = answer.text().await.expect("a page");
    assert!(page.contains("20 of this partner open pages current"), "{page}");
    assert_eq!(status(&other).await.0, 200);
    let head = other.http.head(format!("{}/console/live/gate", other.address));
    let head = other.with_cookie(head).send().await.expect("the process answers");
    assert_eq!(head.status().as_u16(), 405, "a stream has no head: it would last without being received");
    drop(open);
    wait::until("a place is free again", wait::TIMEOUT, async || match status(&one).await.0 {
        200 => Ok(()),
        status => Err(status.to_string()),
    })
    .await;
}

/// A form for signing in of which the body is missing.
async fn slow_form(bank: &Scenario, client: Ipv4Addr, path: &str) -> RawConnection {
    let mut connection = RawConnection::open_from(client, bank.webs[0].address()).await;
    let head =
        format!("POST {path} HTTP/1.1\r\nHost: bank\r\nContent-Type: application/x-www-form-urlencoded\r\n");
    assert!(connection.send(format!("{head}Content-Length: 1000\r\n\r\nkey=")).await);
    connection
}

/// Without a key, nothing else limits what a client sends: its forms may not take the connections, and the memory, of others.
#[tokio::test]
async fn forms_for_signing_in_end_in_time_and_are_few_at_once() {
    let bank = Plan::on(StoreKind::Sqlite).processes(1, 0).start().await;
    let mut slow = Vec::new();
    // The second path is another spelling of the first one.
    for path in ["/console/sign-in", "/console/sign%2Din"].into_iter().cycle().take(ADDRESS_SIGN_INS_MAX + 1)
    {
        slow.push(slow_form(&bank, Ipv4Addr::LOCALHOST, path).await);
    }
    // One of them gave way to the last one; the others end in time, and not after the 30 s that a body may take.
    let started = Stopwatch::start();
    let mut reasons = Vec::new();
    for connection in &mut slow {
        let answer = connection.answer(wait::TIMEOUT).await.expect("an answer");
        assert_eq!(answer.status, 408, "{answer:?}");
        let is_late = answer.text.contains("The form took longer than 3s");
        assert!(is_late || answer.text.contains("and others arrived"), "{answer:?}");
        reasons.push(is_late);
        assert!(connection.is_closed(wait::TIMEOUT).await);
    }
    assert_eq!(reasons.iter().filter(|is_late| !**is_late).count(), 1, "{reasons:?}");
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    let answer = HttpVisit::of(&bank, 0).get("/console/sign-in").await;
    assert_eq!(answer.status().as_u16(), 200, "the page itself is shown");
    HttpVisit::of(&bank, 0).sign_in(bank.key()).await;
}

/// All places for forms are taken, again and again: 32 forms of 8 addresses, each with some 75 bytes a second.
#[tokio::test]
async fn an_operator_signs_in_while_others_send_forms_slowly() {
    let bank = Plan::on(StoreKind::Sqlite).processes(1, 0).start().await;
    let begun = AtomicUsize::new(0);
    let attackers = (0..SIGN_INS_MAX).map(|number| {
        let last = u8::try_from(number.div_euclid(ADDRESS_SIGN_INS_MAX)).expect("a small number");
        let (bank, begun) = (&bank, &begun);
        async move {
            loop {
                let mut connection =
                    slow_form(bank, Ipv4Addr::new(127, 0, 1, last.saturating_add(1)), "/console/sign-in")
                        .await;
                begun.fetch_add(1, Ordering::Relaxed);
                while connection.answer(Duration::from_millis(100)).await.is_none()
                    && connection.send("xxxxxxxx").await
                {}
            }
        }
    });
    let attack = join_all(attackers).map(|never: Vec<Infallible>| never.len());
    let operators = async {
        wait::until("all places are taken", wait::TIMEOUT, async || match begun.load(Ordering::Relaxed) {
            SIGN_INS_MAX.. => Ok(()),
            count => Err(format!("{count} forms")),
        })
        .await;
        for attempt in 0..10 {
            let started = Stopwatch::start();
            HttpVisit::of(&bank, 0).sign_in(bank.key()).await;
            assert!(started.elapsed() < AT_ONCE, "attempt {attempt} took {:?}", started.elapsed());
        }
    };
    match select(pin!(attack), pin!(operators)).await {
        Either::Left((attackers, _)) => panic!("{attackers} attackers have ended"),
        Either::Right(_) => {}
    }
}
