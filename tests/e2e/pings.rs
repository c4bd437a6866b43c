//! Lost notifications with the default settings: work whose ring is lost is found by the next ping, or because a ping
//! is missing. The worker has many queues, so that its safety poll, which takes them in turn, finds nothing in time.

use std::net::TcpListener;
use std::time::Duration;

use postonce_shared::testing::prelude::*;
use postonce_tests::prelude::*;
use postonce_tests::proxy::Proxy;

/// The number of work queues.
const QUEUES: u64 = 64;
/// Polls because of the start of a worker: of all queues of work, and twice of those of batches, which are as many, and one
/// each of initiator and controller. A ping can cause further ones.
const START_POLLS: u64 = QUEUES + 2 * (QUEUES + 2);
/// Time after the start of a worker when these polls are over: they come after 20 s, and those of batches again after a
/// visibility timeout, which is as long.
const START_POLLS_END: Duration = Duration::from_secs(45);
/// Requests of a ring until it is given up.
const RING_ATTEMPTS: usize = 8;
/// Longest time until a ping, and until the end of a ring.
const PING_TIME_MAX: Duration = Duration::from_secs(75);
/// Longest time until all queues are polled, from the start of a worker or from the ring that is lost: so the longest time
/// from sending work whose ring is lost to its posting.
const FOUND_WITHIN: Duration = Duration::from_secs(120);

/// A bank whose worker is reached through a proxy.
struct Proxied {
    bank: Scenario,
    proxy: Proxy,
    /// Since the start of the worker.
    started: Stopwatch,
}

impl Proxied {
    async fn start() -> Self {
        let plan = Plan::on(StoreKind::Azurite).with("POSTONCE_QUEUE_COUNT", &QUEUES.to_string());
        let plan = plan.with("POSTONCE_LOG", "info,postonce_shared=debug");
        let mut bank = plan.processes(1, 0).start().await;
        let port =
            TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("a free port").port();
        let proxy = Proxy::before(port);
        bank.settings = (bank.settings.clone())
            .with("POSTONCE_WORKER_BIND", format!("127.0.0.1:{port}"))
            .with("POSTONCE_ADVERTISE", format!("127.0.0.1:{}", proxy.port()));
        bank.start_worker();
        bank.until_workers_ready().await;
        Self { bank, proxy, started: Stopwatch::start() }
    }

    /// The number of polls of the worker so far.
    async fn polls(&self) -> u64 {
        let operations: ProcessProbe = self.bank.probe(0);
        operations.storage_operations().await.get("queue/receive").copied().unwrap_or(0)
    }

    /// Waits until the polls because of the start are over. Otherwise they would be counted later.
    async fn until_started(&self) {
        wait::until("the polls of the start", FOUND_WITHIN, async || {
            let (polls, elapsed) = (self.polls().await, self.started.elapsed());
            let is_over = polls >= START_POLLS && elapsed >= START_POLLS_END;
            if is_over { Ok(()) } else { Err(format!("{polls} polls in {elapsed:?}")) }
        })
        .await;
    }

    /// Waits until a ping of the web process has passed through the proxy.
    async fn until_pinged(&self) {
        let before = self.proxy.forwarded_bytes();
        wait::until("a ping", PING_TIME_MAX, async || {
            let bytes = self.proxy.forwarded_bytes();
            if bytes > before { Ok(()) } else { Err(format!("{bytes} bytes")) }
        })
        .await;
    }

    fn failed_requests(&self) -> usize {
        let lines = self.bank.webs[0].log().lines();
        lines.iter().filter(|line| line.contains("did not receive a ring")).count()
    }

    /// Waits until the web process has given up a ring.
    async fn until_ring_is_lost(&self, failed_before: usize) {
        wait::until("the ring is given up", PING_TIME_MAX, async || {
            match self.failed_requests().saturating_sub(failed_before) {
                failed if failed >= RING_ATTEMPTS => Ok(()),
                failed => Err(format!("{failed} failed requests")),
            }
        })
        .await;
    }
}

#[tokio::test]
async fn work_whose_ring_is_lost_is_found_by_a_ping_or_by_its_absence() {
    let proxied = Proxied::start().await;
    let Proxied { bank, proxy, .. } = &proxied;
    let (client, account) = (bank.client(0), fresh_account());
    client.open(account).await;
    let deposit = async |id: MessageId| {
        drop(client.submit_until_accepted(account, id, &Submission::deposit("1.00")).await);
        Stopwatch::start()
    };
    drop(client.post(account, fresh_id(), &Submission::deposit("1.00")).await);
    proxied.until_started().await;
    proxied.until_pinged().await;

    // The ring is lost, and the next ping arrives.
    let (polls, failed) = (proxied.polls().await, proxied.failed_requests());
    proxy.switch(Mode::Refuse);
    let id = fresh_id();
    let sent = deposit(id).await;
    proxied.until_ring_is_lost(failed).await;
    assert_eq!(client.transaction(account, id).await.transaction_status(), "accepted");
    proxy.switch(Mode::Forward);
    let posted = client.until_final_within(account, id, FOUND_WITHIN.saturating_sub(sent.elapsed())).await;
    assert_eq!(posted.transaction_status(), "posted");
    let polls = proxied.polls().await.saturating_sub(polls);
    assert!(polls < QUEUES / 2, "{polls} polls: only the queue of the lost ring is polled");

    // The ring and all pings are lost.
    let polls = proxied.polls().await;
    proxy.switch(Mode::Refuse);
    let id = fresh_id();
    let sent = deposit(id).await;
    let posted = client.until_final_within(account, id, FOUND_WITHIN).await;
    assert_eq!(posted.transaction_status(), "posted", "after {:?}", sent.elapsed());
    // The safety poll can find the work before the ping is late.
    wait::until("all queues are polled", FOUND_WITHIN, async || {
        match proxied.polls().await.saturating_sub(polls) {
            polls if polls >= QUEUES => Ok(()),
            polls => Err(format!("{polls} polls")),
        }
    })
    .await;
    assert_eq!(client.balance(account).await, "3.00");
}
