//! Messages that were received too often: processes that end during an attempt make a dead letter, and an outage never
//! does.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt as _;
use futures::future::pending;
use postonce_shared::adapters::memory::world::TestWorld;
use postonce_shared::bank::Bank;
use postonce_shared::domain::decision::AccountCommit;
use postonce_shared::domain::time::Timestamp;
use postonce_shared::messaging::attempts::EntryVersion;
use postonce_shared::ports::fault::StoreFault;
use postonce_shared::ports::ledger::{Committed, Ledger};
use postonce_shared::ports::process_registry::RegisteredProcess;
use postonce_shared::ports::queue::{Held, Lease, QueueName, WorkQueue};
use postonce_shared::testing::decorators::{LedgerDecorator, WorkQueueDecorator};
use postonce_shared::testing::registered::register;
use postonce_worker::posting::posting_handler::PostingHandler;

use crate::fixture::{DEQUEUE_COUNT_MAX, Fixture, config, outage};

const VISIBILITY: Duration = Duration::from_secs(20);

/// What happens to the commits of a ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
enum Commits {
    Succeed,
    Fail,
    /// They never end, so that a test can end the process meanwhile.
    Hang,
}

struct FaultyLedger(Arc<dyn Ledger>, Arc<AtomicU32>);

#[async_trait]
impl LedgerDecorator for FaultyLedger {
    fn inner(&self) -> &dyn Ledger {
        &*self.0
    }

    async fn commit(&self, commit: &AccountCommit) -> Result<Committed, StoreFault> {
        match self.1.load(Ordering::SeqCst) {
            commits if commits == Commits::Fail as u32 => Err(outage()),
            commits if commits == Commits::Hang as u32 => pending().await,
            _ => self.0.commit(commit).await,
        }
    }
}

/// A queue that loses the answers to two of three changes of a message, while the counter is above zero.
struct FaultyQueue(Arc<dyn WorkQueue>, Arc<AtomicU32>);

#[async_trait]
impl WorkQueueDecorator for FaultyQueue {
    fn inner(&self) -> &dyn WorkQueue {
        &*self.0
    }

    async fn extend(
        &self,
        queue: &QueueName,
        lease: &Lease,
        body: &[u8],
        visibility: Duration,
    ) -> Result<Held<Lease>, StoreFault> {
        let changed = self.0.extend(queue, lease, body, visibility).await;
        match self.1.load(Ordering::SeqCst) {
            0 => changed,
            count => {
                self.1.store(count + 1, Ordering::SeqCst);
                if count % 3 == 0 { changed } else { Err(outage()) }
            }
        }
    }
}

/// A registered process that handles messages when a test calls it.
struct Process {
    bank: Bank,
    posting: PostingHandler,
    entry: RegisteredProcess,
}

impl Process {
    /// Renews its registry entry if that was requested, as the heartbeat does.
    async fn renew_if_requested(&mut self) {
        if self.bank.registration.renewal_requested().now_or_never().is_some() {
            self.renew().await;
        }
    }

    async fn renew(&mut self) {
        self.entry.next_by = self.entry.next_by.after(Duration::from_millis(1));
        self.bank.store.process_registry.announce(&self.entry).await.unwrap();
        self.bank.registration.extend(EntryVersion::of(&self.entry), Duration::MAX);
    }
}

/// Processes over one store with faults.
struct Setup {
    fixture: Fixture<TestWorld>,
    commits: Arc<AtomicU32>,
    lost_answers: Arc<AtomicU32>,
}

impl Setup {
    async fn new() -> Self {
        Self {
            fixture: Fixture::with_still_clock().await,
            commits: Arc::default(),
            lost_answers: Arc::default(),
        }
    }

    fn set(&self, commits: Commits) {
        self.commits.store(commits as u32, Ordering::SeqCst);
    }

    async fn process(&self) -> Process {
        let bank = self.fixture.bank_over(|store| {
            store.ledger = Arc::new(FaultyLedger(Arc::clone(&store.ledger), Arc::clone(&self.commits)));
            store.queue = Arc::new(FaultyQueue(Arc::clone(&store.queue), Arc::clone(&self.lost_answers)));
        });
        let entry = register(&bank).await;
        let posting = PostingHandler::new(&bank, Arc::default(), &config(VISIBILITY));
        Process { bank, posting, entry }
    }

    async fn handle_next(&self, process: &Process) {
        self.fixture.handle_next(&process.posting, VISIBILITY * 2).await;
    }

    /// A new process receives the message and ends while it posts.
    async fn end_while_posting(&self) -> Process {
        let process = self.process().await;
        self.set(Commits::Hang);
        assert!(self.handle_next(&process).now_or_never().is_none(), "it posts");
        self.fixture.world.advance(VISIBILITY * 2 + Duration::from_secs(1));
        self.set(Commits::Succeed);
        process
    }

    async fn end_too_often(&self) -> Vec<Process> {
        let _ = self.fixture.submit(1, 1).await;
        let mut ended = Vec::new();
        // Together with other work, and then alone.
        for _ in 0..DEQUEUE_COUNT_MAX * 2 {
            ended.push(self.end_while_posting().await);
        }
        ended
    }
}

#[tokio::test]
async fn a_long_partial_outage_makes_no_dead_letter() {
    let setup = Setup::new().await;
    let mut processes = Vec::new();
    for _ in 0..4 {
        processes.push(setup.process().await);
    }
    let _ = setup.fixture.submit(1, 1).await;
    setup.set(Commits::Fail);
    setup.lost_answers.store(1, Ordering::SeqCst);
    for round in 0..60 {
        let process = &mut processes[round % 4];
        setup.handle_next(process).await;
        process.renew_if_requested().await;
    }
    let extends = setup.lost_answers.swap(0, Ordering::SeqCst);
    assert!(extends > 60, "{extends} changes of the message: attempts began");
    setup.set(Commits::Succeed);
    for round in 0..4 {
        setup.handle_next(&processes[round % 4]).await;
    }
    assert_eq!(setup.fixture.dead_letters().await, []);
    assert_eq!((setup.fixture.balance(1).await.as_str(), setup.fixture.depth().await), ("1.00", 0));
}

#[tokio::test]
async fn a_message_is_given_up_after_processes_ended_during_their_attempts() {
    let setup = Setup::new().await;
    let _ended = setup.end_too_often().await;
    let process = setup.process().await;
    setup.handle_next(&process).await;
    assert_eq!(setup.fixture.dead_letters().await, [], "a process that is alive may renew its entry now");
    setup.handle_next(&process).await;
    let letters = setup.fixture.dead_letters().await;
    assert_eq!(letters.len(), 1);
    assert!(
        letters[0].reason.starts_with("2 processes ended while they posted it alone"),
        "{}",
        letters[0].reason
    );
    assert_eq!((setup.fixture.balance(1).await.as_str(), setup.fixture.depth().await), ("0.00", 0));
}

#[tokio::test]
async fn an_attempt_of_a_process_that_renews_its_entry_does_not_count() {
    let setup = Setup::new().await;
    let mut ended = setup.end_too_often().await;
    let process = setup.process().await;
    setup.handle_next(&process).await;
    ended.last_mut().unwrap().renew().await;
    setup.handle_next(&process).await;
    assert_eq!(setup.fixture.dead_letters().await, []);
    assert_eq!((setup.fixture.balance(1).await.as_str(), setup.fixture.depth().await), ("1.00", 0));
}

#[tokio::test]
async fn a_process_that_is_not_registered_begins_no_attempt() {
    let setup = Setup::new().await;
    let _ = setup.end_too_often().await;
    let process = setup.process().await;
    let entry = EntryVersion { process: process.entry.id, next_by: Timestamp::from_unix_ms(0) };
    process.bank.registration.extend(entry, Duration::ZERO);
    for _ in 0..4 {
        setup.handle_next(&process).await;
    }
    assert_eq!((setup.fixture.dead_letters().await.len(), setup.fixture.depth().await), (0, 1));
}
