//! Processes call each other over real connections on loopback.

#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "test code")]

mod town;

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use actix_web::web::{Data, post};
use actix_web::{App, HttpResponse, HttpServer};
use futures::FutureExt as _;
use postonce_shared::access::partner_grants::Denial;
use postonce_shared::adapters::http::{
    BroadcastRequest, COMPLETIONS_PATH, CallFault, PARTNERS_PATH, PartnerChanged, PeerNetwork, RING_PATH,
    Recipient, STATUS_PATH, decode_ring,
};
use postonce_shared::cluster::completions::{Completion, News, note};
use postonce_shared::cluster::replies::Replies as _;
use postonce_shared::domain::ids::PartnerId;
use postonce_shared::domain::partner::{Partner, Reach};
use postonce_shared::ports::doorbell::Doorbell as _;
use postonce_shared::ports::process_registry::{Address, ProcessId, ProcessKind};
use postonce_shared::ports::queue::QueueName;
use postonce_worker::http::{PeerState, SignedBody, Status};
use postonce_worker::readiness::Part;
use tokio::sync::Semaphore;

use town::*;

#[tokio::test(flavor = "multi_thread")]
async fn the_first_ring_of_a_process_is_heard_by_every_worker_and_by_itself() {
    let town = Town::new();
    let workers = [town.worker().await, town.worker().await];
    let store = town.store.ports();
    let web = PeerNetwork::new(&store, &town.world, Some(&town.secret)).unwrap();
    let reads = || store.operations.snapshot().values().sum::<u64>();
    assert_eq!(reads(), 0, "nothing is read before somebody rings");
    web.bell.ring(&queue(0));
    for worker in &workers {
        assert_eq!(worker.heard().await, BTreeSet::from([queue(0)]));
    }
    assert_eq!(within(web.bell.rung("work")).await, BTreeSet::from([queue(0)]));
    // By now it knows them: nothing is read for another ring.
    assert_eq!(reads(), 1);
    web.bell.ring(&queue(1));
    for worker in &workers {
        assert_eq!(worker.heard().await, BTreeSet::from([queue(1)]));
    }
    assert_eq!(reads(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_starts_later_is_found_and_told_what_it_missed() {
    let town = Town::new();
    let early = town.worker().await;
    let web = town.exchange();
    web.bell.ring(&queue(0));
    early.heard().await;
    let late = town.worker().await;
    web.bell.ring(&queue(1));
    early.heard().await;
    town.clock.advance(Duration::from_secs(16));
    web.bell.ring(&queue(2));
    // All since the roster was read; in two rings where the clock overtook the answer to an earlier one.
    let mut heard = late.heard().await;
    while heard.len() < 2 {
        heard.extend(late.heard().await);
    }
    assert_eq!(heard, BTreeSet::from([queue(1), queue(2)]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_took_the_place_of_a_dead_one_is_found_by_the_ring_that_fails() {
    let town = Town::new();
    let dead = town.worker().await;
    let web = town.exchange();
    web.bell.ring(&queue(0));
    dead.heard().await;
    dead.server.stop(false).await;
    let successor = town.worker().await;
    town.clock.advance(Duration::from_secs(3));
    web.bell.ring(&queue(0));
    assert_eq!(successor.heard().await, BTreeSet::from([queue(0)]));
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_that_do_not_answer_hold_up_nobody() {
    let town = Town::new();
    // One port where nobody listens, and one where nobody ever answers.
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    for address in [closed, silent.local_addr().unwrap()] {
        town.announce(town.fresh_id(), &Address::parse(&address.to_string()).unwrap()).await;
    }
    let alive = town.worker().await;
    let web = town.exchange();
    for round in 0..20 {
        web.bell.ring(&queue(round));
        assert_eq!(alive.heard().await, BTreeSet::from([queue(round)]));
    }
}

/// A worker that answers when it is told to.
#[derive(Default)]
struct Slow {
    answers: Option<Arc<Semaphore>>,
    rings: Mutex<Vec<BTreeSet<QueueName>>>,
    in_flight: AtomicUsize,
}

#[tokio::test(flavor = "multi_thread")]
async fn rings_collect_while_one_is_in_flight() {
    let town = Town::in_real_time();
    let gate = Arc::new(Semaphore::new(0));
    let slow = Data::new(Slow { answers: Some(Arc::clone(&gate)), ..Slow::default() });
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Address::parse(&listener.local_addr().unwrap().to_string()).unwrap();
    let recipient = Arc::new(Recipient::new(address.clone(), town.world.now()));
    let callee = PeerState { recipient, ..town.house().callee };
    let (app_data, callee) = (Data::clone(&slow), Data::new(callee));
    let server = HttpServer::new(move || {
        let ring = async |body: SignedBody, slow: Data<Slow>| {
            assert_eq!(slow.in_flight.fetch_add(1, Ordering::SeqCst), 0, "at most one is in flight");
            slow.rings.lock().unwrap().push(decode_ring(body.bytes()).unwrap().into_iter().collect());
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
    town.announce(town.fresh_id(), &address).await;

    let web = town.exchange();
    web.bell.ring(&queue(0));
    until(|| slow.rings.lock().unwrap().len() == 1).await;
    for round in 0..300 {
        web.bell.ring(&queue(round % 3));
    }
    gate.add_permits(2);
    until(|| slow.rings.lock().unwrap().len() == 2 && slow.in_flight.load(Ordering::SeqCst) == 0).await;
    within(web.bell.flush(DEADLINE)).await;
    let expected = [BTreeSet::from([queue(0)]), BTreeSet::from([queue(0), queue(1), queue(2)])];
    assert_eq!(*slow.rings.lock().unwrap(), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_waits_elsewhere_is_told() {
    let town = Town::new();
    let (web, worker) = (town.house(), town.exchange());
    let completions: Vec<Completion> = (0..2500).map(|message| completion(&*town.world, message)).collect();
    let waiters: Vec<_> =
        completions.iter().map(|completion| web.callee.completions.register(&completion.key)).collect();
    for completion in &completions {
        worker.replies.send(&worker.seal.ask(&web.address).unwrap(), completion.clone());
    }
    for (mut waiter, completion) in waiters.into_iter().zip(&completions) {
        assert_eq!(within(waiter.outcome()).await, completion.outcome);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_takes_only_calls_that_are_for_its_own_address() {
    let town = Town::new();
    let worker = town.worker().await;
    // The same socket by another name, as where an address in the roster is that of a process that has ended.
    let other = worker.address.as_str().replace("127.0.0.1", "localhost");
    let misled = town.fresh_id();
    town.announce(misled, &Address::parse(&other).unwrap()).await;
    let asker = town.exchange();
    let answers = within(asker.broadcast.send(&BroadcastRequest::get(STATUS_PATH), DEADLINE)).await.unwrap();
    assert_eq!(answers.len(), 2);
    for (entry, answer) in answers {
        if entry.id == misled {
            assert!(matches!(answer, Err(CallFault::Refused(401))), "{answer:?}");
        } else {
            assert!(answer.is_ok(), "{answer:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_note_of_a_process_with_an_outdated_secret_is_only_a_hint() {
    let town = Town::new();
    let web = town.house();
    let outdated =
        PeerNetwork::new(&town.store.ports(), &town.world, Some(&keys("another-secret-long-enough")))
            .unwrap();
    let told = completion(&*town.world, 1);
    let mut waiter = web.callee.completions.register(&told.key);
    outdated.replies.send(&outdated.seal.ask(&web.address).unwrap(), told.clone());
    assert_eq!(within(waiter.news()).await, News::Hint);
    assert_eq!(waiter.look(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_note_that_is_lost_twice_is_dropped() {
    let town = Town::in_real_time();
    let notes: Data<Mutex<Vec<Completion>>> = Data::default();
    let app_data = Data::clone(&notes);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Address::parse(&listener.local_addr().unwrap().to_string()).unwrap();
    let server = HttpServer::new(move || {
        let take = async |body: actix_web::web::Bytes, notes: Data<Mutex<Vec<Completion>>>| {
            notes.lock().unwrap().extend(note::decode(&body).unwrap());
            HttpResponse::InternalServerError().finish()
        };
        App::new().app_data(Data::clone(&app_data)).route(COMPLETIONS_PATH, post().to(take))
    });
    tokio::spawn(server.workers(1).disable_signals().listen(listener).unwrap().run());
    let worker = town.exchange();
    let (lost, later) = (completion(&*town.world, 1), completion(&*town.world, 2));
    let told = |count| {
        let notes = Data::clone(&notes);
        until(move || notes.lock().unwrap().len() >= count)
    };
    worker.replies.send(&worker.seal.ask(&address).unwrap(), lost.clone());
    told(2).await;
    worker.replies.send(&worker.seal.ask(&address).unwrap(), later.clone());
    told(4).await;
    assert_eq!(*notes.lock().unwrap(), [lost.clone(), lost, later.clone(), later]);
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_called_at_an_address_that_no_process_of_the_bank_wrote() {
    let town = Town::new();
    // Somebody who may write to the queue, and who would like to hear what becomes of transactions.
    let thief = TcpListener::bind("127.0.0.1:0").unwrap();
    thief.set_nonblocking(true).unwrap();
    let address = Address::parse(&thief.local_addr().unwrap().to_string()).unwrap();
    let stranger =
        PeerNetwork::new(&town.store.ports(), &town.world, Some(&keys("another-secret-long-enough")))
            .unwrap();
    let (web, worker) = (town.house(), town.exchange());
    let told = completion(&*town.world, 1);
    let mut waiter = web.callee.completions.register(&told.key);

    worker.replies.send(&stranger.seal.ask(&address).unwrap(), told.clone());
    let late = worker.seal.ask(&address).unwrap();
    town.clock.advance(Duration::from_secs(91));
    worker.replies.send(&late, told.clone());
    // Calls are made in the order in which they are asked for, each on a line of its own: by the time that this
    // one was answered, any other would have knocked.
    worker.replies.send(&worker.seal.ask(&web.address).unwrap(), told.clone());
    assert_eq!(within(waiter.outcome()).await, told.outcome);
    assert_eq!(thief.accept().map(drop).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_drains_lets_whoever_came_meanwhile_be_rung() {
    let town = Town::new();
    let draining = town.worker().await;
    let web = town.exchange();
    web.bell.ring(&queue(0));
    draining.heard().await;
    draining.readiness.lose(Part::Running);
    let successor = town.worker().await;
    town.clock.advance(Duration::from_secs(3));
    web.bell.ring(&queue(0));
    assert_eq!(successor.heard().await, BTreeSet::from([queue(0)]));
    assert!(futures::FutureExt::now_or_never(draining.callee.bell.rung("work")).is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_understand_each_other_while_the_secret_is_changed() {
    let town = Town::new();
    let worker = town.worker().await;
    for (round, secret) in
        ["0123456789abcdef,fedcba9876543210", "fedcba9876543210,0123456789abcdef"].into_iter().enumerate()
    {
        let web = PeerNetwork::new(&town.store.ports(), &town.world, Some(&keys(secret))).unwrap();
        web.bell.ring(&queue(u16::try_from(round).unwrap()));
        if round == 0 {
            assert_eq!(worker.heard().await, BTreeSet::from([queue(0)]), "it signs with the old one");
        }
        // The other way it believes both.
        let asked = town.exchange().seal.ask(&worker.address).unwrap();
        assert_eq!(web.seal.open(&asked), Ok(&worker.address));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_other_workers_are_asked_at_once() {
    let town = Town::new();
    let (asker, other) = (town.exchange(), town.worker().await);
    town.announce(asker.id, &other.address).await;
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let dead = town.fresh_id();
    town.announce(dead, &Address::parse(&closed.to_string()).unwrap()).await;
    other.callee.meter.listeners(&queue(0)).allow(7);
    other.callee.meter.received.add(3);

    let answers = within(asker.broadcast.send(&BroadcastRequest::get(STATUS_PATH), DEADLINE)).await.unwrap();
    let mut ids: Vec<ProcessId> = answers.iter().map(|(entry, _)| entry.id).collect();
    ids.sort();
    let mut expected = vec![other.callee.id, dead];
    expected.sort();
    assert_eq!(ids, expected, "itself it knows");
    for (entry, answer) in answers {
        if entry.id == dead {
            assert!(matches!(answer, Err(CallFault::Unreachable(_))), "{answer:?}");
            continue;
        }
        let status: Status = serde_json::from_slice(&answer.unwrap()).unwrap();
        assert_eq!(status, Status::of(&other.callee));
        assert_eq!((status.listeners["work-0"].max, status.counters["messages_received"]), (7, 3));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_only_serves_the_api_is_asked_and_never_rung() {
    let town = Town::in_real_time();
    let (worker, web) = (town.worker().await, town.house());
    town.announce_as(ProcessKind::Web, web.callee.id, &web.address).await;
    let asker = town.exchange();
    let asked = async |request: BroadcastRequest| {
        let answers = within(asker.broadcast.send(&request, DEADLINE)).await.unwrap();
        assert!(answers.iter().all(|(_, answer)| answer.is_ok()), "{answers:?}");
        answers.into_iter().map(|(entry, _)| entry.id).collect::<BTreeSet<ProcessId>>()
    };
    let (of_worker, of_web) = (worker.callee.id, web.callee.id);
    assert_eq!(asked(BroadcastRequest::get(STATUS_PATH)).await, BTreeSet::from([of_worker, of_web]));
    assert_eq!(asked(BroadcastRequest::get(STATUS_PATH).to_workers()).await, BTreeSet::from([of_worker]));
    let told = PartnerChanged { partner: Some("shop".to_owned()) };
    let told = BroadcastRequest::put(PARTNERS_PATH, told.encode());
    let shop = PartnerId::parse("shop").unwrap();
    assert_eq!(worker.grants.find(&shop).await.unwrap().unwrap_err(), Denial::Unknown(shop.clone()));
    let partner = Partner::active(shop.clone(), Reach::Everything, town.world.now());
    let _ = town.store.ports().partners.save(&partner, None).await.unwrap();
    assert_eq!(asked(told).await, BTreeSet::from([of_worker, of_web]));
    // The refusal is forgotten, where it would be remembered for some seconds otherwise.
    assert_eq!(worker.grants.find(&shop).await.unwrap().unwrap().partner, partner);
    asker.bell.ring(&queue(0));
    assert_eq!(worker.heard().await, BTreeSet::from([queue(0)]));
    within(asker.bell.flush(DEADLINE)).await;
    assert!(web.callee.bell.rung("work").now_or_never().is_none(), "nobody listens there");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_listens_only_to_who_knows_the_secret() {
    let town = Town::in_real_time();
    let worker = town.worker().await;
    let http = reqwest::Client::new();
    let put = ("PUT", PARTNERS_PATH);
    for (method, path) in [("POST", RING_PATH), ("POST", COMPLETIONS_PATH), ("GET", STATUS_PATH), put] {
        let request = http.request(method.parse().unwrap(), format!("{}{path}", worker.address));
        let answer = within(request.body(r#"{"queues":["work-0"]}"#).send()).await.unwrap();
        assert_eq!(answer.status(), 401, "{method} {path}");
    }
    let stranger =
        PeerNetwork::new(&town.store.ports(), &town.world, Some(&keys("another-secret-long-enough")))
            .unwrap();
    let answers =
        within(stranger.broadcast.send(&BroadcastRequest::get(STATUS_PATH), DEADLINE)).await.unwrap();
    assert!(matches!(answers[0].1, Err(CallFault::Refused(401))), "{answers:?}");
    stranger.bell.ring(&queue(0));
    within(stranger.bell.flush(DEADLINE)).await;
    town.exchange().bell.ring(&queue(1));
    assert_eq!(worker.heard().await, BTreeSet::from([queue(1)]), "the stranger was not heard");
    // Health and metrics are for everybody.
    for (path, status) in [("/livez", 200), ("/readyz", 503), ("/metrics", 200), ("/v1/users", 404)] {
        let answer = within(http.get(format!("{}{path}", worker.address)).send()).await.unwrap();
        assert_eq!(answer.status(), status, "{path}");
        if path == "/metrics" {
            let text = answer.text().await.unwrap();
            assert!(text.contains("postonce_worker_messages_received_total 0"), "{text}");
        }
    }
}
