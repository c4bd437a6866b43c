//! What the three ways of posting do when the ledger refuses a commit. They differ on purpose: a waiting request has the queue to
//! fall back on, work of the queue has to become final, and the items of a batch find their outcomes in the rows.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use parking_lot::Mutex;
use postonce_shared::posting::PostFault;
use postonce_shared::posting::waiting::QueueReason;
use postonce_shared::testing::prelude::*;
use uuid::Uuid;

use crate::protocol::batches::rig::batch_key;
use crate::protocol::fixture::{Fixture, account, apply_gate, deposit, key, submit, withdrawal};
use crate::protocol::immediate::{SHORT, ask, posted_at_once, process_over};

/// What the ledger answers to commits, in turn, without writing anything; then it commits.
#[derive(Default)]
struct Script {
    answers: Mutex<VecDeque<Result<Committed, StoreFault>>>,
    commits: AtomicU32,
    accounts_read: AtomicU32,
    rows_read: AtomicU32,
}

impl Script {
    fn prepare(&self, answers: impl IntoIterator<Item = Result<Committed, StoreFault>>) {
        *self.answers.lock() = answers.into_iter().collect();
        for count in [&self.commits, &self.accounts_read, &self.rows_read] {
            count.store(0, Ordering::SeqCst);
        }
    }

    /// The numbers of commits, of accounts that were read, and of rows that were read.
    fn operations(&self) -> [u32; 3] {
        [&self.commits, &self.accounts_read, &self.rows_read].map(|count| count.load(Ordering::SeqCst))
    }
}

struct Refusing {
    inner: Arc<dyn Ledger>,
    script: Arc<Script>,
}

#[async_trait]
impl LedgerDecorator for Refusing {
    fn inner(&self) -> &dyn Ledger {
        &*self.inner
    }

    fn joint_steps(&self) -> Option<&dyn JointSteps> {
        None
    }

    async fn commit(&self, commit: &AccountCommit) -> Result<Committed, StoreFault> {
        self.script.commits.fetch_add(1, Ordering::SeqCst);
        let scripted = self.script.answers.lock().pop_front();
        match scripted {
            Some(Err(StoreFault::Corrupt { doing: BUG, .. })) => panic!("{BUG}"),
            Some(answer) => answer,
            None => self.inner.commit(commit).await,
        }
    }

    async fn account(&self, key: AccountKey) -> Result<Option<Versioned<Account>>, StoreFault> {
        self.script.accounts_read.fetch_add(1, Ordering::SeqCst);
        self.inner.account(key).await
    }

    async fn transaction(&self, key: &TransactionKey) -> Result<Option<StoredTransaction>, StoreFault> {
        self.script.rows_read.fetch_add(1, Ordering::SeqCst);
        self.inner.transaction(key).await
    }
}

/// A process over a ledger that refuses what the script says, whose cache knows the account.
async fn process(fixture: &Fixture) -> (Bank, Arc<Script>) {
    let script = Arc::<Script>::default();
    let bank = process_over(fixture, |inner| Refusing { inner, script: Arc::clone(&script) });
    assert_eq!(posted_at_once(&bank, 1000, deposit("5.00")).await, "5.00");
    (bank, script)
}

/// The message id of a transaction that is tried.
const TRIED: u128 = 1;

fn stale() -> Result<Committed, StoreFault> {
    Ok(Committed::Stale)
}

fn taken() -> Result<Committed, StoreFault> {
    Ok(Committed::Taken(vec![key(TRIED)]))
}

fn rows_changed() -> Result<Committed, StoreFault> {
    Ok(Committed::RowsChanged(vec![key(TRIED)]))
}

fn early() -> Result<Committed, StoreFault> {
    Ok(Committed::Early)
}

fn fault() -> Result<Committed, StoreFault> {
    Err(faults::unavailable())
}

/// Stands for a panic of the ledger.
const BUG: &str = "a bug";

fn bug() -> Result<Committed, StoreFault> {
    Err(StoreFault::Corrupt { doing: BUG, source: BUG.into() })
}

type Answers = Vec<Result<Committed, StoreFault>>;

/// Submits a request that waits. Returns `Ok` if it was posted at once, or else why it took the queue; and the numbers of operations.
async fn waiting(answers: Answers, instruction: Instruction) -> (Result<(), QueueReason>, [u32; 3]) {
    let fixture = Fixture::new().await;
    let (bank, script) = process(&fixture).await;
    let queued = || QueueReason::ALL.map(|reason| bank.acceptor.served().queued(reason));
    let before = queued();
    script.prepare(answers);
    let _ = bank.acceptor.submit(key(TRIED), instruction, Origin::default(), Some(SHORT)).await.unwrap();
    let mut reasons = QueueReason::ALL.into_iter().zip(before).zip(queued());
    let reason = reasons.find_map(|((reason, before), after)| (after > before).then_some(reason));
    (reason.map_or(Ok(()), Err), script.operations())
}

/// Posts work that was received from the queue. Returns the fault, or `None` if the work is final; and the numbers of operations.
async fn queued(answers: Answers, instruction: Instruction) -> (Option<PostFault>, [u32; 3]) {
    let fixture = Fixture::new().await;
    let (bank, script) = process(&fixture).await;
    let _ = submit(&bank, TRIED, instruction).await.unwrap();
    let work = fixture.receive().await;
    script.prepare(answers);
    let settled = bank.poster.post(account(), work).await;
    let [(_, result)] = <[_; 1]>::try_from(settled).unwrap();
    (result.err(), script.operations())
}

/// Posts a batch with one item.
async fn post_item(
    fixture: &Fixture,
    bank: &Bank,
    TransactionKey { account, message, .. }: TransactionKey,
    instruction: Instruction,
) -> Result<ItemOutcome, PostFault> {
    let items = vec![Item { line: 1, account, message, instruction }];
    let posted = bank.batches.poster.post(&batch_key(9), fixture.world.now(), items).await;
    posted.map(|results| results[0].outcome)
}

/// Posts an item of a batch, whose transaction was accepted before as a request of its own or not. Returns its outcome, and the
/// numbers of operations.
async fn of_batch(
    answers: Answers,
    instruction: Instruction,
    is_accepted: bool,
) -> (Result<ItemOutcome, PostFault>, [u32; 3]) {
    let fixture = Fixture::new().await;
    let (bank, script) = process(&fixture).await;
    if is_accepted {
        let _ = submit(&bank, TRIED, instruction.clone()).await.unwrap();
    }
    script.prepare(answers);
    (post_item(&fixture, &bank, key(TRIED), instruction).await, script.operations())
}

#[tokio::test]
async fn a_waiting_request_takes_the_queue_unless_only_its_account_was_outdated() {
    let deposit = || deposit("1.00");
    // Decided once more, on the account as it is now.
    assert_eq!(waiting(vec![stale()], deposit()).await, (Ok(()), [2, 1, 0]));
    assert_eq!(waiting(vec![rows_changed()], deposit()).await, (Ok(()), [2, 1, 0]));
    // On the queue, its row is read when its waiting time ends; and before the insert, if the key is known to be taken.
    for (answers, reason, operations) in [
        (vec![stale(), stale()], QueueReason::Contended, [2, 1, 1]),
        (vec![taken()], QueueReason::KeyTaken, [1, 0, 2]),
        (vec![early()], QueueReason::OpenWork, [1, 0, 1]),
        (vec![fault()], QueueReason::Fault, [1, 0, 1]),
        (vec![bug()], QueueReason::Fault, [1, 0, 1]),
    ] {
        assert_eq!(waiting(answers, deposit()).await, (Err(reason), operations));
    }
    // The memory adapter does not check the order, and an accepted deposit of another process may cover the withdrawal.
    let rejection = waiting(Vec::new(), withdrawal("99.00")).await;
    assert_eq!(rejection, (Err(QueueReason::Rejection), [0, 0, 1]));
}

#[tokio::test]
async fn work_of_the_queue_is_decided_again_and_its_row_read_from_the_second_refusal_on() {
    let deposit = || deposit("1.00");
    for (answers, operations) in [
        (vec![stale()], [2, 1, 0]),
        (vec![taken()], [2, 1, 0]),
        (vec![early()], [2, 1, 0]),
        (vec![stale(), stale()], [3, 2, 1]),
        // Its row changed, so it is read at once, and the account with it.
        (vec![rows_changed()], [2, 1, 1]),
    ] {
        let (fault, counted) = queued(answers, deposit()).await;
        assert!(fault.is_none(), "{fault:?}");
        assert_eq!(counted, operations);
    }
    let (unavailable, operations) = queued(vec![fault()], deposit()).await;
    assert!(matches!(unavailable, Some(PostFault::Ledger(_))), "{unavailable:?}");
    assert_eq!(operations, [1, 0, 0]);
    let (panicked, _) = queued(vec![bug()], deposit()).await;
    assert!(matches!(panicked, Some(PostFault::Bug)), "{panicked:?}");
    // The worker decides also what depends on the balance.
    assert_eq!(queued(Vec::new(), withdrawal("99.00")).await.1, [1, 0, 0]);
}

#[tokio::test]
async fn an_item_of_a_batch_reads_the_rows_that_refuse_it() {
    let deposit = || deposit("1.00");
    for (answers, is_accepted, operations) in [
        (vec![stale()], false, [2, 1, 0]),
        (vec![taken()], false, [2, 0, 1]),
        (vec![rows_changed()], false, [2, 0, 1]),
        (vec![early()], false, [2, 0, 0]),
        // The insert finds the key taken, and the next commit makes the accepted row final.
        (Vec::new(), true, [2, 0, 1]),
        // With an accepted row in the commit, that row may be what changed.
        (vec![taken(), stale()], true, [3, 1, 2]),
        // After a fault the account is read again, because the commit may have happened.
        (vec![fault()], false, [2, 1, 0]),
    ] {
        let (posted, counted) = of_batch(answers, deposit(), is_accepted).await;
        assert!(matches!(posted, Ok(ItemOutcome::Posted { .. })), "{posted:?}");
        assert_eq!(counted, operations);
    }
    let (panicked, _) = of_batch(vec![bug()], deposit(), false).await;
    assert!(matches!(panicked, Err(PostFault::Bug)), "{panicked:?}");
    let (rejected, operations) = of_batch(Vec::new(), withdrawal("99.00"), false).await;
    assert!(matches!(rejected, Ok(ItemOutcome::Rejected(_))), "{rejected:?}");
    assert_eq!(operations, [1, 0, 0]);
}

#[tokio::test]
async fn a_panic_leaves_the_account_to_the_next_attempt() {
    let fixture = Fixture::new().await;
    let (bank, script) = process(&fixture).await;
    script.prepare(vec![bug(), bug()]);
    let waited = ask(&bank, TRIED, deposit("1.00"), SHORT).await;
    assert_eq!(waited.outcome, None, "it takes the queue");
    let work = fixture.receive().await;
    let settled = bank.poster.post(account(), work.clone()).await;
    assert!(matches!(settled[0].1, Err(PostFault::Bug)), "{settled:?}");
    // The lock is free, and the account is read again, because the commit may have happened.
    script.prepare(Vec::new());
    let settled = bank.poster.post(account(), work).await;
    assert!(settled[0].1.is_ok(), "{settled:?}");
    assert_eq!(script.operations(), [1, 1, 0]);
    assert_eq!(fixture.account().await.balance.to_string(), "6.00");
}

#[tokio::test]
async fn a_held_gate_stops_each_way_of_posting() {
    let held = GateValue { epoch: 1, state: GateState::Held { release_at: None } };
    let fixture = Fixture::new().await;
    let (bank, script) = process(&fixture).await;
    let _ = submit(&bank, 2, deposit("1.00")).await.unwrap();
    let work = fixture.receive().await;
    apply_gate(&bank, held);
    script.prepare(Vec::new());
    let settled = bank.poster.post(account(), work.clone()).await;
    assert!(matches!(settled[0].1, Err(PostFault::GateHeld)), "{settled:?}");
    let posted = post_item(&fixture, &bank, key(3), deposit("1.00")).await;
    assert!(matches!(posted, Err(PostFault::GateHeld)), "{posted:?}");
    let waited = ask(&bank, TRIED, deposit("1.00"), SHORT).await;
    assert_eq!(waited.outcome, None);
    assert_eq!(bank.acceptor.served().queued(QueueReason::GateHeld), 1);
    assert_eq!(script.operations()[0], 0, "nothing is committed");
    // An operator discards while the gate is held, too.
    let discarded = bank.poster.discard(account(), work).await;
    assert!(discarded[0].1.is_ok(), "{discarded:?}");
    assert!(matches!(fixture.outcome(2).await, Some(Outcome::Rejected { .. })));
}

#[tokio::test]
async fn an_unknown_account_refuses_requests_and_work_and_rejects_items() {
    let fixture = Fixture::new().await;
    let (bank, script) = process(&fixture).await;
    let mut unknown = key(TRIED);
    unknown.account.account = AccountId::from_uuid(Uuid::from_u128(99));
    // As if it existed, and had been removed by hand.
    bank.acceptor.remember(unknown.account, Currency::parse("EUR").unwrap());
    script.prepare(Vec::new());
    let answer = bank.acceptor.submit(unknown.clone(), deposit("1.00"), Origin::default(), Some(SHORT)).await;
    assert!(matches!(answer, Ok(Acceptance::Accepted(accepted)) if accepted.outcome.is_none()));
    assert_eq!(bank.acceptor.served().queued(QueueReason::Fault), 1);
    let settled = bank.poster.post(unknown.account, fixture.receive().await).await;
    assert!(matches!(settled[0].1, Err(PostFault::AccountUnknown)), "{settled:?}");
    let item = TransactionKey { message: key(2).message, ..unknown };
    let posted = post_item(&fixture, &bank, item, deposit("1.00")).await.unwrap();
    assert_eq!(posted, ItemOutcome::Rejected(RejectReason::AccountUnknown));
    assert_eq!(script.operations()[0], 0, "no account is committed");
}
