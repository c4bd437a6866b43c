//! The clients and operators of the simulation. Clients repeat a request until they have a response. Operators hold the gate,
//! change terms, and run the repair of forgotten work.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{Either, select};
use postonce_shared::protocol::enquire;
use postonce_shared::protocol::recover::RecoveryScope;
use postonce_shared::testing::prelude::*;
use tokio::sync::oneshot;
use uuid::Uuid;

use super::faults::{Fault, length};
use super::processes::{Processes, RunningProcess};
use super::scheduler::{ProcessId, Scheduler};

/// Maximum pause of a client between two attempts.
pub(super) const RETRY_MAX: Duration = Duration::from_secs(4);
/// Maximum time that a client waits for a response.
pub(super) const ANSWER_TIMEOUT_MAX: Duration = Duration::from_secs(15);
/// Maximum time until a client sends its first request.
pub(super) const START_DELAY_MAX: Duration = Duration::from_secs(60);
/// Intervals of bursts, in runs in which clients start at the same moments.
const BURST_INTERVALS: [Option<Duration>; 3] =
    [None, Some(Duration::from_secs(10)), Some(Duration::from_secs(30))];
/// Maximum amount, in cents.
const CENTS_MAX: u64 = 2_000;

/// All clients and operators of a run.
#[derive(Clone)]
pub struct Workload {
    pub(super) processes: Arc<Processes>,
    /// Number of clients that wait for a response.
    pub(super) waiting: Arc<AtomicUsize>,
    /// Whether the faults have stopped.
    recovers: Arc<AtomicBool>,
    /// Percentage of requests that wait for their outcome.
    waits_percent: u64,
}

impl Workload {
    /// Creates a workload without clients and operators.
    pub fn new(processes: &Arc<Processes>) -> Self {
        let waits_percent = processes.network.scheduler.one_of(&[20, 50, 95]);
        let (waiting, recovers) = (Arc::default(), Arc::default());
        Self { processes: Arc::clone(processes), waiting, recovers, waits_percent }
    }

    /// Returns whether a client still waits for a response.
    pub fn has_waiting_clients(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    pub(super) fn scheduler(&self) -> &Scheduler {
        &self.processes.network.scheduler
    }

    pub(super) async fn pause(&self, longest: Duration) {
        self.scheduler().sleep(ProcessId::ENVIRONMENT, self.scheduler().up_to(longest)).await;
    }

    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.scheduler().spawn(ProcessId::ENVIRONMENT, task.boxed());
    }

    /// Starts clients that send these numbers of transactions and batches to a few accounts.
    pub fn spawn_clients(&self, transactions: u32, batches: u32) {
        let mut requests = Vec::new();
        let accounts = self.scheduler().one_of(&[1_u64, 2, 3, 5]);
        let interval = self.scheduler().one_of(&BURST_INTERVALS);
        for number in 0..accounts {
            let workload = self.clone();
            self.spawn(async move { workload.open(account_of(number)).await });
        }
        for number in 1..=transactions {
            let key = TransactionKey {
                account: account_of(self.scheduler().below(accounts)),
                partner: partner(),
                message: MessageId::from_uuid(Uuid::from_u128(u128::from(number))),
            };
            let (workload, instruction) = (self.clone(), self.random_instruction());
            requests.push((key.clone(), instruction.clone()));
            self.waiting.fetch_add(1, Ordering::Relaxed);
            let start = self.scheduler().up_to(START_DELAY_MAX);
            let start = interval.map_or(start, |interval| next_multiple(start, interval));
            self.spawn(async move {
                workload.scheduler().sleep(ProcessId::ENVIRONMENT, start).await;
                workload.client(key, instruction).await;
                workload.waiting.fetch_sub(1, Ordering::Relaxed);
            });
        }
        self.spawn_batches(batches, accounts, requests);
    }

    pub(super) fn random_instruction(&self) -> Instruction {
        let scheduler = self.scheduler();
        let kind =
            if scheduler.below(100) < 55 { TransactionKind::Deposit } else { TransactionKind::Withdrawal };
        let cents = i64::try_from(scheduler.below(CENTS_MAX)).unwrap_or(0).saturating_add(1);
        let amount = Amount::try_new(cents, euro()).expect("it is an amount");
        let reference = (scheduler.below(3) == 0).then(|| format!("invoice {}", scheduler.below(1000)));
        let details = Details::new(reference, BTreeMap::new(), &UnknownMembers::default());
        Instruction { kind, amount, details }
    }

    async fn open(&self, key: AccountKey) {
        let overdraft = self.scheduler().one_of(&[0_i64, 0, 500]);
        loop {
            self.pause(Duration::from_secs(2)).await;
            let Some(web) = self.processes.any_web() else { continue };
            let limit = OverdraftLimit::try_new(overdraft, euro()).expect("it is a limit");
            let account = Account::open(key, euro(), limit, None, web.bank.world.now());
            if web.bank.store.accounts.open(&opening(account)).await.is_ok() {
                return;
            }
        }
    }

    /// Repeats a request until there is a response, and then reads the transaction a few times.
    async fn client(&self, key: TransactionKey, instruction: Instruction) {
        let (scheduler, auditor) = (self.scheduler(), &self.processes.network.auditor);
        auditor.requested(&key, &instruction);
        if scheduler.below(8) == 0 {
            // Another client uses the same id for another instruction at about the same time.
            let (workload, key, other) = (self.clone(), key.clone(), self.random_instruction());
            auditor.requested(&key, &other);
            self.spawn(async move {
                workload.pause(Duration::from_secs(5)).await;
                drop(workload.request(&key, &other).await);
            });
        }
        loop {
            match self.request(&key, &instruction).await {
                Some(Acceptance::Accepted(Accepted { outcome: Some(_), .. })) => {
                    return;
                }
                Some(Acceptance::Accepted(_)) => break,
                Some(Acceptance::KeyReused) => return,
                Some(Acceptance::AccountUnknown | Acceptance::CurrencyMismatch { .. }) | None => {}
            }
            self.pause(RETRY_MAX).await;
        }
        for _ in 0..scheduler.below(4) {
            self.pause(Duration::from_secs(30)).await;
            self.enquire(&key).await;
        }
    }

    /// Sends one request to any web process. Returns `None` when no response arrives.
    async fn request(&self, key: &TransactionKey, instruction: &Instruction) -> Option<Acceptance> {
        let network = &self.processes.network;
        if network.injects(Fault::RequestTwice) {
            drop(self.processes.any_web().map(|web| self.send(&web, key, instruction)));
        }
        let web = self.processes.any_web()?;
        let answered = self.send(&web, key, instruction);
        let timeout =
            self.scheduler().sleep(ProcessId::ENVIRONMENT, self.scheduler().up_to(ANSWER_TIMEOUT_MAX));
        let received = match select(answered, std::pin::pin!(timeout)).await {
            Either::Left((answer, _)) => answer.ok().flatten(),
            Either::Right(_) => None,
        };
        if received.is_some() && network.injects(Fault::ResponseLost) { None } else { received }
    }

    fn send(
        &self,
        web: &RunningProcess,
        key: &TransactionKey,
        instruction: &Instruction,
    ) -> oneshot::Receiver<Option<Acceptance>> {
        let (answer, answered) = oneshot::channel();
        let scheduler = self.scheduler();
        let wait =
            (scheduler.below(100) < self.waits_percent).then(|| scheduler.up_to(Duration::from_secs(10)));
        let (acceptor, network) = (Arc::clone(&web.bank.acceptor), Arc::clone(&self.processes.network));
        let (key, instruction) = (key.clone(), instruction.clone());
        let (process_id, clock) = (web.id, scheduler.clone());
        let serve = async move {
            network.auditor.submitted(process_id, &key, clock.now());
            let accepted =
                acceptor.submit(key.clone(), instruction.clone(), Origin::default(), wait).await.ok();
            if let Some(acceptance) = &accepted {
                network.auditor.answered(process_id, &key, &instruction, acceptance);
                network.note(format!("answered {}: {}", super::ports::short(&key), name(acceptance)));
            }
            // The client may have given up.
            drop(answer.send(accepted));
        };
        scheduler.spawn(web.id, serve.boxed());
        answered
    }

    /// Reads a transaction as a client does, which also repairs forgotten work.
    pub async fn enquire(&self, key: &TransactionKey) {
        let Some(web) = self.processes.any_web() else { return };
        let (bank, network, key) = (web.bank.clone(), Arc::clone(&self.processes.network), key.clone());
        let read = async move {
            if let Ok(Some(stored)) = enquire::transaction(&bank.store, &key).await {
                network.auditor.shown(&stored);
                drop(bank.repair.enqueue_if_due(&stored).await);
            }
        };
        self.scheduler().spawn(web.id, read.boxed());
    }

    /// Starts operators, which hold the gate, change terms, run the repair, take order numbers and replay dead letters.
    pub fn spawn_operators(&self) {
        let workload = self.clone();
        self.spawn(async move {
            loop {
                workload.pause(Duration::from_secs(20)).await;
                let Some(process) = workload.any_process() else { continue };
                match workload.scheduler().below(5) {
                    0 if workload.processes.network.injects_if_enabled(Fault::GateHeld) => {
                        workload.hold(&process).await
                    }
                    1 => workload.change_terms(&process).await,
                    2 => {
                        let repair = process.bank.repair.clone();
                        workload.scheduler().spawn(
                            process.id,
                            async move { drop(repair.recover(RecoveryScope::Old).await) }.boxed(),
                        );
                    }
                    3 => workload.take_order_numbers(&process),
                    // Two operators that replay a dead letter at the same time send its message twice. It may become two dead
                    // letters, so their number would grow without bound.
                    _ if workload.recovers.load(Ordering::Relaxed) => {}
                    _ => workload.replay_letters(&process).await,
                }
            }
        });
    }

    /// From now on, only one operator handles dead letters.
    pub fn recovers(&self) {
        self.recovers.store(true, Ordering::Relaxed);
    }

    fn any_process(&self) -> Option<RunningProcess> {
        self.scheduler().take_one(self.processes.running())
    }

    async fn hold(&self, process: &RunningProcess) {
        let time = length(Fault::GateHeld, self.scheduler());
        let release_at = (self.scheduler().below(2) == 0).then(|| process.bank.world.now().after(time));
        if let Ok(order) =
            gate_of(process).set(GateState::Held { release_at }, &GateAct::by("the operator")).await
        {
            self.announce_gate(order.value.epoch);
        }
        self.scheduler().sleep(ProcessId::ENVIRONMENT, time).await;
        self.release().await;
    }

    /// Releases the gate, and repeats that until it succeeds.
    pub async fn release(&self) {
        let auditor = Arc::clone(&self.processes.network.auditor);
        auditor.operator_releases();
        loop {
            if let Some(process) = self.any_process()
                && let Ok(order) =
                    gate_of(&process).set(GateState::Released, &GateAct::by("the operator")).await
            {
                auditor.operator_released();
                self.announce_gate(order.value.epoch);
                return;
            }
            self.pause(Duration::from_secs(2)).await;
        }
    }

    fn announce_gate(&self, epoch: u64) {
        let network = &self.processes.network;
        for process in self.processes.running() {
            let process_gate = Arc::clone(&process.process_gate);
            if network.injects(Fault::RingLost) {
                continue;
            }
            let auditor = Arc::clone(&network.auditor);
            let announcement = async move {
                let obeyed = process_gate.refresh(epoch).await;
                auditor.gate_acknowledged(process.id, obeyed);
            };
            self.scheduler().spawn(process.id, announcement.boxed());
        }
    }

    async fn change_terms(&self, process: &RunningProcess) {
        let store = &process.bank.store;
        let cents = self.scheduler().one_of(&[0_i64, 300, 1_000]);
        let Ok(Some(read)) = store.ledger.account(account_of(0)).await else { return };
        let limit = OverdraftLimit::try_new(cents, euro()).expect("it is a limit");
        let context = TermsContext { nonce: process.bank.world.nonce(), now: process.bank.world.now() };
        let name = if cents == 0 { None } else { Some("Ada") };
        let holder = name.map(|name| Holder { given_name: name.to_owned(), family_name: cents.to_string() });
        let terms = NewTerms { overdraft_limit: limit, status: AccountStatus::Open, holder };
        if let Ok(change) = change_terms(&read.value, terms, &context) {
            drop(store.accounts.change(&read.revision, &change).await);
        }
    }

    fn take_order_numbers(&self, process: &RunningProcess) {
        let (numbers, auditor) =
            (Arc::clone(&process.bank.order_numbers), Arc::clone(&self.processes.network.auditor));
        let count = usize::try_from(self.scheduler().below(150)).unwrap_or(0);
        let take = async move {
            if let Ok(drawn) = numbers.take(count).await {
                drawn.into_iter().for_each(|number| auditor.drawn(number));
            }
        };
        self.scheduler().spawn(process.id, take.boxed());
    }

    /// Replays the dead letters on the first page with any. Not all pages, because replayed letters can become dead letters again.
    pub async fn replay_letters(&self, process: &RunningProcess) {
        let (office, letters) = (&process.bank.dead_letters, &process.bank.store.dead_letters);
        let page = |cursor: Option<String>| async move { letters.list(true, cursor.as_deref(), 100).await };
        let Ok(listing) = Listing::first_with_items(page).await else { return };
        for letter in listing.items {
            drop(office.replay(&letter.id, "an operator").await);
        }
    }

    /// Waits for a running web process.
    pub async fn wait_for_web(&self) -> RunningProcess {
        loop {
            if let Some(web) = self.processes.any_web() {
                return web;
            }
            self.pause(Duration::from_secs(1)).await;
        }
    }
}

fn gate_of(process: &RunningProcess) -> Gate {
    Gate::new(&process.bank.store, &process.bank.world)
}

fn next_multiple(time: Duration, interval: Duration) -> Duration {
    let count = time.as_secs().div_euclid(interval.as_secs().max(1)).saturating_add(1);
    interval.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX))
}

fn euro() -> Currency {
    Currency::parse("EUR").expect("it is a currency")
}

/// Returns the partner of all requests.
pub(super) fn partner() -> PartnerId {
    PartnerId::parse("shop").expect("it is a name")
}

/// Returns the account with this number.
pub(super) fn account_of(number: u64) -> AccountKey {
    let account = AccountId::from_uuid(Uuid::from_u128(u128::from(number)));
    AccountKey { user: UserId::from_uuid(Uuid::from_u128(7)), account }
}

const fn name(acceptance: &Acceptance) -> &'static str {
    match acceptance {
        Acceptance::Accepted(Accepted { replayed: false, .. }) => "accepted",
        Acceptance::Accepted(Accepted { replayed: true, .. }) => "replayed",
        Acceptance::KeyReused => "key reused",
        Acceptance::AccountUnknown => "account unknown",
        Acceptance::CurrencyMismatch { .. } => "currency mismatch",
    }
}
