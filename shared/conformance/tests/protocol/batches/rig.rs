//! A bank whose roles of batches a test runs step by step, with faults at chosen operations of the store.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use postonce_shared::batches::BatchFault;
use postonce_shared::batches::document::DocumentWriter;
use postonce_shared::batches::intake::Submitted;
use postonce_shared::batches::messages::{self, BatchMessageError, ChunkOutcome, Named};
use postonce_shared::testing::prelude::*;
use uuid::Uuid;

use crate::protocol::fixture::Fixture;

/// Fails one operation of the store: before it is carried out, or after.
#[derive(Default)]
pub struct OneFault {
    countdown: AtomicU32,
    is_after: bool,
    /// Whether the ledger has steps for many accounts.
    has_joint_steps: bool,
}

impl OneFault {
    /// Fails the operation with that number, from 1; with 0 none.
    pub fn at(number: u32, is_after: bool, has_joint_steps: bool) -> Arc<Self> {
        Arc::new(Self { countdown: AtomicU32::new(number), is_after, has_joint_steps })
    }

    /// Returns whether the fault happened.
    pub fn happened(&self) -> bool {
        self.countdown.load(Ordering::SeqCst) == 0
    }

    /// Counts an operation. Returns what happens to it.
    fn effect(&self) -> Effect {
        let count = |left: u32| left.checked_sub(1);
        match self.countdown.fetch_update(Ordering::SeqCst, Ordering::SeqCst, count) {
            Ok(1) if self.is_after => Effect::AnswerIsLost(faults::unavailable()),
            Ok(1) => Effect::unavailable(),
            _ => Effect::Passes,
        }
    }

    async fn apply<T>(
        &self,
        operation: impl Future<Output = Result<T, StoreFault>>,
    ) -> Result<T, StoreFault> {
        match self.effect() {
            Effect::Fails(fault) => Err(fault),
            Effect::AnswerIsLost(fault) => operation.await.and(Err(fault)),
            Effect::Passes | Effect::Hangs | Effect::Waits(_) => operation.await,
        }
    }
}

/// A ledger whose steps for many accounts may fail as well.
struct FaultyJointSteps(Arc<dyn Ledger>, Arc<OneFault>);

#[async_trait]
impl LedgerDecorator for FaultyJointSteps {
    fn inner(&self) -> &dyn Ledger {
        &*self.0
    }

    fn joint_steps(&self) -> Option<&dyn JointSteps> {
        self.1.has_joint_steps.then_some(self)
    }
}

#[async_trait]
impl JointSteps for FaultyJointSteps {
    fn accounts_max(&self) -> usize {
        self.joint().accounts_max()
    }

    async fn accounts(&self, keys: &[AccountKey]) -> Result<Vec<Option<Versioned<Account>>>, StoreFault> {
        self.1.apply(self.joint().accounts(keys)).await
    }

    async fn commit_all(&self, commits: &[AccountCommit]) -> Result<Vec<Committed>, StoreFault> {
        self.1.apply(self.joint().commit_all(commits)).await
    }
}

impl FaultyJointSteps {
    fn joint(&self) -> &dyn JointSteps {
        self.0.joint_steps().expect("the ledger has joint steps")
    }
}

/// Records whose writes are repeated on their way: the second one is refused, and only its answer arrives.
pub struct RepeatedWrites(pub Arc<dyn Records>);

#[async_trait]
impl RecordsDecorator for RepeatedWrites {
    fn inner(&self) -> &dyn Records {
        &*self.0
    }

    async fn save(
        &self,
        of: Collection,
        id: &str,
        body: &str,
        expected: Option<&Revision>,
    ) -> Result<Swapped, StoreFault> {
        let _ = self.0.save(of, id, body, expected).await?;
        self.0.save(of, id, body, expected).await
    }
}

/// The calls that may fail, besides joint steps.
const CALLS: [&str; 10] = [
    "Ledger::commit",
    "Ledger::reject_unknown",
    "Ledger::account",
    "Ledger::transaction",
    "WorkQueue::send",
    "Records::find",
    "Records::save",
    "Records::remove",
    "PayloadStore::put",
    "PayloadStore::get",
];

fn faulty(store: &mut Store, fault: &Arc<OneFault>) {
    let one = Arc::clone(fault);
    faults::apply(store, move |call| if CALLS.contains(&call) { one.effect() } else { Effect::Passes });
    store.ledger = Arc::new(FaultyJointSteps(Arc::clone(&store.ledger), Arc::clone(fault)));
}

/// Accounts 1 to `ACCOUNTS` are open.
pub const ACCOUNTS: u128 = 5;

pub fn batch_key(batch: u128) -> BatchKey {
    let partner = PartnerId::parse("shop").unwrap();
    BatchKey { partner, batch: BatchId::from_uuid(Uuid::from_u128(batch)) }
}

pub fn account(number: u128) -> AccountKey {
    let user = UserId::from_uuid(Uuid::from_u128(77));
    AccountKey { user, account: AccountId::from_uuid(Uuid::from_u128(number)) }
}

pub fn item(line: u32, to: u128, message: u128, instruction: Instruction) -> Item {
    Item { line, account: account(to), message: MessageId::from_uuid(Uuid::from_u128(message)), instruction }
}

pub struct Rig {
    pub fixture: Fixture,
    world: Arc<TestWorld>,
}

impl Rig {
    pub async fn new() -> Self {
        let world = Arc::new(TestWorld::new(1));
        let fixture = Fixture::in_world(world.clone()).await;
        let eur = Currency::parse("EUR").unwrap();
        for number in 1..=ACCOUNTS {
            let new =
                Account::open(account(number), eur, OverdraftLimit::none(eur), None, fixture.world.now());
            let _ = fixture.store.ports().accounts.open(&opening(new)).await.unwrap();
        }
        Self { fixture, world }
    }

    pub fn process(&self) -> Bank {
        self.process_with(&OneFault::at(0, false, true))
    }

    pub fn process_with(&self, fault: &Arc<OneFault>) -> Bank {
        self.process_over(|store| faulty(store, fault))
    }

    /// Starts a process on a changed store.
    pub fn process_over(&self, change: impl FnOnce(&mut Store)) -> Bank {
        self.fixture.registered_over(change)
    }

    /// Uploads a document, as a web process does.
    pub async fn submit(&self, bank: &Bank, key: &BatchKey, items: &[Item]) -> Result<Submitted, BatchFault> {
        let mut upload = bank.batches.upload(key);
        let mut writer = DocumentWriter::default();
        for item in items {
            if let Some(part) = writer.add(item) {
                upload.put(part).await?;
            }
        }
        let (parts, summary) = writer.finish();
        for part in parts {
            upload.put(part).await?;
        }
        let document = upload.finish(summary).await?;
        let batch = Batch::received(
            key.clone(),
            OnInvalid::Refuse,
            document,
            self.fixture.world.now(),
            OperationCounts::default(),
        );
        bank.batches.submit(batch).await
    }

    /// Receives all messages of a queue, and removes them.
    pub async fn take(&self, queue: &QueueName) -> Vec<Message> {
        let ports = self.fixture.store.ports();
        let messages = ports.queue.receive(queue, 32, Duration::from_secs(60)).await.unwrap();
        for message in &messages {
            let _ = ports.queue.delete(queue, &message.lease).await.unwrap();
        }
        messages
    }

    /// Puts a message back.
    pub async fn send(&self, queue: &QueueName, body: &[u8]) {
        self.fixture.store.ports().queue.send(queue, body, Duration::ZERO).await.unwrap();
    }

    /// Handles all messages of a queue once; those that fail are delivered again. Returns how many there were.
    pub async fn step(&self, bank: &Bank, queue: &QueueName) -> usize {
        let messages = self.take(queue).await;
        for message in &messages {
            if self.handle(bank, queue, &message.body).await.is_err() {
                self.send(queue, &message.body).await;
            }
        }
        messages.len()
    }

    async fn handle(&self, bank: &Bank, queue: &QueueName, body: &[u8]) -> Result<(), BatchFault> {
        let batches = &bank.batches;
        let handled = async {
            match queue.kind() {
                messages::SPLIT => batches.initiate(&Named::decode(body).unwrap().key).await,
                messages::POST => batches.process(&Named::decode(body).unwrap()).await,
                _ => match ChunkOutcome::decode(body, &seal()) {
                    Ok(outcome) => batches.count(&outcome.key.clone(), &[outcome]).await,
                    Err(BatchMessageError::Unsealed) => {
                        batches.ask_again(&ChunkOutcome::named(body).unwrap()).await
                    }
                    Err(other) => panic!("{other}"),
                },
            }
        };
        self.while_time_passes(handled).await
    }

    /// Does something, and advances the clock whenever it waits for that.
    pub async fn while_time_passes<T>(&self, operation: impl Future<Output = T>) -> T {
        let mut operation = std::pin::pin!(operation);
        loop {
            if let std::task::Poll::Ready(done) = futures::poll!(&mut operation) {
                return done;
            }
            tokio::task::yield_now().await;
            if self.world.sleepers() > 0 {
                self.world.advance(Duration::from_secs(1));
            }
        }
    }

    /// Handles messages until there are none.
    pub async fn run(&self, bank: &Bank) {
        for _ in 0..1000 {
            let mut handled = 0;
            for queue in queues() {
                handled += self.step(bank, &queue).await;
            }
            if handled == 0 {
                return;
            }
        }
        panic!("the messages do not end");
    }

    pub async fn batch(&self, key: &BatchKey) -> Batch {
        self.process().batches.find(key, None).await.unwrap().unwrap()
    }

    /// Returns the results of a completed batch.
    pub async fn results(&self, key: &BatchKey) -> Vec<ItemResult> {
        let bank = self.process();
        let batch = self.batch(key).await;
        let mut results = bank.batches.results(&batch, 0).await.unwrap().expect("the batch is completed");
        let mut lines = Vec::new();
        while let Some(page) = results.next().await.unwrap() {
            lines.extend(page.into_iter().map(|line| match line {
                ResultLine::Item(item) => item,
                ResultLine::Invalid(item) => panic!("{item:?}"),
            }));
        }
        lines
    }

    pub async fn row(&self, item: &Item) -> Option<StoredTransaction> {
        let key =
            TransactionKey { account: item.account, partner: batch_key(0).partner, message: item.message };
        self.fixture.store.ports().ledger.transaction(&key).await.unwrap()
    }

    /// Checks a completed batch against the rows and the journals: each item has one result, in order, which its row
    /// proves; the totals balance; each posted item is once in the journal of its account.
    pub async fn check(&self, key: &BatchKey, items: &[Item]) {
        let batch = self.batch(key).await;
        let Phase::Completed { totals, .. } = &batch.phase else { panic!("{:?}", batch.phase) };
        assert_eq!(totals.sum(), batch.document.valid);
        let results = self.results(key).await;
        let lines: Vec<u32> = results.iter().map(|result| result.line).collect();
        assert_eq!(
            lines,
            items.iter().map(|item| item.line).collect::<Vec<_>>(),
            "in the order of the document"
        );
        let mut counts: BTreeMap<ItemStatus, u64> = BTreeMap::new();
        let mut posted = BTreeSet::new();
        for (item, result) in items.iter().zip(&results) {
            *counts.entry(result.status).or_default() += 1;
            let row = self.row(item).await.expect("every item has a row under its key");
            let outcome = row.outcome.as_ref().expect("and is final");
            let own = row.submission.batch_line == Some(BatchLine { batch: key.batch, line: item.line });
            let same = item.instruction.matches(&row.fingerprint);
            match (result.status, result.outcome, outcome) {
                (ItemStatus::Refused, ItemOutcome::KeyReused, _) => assert!(!same),
                (
                    ItemStatus::Posted | ItemStatus::Replayed,
                    ItemOutcome::Posted { order_number, balance_after },
                    Outcome::Posted { order_number: number, balance_after: balance, .. },
                ) => {
                    assert!(same && own == (result.status == ItemStatus::Posted));
                    assert_eq!((order_number, balance_after), (*number, *balance));
                    posted.insert((item.account, item.message));
                }
                (
                    ItemStatus::Rejected | ItemStatus::Replayed,
                    ItemOutcome::Rejected(told),
                    Outcome::Rejected { reason, .. },
                ) => {
                    assert!(same && own == (result.status == ItemStatus::Rejected));
                    assert_eq!(told, *reason);
                }
                other => panic!("{other:?} on line {}", item.line),
            }
        }
        for status in ItemStatus::ALL {
            assert_eq!(totals.of(status).count, counts.get(&status).copied().unwrap_or(0), "{status:?}");
        }
        self.check_journals(&posted).await;
    }

    async fn check_journals(&self, posted: &BTreeSet<(AccountKey, MessageId)>) {
        let ports = self.fixture.store.ports();
        let mut entries = Vec::new();
        for number in 1..=ACCOUNTS {
            let pages = ports.log.pages(account(number), 1, usize::MAX).await.unwrap();
            let mut balance = 0;
            for entry in pages.iter().flat_map(|page| &page.entries) {
                entries.push((account(number), entry.message));
                balance = entry.balance_after.minor_units();
            }
            let stored = ports.ledger.account(account(number)).await.unwrap().unwrap().value;
            assert_eq!(stored.balance.minor_units(), balance);
        }
        let once: BTreeSet<_> = entries.iter().copied().collect();
        assert_eq!(once.len(), entries.len(), "each transaction is posted once");
        assert!(posted.is_subset(&once), "what was reported as posted is in the journal");
    }

    /// Returns the number of open batches.
    pub async fn open_batches(&self) -> usize {
        self.process().batches.records.list_open(None, 100).await.unwrap().len()
    }
}

/// The queues of all roles.
pub fn queues() -> [QueueName; 3] {
    [messages::split_queue(), messages::post_queue(0, 1), messages::count_queue()]
}
