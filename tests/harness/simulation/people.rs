//! Those outside of the bank: clients who send and send again until they have an answer, and
//! operators who hold the gate, change terms, and look after what was forgotten.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{Either, select};
use postonce_shared::cluster::gate::{Gate, GateState};
use postonce_shared::domain::account::{Account, AccountStatus};
use postonce_shared::domain::ids::{AccountId, AccountKey, MessageId, PartnerId, TransactionKey, UserId};
use postonce_shared::domain::instruction::{Details, Instruction, TransactionKind, UnknownMembers};
use postonce_shared::domain::money::{Amount, Currency, OverdraftLimit};
use postonce_shared::protocol::accept::Acceptance;
use postonce_shared::protocol::enquire;
use postonce_shared::protocol::recover::RecoveryScope;
use tokio::sync::oneshot;
use uuid::Uuid;

use super::faults::{Fault, length};
use super::processes::{Member, Processes};
use super::scheduler::{Life, Scheduler};

/// Longest pause of a client between two attempts.
const RETRY_MAX: Duration = Duration::from_secs(4);
/// Longest time that a client waits for an answer.
const PATIENCE_MAX: Duration = Duration::from_secs(15);
/// Longest time until a client begins.
const BEGIN_MAX: Duration = Duration::from_secs(60);
/// Largest amount, in cents.
const CENTS_MAX: u64 = 2_000;

/// Everybody outside.
#[derive(Clone)]
pub struct People {
    processes: Arc<Processes>,
    /// Clients that do not have their answers yet.
    waiting: Arc<AtomicUsize>,
}

impl People {
    /// Nobody yet.
    pub fn new(processes: &Arc<Processes>) -> Self {
        Self { processes: Arc::clone(processes), waiting: Arc::default() }
    }

    /// Whether a client still tries to get an answer.
    pub fn are_waiting(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    fn scheduler(&self) -> &Scheduler {
        &self.processes.network.scheduler
    }

    async fn pause(&self, longest: Duration) {
        self.scheduler().sleep(Life::OUTSIDE, self.scheduler().up_to(longest)).await;
    }

    fn go(&self, errand: impl Future<Output = ()> + Send + 'static) {
        self.scheduler().spawn(Life::OUTSIDE, errand.boxed());
    }

    /// Lets clients come with that many transactions on a few accounts.
    pub fn clients(&self, transactions: u32) {
        let accounts = self.scheduler().one_of(&[1_u64, 2, 3, 5]);
        for number in 0..accounts {
            let people = self.clone();
            self.go(async move { people.open(account_of(number)).await });
        }
        for number in 1..=transactions {
            let key = TransactionKey {
                account: account_of(self.scheduler().below(accounts)),
                partner: PartnerId::parse("shop").expect("it is a name"),
                message: MessageId::from_uuid(Uuid::from_u128(u128::from(number))),
            };
            let (people, instruction) = (self.clone(), self.invent());
            self.waiting.fetch_add(1, Ordering::Relaxed);
            self.go(async move {
                people.client(key, instruction).await;
                people.waiting.fetch_sub(1, Ordering::Relaxed);
            });
        }
    }

    fn invent(&self) -> Instruction {
        let scheduler = self.scheduler();
        let kind =
            if scheduler.below(100) < 55 { TransactionKind::Deposit } else { TransactionKind::Withdrawal };
        let cents = i64::try_from(scheduler.below(CENTS_MAX)).unwrap_or(0).saturating_add(1);
        let amount = Amount::try_new(cents, euro()).expect("it is an amount");
        let reference = (scheduler.below(3) == 0).then(|| format!("invoice {}", scheduler.below(1000)));
        let details =
            Details::try_new(reference, BTreeMap::new(), &UnknownMembers::default()).expect("short details");
        Instruction { kind, amount, details }
    }

    async fn open(&self, key: AccountKey) {
        let overdraft = self.scheduler().one_of(&[0_i64, 0, 500]);
        loop {
            self.pause(Duration::from_secs(2)).await;
            let Some(web) = self.processes.any_web() else { continue };
            let limit = OverdraftLimit::try_new(overdraft, euro()).expect("it is a limit");
            let account = Account::open(key, euro(), limit, None, web.bank.world.now());
            if web.bank.store.accounts.open(&account).await.is_ok() {
                return;
            }
        }
    }

    /// Sends until there is an answer, and asks now and then what became of it.
    async fn client(&self, key: TransactionKey, instruction: Instruction) {
        self.pause(BEGIN_MAX).await;
        let (scheduler, auditor) = (self.scheduler(), &self.processes.network.auditor);
        auditor.asked(&key, &instruction);
        if scheduler.below(8) == 0 {
            // Somebody uses the same id for something else, at about the same time.
            let (people, key, other) = (self.clone(), key.clone(), self.invent());
            auditor.asked(&key, &other);
            self.go(async move {
                people.pause(Duration::from_secs(5)).await;
                drop(people.request(&key, &other).await);
            });
        }
        loop {
            match self.request(&key, &instruction).await {
                Some(Acceptance::Accepted(told) | Acceptance::Replayed(told)) if told.outcome.is_some() => {
                    return;
                }
                Some(Acceptance::Accepted(_) | Acceptance::Replayed(_)) => break,
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

    /// One request through some web; `None` when no answer is heard.
    async fn request(&self, key: &TransactionKey, instruction: &Instruction) -> Option<Acceptance> {
        let network = &self.processes.network;
        if network.strikes(Fault::RequestTwice) {
            drop(self.processes.any_web().map(|web| self.send(&web, key, instruction)));
        }
        let web = self.processes.any_web()?;
        let answered = self.send(&web, key, instruction);
        let patience = self.scheduler().sleep(Life::OUTSIDE, self.scheduler().up_to(PATIENCE_MAX));
        let heard = match select(answered, std::pin::pin!(patience)).await {
            Either::Left((answer, _)) => answer.ok().flatten(),
            Either::Right(_) => None,
        };
        if heard.is_some() && network.strikes(Fault::ResponseLost) { None } else { heard }
    }

    fn send(
        &self,
        web: &Member,
        key: &TransactionKey,
        instruction: &Instruction,
    ) -> oneshot::Receiver<Option<Acceptance>> {
        let (answer, answered) = oneshot::channel();
        let scheduler = self.scheduler();
        let patience = (scheduler.below(2) == 0).then(|| scheduler.up_to(Duration::from_secs(10)));
        let (acceptor, network) = (Arc::clone(&web.bank.acceptor), Arc::clone(&self.processes.network));
        let (key, instruction) = (key.clone(), instruction.clone());
        let serve = async move {
            let accepted = acceptor.submit(key.clone(), instruction.clone(), None, patience).await.ok();
            if let Some(acceptance) = &accepted {
                network.auditor.answered(&key, &instruction, acceptance);
                network.note(format!("answered {}: {}", super::ports::short(&key), word(acceptance)));
            }
            // Whoever asked may have gone away.
            drop(answer.send(accepted));
        };
        scheduler.spawn(web.life, serve.boxed());
        answered
    }

    /// Asks for a transaction, as a client would, which repairs what was forgotten.
    pub async fn enquire(&self, key: &TransactionKey) {
        let Some(web) = self.processes.any_web() else { return };
        let (bank, network, key) = (web.bank.clone(), Arc::clone(&self.processes.network), key.clone());
        let look = async move {
            if let Ok(Some(stored)) = enquire::transaction(&bank.store, &key).await {
                network.auditor.shown(&stored.transaction);
                drop(bank.repair.enqueue_if_due(&stored).await);
            }
        };
        self.scheduler().spawn(web.life, look.boxed());
    }

    /// Operators hold the gate now and then, change terms, recover, and draw numbers by hand.
    pub fn operators(&self) {
        let people = self.clone();
        self.go(async move {
            loop {
                people.pause(Duration::from_secs(20)).await;
                let Some(member) = people.any() else { continue };
                match people.scheduler().below(5) {
                    0 if people.processes.network.strikes_often(Fault::GateHeld) => {
                        people.hold(&member).await
                    }
                    1 => people.change_terms(&member).await,
                    2 => {
                        let repair = member.bank.repair.clone();
                        people.scheduler().spawn(
                            member.life,
                            async move { drop(repair.recover(RecoveryScope::Old).await) }.boxed(),
                        );
                    }
                    3 => people.draw(&member),
                    _ => people.replay_letters(&member).await,
                }
            }
        });
    }

    fn any(&self) -> Option<Member> {
        self.scheduler().take_one(self.processes.living())
    }

    async fn hold(&self, member: &Member) {
        let time = length(Fault::GateHeld, self.scheduler());
        let release_at = (self.scheduler().below(2) == 0).then(|| member.bank.world.now().after(time));
        if let Ok(order) = gate_of(member).set(GateState::Held { release_at }).await {
            self.tell(order.epoch);
        }
        self.scheduler().sleep(Life::OUTSIDE, time).await;
        self.release().await;
    }

    /// Releases the gate, as often as it takes.
    pub async fn release(&self) {
        loop {
            if let Some(member) = self.any()
                && let Ok(order) = gate_of(&member).set(GateState::Released).await
            {
                self.tell(order.epoch);
                return;
            }
            self.pause(Duration::from_secs(2)).await;
        }
    }

    fn tell(&self, epoch: u64) {
        let network = &self.processes.network;
        for member in self.processes.living() {
            let Some(gatekeeper) = member.gatekeeper.clone() else { continue };
            if network.strikes(Fault::RingLost) {
                continue;
            }
            let auditor = Arc::clone(&network.auditor);
            let heard = async move {
                let obeyed = gatekeeper.heard(epoch).await;
                auditor.acknowledged(member.life, obeyed);
            };
            self.scheduler().spawn(member.life, heard.boxed());
        }
    }

    async fn change_terms(&self, member: &Member) {
        let store = &member.bank.store;
        let cents = self.scheduler().one_of(&[0_i64, 300, 1_000]);
        let Ok(Some(read)) = store.ledger.account(account_of(0)).await else { return };
        let limit = OverdraftLimit::try_new(cents, euro()).expect("it is a limit");
        if let Ok(after) = read.value.changed(limit, AccountStatus::Open) {
            drop(store.accounts.change(&read.revision, &after).await);
        }
    }

    fn draw(&self, member: &Member) {
        let (numbers, auditor) =
            (Arc::clone(&member.bank.order_numbers), Arc::clone(&self.processes.network.auditor));
        let count = usize::try_from(self.scheduler().below(150)).unwrap_or(0);
        let draw = async move {
            if let Ok(drawn) = numbers.take(count).await {
                drawn.into_iter().for_each(|number| auditor.drawn(number));
            }
        };
        self.scheduler().spawn(member.life, draw.boxed());
    }

    /// Replays every dead letter.
    pub async fn replay_letters(&self, member: &Member) {
        let office = &member.bank.dead_letters;
        let Ok(listing) = member.bank.store.dead_letters.list(true, None, 100).await else { return };
        for letter in listing.items {
            drop(office.replay(&letter.id, "an operator").await);
        }
    }

    /// Somebody who lives, in the end: waits until there is.
    pub async fn somebody(&self) -> Member {
        loop {
            if let Some(web) = self.processes.any_web() {
                return web;
            }
            self.pause(Duration::from_secs(1)).await;
        }
    }
}

fn gate_of(member: &Member) -> Gate {
    Gate::new(Arc::clone(&member.bank.store.sync), Arc::clone(&member.bank.world))
}

fn euro() -> Currency {
    Currency::parse("EUR").expect("it is a currency")
}

fn account_of(number: u64) -> AccountKey {
    let account = AccountId::from_uuid(Uuid::from_u128(u128::from(number)));
    AccountKey { user: UserId::from_uuid(Uuid::from_u128(7)), account }
}

const fn word(acceptance: &Acceptance) -> &'static str {
    match acceptance {
        Acceptance::Accepted(_) => "accepted",
        Acceptance::Replayed(_) => "replayed",
        Acceptance::KeyReused => "key reused",
        Acceptance::AccountUnknown => "account unknown",
        Acceptance::CurrencyMismatch { .. } => "currency mismatch",
    }
}
