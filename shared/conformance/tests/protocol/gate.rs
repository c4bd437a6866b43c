//! A held gate stops every path that posts, also in the middle of its work, and is acknowledged when the commits in progress have ended.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use futures::FutureExt as _;
use futures::future::join;
use postonce_shared::batches::messages::Named;
use postonce_shared::posting::PostFault;
use postonce_shared::posting::waiting::QueueReason;
use postonce_shared::testing::prelude::*;

use super::batches::rig::{ACCOUNTS, Rig, batch_key, item, queues};
use super::fixture::{Fixture, account, apply_gate, deposit, submit};
use super::immediate::{posted_at_once, process_over, queued};

const HELD: GateValue = GateValue { epoch: 1, state: GateState::Held { release_at: None } };
const RELEASED: GateValue = GateValue { epoch: 2, state: GateState::Released };

/// The gate is held while the first commit is written. From the time on when no permit is in use, the hold is acknowledged.
#[derive(Default)]
struct HeldMeanwhile {
    bank: OnceLock<Bank>,
    commits: AtomicUsize,
    is_acknowledged: AtomicBool,
    has_joint_steps: bool,
}

impl HeldMeanwhile {
    fn new(has_joint_steps: bool) -> Arc<Self> {
        Arc::new(Self { has_joint_steps, ..Self::default() })
    }

    fn commit(&self) {
        let is_acknowledged = self.is_acknowledged.load(Ordering::SeqCst);
        assert!(!is_acknowledged, "a commit begins after the hold was acknowledged");
        if self.commits.fetch_add(1, Ordering::SeqCst) > 0 {
            return;
        }
        let Some(bank) = self.bank.get() else { return };
        apply_gate(bank, HELD);
        let unused = bank.gate_permits.until_unused().now_or_never();
        assert!(unused.is_none(), "this commit is acknowledged as ended");
    }

    /// Starts to hold the gate of a bank at its next commit.
    fn begin(&self, bank: &Bank) {
        self.commits.store(0, Ordering::SeqCst);
        assert!(self.bank.set(bank.clone()).is_ok());
    }

    fn commits(&self) -> usize {
        self.commits.load(Ordering::SeqCst)
    }

    /// Does work, and acknowledges the hold meanwhile.
    async fn during<T>(&self, bank: &Bank, work: impl Future<Output = T>) -> T {
        let acknowledging = async {
            while bank.gate_permits.is_open() {
                tokio::task::yield_now().await;
            }
            bank.gate_permits.until_unused().await;
            self.is_acknowledged.store(true, Ordering::SeqCst);
        };
        join(acknowledging, work).await.1
    }
}

struct Held(Arc<dyn Ledger>, Arc<HeldMeanwhile>);

fn held(store: &mut Store, meanwhile: &Arc<HeldMeanwhile>) {
    store.ledger = Arc::new(Held(Arc::clone(&store.ledger), Arc::clone(meanwhile)));
}

#[async_trait]
impl LedgerDecorator for Held {
    fn inner(&self) -> &dyn Ledger {
        &*self.0
    }

    fn joint_steps(&self) -> Option<&dyn JointSteps> {
        self.1.has_joint_steps.then_some(self)
    }

    async fn commit(&self, commit: &AccountCommit) -> Result<Committed, StoreFault> {
        self.1.commit();
        self.0.commit(commit).await
    }
}

#[async_trait]
impl JointSteps for Held {
    fn accounts_max(&self) -> usize {
        2
    }

    async fn accounts(&self, keys: &[AccountKey]) -> Result<Vec<Option<Versioned<Account>>>, StoreFault> {
        self.0.joint_steps().unwrap().accounts(keys).await
    }

    async fn commit_all(&self, commits: &[AccountCommit]) -> Result<Vec<Committed>, StoreFault> {
        self.1.commit();
        self.0.joint_steps().unwrap().commit_all(commits).await
    }
}

#[tokio::test]
async fn work_of_the_queue_stops_at_the_next_commit() {
    let fixture = Fixture::new().await;
    let meanwhile = HeldMeanwhile::new(false);
    let bank = fixture.process_over(|store| held(store, &meanwhile));
    meanwhile.begin(&bank);
    let mut work = Vec::new();
    for message in 1..=300 {
        let _ = submit(&bank, message, deposit("1.00")).await.unwrap();
        work.push(fixture.stored(message).await.work().unwrap());
    }
    let settled = meanwhile.during(&bank, bank.poster.post(account(), work)).await;
    let waiting = settled.iter().filter(|(_, result)| matches!(result, Err(PostFault::GateHeld))).count();
    let posted = settled.iter().filter(|(_, result)| result.is_ok()).count();
    assert_eq!((meanwhile.commits(), posted + waiting), (1, 300), "one commit has begun");
    assert!(waiting > 0);
    assert_eq!(fixture.account().await.balance.to_string(), format!("{posted}.00"));
    assert!(bank.gate_permits.until_unused().now_or_never().is_some());
}

#[tokio::test]
async fn a_batch_stops_at_the_next_commit_and_goes_on_after_the_release() {
    for has_joint_steps in [false, true] {
        let rig = Rig::new().await;
        let items: Vec<Item> = (1..=600)
            .map(|line| item(line, u128::from(line) % ACCOUNTS + 1, 1000 + u128::from(line), deposit("1.00")))
            .collect();
        let _ = rig.submit(&rig.process(), &batch_key(1), &items).await.unwrap();
        rig.step(&rig.process(), &queues()[0]).await;
        let messages = rig.take(&queues()[1]).await;
        let named: Vec<Named> = messages.iter().map(|it| Named::decode(&it.body).unwrap()).collect();
        let meanwhile = HeldMeanwhile::new(has_joint_steps);
        let bank = rig.process_over(|store| held(store, &meanwhile));
        meanwhile.begin(&bank);
        for named in &named {
            let processing = rig.while_time_passes(bank.batches.process(named));
            meanwhile.during(&bank, processing).await.unwrap();
        }
        assert!(meanwhile.commits() > 0);
        assert_eq!(rig.take(&queues()[2]).await.len(), 0, "no chunk is done");
        meanwhile.is_acknowledged.store(false, Ordering::SeqCst);
        apply_gate(&bank, RELEASED);
        rig.run(&bank).await;
        rig.check(&batch_key(1), &items).await;
    }
}

#[tokio::test]
async fn a_request_that_waits_takes_the_queue_after_the_commit_in_progress() {
    let fixture = Fixture::new().await;
    let meanwhile = HeldMeanwhile::new(false);
    let bank = process_over(&fixture, |ledger| Held(ledger, Arc::clone(&meanwhile)));
    posted_at_once(&bank, 1, deposit("1.00")).await;
    meanwhile.begin(&bank);
    posted_at_once(&bank, 2, deposit("1.00")).await;
    queued(&bank, 3, deposit("1.00"), QueueReason::GateHeld).await;
    assert_eq!(meanwhile.commits(), 1);
}

#[tokio::test]
async fn a_process_that_the_others_do_not_find_posts_nothing() {
    let fixture = Fixture::new().await;
    let sender = fixture.process();
    let bank = fixture.unregistered_over(|_| {});
    let work = async |message| {
        let _ = submit(&sender, message, deposit("1.00")).await.unwrap();
        vec![fixture.stored(message).await.work().unwrap()]
    };
    let first = work(1).await;
    let posts = async |work: &[Work]| bank.poster.post(account(), work.to_vec()).await.remove(0).1.is_ok();
    // It has read the gate before the hold, which is not sent to it.
    count_as_released(&bank);
    assert!(!posts(&first).await, "it is not registered");
    queued(&bank, 2, deposit("1.00"), QueueReason::Unregistered).await;
    // The hold was acknowledged by all others before this.
    count_as_registered(&bank);
    assert!(!posts(&first).await, "it has not read the gate since");
    queued(&bank, 3, deposit("1.00"), QueueReason::GateHeld).await;
    apply_gate(&bank, RELEASED);
    assert!(posts(&first).await);
    bank.registration.end();
    let last = work(4).await;
    queued(&bank, 5, deposit("1.00"), QueueReason::Unregistered).await;
    assert!(posts(&last).await, "a process that drains finishes its work");
    bank.registration.withdraw();
    assert!(!posts(&work(6).await).await, "its entry is removed");
}
