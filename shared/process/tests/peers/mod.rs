//! Processes call each other over real connections on loopback.

#![expect(
    clippy::unwrap_used,
    clippy::arithmetic_side_effects,
    clippy::disallowed_methods,
    reason = "test code"
)]

mod cluster;
mod pings;

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use actix_web::web::{Data, post};
use actix_web::{App, HttpResponse, HttpServer};
use futures::FutureExt as _;
use parking_lot::Mutex;
use postonce_process::http::{PeerState, SignedBody, Status, StatusQuery};
use postonce_process::readiness::Part;
use postonce_shared::access::partner_cache::Standing;
use postonce_shared::access::partner_grants::GrantError;
use postonce_shared::adapters::http::{
    BroadcastRequest, COMPLETIONS_PATH, CallFault, PARTNERS_PATH, PartnerChanged, PeerNetwork, RING_PATH,
    Recipient, Ring, STATUS_PATH,
};
use postonce_shared::cluster::completions::{Completion, CompletionEvent, reply_body};
use postonce_shared::cluster::contention::ContentionNotices as _;
use postonce_shared::cluster::replies::Replies as _;
use postonce_shared::domain::decision::Submission;
use postonce_shared::ports::queue::INGEST;
use postonce_shared::posting::waiting::QueueReason;
use postonce_shared::testing::prelude::*;
use tokio::sync::Semaphore;

use cluster::*;

#[tokio::test(flavor = "multi_thread")]
async fn the_first_ring_reaches_every_worker_and_the_ringing_process() {
    let cluster = Cluster::new();
    let workers = [cluster.worker().await, cluster.worker().await];
    let store = cluster.store.ports();
    let web = PeerNetwork::new(&store, &cluster.world, DoorbellSecret::new(Some(&cluster.secret))).unwrap();
    let reads = || store.operations.snapshot().values().sum::<u64>();
    assert_eq!(reads(), 0, "nothing is read before the first ring");
    web.bell.ring(&queue(0));
    for worker in &workers {
        assert_eq!(worker.rung().await, BTreeSet::from([queue(0)]));
    }
    assert_eq!(within(web.bell.rung("work")).await, BTreeSet::from([queue(0)]));
    // The workers are known by now: another ring reads nothing.
    assert_eq!(reads(), 1);
    web.bell.ring(&queue(1));
    for worker in &workers {
        assert_eq!(worker.rung().await, BTreeSet::from([queue(1)]));
    }
    assert_eq!(reads(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ring_for_an_ingest_queue_reaches_one_worker() {
    let cluster = Cluster::in_real_time();
    let workers = [cluster.worker().await, cluster.worker().await];
    let store = cluster.store.ports();
    let web = PeerNetwork::new(&store, &cluster.world, DoorbellSecret::new(Some(&cluster.secret))).unwrap();
    // This ring makes the web process read the registry, so that it knows the workers.
    web.bell.ring(&queue(0));
    for worker in &workers {
        assert_eq!(worker.rung().await, BTreeSet::from([queue(0)]));
    }
    assert_eq!(web.bell.other_listeners(), 2);
    for number in 0..8 {
        let ingest = QueueName::of_ingest(&format!("orders-{number}")).unwrap();
        web.bell.ring(&ingest);
        within(web.bell.flush(DEADLINE)).await;
        let rung = workers.each_ref().map(|worker| worker.callee.bell.rung(INGEST).now_or_never());
        assert_eq!(rung.into_iter().flatten().collect::<Vec<_>>(), [BTreeSet::from([ingest])]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_starts_later_gets_the_rings_that_it_missed() {
    let cluster = Cluster::new();
    let early = cluster.worker().await;
    let web = cluster.network();
    web.bell.ring(&queue(0));
    early.rung().await;
    let late = cluster.worker().await;
    web.bell.ring(&queue(1));
    early.rung().await;
    cluster.clock.advance(Duration::from_secs(16));
    web.bell.ring(&queue(2));
    // All rings since the registry was read; two calls if the clock passed the answer to an earlier one.
    let mut rung = late.rung().await;
    while rung.len() < 2 {
        rung.extend(late.rung().await);
    }
    assert_eq!(rung, BTreeSet::from([queue(1), queue(2)]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_ring_finds_the_worker_that_replaced_a_dead_one() {
    let cluster = Cluster::new();
    let dead = cluster.worker().await;
    let web = cluster.network();
    web.bell.ring(&queue(0));
    dead.rung().await;
    dead.server.stop(false).await;
    let successor = cluster.worker().await;
    // A server that is stopping may still answer a ring on a connection that it has not closed yet: that ring
    // did not fail, and the next one does.
    let rung = loop {
        cluster.clock.advance(Duration::from_secs(3));
        web.bell.ring(&queue(0));
        tokio::select! {
            biased;
            rung = successor.rung() => break rung,
            _ = dead.rung() => {}
        }
    };
    assert_eq!(rung, BTreeSet::from([queue(0)]));
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_that_do_not_answer_delay_no_ring() {
    let cluster = Cluster::new();
    // One port on which nothing listens, and one whose connections are never answered.
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    for address in [closed, silent.local_addr().unwrap()] {
        cluster.register(cluster.fresh_id(), &Address::parse(&address.to_string()).unwrap()).await;
    }
    let alive = cluster.worker().await;
    let web = cluster.network();
    for round in 0..20 {
        web.bell.ring(&queue(round));
        assert_eq!(alive.rung().await, BTreeSet::from([queue(round)]));
    }
}

/// A worker whose answers wait for a permit.
#[derive(Default)]
struct SlowWorker {
    answers: Option<Arc<Semaphore>>,
    rings: Mutex<Vec<BTreeSet<QueueName>>>,
    in_flight: AtomicUsize,
}

#[tokio::test(flavor = "multi_thread")]
async fn rings_are_batched_while_one_is_in_flight() {
    let cluster = Cluster::in_real_time();
    let gate = Arc::new(Semaphore::new(0));
    let slow = Data::new(SlowWorker { answers: Some(Arc::clone(&gate)), ..SlowWorker::default() });
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Address::parse(&listener.local_addr().unwrap().to_string()).unwrap();
    let recipient = Arc::new(Recipient::new(address.clone(), cluster.world.now()));
    let callee = PeerState { recipient, ..cluster.process().callee };
    let (app_data, callee) = (Data::clone(&slow), Data::new(callee));
    let server = HttpServer::new(move || {
        let ring = async |body: SignedBody, slow: Data<SlowWorker>| {
            assert_eq!(slow.in_flight.fetch_add(1, Ordering::SeqCst), 0, "at most one call is in flight");
            slow.rings.lock().push(Ring::decode(body.bytes()).unwrap().queues);
            slow.answers.as_ref().unwrap().acquire().await.unwrap().forget();
            slow.in_flight.fetch_sub(1, Ordering::SeqCst);
            HttpResponse::NoContent().finish()
        };
        App::new()
            .app_data(Data::clone(&app_data))
            .app_data(Data::clone(&callee))
            .route(RING_PATH, post().to(ring))
    });
    tokio::spawn(server.workers(1).disable_signals().listen(listener).unwrap().run());
    cluster.register(cluster.fresh_id(), &address).await;

    let web = cluster.network();
    web.bell.ring(&queue(0));
    until(|| slow.rings.lock().len() == 1).await;
    for round in 0..300 {
        web.bell.ring(&queue(round % 3));
    }
    gate.add_permits(2);
    until(|| slow.rings.lock().len() == 2 && slow.in_flight.load(Ordering::SeqCst) == 0).await;
    within(web.bell.flush(DEADLINE)).await;
    let expected = [BTreeSet::from([queue(0)]), BTreeSet::from([queue(0), queue(1), queue(2)])];
    assert_eq!(*slow.rings.lock(), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn completions_reach_the_waiters_of_another_process() {
    let cluster = Cluster::new();
    let (web, worker) = (cluster.process(), cluster.network());
    let completions: Vec<Completion> =
        (0..2500).map(|message| completion(&*cluster.world, message)).collect();
    let waiters: Vec<_> =
        completions.iter().map(|completion| web.callee.completions.register(&completion.key)).collect();
    for completion in &completions {
        worker.replies.send(&worker.seal.sign(&web.address).unwrap(), completion.clone());
    }
    for (mut waiter, completion) in waiters.into_iter().zip(&completions) {
        assert_eq!(within(waiter.outcome()).await, completion.outcome);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_accepts_only_calls_to_its_own_address() {
    let cluster = Cluster::new();
    let worker = cluster.worker().await;
    // The same socket under another name, like a registered address whose process has ended.
    let other = worker.address.as_str().replace("127.0.0.1", "localhost");
    let ended = cluster.fresh_id();
    cluster.register(ended, &Address::parse(&other).unwrap()).await;
    let asker = cluster.network();
    let answers = within(asker.broadcast.send(&BroadcastRequest::get(STATUS_PATH), DEADLINE)).await.unwrap();
    assert_eq!(answers.len(), 2);
    for (entry, answer) in answers {
        if entry.id == ended {
            assert!(matches!(answer, Err(CallFault::Unauthorized)), "{answer:?}");
        } else {
            assert!(answer.is_ok(), "{answer:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_completion_signed_with_an_outdated_secret_is_only_a_hint() {
    let cluster = Cluster::new();
    let web = cluster.process();
    let outdated = PeerNetwork::new(
        &cluster.store.ports(),
        &cluster.world,
        DoorbellSecret::new(Some(&keys("another-secret-long-enough"))),
    )
    .unwrap();
    let completed = completion(&*cluster.world, 1);
    let mut waiter = web.callee.completions.register(&completed.key);
    outdated.replies.send(&outdated.seal.sign(&web.address).unwrap(), completed.clone());
    assert_eq!(within(waiter.next_event()).await, CompletionEvent::Hint);
    assert_eq!(waiter.known_outcome(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_completion_whose_delivery_fails_twice_is_dropped() {
    let cluster = Cluster::in_real_time();
    let notes: Data<Mutex<Vec<Completion>>> = Data::default();
    let app_data = Data::clone(&notes);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Address::parse(&listener.local_addr().unwrap().to_string()).unwrap();
    let server = HttpServer::new(move || {
        let take = async |body: actix_web::web::Bytes, notes: Data<Mutex<Vec<Completion>>>| {
            notes.lock().extend(reply_body::decode(&body).unwrap());
            HttpResponse::InternalServerError().finish()
        };
        App::new().app_data(Data::clone(&app_data)).route(COMPLETIONS_PATH, post().to(take))
    });
    tokio::spawn(server.workers(1).disable_signals().listen(listener).unwrap().run());
    let worker = cluster.network();
    let (lost, later) = (completion(&*cluster.world, 1), completion(&*cluster.world, 2));
    let received = |count| {
        let notes = Data::clone(&notes);
        until(move || notes.lock().len() >= count)
    };
    worker.replies.send(&worker.seal.sign(&address).unwrap(), lost.clone());
    received(2).await;
    worker.replies.send(&worker.seal.sign(&address).unwrap(), later.clone());
    received(4).await;
    assert_eq!(*notes.lock(), [lost.clone(), lost, later.clone(), later]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_no_process_of_the_bank_wrote_is_never_called() {
    let cluster = Cluster::new();
    // An attacker who may write to the queue, and who wants to receive the outcomes of transactions.
    let attacker = TcpListener::bind("127.0.0.1:0").unwrap();
    attacker.set_nonblocking(true).unwrap();
    let address = Address::parse(&attacker.local_addr().unwrap().to_string()).unwrap();
    let outsider = PeerNetwork::new(
        &cluster.store.ports(),
        &cluster.world,
        DoorbellSecret::new(Some(&keys("another-secret-long-enough"))),
    )
    .unwrap();
    let (web, worker) = (cluster.process(), cluster.network());
    let completed = completion(&*cluster.world, 1);
    let mut waiter = web.callee.completions.register(&completed.key);

    worker.replies.send(&outsider.seal.sign(&address).unwrap(), completed.clone());
    let late = worker.seal.sign(&address).unwrap();
    cluster.clock.advance(Duration::from_secs(91));
    worker.replies.send(&late, completed.clone());
    // Calls are made in the order of the requests, each on a connection of its own: once this one was
    // answered, any other would have connected.
    worker.replies.send(&worker.seal.sign(&web.address).unwrap(), completed.clone());
    assert_eq!(within(waiter.outcome()).await, completed.outcome);
    assert_eq!(attacker.accept().map(drop).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}

#[tokio::test(flavor = "multi_thread")]
async fn rings_for_a_draining_worker_go_to_its_successor() {
    let cluster = Cluster::new();
    let draining = cluster.worker().await;
    let web = cluster.network();
    web.bell.ring(&queue(0));
    draining.rung().await;
    draining.readiness.lose(Part::Running);
    let successor = cluster.worker().await;
    cluster.clock.advance(Duration::from_secs(3));
    web.bell.ring(&queue(0));
    assert_eq!(successor.rung().await, BTreeSet::from([queue(0)]));
    assert!(futures::FutureExt::now_or_never(draining.callee.bell.rung("work")).is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_verify_each_other_while_the_secret_changes() {
    let cluster = Cluster::new();
    let worker = cluster.worker().await;
    for (round, secret) in
        ["0123456789abcdef,fedcba9876543210", "fedcba9876543210,0123456789abcdef"].into_iter().enumerate()
    {
        let web = PeerNetwork::new(
            &cluster.store.ports(),
            &cluster.world,
            DoorbellSecret::new(Some(&keys(secret))),
        )
        .unwrap();
        web.bell.ring(&queue(u16::try_from(round).unwrap()));
        if round == 0 {
            assert_eq!(worker.rung().await, BTreeSet::from([queue(0)]), "it signs with the old secret");
        }
        // In the other direction, it verifies both secrets.
        let asked = cluster.network().seal.sign(&worker.address).unwrap();
        assert_eq!(web.seal.verify(&asked), Ok(&worker.address));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_reaches_all_other_workers_at_once() {
    let cluster = Cluster::new();
    let (asker, other) = (cluster.network(), cluster.worker().await);
    cluster.register(asker.id, &other.address).await;
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let dead = cluster.fresh_id();
    cluster.register(dead, &Address::parse(&closed.to_string()).unwrap()).await;
    let replaced = cluster.fresh_id();
    cluster.register(replaced, &other.address).await;
    other.callee.meter.listeners(&queue(0)).set_max(7);
    other.callee.meter.received.add(3);

    let answers = within(asker.broadcast.send(&BroadcastRequest::get(STATUS_PATH), DEADLINE)).await.unwrap();
    let mut ids: Vec<ProcessId> = answers.iter().map(|(entry, _)| entry.id).collect();
    ids.sort();
    let mut expected = vec![other.callee.id, dead, replaced];
    expected.sort();
    assert_eq!(ids, expected, "the asking process is not asked");
    for (entry, answer) in answers {
        if entry.id == dead {
            assert!(matches!(answer, Err(CallFault::Unreachable(_))), "{answer:?}");
            continue;
        }
        if entry.id == replaced {
            assert!(matches!(answer, Err(CallFault::Replaced)), "{answer:?}");
            continue;
        }
        let status: Status = serde_json::from_slice(&answer.unwrap()).unwrap();
        assert_eq!(status, Status::of(&other.callee, StatusQuery::default()));
        assert_eq!((status.listeners["work-0"].max, status.counters["messages_received"]), (7, 3));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_on_which_a_worker_cannot_commit_is_left_to_it() {
    let cluster = Cluster::in_real_time();
    let web = cluster.process();
    cluster.register_as(ProcessKind::Web, web.callee.id, &web.address).await;
    let key = completion(&*cluster.world, 1).key;
    let amount = Amount::try_new(100, Currency::parse("EUR").unwrap()).unwrap();
    let instruction = Instruction { kind: TransactionKind::Deposit, amount, details: Details::default() };
    let (accepted_at, origin) = (cluster.world.now(), Origin::default());
    let new = Submission { key: key.clone(), instruction, accepted_at, batch_line: None, origin };
    assert_eq!(web.callee.process_gate.refresh(1).await, 0, "the gate was never changed");
    // The account does not exist, so that nothing is posted.
    assert_eq!(web.callee.immediate.post(new.clone(), Standing::ALWAYS).await, Err(QueueReason::Fault));
    cluster.network().contention.send(key.account);
    let left = async {
        while web.callee.immediate.post(new.clone(), Standing::ALWAYS).await != Err(QueueReason::Contended) {
            tokio::task::yield_now().await;
        }
    };
    within(left).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_without_a_worker_gets_questions_and_no_rings() {
    let cluster = Cluster::in_real_time();
    let (worker, web) = (cluster.worker().await, cluster.process());
    cluster.register_as(ProcessKind::Web, web.callee.id, &web.address).await;
    let asker = cluster.network();
    let asked = async |request: BroadcastRequest| {
        let answers = within(asker.broadcast.send(&request, DEADLINE)).await.unwrap();
        assert!(answers.iter().all(|(_, answer)| answer.is_ok()), "{answers:?}");
        answers.into_iter().map(|(entry, _)| entry.id).collect::<BTreeSet<ProcessId>>()
    };
    let (of_worker, of_web) = (worker.callee.id, web.callee.id);
    assert_eq!(asked(BroadcastRequest::get(STATUS_PATH)).await, BTreeSet::from([of_worker, of_web]));
    let changed = PartnerChanged { partner: Some("shop".to_owned()) };
    let changed = BroadcastRequest::put(PARTNERS_PATH, changed.encode());
    let shop = PartnerId::parse("shop").unwrap();
    assert_eq!(worker.grants.find(&shop).await.unwrap().map(drop), Err(GrantError::Unknown(shop.clone())));
    let partner = Partner::active(shop.clone(), Reach::Everything, cluster.world.now());
    let _ = PartnerRecords::new(&cluster.store.ports()).save(&partner, None).await.unwrap();
    assert_eq!(asked(changed).await, BTreeSet::from([of_worker, of_web]));
    // The cached refusal is dropped; otherwise it would stay valid for some seconds.
    assert_eq!(worker.grants.find(&shop).await.unwrap().unwrap().0.partner, partner);
    asker.bell.ring(&queue(0));
    assert_eq!(worker.rung().await, BTreeSet::from([queue(0)]));
    within(asker.bell.flush(DEADLINE)).await;
    assert!(web.callee.bell.rung("work").now_or_never().is_none(), "a process without a worker gets no ring");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_refuses_calls_without_the_secret() {
    let cluster = Cluster::in_real_time();
    let worker = cluster.worker().await;
    let http = reqwest::Client::new();
    let put = ("PUT", PARTNERS_PATH);
    for (method, path) in [("POST", RING_PATH), ("POST", COMPLETIONS_PATH), ("GET", STATUS_PATH), put] {
        let request = http.request(method.parse().unwrap(), format!("{}{path}", worker.address));
        let answer = within(request.body(r#"{"queues":["work-0"]}"#).send()).await.unwrap();
        assert_eq!(answer.status(), 401, "{method} {path}");
    }
    let outsider = PeerNetwork::new(
        &cluster.store.ports(),
        &cluster.world,
        DoorbellSecret::new(Some(&keys("another-secret-long-enough"))),
    )
    .unwrap();
    let answers =
        within(outsider.broadcast.send(&BroadcastRequest::get(STATUS_PATH), DEADLINE)).await.unwrap();
    assert!(matches!(answers[0].1, Err(CallFault::Unauthorized)), "{answers:?}");
    outsider.bell.ring(&queue(0));
    within(outsider.bell.flush(DEADLINE)).await;
    cluster.network().bell.ring(&queue(1));
    assert_eq!(worker.rung().await, BTreeSet::from([queue(1)]), "the ring without the secret was ignored");
    // Health and metrics need no signature.
    for (path, status) in [("/livez", 200), ("/readyz", 503), ("/metrics", 200), ("/v1/users", 404)] {
        let answer = within(http.get(format!("{}{path}", worker.address)).send()).await.unwrap();
        assert_eq!(answer.status(), status, "{path}");
        if path == "/metrics" {
            let text = answer.text().await.unwrap();
            assert!(text.contains("postonce_worker_messages_received_total 0"), "{text}");
        }
    }
}
