//! A partner of the bank: asks for new things, repeats old ones, and does not let go before there is
//! an answer, from whichever web process.
//!
//! What has to be refused it tries as well: an id with other content, another currency, an account
//! that nobody opened.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::join_all;
use postonce_shared::domain::ids::{AccountId, AccountKey, MessageId, UserId};
use postonce_shared::domain::instruction::TransactionKind;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use reqwest::{Method, RequestBuilder};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::door::Door;
use super::tally::Tally;
use super::watch::Watch;
use crate::auditor::Auditor;
use crate::client::{Answer, Client, Wish, path_of};
use crate::wait;

/// Longest pause between two requests of a partner, in milliseconds.
const PACE_MS_MAX: u64 = 60;
/// Most wishes that are sent at once.
const BURST_MAX: usize = 60;
/// As many large ones at once that their work is kept beside the queue, and claimed.
const FLOOD: usize = 180;
/// Accounts are opened until there are that many.
const ACCOUNTS_MAX: usize = 60;
/// Lines of a statement that are read and remembered.
const STATEMENT_LINES: usize = 100;
/// How far accounts may be overdrawn.
const OVERDRAFTS: [&str; 3] = ["0.00", "50.00", "500.00"];

/// A wish that was promised.
#[derive(Debug, Clone)]
struct Promised {
    account: AccountKey,
    id: MessageId,
    wish: Wish,
}

/// What all partners share.
#[derive(Debug, Default)]
pub struct Books {
    /// Notes everything that is asked and answered.
    pub auditor: RefCell<Auditor>,
    accounts: RefCell<Vec<AccountKey>>,
    promised: RefCell<Vec<Promised>>,
    /// The first page of each statement, as long as it was seen.
    statements: RefCell<BTreeMap<AccountKey, Vec<Value>>>,
}

/// One partner's connection to the bank.
pub struct Partner<'a> {
    door: &'a Door<'a>,
    books: &'a Books,
    watch: &'a Watch,
    tally: &'a Tally,
    rng: StdRng,
}

impl<'a> Partner<'a> {
    /// A partner at that door, whose wishes the seed decides.
    pub fn new(door: &'a Door<'a>, books: &'a Books, watch: &'a Watch, tally: &'a Tally, seed: u64) -> Self {
        Self { door, books, watch, tally, rng: StdRng::seed_from_u64(seed) }
    }

    /// Asks for one thing after the other while it is rough, and ends with an answer to the last.
    pub async fn trade(mut self) {
        while self.watch.is_rough() {
            let accounts = self.books.accounts.borrow().len();
            match self.rng.random_range(0..100) {
                0..4 if accounts < ACCOUNTS_MAX => self.open_account().await,
                _ if accounts < 3 => self.open_account().await,
                4..12 => self.repeat().await,
                12..18 => self.reuse_an_id().await,
                18..24 => self.read().await,
                24..26 => self.read_statement().await,
                26..28 => self.ask_for_nonsense().await,
                28..30 => self.submit_many().await,
                _ => self.submit().await,
            }
            let pause = self.rng.random_range(0..PACE_MS_MAX);
            wait::pass(Duration::from_millis(pause)).await;
        }
    }

    async fn open_account(&mut self) {
        let account =
            AccountKey { user: UserId::from_uuid(self.uuid()), account: AccountId::from_uuid(self.uuid()) };
        let overdraft = self.pick(&OVERDRAFTS);
        let terms = |currency: &str| json!({"currency": currency, "overdraft_limit": overdraft});
        let put =
            |terms: Value| move |client: &Client| client.request(Method::PUT, &path_of(account)).json(&terms);
        if self.insist("opening an account", &[200, 201], put(terms("EUR"))).await.is_none() {
            return;
        }
        self.books.auditor.borrow_mut().account(account, overdraft);
        self.books.accounts.borrow_mut().push(account);
        self.tally.count(|counts| counts.accounts = counts.accounts.saturating_add(1));
        if self.chance(30) {
            self.refused("opening an account otherwise", 409, "account_exists", put(terms("USD"))).await;
        }
    }

    async fn submit(&mut self) {
        let (account, id, wish) = (self.account(), MessageId::from_uuid(self.uuid()), self.wish());
        if self.chance(3) {
            let other = wish.clone().with("currency", "USD");
            let submit = move |client: &Client| client.submission(account, id, &other);
            self.refused("another currency", 422, "currency_mismatch", submit).await;
        }
        self.send_all(vec![Promised { account, id, wish }]).await;
    }

    /// Many wishes for one account at once, so that they are inserted, sent and posted together; among
    /// them some that stand twice, and some that were promised before.
    async fn submit_many(&mut self) {
        let account = self.account();
        let flood = self.chance(25);
        let count = if flood { FLOOD } else { self.rng.random_range(5..BURST_MAX) };
        let mut wishes: Vec<Promised> = Vec::new();
        while wishes.len() < count {
            let wish = self.wish();
            let wish = if flood { enlarged(wish) } else { wish };
            wishes.push(Promised { account, id: MessageId::from_uuid(self.uuid()), wish });
        }
        let twice: Vec<Promised> =
            wishes.iter().filter(|_| self.rng.random_range(0..10) == 0).cloned().collect();
        wishes.extend(twice);
        let before = self.rng.random_range(0..4);
        {
            let promised = self.books.promised.borrow();
            let of_account = promised.iter().rev().filter(|promised| promised.account == account);
            wishes.extend(of_account.take(before).cloned());
        }
        self.send_all(wishes).await;
    }

    /// Sends wishes at the same time, and notes them before and their answers after.
    async fn send_all(&mut self, wishes: Vec<Promised>) {
        for Promised { account, id, wish } in &wishes {
            self.books.auditor.borrow_mut().sent(*account, *id, wish);
        }
        let seeds: Vec<u64> = wishes.iter().map(|_| self.rng.random()).collect();
        let sends = wishes.into_iter().zip(seeds).map(|(wish, seed)| self.send(wish, seed));
        join_all(sends).await;
    }

    /// Sends one wish until it is promised. The first promise for an id counts.
    async fn send(&self, promised: Promised, seed: u64) {
        let mut rng = StdRng::seed_from_u64(seed);
        let Promised { account, id, wish } = promised.clone();
        let patience = rng.random_range(1..5);
        let waits = rng.random_range(0..100) < 25;
        let submit = move |client: &Client| {
            let request = client.submission(account, id, &wish);
            if waits { request.header("Prefer", format!("wait={patience}")) } else { request }
        };
        let Some(answer) = self.ask(&mut rng, account, id, &[200, 202], submit).await else { return };
        if self.books.auditor.borrow_mut().heard(account, id, &answer) {
            self.tally.count(|counts| counts.transactions = counts.transactions.saturating_add(1));
            self.books.promised.borrow_mut().push(promised);
        } else {
            self.tally.count(|counts| counts.replays = counts.replays.saturating_add(1));
        }
    }

    /// Asks about a wish until there is an answer: a final one, if one was heard before.
    async fn ask(
        &self,
        rng: &mut StdRng,
        account: AccountKey,
        id: MessageId,
        expected: &[u16],
        make: impl Fn(&Client) -> RequestBuilder,
    ) -> Option<Answer> {
        let told = self.books.auditor.borrow().was_told(account, id);
        let answer = self.door.insist(rng, "a transaction", expected, make).await?;
        if told && !answer.is_final() {
            self.tally.find(format!("transaction {id} was final before {answer:?}"));
        }
        Some(answer)
    }

    /// The same id and the same content again, as if the answer had been lost.
    async fn repeat(&mut self) {
        if let Some(promised) = self.promised() {
            self.send_all(vec![promised]).await;
        }
    }

    /// The same id with other content: refused, whatever became of the first.
    async fn reuse_an_id(&mut self) {
        let Some(Promised { account, id, wish }) = self.promised() else { return };
        let other = match self.rng.random_range(0..3) {
            0 => wish.with("amount", "1234.56"),
            1 => wish.with("reference", "something else"),
            _ => Wish {
                kind: match wish.kind {
                    TransactionKind::Deposit => TransactionKind::Withdrawal,
                    TransactionKind::Withdrawal => TransactionKind::Deposit,
                },
                ..wish
            },
        };
        let submit = move |client: &Client| client.submission(account, id, &other);
        self.refused("a used id", 422, "idempotency_key_reused", submit).await;
    }

    async fn read(&mut self) {
        let Some(Promised { account, id, .. }) = self.promised() else { return };
        let path = format!("{}/transactions/{id}", path_of(account));
        let get = move |client: &Client| client.request(Method::GET, &path);
        let mut rng = StdRng::seed_from_u64(self.rng.random());
        if let Some(answer) = self.ask(&mut rng, account, id, &[200], get).await {
            let first = self.books.auditor.borrow_mut().heard(account, id, &answer);
            assert!(!first, "what is read was promised before");
            self.tally.count(|counts| counts.reads = counts.reads.saturating_add(1));
        }
    }

    /// What once stood on a statement stands there for ever.
    async fn read_statement(&mut self) {
        let account = self.account();
        let before = self.books.statements.borrow().get(&account).cloned().unwrap_or_default();
        let path = format!("{}/transactions?limit={STATEMENT_LINES}", path_of(account));
        let get = move |client: &Client| client.request(Method::GET, &path);
        let Some(answer) = self.insist("reading a statement", &[200], get).await else { return };
        let lines =
            answer.body.pointer("/transactions").and_then(Value::as_array).cloned().unwrap_or_default();
        if !lines.starts_with(&before) {
            self.tally.find(format!("the statement of {account} was {before:?} and became {answer:?}"));
        }
        self.tally.count(|counts| counts.reads = counts.reads.saturating_add(1));
        drop(self.books.statements.borrow_mut().insert(account, lines));
    }

    async fn ask_for_nonsense(&mut self) {
        let unknown =
            AccountKey { user: UserId::from_uuid(self.uuid()), account: AccountId::from_uuid(self.uuid()) };
        let (id, wish) = (MessageId::from_uuid(self.uuid()), self.wish());
        let submit = move |client: &Client| client.submission(unknown, id, &wish);
        self.refused("an account that nobody opened", 404, "account_unknown", submit).await;
    }

    /// Expects a refusal.
    async fn refused(
        &mut self,
        what: &str,
        status: u16,
        code: &str,
        make: impl Fn(&Client) -> RequestBuilder,
    ) {
        let Some(answer) = self.insist(what, &[status], make).await else { return };
        if answer.code() == code {
            self.tally.count(|counts| counts.refusals = counts.refusals.saturating_add(1));
        } else {
            self.tally.find(format!("{what} was refused with another code than {code}: {answer:?}"));
        }
    }

    async fn insist(
        &mut self,
        what: &str,
        expected: &[u16],
        make: impl Fn(&Client) -> RequestBuilder,
    ) -> Option<Answer> {
        self.door.insist(&mut self.rng, what, expected, make).await
    }

    fn wish(&mut self) -> Wish {
        let amount = format!("{}.{:02}", self.rng.random_range(0..100), self.rng.random_range(1..100));
        let wish = if self.rng.random_range(0..100) < 50 {
            Wish::deposit(&amount)
        } else {
            Wish::withdrawal(&amount)
        };
        match self.rng.random_range(0..20) {
            0 => wish.with("reference", format!("invoice {}", self.rng.random_range(0..1000))),
            1 => enlarged(wish),
            _ => wish,
        }
    }

    fn account(&mut self) -> AccountKey {
        let accounts = self.books.accounts.borrow();
        // Half of the traffic meets on the first three.
        let count = if self.rng.random_range(0..2) == 0 { 3.min(accounts.len()) } else { accounts.len() };
        *accounts.get(self.rng.random_range(0..count)).expect("accounts were opened first")
    }

    /// A wish that was promised: mostly a recent one.
    fn promised(&mut self) -> Option<Promised> {
        let promised = self.books.promised.borrow();
        let from = if self.rng.random_range(0..3) > 0 { promised.len().saturating_sub(30) } else { 0 };
        let found = (from < promised.len()).then(|| self.rng.random_range(from..promised.len()))?;
        promised.get(found).cloned()
    }

    fn pick<'b, T>(&mut self, from: &'b [T]) -> &'b T {
        from.get(self.rng.random_range(0..from.len())).expect("a place within")
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.rng.random_range(0..100) < percent
    }

    fn uuid(&mut self) -> Uuid {
        uuid::Builder::from_random_bytes(self.rng.random()).into_uuid()
    }
}

/// With as much in it as may be, of characters that grow when they are escaped.
fn enlarged(wish: Wish) -> Wish {
    let members: Map<String, Value> =
        (0..20).map(|member| (format!("{member:02}"), "\"".repeat(100).into())).collect();
    wish.with("metadata", members)
}
