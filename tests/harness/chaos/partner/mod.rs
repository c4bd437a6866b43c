//! A partner of the bank. It sends new requests, repeats old ones, and retries each at any web process until there is a
//! response.
//!
//! It also sends requests that must be refused: a used id with other content, another currency, an unknown account.
//! [`batches`] sends batches.

pub mod batches;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::join_all;
use postonce_shared::testing::prelude::*;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use reqwest::{Method, RequestBuilder};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use self::batches::SentBatch;
use super::phase::CurrentPhase;
use super::results::RunResults;
use super::retrying_client::RetryingClient;
use crate::prelude::*;

/// Maximum pause between two requests of a partner, in milliseconds.
const PACE_MS_MAX: u64 = 60;
/// Percentage of submissions that wait for their outcome.
const WAITING_PERCENT: u32 = 50;
/// Maximum number of submissions in a burst.
const BURST_MAX: usize = 60;
/// Number of large submissions in a burst that exceeds a message, so that its work is stored as a payload.
const LARGE_BURST: usize = 180;
/// Minimum number of accounts before other requests are sent.
const ACCOUNTS_MIN: usize = 3;
const ACCOUNTS_MAX: usize = 60;
/// Number of lines of a statement to read and compare.
const STATEMENT_LINES: usize = 100;
const OVERDRAFTS: [&str; 3] = ["0.00", "50.00", "500.00"];

/// A submission to an account, with its id.
#[derive(Debug, Clone)]
struct AccountSubmission {
    account: AccountKey,
    id: MessageId,
    submission: Submission,
}

/// Records that all partners share.
#[derive(Debug, Default)]
pub struct SharedRecords {
    /// The auditor, which records all requests and responses.
    pub auditor: RefCell<Auditor>,
    accounts: RefCell<Vec<AccountKey>>,
    acknowledged: RefCell<Vec<AccountSubmission>>,
    /// The last read first page of each statement.
    statements: RefCell<BTreeMap<AccountKey, Vec<Value>>>,
    batches: RefCell<Vec<SentBatch>>,
}

/// One partner.
pub struct Partner<'a> {
    client: &'a RetryingClient<'a>,
    records: &'a SharedRecords,
    phase: &'a CurrentPhase,
    results: &'a RunResults,
    rng: StdRng,
    /// Accounts that this partner opened for its batch.
    of_batch: Vec<AccountKey>,
}

impl<'a> Partner<'a> {
    /// Creates a partner. The seed determines its requests.
    pub fn new(
        client: &'a RetryingClient<'a>,
        records: &'a SharedRecords,
        phase: &'a CurrentPhase,
        results: &'a RunResults,
        seed: u64,
    ) -> Self {
        let (rng, of_batch) = (StdRng::seed_from_u64(seed), Vec::new());
        Self { client, records, phase, results, rng, of_batch }
    }

    /// Sends requests one by one during the fault phase, and waits for the last response.
    pub async fn run(mut self) {
        while self.phase.has_faults() {
            let accounts = self.records.accounts.borrow().len();
            match self.rng.random_range(0..100) {
                0..4 if accounts < ACCOUNTS_MAX => drop(self.open_account().await),
                _ if accounts < ACCOUNTS_MIN => drop(self.open_account().await),
                4..12 => self.repeat().await,
                12..18 => self.reuse_id().await,
                18..24 => self.read().await,
                24..26 => self.read_statement().await,
                26..28 => self.submit_to_unknown_account().await,
                28..30 => self.submit_many().await,
                _ => self.submit().await,
            }
            let pause = self.rng.random_range(0..PACE_MS_MAX);
            wait::pass(Duration::from_millis(pause)).await;
        }
    }

    async fn open_account(&mut self) -> Option<AccountKey> {
        let account =
            AccountKey { user: UserId::from_uuid(self.uuid()), account: AccountId::from_uuid(self.uuid()) };
        let overdraft = self.pick(&OVERDRAFTS);
        let terms = |currency: &str| json!({"currency": currency, "overdraft_limit": overdraft});
        let put =
            |terms: Value| move |client: &Client| client.request(Method::PUT, &path_of(account)).json(&terms);
        drop(self.send_until_answered("opening an account", &[200, 201], put(terms("EUR"))).await?);
        self.records.auditor.borrow_mut().account(account, overdraft);
        self.records.accounts.borrow_mut().push(account);
        self.results.count(|counts| counts.accounts = counts.accounts.saturating_add(1));
        if self.chance(30) {
            self.refused("opening an account with other terms", 409, "account_exists", put(terms("USD")))
                .await;
        }
        Some(account)
    }

    async fn submit(&mut self) {
        let (account, id, submission) =
            (self.account(), MessageId::from_uuid(self.uuid()), self.random_submission());
        if self.chance(3) {
            let other = submission.clone().with("currency", "USD");
            let submit = move |client: &Client| client.submission(account, id, &other);
            self.refused("another currency", 422, "currency_mismatch", submit).await;
        }
        self.send_all(vec![AccountSubmission { account, id, submission }]).await;
    }

    /// Sends many submissions to one account at once, so that they are inserted, sent and posted together. Some are in the burst
    /// twice, and some were acknowledged before.
    async fn submit_many(&mut self) {
        let account = self.account();
        let large = self.chance(25);
        let count = if large { LARGE_BURST } else { self.rng.random_range(5..BURST_MAX) };
        let mut submissions: Vec<AccountSubmission> = Vec::new();
        while submissions.len() < count {
            let submission = self.random_submission();
            let submission = if large { enlarged(submission) } else { submission };
            submissions.push(AccountSubmission {
                account,
                id: MessageId::from_uuid(self.uuid()),
                submission,
            });
        }
        let twice: Vec<AccountSubmission> =
            submissions.iter().filter(|_| self.rng.random_range(0..10) == 0).cloned().collect();
        submissions.extend(twice);
        let before = self.rng.random_range(0..4);
        {
            let acknowledged = self.records.acknowledged.borrow();
            let of_account = acknowledged.iter().rev().filter(|one| one.account == account);
            submissions.extend(of_account.take(before).cloned());
        }
        self.send_all(submissions).await;
    }

    /// Sends submissions concurrently. Records each submission before it is sent, and its response afterwards.
    async fn send_all(&mut self, submissions: Vec<AccountSubmission>) {
        for AccountSubmission { account, id, submission } in &submissions {
            self.records.auditor.borrow_mut().sent(*account, *id, submission);
        }
        let seeds: Vec<u64> = submissions.iter().map(|_| self.rng.random()).collect();
        let sends = submissions.into_iter().zip(seeds).map(|(one, seed)| self.send_one(one, seed));
        join_all(sends).await;
    }

    /// Sends one submission until it is acknowledged. Only the first acknowledgement of an id counts as a new transaction.
    async fn send_one(&self, sent: AccountSubmission, seed: u64) {
        let mut rng = StdRng::seed_from_u64(seed);
        let AccountSubmission { account, id, submission } = sent.clone();
        let wait_s = rng.random_range(1..5);
        let waits = rng.random_range(0..100) < WAITING_PERCENT;
        let submit = move |client: &Client| {
            let request = client.submission(account, id, &submission);
            if waits { request.header("Prefer", format!("wait={wait_s}")) } else { request }
        };
        let Some(answer) = self.transaction_answer(&mut rng, account, id, &[200, 202], submit).await else {
            return;
        };
        if self.records.auditor.borrow_mut().answered(account, id, &answer) {
            self.results.count(|counts| {
                counts.transactions = counts.transactions.saturating_add(1);
                counts.waited = counts.waited.saturating_add(u64::from(waits));
            });
            self.records.acknowledged.borrow_mut().push(sent);
        } else {
            self.results.count(|counts| counts.replays = counts.replays.saturating_add(1));
        }
    }

    /// Sends a request about a transaction until there is a response. The response must be final if an earlier one was.
    async fn transaction_answer(
        &self,
        rng: &mut StdRng,
        account: AccountKey,
        id: MessageId,
        expected: &[u16],
        make: impl Fn(&Client) -> RequestBuilder,
    ) -> Option<Answer> {
        let was_final = self.records.auditor.borrow().has_final_answer(account, id);
        let answer = self.client.send(rng, "a transaction", expected, make).await?;
        if was_final && !answer.is_final() {
            self.results.report(format!("transaction {id} was final before {answer:?}"));
        }
        Some(answer)
    }

    /// Repeats a submission, as if the response had been lost.
    async fn repeat(&mut self) {
        if let Some(acknowledged) = self.random_acknowledged() {
            self.send_all(vec![acknowledged]).await;
        }
    }

    /// Sends a used id with other content, which must be refused in every status of the first transaction.
    async fn reuse_id(&mut self) {
        let Some(AccountSubmission { account, id, submission }) = self.random_acknowledged() else { return };
        let other = match self.rng.random_range(0..3) {
            0 => submission.with("amount", "1234.56"),
            1 => submission.with("reference", "something else"),
            _ => Submission {
                kind: match submission.kind {
                    TransactionKind::Deposit => TransactionKind::Withdrawal,
                    TransactionKind::Withdrawal => TransactionKind::Deposit,
                },
                ..submission
            },
        };
        let submit = move |client: &Client| client.submission(account, id, &other);
        self.refused("a used id", 422, "idempotency_key_reused", submit).await;
    }

    async fn read(&mut self) {
        let Some(AccountSubmission { account, id, .. }) = self.random_acknowledged() else { return };
        let path = format!("{}/transactions/{id}", path_of(account));
        let get = move |client: &Client| client.request(Method::GET, &path);
        let mut rng = StdRng::seed_from_u64(self.rng.random());
        if let Some(answer) = self.transaction_answer(&mut rng, account, id, &[200], get).await {
            let first = self.records.auditor.borrow_mut().answered(account, id, &answer);
            assert!(!first, "only acknowledged transactions are read");
            self.results.count(|counts| counts.reads = counts.reads.saturating_add(1));
        }
    }

    /// Reads a statement. Lines from earlier reads must not change.
    async fn read_statement(&mut self) {
        let account = self.account();
        let before = self.records.statements.borrow().get(&account).cloned().unwrap_or_default();
        let path = format!("{}/transactions?limit={STATEMENT_LINES}", path_of(account));
        let get = move |client: &Client| client.request(Method::GET, &path);
        let Some(answer) = self.send_until_answered("reading a statement", &[200], get).await else { return };
        let lines =
            answer.body.pointer("/transactions").and_then(Value::as_array).cloned().unwrap_or_default();
        if !lines.starts_with(&before) {
            self.results.report(format!("the statement of {account} was {before:?} and became {answer:?}"));
        }
        self.results.count(|counts| counts.reads = counts.reads.saturating_add(1));
        drop(self.records.statements.borrow_mut().insert(account, lines));
    }

    async fn submit_to_unknown_account(&mut self) {
        let unknown =
            AccountKey { user: UserId::from_uuid(self.uuid()), account: AccountId::from_uuid(self.uuid()) };
        let (id, submission) = (MessageId::from_uuid(self.uuid()), self.random_submission());
        let submit = move |client: &Client| client.submission(unknown, id, &submission);
        self.refused("an unknown account", 404, "account_unknown", submit).await;
    }

    /// Sends a request that must be refused.
    async fn refused(
        &mut self,
        what: &str,
        status: u16,
        code: &str,
        make: impl Fn(&Client) -> RequestBuilder,
    ) {
        let Some(answer) = self.send_until_answered(what, &[status], make).await else { return };
        if answer.code() == code {
            self.results.count(|counts| counts.refusals = counts.refusals.saturating_add(1));
        } else {
            self.results.report(format!("{what} was refused with another code than {code}: {answer:?}"));
        }
    }

    async fn send_until_answered(
        &mut self,
        what: &str,
        expected: &[u16],
        make: impl Fn(&Client) -> RequestBuilder,
    ) -> Option<Answer> {
        self.client.send(&mut self.rng, what, expected, make).await
    }

    fn random_submission(&mut self) -> Submission {
        let amount = format!("{}.{:02}", self.rng.random_range(0..100), self.rng.random_range(1..100));
        let submission = if self.rng.random_range(0..100) < 50 {
            Submission::deposit(&amount)
        } else {
            Submission::withdrawal(&amount)
        };
        match self.rng.random_range(0..20) {
            0 => submission.with("reference", format!("invoice {}", self.rng.random_range(0..1000))),
            1 => enlarged(submission),
            _ => submission,
        }
    }

    fn account(&mut self) -> AccountKey {
        let accounts = self.records.accounts.borrow();
        // Half of the traffic goes to the first three accounts.
        let count = if self.rng.random_range(0..2) == 0 { 3.min(accounts.len()) } else { accounts.len() };
        *accounts.get(self.rng.random_range(0..count)).expect("accounts were opened first")
    }

    /// Returns an acknowledged submission, mostly a recent one.
    fn random_acknowledged(&mut self) -> Option<AccountSubmission> {
        let acknowledged = self.records.acknowledged.borrow();
        let from = if self.rng.random_range(0..3) > 0 { acknowledged.len().saturating_sub(30) } else { 0 };
        let found = (from < acknowledged.len()).then(|| self.rng.random_range(from..acknowledged.len()))?;
        acknowledged.get(found).cloned()
    }

    fn pick<'b, T>(&mut self, from: &'b [T]) -> &'b T {
        from.get(self.rng.random_range(0..from.len())).expect("an index within the list")
    }

    fn percent(&mut self) -> u32 {
        self.rng.random_range(0..100)
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.percent() < percent
    }

    fn uuid(&mut self) -> Uuid {
        uuid::Builder::from_random_bytes(self.rng.random()).into_uuid()
    }
}

/// Returns the submission with as much content as possible, in characters that escaping lengthens.
fn enlarged(submission: Submission) -> Submission {
    let members: Map<String, Value> =
        (0..20).map(|member| (format!("{member:02}"), "\"".repeat(100).into())).collect();
    submission.with("metadata", members)
}
