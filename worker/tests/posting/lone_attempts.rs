//! Messages that were received too often: processes that end during an attempt make a dead letter, and an outage never
//! does.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt as _;
use postonce_shared::ports::process_registry::{RegisteredProcess, live_processes};
use postonce_shared::testing::prelude::*;
use postonce_shared::testing::registered::register;
use postonce_worker::listening::lone_attempts::ATTEMPTS_MIN;
use postonce_worker::posting::posting_handler::PostingHandler;

use crate::posting::fixture::{DEQUEUE_COUNT_MAX, Fixture, config, outage, read_and_handle};

/// Validity of a registry entry.
pub const VALID_FOR: Duration = Duration::from_secs(35 * 60);
const VISIBILITY: Duration = Duration::from_secs(20);

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
pub struct Process {
    pub bank: Bank,
    pub posting: PostingHandler,
    entry: RegisteredProcess,
}

impl Process {
    /// Registers a process of the bank.
    pub async fn register(bank: Bank) -> Self {
        let entry = register(&bank).await;
        let posting = PostingHandler::new(&bank, Arc::default(), &config(VISIBILITY));
        let mut process = Self { bank, posting, entry };
        process.renew().await;
        process
    }

    /// Renews its registry entry if that was requested, as the heartbeat does.
    async fn renew_if_requested(&mut self) {
        if self.bank.registration.renewal_requested().now_or_never().is_some() {
            self.renew().await;
        }
    }

    pub async fn renew(&mut self) {
        self.entry.attempts_survived = self.bank.registration.attempts_survived();
        self.renew_unchanged().await;
        self.bank.gate_permits.register(&self.entry, Duration::MAX);
    }

    /// Renews its entry on schedule, while its attempt is in progress.
    async fn renew_unchanged(&mut self) {
        self.entry.next_by = self.bank.world.now().after(VALID_FOR);
        self.bank.store.process_registry.announce(&self.entry).await.unwrap();
    }
}

/// Processes over one store with faults.
struct Setup {
    fixture: Fixture<TestWorld>,
    commits: Arc<Control>,
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

    fn set(&self, commits: fn() -> Effect) {
        self.commits.set("Ledger::commit", commits);
    }

    async fn process(&self) -> Process {
        let bank = self.fixture.bank_over(|store| {
            self.commits.apply(store);
            store.queue = Arc::new(FaultyQueue(Arc::clone(&store.queue), Arc::clone(&self.lost_answers)));
        });
        Process::register(bank).await
    }

    async fn handle_next(&self, process: &Process) {
        self.fixture.handle_next(&process.posting, VISIBILITY * 2).await;
    }

    /// A new process receives the message and ends while it posts.
    async fn end_while_posting(&self) -> Process {
        let process = self.process().await;
        self.set(|| Effect::Hangs);
        assert!(self.handle_next(&process).now_or_never().is_none(), "it posts");
        self.fixture.world.advance(VISIBILITY * 2 + Duration::from_secs(1));
        self.commits.heal();
        process
    }

    /// Processes end during their attempts, so often that the work may be given up.
    async fn end_too_often(&self) -> Vec<Process> {
        let _ = self.fixture.submit(1, 1).await;
        let mut ended = Vec::new();
        // Together with other work, and then alone.
        for _ in 0..usize::try_from(DEQUEUE_COUNT_MAX).unwrap() + ATTEMPTS_MIN {
            ended.push(self.end_while_posting().await);
        }
        ended.split_off(usize::try_from(DEQUEUE_COUNT_MAX).unwrap())
    }

    /// The reason of the only dead letter.
    async fn reason(&self) -> String {
        let letters = self.fixture.dead_letters().await;
        assert_eq!(letters.len(), 1);
        letters[0].reason.clone()
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
    setup.set(Effect::unavailable);
    setup.lost_answers.store(1, Ordering::SeqCst);
    for round in 0..60 {
        let process = &mut processes[round % 4];
        setup.handle_next(process).await;
        process.renew_if_requested().await;
    }
    let extends = setup.lost_answers.swap(0, Ordering::SeqCst);
    assert!(extends > 60, "{extends} changes of the message: attempts began");
    setup.commits.heal();
    for round in 0..8 {
        let process = &mut processes[round % 4];
        setup.handle_next(process).await;
        process.renew_if_requested().await;
    }
    assert_eq!(setup.fixture.dead_letters().await, []);
    assert_eq!((setup.fixture.balance(1).await.as_str(), setup.fixture.depth().await), ("1.00", 0));
}

#[tokio::test]
async fn a_message_is_given_up_when_the_processes_of_its_attempts_have_ended() {
    let setup = Setup::new().await;
    let mut attempting = setup.end_too_often().await;
    let process = setup.process().await;
    // While their entries are valid, it is not known whether they ended: the store may refuse their other requests.
    for _ in 0..20 {
        for other in &mut attempting {
            other.renew_unchanged().await;
        }
        setup.fixture.world.advance(VALID_FOR / 2);
        setup.handle_next(&process).await;
    }
    assert_eq!((setup.fixture.dead_letters().await.len(), setup.fixture.depth().await), (0, 1));
    setup.fixture.world.advance(VALID_FOR);
    setup.handle_next(&process).await;
    let reason = setup.reason().await;
    assert!(reason.starts_with("3 processes ended while they posted it alone"), "{reason}");
    assert_eq!((setup.fixture.balance(1).await.as_str(), setup.fixture.depth().await), ("0.00", 0));
}

#[tokio::test]
async fn ends_of_the_only_worker_add_up_over_days() {
    let setup = Setup::new().await;
    let _ = setup.fixture.submit(1, 1).await;
    for _ in 0..usize::try_from(DEQUEUE_COUNT_MAX).unwrap() + ATTEMPTS_MIN {
        let process = setup.end_while_posting().await;
        setup.fixture.world.advance(Duration::from_secs(2 * 24 * 3600));
        // The next process looks for others, as each does at its start.
        let now = setup.fixture.world.now();
        live_processes(&*process.bank.store.process_registry, now).await.unwrap();
    }
    setup.handle_next(&setup.process().await).await;
    let reason = setup.reason().await;
    assert!(reason.starts_with("3 processes ended"), "{reason}");
}

#[tokio::test]
async fn an_attempt_that_its_process_survived_does_not_count() {
    let setup = Setup::new().await;
    let mut ended = setup.end_too_often().await;
    ended.last_mut().unwrap().renew().await;
    setup.fixture.world.advance(VALID_FOR * 2);
    let process = setup.process().await;
    setup.handle_next(&process).await;
    assert_eq!(setup.fixture.dead_letters().await, []);
    assert_eq!((setup.fixture.balance(1).await.as_str(), setup.fixture.depth().await), ("1.00", 0));
}

#[tokio::test]
async fn an_attempt_whose_message_was_released_needs_no_renewal_of_the_entry() {
    let setup = Setup::new().await;
    let process = setup.process().await;
    let _ = setup.fixture.submit(1, 1).await;
    setup.set(Effect::unavailable);
    for _ in 0..3 * DEQUEUE_COUNT_MAX {
        setup.fixture.receive(Duration::from_secs(1)).await;
        setup.fixture.world.advance(Duration::from_secs(2));
        setup.handle_next(&process).await;
    }
    let message = setup.fixture.receive(VISIBILITY).await.remove(0);
    assert!(message.dequeue_count > 3 * DEQUEUE_COUNT_MAX && envelope_in(&message.body).forgiven > 0);
    assert!(envelope_in(&message.body).attempts.is_empty());
    assert_eq!(process.bank.registration.attempts_survived(), 0);
}

#[tokio::test]
async fn a_process_makes_one_attempt_at_a_time() {
    let setup = Setup::new().await;
    for number in 1..=2 {
        let _ = setup.fixture.submit(number, number).await;
    }
    for _ in 0..=DEQUEUE_COUNT_MAX {
        assert_eq!(setup.fixture.receive(VISIBILITY).await.len(), 2);
        setup.fixture.world.advance(VISIBILITY * 2);
    }
    let process = setup.process().await;
    // Another receiver of the process handles another message.
    let other = PostingHandler::new(&process.bank, Arc::default(), &config(VISIBILITY));
    let mut messages = setup.fixture.receive(VISIBILITY).await;
    let (second, first) = (messages.split_off(1), messages);
    setup.set(|| Effect::Hangs);
    let mut attempt = Box::pin(read_and_handle(&process.posting, first));
    assert!(attempt.as_mut().now_or_never().is_none(), "it posts");
    setup.commits.heal();
    let _ = read_and_handle(&other, second).await;
    setup.fixture.world.advance(Duration::from_secs(3));
    let waiting = setup.fixture.receive(VISIBILITY).await;
    assert_eq!(waiting.len(), 1, "it is released until the attempt has ended");
    assert!(envelope_in(&waiting[0].body).attempts.is_empty(), "the end of the process would count");
    drop(attempt);
    let mut process = process;
    process.renew_if_requested().await;
    let _ = read_and_handle(&other, waiting).await;
    assert_eq!(setup.fixture.balance(2).await, "1.00");
}

#[tokio::test]
async fn a_process_that_is_not_registered_begins_no_attempt() {
    let setup = Setup::new().await;
    let _ = setup.end_too_often().await;
    let process = setup.process().await;
    process.bank.gate_permits.register(&process.entry, Duration::ZERO);
    for _ in 0..4 {
        setup.handle_next(&process).await;
    }
    assert_eq!((setup.fixture.dead_letters().await.len(), setup.fixture.depth().await), (0, 1));
}
