//! Pings between processes: they prove that rings arrive, repeat lost rings, and carry the epoch of the gate.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use postonce_process::readiness::Part;
use postonce_shared::adapters::http::PeerNetwork;
use postonce_shared::testing::prelude::*;

use super::cluster::*;

const MINUTE: Duration = Duration::from_secs(60);

impl Cluster {
    /// Starts and registers a process that serves the API only.
    async fn web(&self) -> Process {
        let web = self.process();
        self.register_as(ProcessKind::Web, web.callee.id, &web.address).await;
        web
    }

    fn operations(&self) -> u64 {
        self.ports.operations.snapshot().values().sum()
    }

    /// Advances the clock in steps until the condition holds. Requests take real time, so each step waits a little, and
    /// longer when pings are due.
    async fn pass_until(&self, what: &str, longest: Duration, condition: impl Fn() -> bool) {
        let step = Duration::from_secs(1);
        let mut passed = Duration::ZERO;
        while !condition() {
            assert!(passed < longest, "{what} after {longest:?}");
            self.clock.advance(step);
            passed += step;
            let pings_are_due = self.clock_now().as_secs().is_multiple_of(MINUTE.as_secs());
            tokio::time::sleep(Duration::from_millis(if pings_are_due { 100 } else { 1 })).await;
        }
    }

    async fn pass(&self, time: Duration) {
        let end = self.clock_now() + time;
        self.pass_until("the time passes", time + MINUTE, || self.clock_now() >= end).await;
    }

    fn clock_now(&self) -> Duration {
        self.world.uptime()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pings_prove_that_rings_arrive_and_touch_no_storage() {
    let cluster = Cluster::new();
    let (worker, web, other) = (cluster.worker().await, cluster.web().await, cluster.worker().await);
    assert!(!worker.is_proven());
    let pinging = [worker.keep_pinging(), web.keep_pinging()];
    cluster.pass(2 * MINUTE).await;
    assert!(!worker.is_proven(), "the other worker may send rings, and does not ping");
    let other_pings = other.keep_pinging();
    within(async {
        while !(worker.is_proven() && other.is_proven()) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    let before = cluster.operations();
    cluster
        .pass_until("fifteen minutes pass", 16 * MINUTE, || {
            assert!(worker.is_proven(), "pings arrive on time");
            cluster.clock_now() > 15 * MINUTE
        })
        .await;
    let reads = cluster.operations() - before;
    assert!(reads <= 2, "{reads} reads: each worker reads the registry once in 15 minutes");

    // The web process stops without a farewell.
    assert_eq!(worker.callee.pings.other_listeners(), 1);
    pinging[1].abort();
    let last_ping = cluster.clock_now();
    cluster.pass_until("the ping is missed", MINUTE + MINUTE / 2, || !worker.is_proven()).await;
    assert!(cluster.clock_now() - last_ping <= Duration::from_secs(76));
    let before = cluster.operations();
    cluster.pass(10 * MINUTE).await;
    assert!(!worker.is_proven(), "it is still registered");
    let reads = cluster.operations() - before;
    assert!(
        reads <= 6,
        "{reads} reads: one for the missed ping, and one in five minutes for each failing ping"
    );
    // Removed, as at the end of a process.
    cluster.ports.process_registry.withdraw(web.callee.id).await.unwrap();
    cluster.pass_until("the removal is found", 16 * MINUTE, || worker.is_proven()).await;

    // The other worker is killed: it is still registered, and does not count.
    other_pings.abort();
    let is_alone = || worker.callee.pings.other_listeners() == 0;
    cluster.pass_until("the other worker does not count", 2 * MINUTE, is_alone).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_ring_is_repeated_by_the_next_ping() {
    let cluster = Cluster::new();
    let (worker, web) = (cluster.worker().await, cluster.web().await);
    let _pinging = [worker.keep_pinging(), web.keep_pinging()];
    until(|| worker.is_proven()).await;
    cluster.pass(Duration::from_secs(10)).await;
    // The worker refuses all attempts of the ring.
    worker.readiness.lose(Part::Running);
    web.callee.pings.ring(&queue(3));
    cluster.pass(Duration::from_secs(40)).await;
    worker.readiness.gain(Part::Running);
    assert!(worker.callee.bell.rung("work").now_or_never().is_none());
    let rung = std::sync::atomic::AtomicBool::new(false);
    let ring = async {
        assert_eq!(worker.rung().await, BTreeSet::from([queue(3)]));
        rung.store(true, std::sync::atomic::Ordering::SeqCst);
    };
    let passing = cluster.pass_until("the ring is repeated", Duration::from_secs(30), || {
        rung.load(std::sync::atomic::Ordering::SeqCst)
    });
    futures::join!(ring, passing);
    // It is confirmed now: later pings do not repeat it.
    cluster.pass(2 * MINUTE).await;
    assert!(worker.callee.bell.rung("work").now_or_never().is_none(), "the ring was repeated once");
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_that_start_later_introduce_themselves() {
    let cluster = Cluster::new();
    let web = cluster.web().await;
    let _web_pings = web.keep_pinging();
    cluster.pass(MINUTE).await;
    let worker = cluster.worker().await;
    let before = cluster.operations();
    let _worker_pings = worker.keep_pinging();
    until(|| worker.is_proven()).await;
    // The web process pings the worker although it has no work for it.
    assert_eq!(cluster.operations() - before, 2, "each process reads the registry once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_or_silent_process_prevents_the_proof() {
    let cluster = Cluster::new();
    let (worker, silent) = (cluster.worker().await, cluster.process());
    let _pinging = worker.keep_pinging();
    until(|| worker.is_proven()).await;
    // A process that does not ping.
    cluster.register_as(ProcessKind::Web, silent.callee.id, &silent.address).await;
    cluster.pass_until("the registry is read", 16 * MINUTE, || !worker.is_proven()).await;
    cluster.ports.process_registry.withdraw(silent.callee.id).await.unwrap();
    cluster.pass_until("it has ended", 16 * MINUTE, || worker.is_proven()).await;
    // A process that died before its first ping; its entry is valid for an hour.
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    cluster.register(cluster.fresh_id(), &Address::parse(&closed.to_string()).unwrap()).await;
    cluster.pass_until("the registry is read", 16 * MINUTE, || !worker.is_proven()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pings_carry_the_epoch_of_the_gate() {
    let cluster = Cluster::new();
    let gate = || Gate::new(&cluster.ports, &cluster.world);
    let worker = cluster.process();
    let process_gate = Arc::clone(&worker.callee.process_gate);
    cluster.register(worker.callee.id, &worker.address).await;
    let web = cluster.web().await;
    let _pinging = web.keep_pinging();
    cluster.pass(MINUTE + MINUTE / 2).await;
    let held = gate().set(GateState::Held { release_at: None }, &GateAct::by("a test")).await.unwrap().value;
    let before = cluster.operations();
    cluster.pass(2 * MINUTE).await;
    assert_eq!((cluster.operations(), process_gate.epoch()), (before, 0), "nobody knows the new epoch");
    web.callee.pings.note_gate_epoch(held.epoch);
    cluster.pass_until("the epoch arrives", 2 * MINUTE, || process_gate.epoch() == held.epoch).await;
    cluster.pass(3 * MINUTE).await;
    assert_eq!(cluster.operations(), before + 1, "the gate is read once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_only_rings_is_not_expected_to_ping() {
    let cluster = Cluster::new();
    let worker = cluster.worker().await;
    let _pinging = worker.keep_pinging();
    until(|| worker.is_proven()).await;
    // An operator command.
    let command: PeerNetwork = cluster.network();
    command.bell.ring(&queue(0));
    assert_eq!(worker.rung().await, BTreeSet::from([queue(0)]));
    cluster
        .pass_until("two minutes pass", 3 * MINUTE, || {
            assert!(worker.is_proven());
            cluster.clock_now() > 2 * MINUTE
        })
        .await;
}
