//! One client, or one partner, cannot take what the others need: connections, slots of requests, memory.

use std::net::Ipv4Addr;
use std::time::Duration;

use futures::future::join_all;
use postonce_tests::prelude::*;
use serde_json::json;

use super::{SOON, Target};

/// The fewest connections that can be configured.
const FEW: &[(&str, &str)] = &[("POSTONCE_CONNECTIONS_MAX", "16"), ("POSTONCE_HEAD_TIMEOUT_S", "20")];
/// Longest time for a request that nothing delays.
const AT_ONCE: Duration = Duration::from_secs(8);
/// The same for a single answer while there is an attack: shorter than the 5 s after which a body of it ends.
const AT_ONCE_FOR_STRANGERS: Duration = Duration::from_secs(3);
/// Largest memory of the process, in KiB.
const MEMORY_KIB_MAX: u64 = 256 * 1024;

async fn deposit_at_once(target: &Target) {
    let client = target.bank.client(0).on_own_connections();
    let started = Stopwatch::start();
    drop(client.post(target.account, fresh_id(), &Submission::deposit("1.00")).await);
    assert!(started.elapsed() < AT_ONCE, "a regular deposit took {:?}", started.elapsed());
}

/// Returns how many of the connections are closed.
async fn closed_of(connections: &mut [RawConnection]) -> usize {
    let closed = connections.iter_mut().map(async |it| it.is_closed(Duration::from_millis(10)).await);
    join_all(closed).await.into_iter().filter(|closed| *closed).count()
}

#[tokio::test]
async fn half_heads_make_room_for_other_clients() {
    // The timeout of heads is longer than this test, so that it closes none of them.
    let target = Target::with(&[("POSTONCE_CONNECTIONS_MAX", "16"), ("POSTONCE_HEAD_TIMEOUT_S", "60")]).await;
    let mut slow = Vec::new();
    for _ in 0..64 {
        let mut connection = target.connect().await;
        connection.send("GET /livez HTTP/1.1\r\n").await;
        slow.push(connection);
    }
    // While it still accepts some of them, the server may close a connection of which it has not yet read the head.
    wait::until("they make room", SOON, async || match closed_of(&mut slow).await {
        48.. => Ok(()),
        fewer => Err(format!("{fewer} are closed")),
    })
    .await;
    deposit_at_once(&target).await;
    let closed = closed_of(&mut slow).await;
    assert!(closed < 64, "and not more than needed: {closed}");
}

#[tokio::test]
async fn the_longest_incomplete_heads_make_room_when_all_are_too_large() {
    let mut target = Target::with(&[("POSTONCE_HEAD_TIMEOUT_S", "60")]).await;
    let address = target.bank.webs.first().expect("a web process").address().to_owned();
    let begin = |kib: usize| format!("GET /{}", "a".repeat(kib * 1024));
    let mut short = target.connect().await;
    assert!(short.send("GET /livez HTTP/1.1\r\nHost: bank\r\n").await);
    let mut long = Vec::new();
    for number in 0..500_u16 {
        let last = u8::try_from(number % 4).expect("a small number").saturating_add(1);
        let mut connection = RawConnection::open_from(Ipv4Addr::new(127, 0, 1, last), &address).await;
        // It may have been closed already.
        connection.send(begin(100)).await;
        long.push(connection);
    }
    let closed = wait::until("the longest heads are closed", wait::TIMEOUT, async || {
        let closed = closed_of(&mut long).await;
        // 32 MiB are 327 of them.
        if closed >= 500 - 327 { Ok(closed) } else { Err(format!("{closed} are closed")) }
    });
    let closed = closed.await;
    assert!(closed < 250, "and no others: {closed}");
    assert!(short.send("\r\n").await);
    assert_eq!(short.answer(SOON).await.map(|answer| answer.status), Some(200), "a short one is kept");
    deposit_at_once(&target).await;
    target.assert_healthy(MEMORY_KIB_MAX).await;
}

#[tokio::test]
async fn idle_connections_make_room_for_other_clients() {
    let target = Target::with(&[("POSTONCE_CONNECTIONS_MAX", "16"), ("POSTONCE_KEEP_ALIVE_S", "600")]).await;
    let mut idle = Vec::new();
    for number in 0..32 {
        let mut connection = target.connect().await;
        let head = format!(
            "GET {} HTTP/1.1\r\nHost: bank\r\nAuthorization: Bearer {}\r\n\r\n",
            path_of(target.account),
            target.bank.key()
        );
        assert!(connection.send(head).await, "connection {number}");
        assert_eq!(
            connection.answer(SOON).await.map(|answer| answer.status),
            Some(200),
            "connection {number}"
        );
        idle.push(connection);
    }
    deposit_at_once(&target).await;
}

/// A request of another process, of which the body never comes: only then its signature could be verified.
async fn unverified(client: Ipv4Addr, address: &str) -> RawConnection {
    let mut connection = RawConnection::open_from(client, address).await;
    let head = "POST /internal/completions HTTP/1.1\r\nHost: bank\r\nX-Postonce-Timestamp: 1\r\n\
                X-Postonce-Signature: 00\r\nContent-Length: 1000\r\n\r\n{";
    // It may have been closed already, to make room.
    connection.send(head).await;
    connection
}

/// The server may still accept some of the slow connections, and close one of which it has not yet read the head, for each.
async fn others_are_answered(address: &str, head: &str) {
    for attempt in 0..4 {
        let answered = wait::until("another client is answered", AT_ONCE_FOR_STRANGERS, async || {
            let mut connection = RawConnection::open(address).await;
            connection.send(head).await;
            match connection.answer(AT_ONCE_FOR_STRANGERS).await.map(|answer| answer.status) {
                Some(200) => Ok(()),
                other => Err(format!("attempt {attempt}: {other:?}")),
            }
        });
        answered.await;
    }
}

#[tokio::test]
async fn unverified_requests_of_other_processes_keep_no_partner_out() {
    let target = Target::with(&[FEW, &[("POSTONCE_INTERNAL_ON_BIND", "true")]].concat()).await;
    let address = target.bank.webs.first().expect("a web process").address().to_owned();
    let head = format!(
        "GET {} HTTP/1.1\r\nHost: bank\r\nAuthorization: Bearer {}\r\n\r\n",
        path_of(target.account),
        target.bank.key()
    );
    let mut slow = Vec::new();
    for number in 0..32_u8 {
        slow.push(
            unverified(Ipv4Addr::new(127, 0, 1, number.div_euclid(4).saturating_add(1)), &address).await,
        );
    }
    others_are_answered(&address, &head).await;
}

/// The address for other processes has at most 512 connections, and some more for probes.
#[tokio::test]
async fn unverified_requests_keep_no_other_process_out() {
    let bank = Plan::on(StoreKind::Sqlite).processes(1, 1).start().await;
    let address = bank.workers.first().expect("a worker process").address().to_owned();
    let mut slow = Vec::new();
    for number in 0..540_u16 {
        let last = u8::try_from(number % 4).expect("a small number").saturating_add(1);
        slow.push(unverified(Ipv4Addr::new(127, 0, 1, last), &address).await);
    }
    others_are_answered(&address, "GET /livez HTTP/1.1\r\nHost: bank\r\n\r\n").await;
    // Few bodies are received at once: the others give way at once, and not after the 5 s that a body may take.
    let mut given_way = 0;
    let most = wait::until("most bodies give way", AT_ONCE_FOR_STRANGERS, async || {
        let answers = slow.iter_mut().map(async |it| it.answer(Duration::from_millis(1)).await);
        let answers = join_all(answers).await.into_iter().flatten();
        given_way += answers.filter(|answer| answer.status == 408).count();
        if given_way > 100 { Ok(()) } else { Err(format!("{given_way} bodies gave way")) }
    });
    most.await;
}

#[tokio::test]
async fn a_request_without_a_key_keeps_no_connection() {
    let target = Target::with(&[("POSTONCE_KEEP_ALIVE_S", "600")]).await;
    let nothing = "GET /nowhere HTTP/1.1\r\nHost: bank\r\n\r\n";
    let wrong = "GET /v1/batches HTTP/1.1\r\nHost: bank\r\nAuthorization: Bearer po_wrong\r\n\r\n";
    for (head, status) in [(nothing, 404), (wrong, 401), ("GET /livez HTTP/1.1\r\nHost: bank\r\n\r\n", 200)] {
        let mut connection = target.connect().await;
        assert!(connection.send(head).await);
        assert_eq!(connection.answer(SOON).await.map(|answer| answer.status), Some(status), "{head}");
        assert!(connection.is_closed(SOON).await, "{head}");
    }
}

/// The gate is held, and a partner waits on as many connections as the server has.
#[tokio::test]
async fn clients_that_wait_delay_neither_others_nor_the_operator() {
    let every_connection = [FEW, &[("POSTONCE_CONNECTIONS_PER_ADDRESS_MAX", "16")]].concat();
    let target = Target::with(&every_connection).await;
    let client = target.bank.client(0);
    let gate = async |client: &Client, state: &str| {
        drop(client.set_gate(&json!({ "state": state })).await.expect(200));
    };
    gate(&client, "held").await;
    let mut waiting = Vec::new();
    for _ in 0..16 {
        let mut connection = target.connect().await;
        let body = r#"{"amount":"1.00","currency":"EUR"}"#;
        let lines = format!("Prefer: wait=30\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        assert!(connection.send(target.deposit(&lines)).await);
        waiting.push(connection);
    }
    // All but a few are answered at once.
    let answered = join_all(waiting.iter_mut().map(async |it| it.answer(Duration::from_secs(5)).await)).await;
    let statuses: Vec<u16> = answered.iter().flatten().map(|answer| answer.status).collect();
    assert!(statuses.len() >= 8 && statuses.contains(&202), "these were answered: {statuses:?}");
    assert!(statuses.iter().all(|status| [202, 429].contains(status)), "{statuses:?}");
    let operator = client.on_own_connections();
    let started = Stopwatch::start();
    gate(&operator, "released").await;
    assert!(started.elapsed() < AT_ONCE, "the release took {:?}", started.elapsed());
    deposit_at_once(&target).await;
    operator.until_drained(wait::TIMEOUT).await;
}

#[tokio::test]
async fn answers_that_are_not_read_use_bounded_memory() {
    let mut target = Target::with(&[]).await;
    let client = target.bank.client(0);
    let metadata = json!({ "a": "x".repeat(2000) });
    let deposits = (0..300).map(async |_| {
        let submission = Submission::deposit("1.00").with("metadata", metadata.clone());
        drop(client.submit(target.account, fresh_id(), &submission).await);
    });
    join_all(deposits).await;
    client.until_drained(wait::TIMEOUT).await;
    let head = format!(
        "GET {}/transactions?limit=1000 HTTP/1.1\r\nHost: bank\r\nAuthorization: Bearer {}\r\n\
         Accept: application/xml\r\n\r\n",
        path_of(target.account),
        target.bank.key()
    );
    let mut unread: Vec<RawConnection> = Vec::new();
    for _ in 0..100 {
        let mut connection = target.connect().await;
        assert!(connection.send(&head).await);
        unread.push(connection);
    }
    deposit_at_once(&target).await;
    target.assert_healthy(MEMORY_KIB_MAX).await;
    // A client that reads gets its whole answer.
    drop(unread);
    let read = wait::until("a large answer", wait::TIMEOUT, async || {
        let mut connection = target.connect().await;
        connection.send(&head).await;
        let answer = connection.answer(SOON).await.ok_or("no answer")?;
        if answer.status == 200 { Ok(answer) } else { Err(format!("status {}", answer.status)) }
    });
    let read = read.await;
    assert!(read.text.ends_with("</TransactionPage>") && read.text.len() > 500_000, "{}", read.text.len());
}

#[tokio::test]
async fn operators_can_have_an_address_of_their_own() {
    let target = Target::with(&[("POSTONCE_ADMIN_BIND", "127.0.0.1:0")]).await;
    let web = target.bank.webs.first().expect("a web process");
    let client = target.bank.client(0);
    let operators_address = web.operators_address().expect("the log shows the address");
    let operators = client.at(&operators_address);
    // Paths that an address does not serve have no documented answer.
    let status = async |address: &str, path: &str| {
        let head = format!(
            "GET {path} HTTP/1.1\r\nHost: bank\r\nAuthorization: Bearer {}\r\n\r\n",
            target.bank.key()
        );
        let mut connection = RawConnection::open(address).await;
        assert!(connection.send(head).await);
        connection.answer(SOON).await.map(|answer| answer.status)
    };
    let account = path_of(target.account);
    for path in ["/v1/admin/gate", "/v1/admin/queues", "/metrics"] {
        assert_eq!(status(web.address(), path).await, Some(404), "{path} for partners");
        assert_eq!(status(&operators_address, path).await, Some(200), "{path} for operators");
    }
    assert_eq!(status(web.address(), &account).await, Some(200));
    assert_eq!(status(&operators_address, &account).await, Some(404), "accounts for operators");
    for health in ["/livez", "/readyz"] {
        assert_eq!((client.get(health).await.status, operators.get(health).await.status), (200, 200));
    }
}
