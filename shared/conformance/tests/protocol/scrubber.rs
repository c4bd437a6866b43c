//! The scrubber: finds forgotten work and damaged rows, with a limited number of operations, in one process at a time.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use async_trait::async_trait;
use futures::poll;
use parking_lot::Mutex;
use postonce_shared::domain::decision::Submission;
use postonce_shared::oversight::scrubber::{Scrubber, ScrubberReport, ScrubberStatus, ScrubberTerms, report};
use postonce_shared::ports::archive::{Archive, Damaged, Readable, RowContent, StoredRow, UserRange};
use postonce_shared::protocol::recovery_horizon::RecoveredUntil;
use postonce_shared::testing::fresh_nonce;
use postonce_shared::testing::prelude::*;

use crate::protocol::fixture::{Fixture, account, deposit, key, queue};

pub const MINUTE: Duration = Duration::from_secs(60);
pub const HOUR: Duration = Duration::from_secs(3600);
pub const DAY: Duration = Duration::from_secs(24 * 3600);
/// Enough for a round of a small store within a minute.
pub const MANY: u32 = 1_000_000;

/// Records the reads of all rows, and damages one transaction.
pub struct RecordedArchive {
    inner: Arc<dyn Archive>,
    /// The cursor of each read.
    reads: Mutex<Vec<Option<String>>>,
    damaged: Option<u128>,
}

impl RecordedArchive {
    fn damage(&self, stored: &mut Readable<StoredTransaction>) {
        let damaged = self.damaged.map(key);
        if stored.as_ref().is_ok_and(|stored| Some(&stored.submission.key) == damaged.as_ref()) {
            *stored = Err(Damaged { place: "a row".to_owned(), cause: "of a test".to_owned() });
        }
    }
}

#[async_trait]
impl ArchiveDecorator for RecordedArchive {
    fn inner(&self) -> &dyn Archive {
        &*self.inner
    }

    async fn rows(
        &self,
        range: UserRange,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<Readable<StoredRow>>, StoreFault> {
        self.reads.lock().push(cursor.map(str::to_owned));
        let mut listing = self.inner.rows(range, cursor, limit).await?;
        for row in listing.items.iter_mut().flatten() {
            if let RowContent::Transaction(stored) = &mut row.content {
                self.damage(stored);
            }
        }
        Ok(listing)
    }

    async fn stored_transactions(
        &self,
        account: AccountKey,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<Readable<StoredTransaction>>, StoreFault> {
        let mut listing = self.inner.stored_transactions(account, cursor, limit).await?;
        listing.items.iter_mut().for_each(|stored| self.damage(stored));
        Ok(listing)
    }
}

/// A process that scrubs.
pub struct Process {
    pub bank: Bank,
    pub scrubber: Scrubber,
    status: Arc<ScrubberStatus>,
    archive: Arc<RecordedArchive>,
    pub entry: RegisteredProcess,
}

pub struct Setup {
    pub fixture: Fixture,
    pub world: Arc<TestWorld>,
}

impl Setup {
    pub async fn new() -> Self {
        let world = Arc::new(TestWorld::new(1));
        Self { fixture: Fixture::in_world(world.clone()).await, world }
    }

    /// A registered process, whose registry entry is valid for a year.
    pub async fn process(&self, operations_per_day: u32, damaged: Option<u128>) -> Process {
        let inner = self.fixture.store.ports().archive;
        let archive = Arc::new(RecordedArchive { inner, reads: Mutex::default(), damaged });
        let bank = self.fixture.unregistered_over(|store| store.archive = archive.clone());
        let entry = RegisteredProcess {
            id: ProcessId::from_uuid(bank.world.uuid()),
            kind: ProcessKind::Worker,
            address: Address::parse("test:1").unwrap(),
            started_at: self.world.now(),
            next_by: self.world.now().after(365 * DAY),
            attempts_survived: 0,
            level: LEVEL,
        };
        bank.store.process_registry.announce(&entry).await.unwrap();
        bank.gate_permits.register(&entry, Duration::MAX);
        count_as_released(&bank);
        let status: Arc<ScrubberStatus> = Arc::default();
        let (registration, world) = (Arc::clone(&bank.registration), Arc::clone(&bank.world));
        let terms = ScrubberTerms { operations_per_day, delay: Duration::from_secs(30) };
        let scrubber =
            Scrubber::new(&bank.store, bank.repair.clone(), registration, world, terms, Arc::clone(&status));
        Process { bank, scrubber, status, archive, entry }
    }

    /// Accepts this many transactions without messages.
    pub async fn fill(&self, count: u128) {
        let ledger = self.fixture.store.ports().ledger;
        for first in (1..=count).step_by(100) {
            let new = |message: u128| Submission {
                key: key(message),
                instruction: deposit("1.00"),
                accepted_at: self.world.now(),
                origin: Origin::default(),
                batch_line: None,
            };
            let group: Vec<_> = (first..(first + 100).min(count + 1)).map(new).collect();
            let _ = ledger.accept(&group, fresh_nonce()).await.unwrap();
        }
    }

    /// Lets a process scrub for some time.
    pub async fn scrub(&self, process: &mut Process, time: Duration) {
        let until = self.world.uptime() + time;
        while self.world.uptime() < until {
            let pause = self.step(process).await;
            self.world.advance(pause.min(until.saturating_sub(self.world.uptime())));
        }
    }

    /// Makes a step. The clock moves while it waits.
    pub async fn step(&self, process: &mut Process) -> Duration {
        let mut step = Box::pin(process.scrubber.step());
        loop {
            if let Poll::Ready(pause) = poll!(&mut step) {
                return pause;
            }
            self.world.advance(Duration::from_millis(100));
            tokio::task::yield_now().await;
        }
    }

    pub async fn report(&self) -> ScrubberReport {
        report(&self.fixture.store.ports(), &*self.world, MANY).await.unwrap()
    }

    async fn covers(&self, sent_at: Timestamp) -> bool {
        let sync = self.fixture.store.ports().sync;
        RecoveredUntil::new(sync, self.world.clone()).covers(sent_at).await.unwrap()
    }
}

#[tokio::test]
async fn forgotten_work_is_enqueued_again_within_a_round() {
    let setup = Setup::new().await;
    setup.fixture.forget(7).await;
    let accepted_at = setup.fixture.stored(7).await.submission.accepted_at;
    let mut process = setup.process(MANY, None).await;
    setup.scrub(&mut process, 5 * MINUTE).await;
    assert_eq!(setup.fixture.queued().await, 0, "its message may still be underway");
    let report = setup.report().await;
    let first = report.last_round.unwrap();
    assert_eq!((first.accounts, first.rows, first.accepted, first.enqueued, first.findings), (1, 3, 1, 0, 0));
    assert_eq!(first.progress, 1000);
    assert_eq!((report.oldest_accepted_at, report.process), (Some(accepted_at), Some(process.entry.id)));
    assert!(!setup.covers(accepted_at.before(15 * MINUTE)).await);
    setup.scrub(&mut process, HOUR).await;
    assert_eq!(setup.fixture.queued().await, 1);
    let report = setup.report().await;
    assert_eq!(report.last_round.unwrap().enqueued, 1);
    assert_eq!(process.status.enqueued.get(), 1);
    assert!(setup.covers(accepted_at).await, "a round is a recovery");
    // Work that is final is not the oldest accepted work any more, after another round.
    let work = setup.fixture.receive().await;
    assert!(process.bank.poster.post(account(), work).await[0].1.is_ok());
    setup.scrub(&mut process, HOUR).await;
    assert_eq!(setup.report().await.oldest_accepted_at, None);
}

#[tokio::test]
async fn a_damaged_row_is_reported_and_the_walk_continues() {
    let setup = Setup::new().await;
    for message in [3, 4, 5] {
        setup.fixture.forget(message).await;
    }
    setup.world.advance(10 * MINUTE);
    let mut process = setup.process(MANY, Some(4)).await;
    setup.scrub(&mut process, 5 * MINUTE).await;
    assert_eq!(setup.fixture.queued().await, 2);
    let report = setup.report().await;
    let round = report.last_round.unwrap();
    assert_eq!((round.accepted, round.enqueued, round.findings), (2, 2, 1));
    assert_eq!(process.status.findings.get(), 1);
    assert_eq!(report.findings.len(), 1);
    assert_eq!(report.findings[0].kind, "transaction_unreadable");
    assert!(report.findings[0].text.contains("a row: of a test"), "{}", report.findings[0].text);
}

#[tokio::test]
async fn another_process_continues_where_one_was_stopped() {
    let setup = Setup::new().await;
    setup.fill(4400).await;
    // An operation in ten minutes, the first two at once: the place is saved after the second read, and not the third.
    let mut first = setup.process(6 * 24, None).await;
    setup.scrub(&mut first, 35 * MINUTE).await;
    assert_eq!(first.archive.reads.lock().len(), 3);
    let begun = setup.report().await.round.unwrap();
    first.bank.store.process_registry.withdraw(first.entry.id).await.unwrap();
    drop(first);
    let mut second = setup.process(MANY, None).await;
    setup.scrub(&mut second, 5 * MINUTE).await;
    let reads = second.archive.reads.lock().clone();
    assert!(reads[0].is_some(), "it continues at a place");
    assert_eq!(reads.len(), 3, "of five reads, two were saved");
    let round = setup.report().await.last_round.unwrap();
    assert_eq!((round.started_at, round.rows), (begun.started_at, 4402));
    assert_eq!((round.accepted, round.findings), (4400, 0));
}

#[tokio::test]
async fn one_process_scrubs_at_a_time_and_the_end_of_a_process_starts_a_recovery() {
    let setup = Setup::new().await;
    let mut first = setup.process(MANY, None).await;
    let mut second = setup.process(MANY, None).await;
    setup.scrub(&mut first, 5 * MINUTE).await;
    setup.scrub(&mut second, HOUR).await;
    assert_eq!((first.archive.reads.lock().len(), second.archive.reads.lock().len()), (1, 0));
    assert!(first.status.report().is_some() && second.status.report().is_none());
    // The first process is killed: its entry is not removed, and becomes stale.
    setup.fixture.forget(7).await;
    first.entry.next_by = setup.world.now();
    first.bank.store.process_registry.announce(&first.entry).await.unwrap();
    drop(first.scrubber);
    setup.world.advance(10 * MINUTE);
    let before = setup.world.now();
    setup.scrub(&mut second, 35 * MINUTE).await;
    let report = setup.report().await;
    assert_eq!((report.process, report.recovery_requested_at), (Some(second.entry.id), None));
    let recovery = report.last_recovery.unwrap();
    assert_eq!((recovery.examined, recovery.enqueued, recovery.damaged), (1, 1, 0));
    assert!(recovery.requested_at >= before);
    assert_eq!(setup.fixture.queued().await, 1);
    // One recovery for each process.
    setup.scrub(&mut second, 3 * HOUR).await;
    assert_eq!(setup.report().await.last_recovery.unwrap(), recovery);
}

#[tokio::test]
async fn the_end_of_a_process_is_noticed_during_a_long_round() {
    let setup = Setup::new().await;
    setup.fill(9000).await;
    let mut scrubbing = setup.process(6 * 24, None).await;
    let mut killed = setup.process(0, None).await;
    setup.scrub(&mut scrubbing, 5 * MINUTE).await;
    killed.entry.next_by = setup.world.now();
    killed.bank.store.process_registry.announce(&killed.entry).await.unwrap();
    setup.scrub(&mut scrubbing, 40 * MINUTE).await;
    let report = setup.report().await;
    assert!(report.round.is_some() && report.last_round.is_none(), "{report:?}");
    assert_eq!(report.last_recovery.unwrap().examined, 9000);
}

#[tokio::test]
async fn a_day_has_no_more_operations_than_configured() {
    let setup = Setup::new().await;
    setup.fill(5_000).await;
    let operations = async |per_day| {
        let mut process = setup.process(per_day, None).await;
        let total = |process: &Process| -> u64 { process.bank.store.operations.snapshot().values().sum() };
        setup.scrub(&mut process, HOUR).await;
        let before = total(&process);
        setup.scrub(&mut process, DAY).await;
        let spent = total(&process) - before;
        process.bank.store.process_registry.withdraw(process.entry.id).await.unwrap();
        (spent, process.archive.reads.lock().len())
    };
    // The gate is held, so that no work is enqueued again. The state is saved every 15 minutes, and the registry read.
    let bank = setup.fixture.process();
    let gate = Gate::new(&bank.store, &bank.world);
    gate.set(GateState::Held { release_at: None }, &GateAct::by("a test")).await.unwrap();
    let (spent, reads) = operations(100).await;
    assert!((90..=300).contains(&spent) && (80..=110).contains(&reads), "{spent} operations, {reads} reads");
    let (spent, reads) = operations(0).await;
    assert!(spent <= 3 * 48 && reads == 0, "{spent} operations, {reads} reads without rounds");
    assert_eq!(setup.fixture.store.ports().queue.backlog(&queue()).await.unwrap().depth, 0);
}
