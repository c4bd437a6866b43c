//! Batches of partners. Their items go to the accounts of single requests, some with ids of single requests, and some to
//! accounts that do not exist. At the end, each result is compared with its row.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::{StreamExt as _, stream};
use postonce_shared::testing::prelude::*;
use rand::RngExt as _;
use reqwest::{Method, RequestBuilder};
use serde_json::Value;
use uuid::Uuid;

use super::{ACCOUNTS_MIN, AccountSubmission, Partner, SharedRecords};
use crate::auditor::cents;
use crate::prelude::*;

/// An amount that no other submission has. A used id with this amount has different content.
const OTHER_AMOUNT: &str = "1234.56";
/// Number of items per account that is opened for a batch. Small batches use accounts of single requests only. Large batches
/// would give these accounts so many rows that Azurite, which scans all rows of a partition, becomes slower and slower.
const ITEMS_OF_AN_ACCOUNT: usize = 500;
/// Percentage of the items of a large batch that go to accounts of single requests.
const ELSEWHERE_PERCENT: u32 = 10;
/// Number of items that are also sent as single requests while the batch is posted.
const SINGLES: usize = 20;
/// Pause between two checks.
const PAUSE: Duration = Duration::from_millis(100);
/// Number of rows that are read concurrently.
const READS_AT_ONCE: usize = 16;

/// An acknowledged batch.
#[derive(Debug)]
pub(super) struct SentBatch {
    id: Uuid,
    items: Vec<AccountSubmission>,
    /// The response that shows the completion, and the results by line.
    completed: Option<(Answer, Vec<Value>)>,
}

impl Partner<'_> {
    /// Submits a batch after a delay in the fault phase, sends some of its items as single requests, and reads the results if the
    /// batch is completed in this phase.
    pub async fn run_batch(mut self, items: usize, delay: Duration) {
        let since = Stopwatch::start();
        let is_ready = || self.records.accounts.borrow().len() >= ACCOUNTS_MIN && since.elapsed() >= delay;
        while !is_ready() {
            if !self.phase.has_faults() {
                return;
            }
            wait::pass(PAUSE).await;
        }
        let Some(number) = self.submit_batch(items).await else { return };
        while self.phase.has_faults() && self.read_batch(number).await.is_err() {
            wait::pass(PAUSE).await;
        }
    }

    /// Returns the number of batches that were acknowledged.
    pub fn batches(&self) -> usize {
        self.records.batches.borrow().len()
    }

    /// Submits a batch until it is acknowledged, and returns its number.
    async fn submit_batch(&mut self, count: usize) -> Option<usize> {
        for _ in 0..count.checked_div(ITEMS_OF_AN_ACCOUNT).unwrap_or_default() {
            let account = self.open_account().await?;
            self.of_batch.push(account);
        }
        let items: Vec<AccountSubmission> = (0..count).map(|_| self.batch_item()).collect();
        let id = self.uuid();
        for AccountSubmission { account, id, submission } in items.iter().filter(|item| self.is_own(item)) {
            self.records.auditor.borrow_mut().sent(*account, *id, submission);
        }
        let document: String = items.iter().map(|item| format!("{}\n", line(item))).collect();
        let post = move |client: &Client| {
            let request =
                client.request(Method::POST, "/v1/batches").header("Idempotency-Key", id.to_string());
            request.header("Content-Type", "application/x-ndjson").body(document.clone())
        };
        drop(self.send_until_answered("a batch", &[202], post).await?);
        let own: Vec<AccountSubmission> = items.iter().filter(|item| self.is_own(item)).cloned().collect();
        for item in &own {
            self.records.auditor.borrow_mut().acknowledged(item.account, item.id);
        }
        self.results.count(|counts| counts.batches = counts.batches.saturating_add(1));
        let number = self.batches();
        self.records.batches.borrow_mut().push(SentBatch { id, items, completed: None });
        self.send_all(own.into_iter().rev().take(SINGLES).collect()).await;
        Some(number)
    }

    fn batch_item(&mut self) -> AccountSubmission {
        let kind = self.percent();
        let new = |partner: &mut Self, account| AccountSubmission {
            account,
            id: MessageId::from_uuid(partner.uuid()),
            submission: partner.random_submission(),
        };
        let known = if kind < 8 { self.random_acknowledged() } else { None };
        match known {
            Some(known) if kind < 5 => known,
            Some(known) => {
                AccountSubmission { submission: known.submission.with("amount", OTHER_AMOUNT), ..known }
            }
            None if kind < 12 => {
                let user = UserId::from_uuid(self.uuid());
                let account = AccountKey { user, account: AccountId::from_uuid(self.uuid()) };
                new(self, account)
            }
            None => {
                let account = self.account_of_batch();
                new(self, account)
            }
        }
    }

    fn account_of_batch(&mut self) -> AccountKey {
        if self.of_batch.is_empty() || self.chance(ELSEWHERE_PERCENT) {
            return self.account();
        }
        let number = self.rng.random_range(0..self.of_batch.len());
        *self.of_batch.get(number).expect("it is below their number")
    }

    /// Returns whether the bank must have the item with this content.
    fn is_own(&self, item: &AccountSubmission) -> bool {
        self.records.accounts.borrow().contains(&item.account) && !is_other_content(item)
    }

    /// Reads the results of a batch, if it is completed.
    ///
    /// # Errors
    /// The response, if the batch is not completed.
    pub async fn read_batch(&mut self, number: usize) -> Result<(), String> {
        let id = match self.records.batches.borrow().get(number) {
            Some(SentBatch { id, completed: None, .. }) => *id,
            _ => return Ok(()),
        };
        let path = format!("/v1/batches/{id}");
        let get = |client: &Client| client.request(Method::GET, &path).header("Prefer", "wait=2");
        let answer = self.send_until_answered("reading a batch", &[200], get).await;
        let answer = answer.ok_or_else(|| "no answer".to_owned())?;
        if answer.text_at("/phase") != "completed" {
            return Err(format!("{answer:?}"));
        }
        let make = |client: &Client, after: usize| -> RequestBuilder {
            client.request(Method::GET, &format!("{path}/results?after={after}"))
        };
        let lines = self.client.lines(&mut self.rng, "reading results", make).await;
        let lines = lines.ok_or_else(|| "no results".to_owned())?;
        let results: Vec<Value> =
            lines.iter().map(|line| serde_json::from_str(line).unwrap_or(Value::Null)).collect();
        self.results.count(|counts| {
            let count = u64::try_from(results.len()).unwrap_or(u64::MAX);
            counts.batch_items = counts.batch_items.saturating_add(count);
        });
        if let Some(batch) = self.records.batches.borrow_mut().get_mut(number) {
            // From now on, single requests repeat these items, and reuse their ids with other content.
            let own = batch.items.iter().filter(|item| self.is_own(item)).cloned();
            self.records.acknowledged.borrow_mut().extend(own);
            batch.completed = Some((answer, results));
        }
        Ok(())
    }
}

fn is_other_content(item: &AccountSubmission) -> bool {
    amount(item) == OTHER_AMOUNT
}

fn amount(item: &AccountSubmission) -> &str {
    item.submission.body.get("amount").and_then(Value::as_str).unwrap_or_default()
}

/// Returns the item as a line of a document.
fn line(AccountSubmission { account, id, submission }: &AccountSubmission) -> Value {
    let mut members = submission.body.as_object().cloned().unwrap_or_default();
    members.extend([
        ("user_id".to_owned(), account.user.to_string().into()),
        ("account_id".to_owned(), account.account.to_string().into()),
        ("message_id".to_owned(), id.to_string().into()),
        ("type".to_owned(), submission.kind.code().into()),
    ]);
    Value::Object(members)
}

/// Compares all batches with the rows of their items and with their totals. Returns the findings.
pub async fn compare(records: &SharedRecords, store: &Store) -> Vec<String> {
    let partner = PartnerId::parse("bootstrap").expect("the partner of the first key");
    let mut findings = Vec::new();
    for SentBatch { id, items, completed } in records.batches.take() {
        let mut report = |finding: String| findings.push(format!("batch {id}: {finding}"));
        let Some((answer, results)) = completed else {
            report("it was acknowledged, and is not completed".to_owned());
            continue;
        };
        if results.len() != items.len() {
            report(format!("{} results of {} items", results.len(), items.len()));
        }
        let reads = items.iter().map(|AccountSubmission { account, id, submission: _ }| {
            let key = TransactionKey { account: *account, partner: partner.clone(), message: *id };
            async move { store.ledger.transaction(&key).await.expect("the row can be read") }
        });
        let mut rows = stream::iter(reads.collect::<Vec<_>>()).buffered(READS_AT_ONCE);
        for ((item, result), number) in items.iter().zip(&results).zip(1_u32..) {
            let row = rows.next().await.flatten();
            let line = BatchLine { batch: BatchId::from_uuid(id), line: number };
            let expected = row.as_ref().map(|row| {
                let is_own = row.submission.batch_line == Some(line);
                expected_result(
                    item,
                    number,
                    row.outcome.as_ref(),
                    (is_own, row.submission.instruction.amount.minor_units()),
                )
            });
            if expected.as_ref() != Some(result) {
                report(format!("line {number} is {result}, and its row tells {expected:?}"));
            }
        }
        check_totals(&items, &results, &answer, &mut report);
    }
    findings
}

/// Returns the result that a row implies.
fn expected_result(
    item: &AccountSubmission,
    number: u32,
    outcome: Option<&Outcome>,
    (is_own, row_cents): (bool, i64),
) -> Value {
    let mut result = serde_json::json!({"line": number, "message_id": item.id.to_string()});
    let mut set = |member: &str, value: String| {
        if let Some(members) = result.as_object_mut() {
            drop(members.insert(member.to_owned(), value.into()));
        }
    };
    if row_cents != cents(amount(item)) {
        set("status", "refused".to_owned());
        set("reason", "idempotency_key_reused".to_owned());
        return result;
    }
    let status = |own: &str| if is_own { own.to_owned() } else { "replayed".to_owned() };
    match outcome {
        Some(Outcome::Posted { order_number, balance_after, .. }) => {
            set("status", status("posted"));
            set("order_number", order_number.to_string());
            set("balance_after", balance_after.to_string());
        }
        Some(Outcome::Rejected { reason, .. }) => {
            set("status", status("rejected"));
            set("reason", reason.code().to_owned());
        }
        None => set("status", "not final".to_owned()),
    }
    result
}

/// Compares the response with the results: counts by status, and posted money to the cent.
fn check_totals(
    items: &[AccountSubmission],
    results: &[Value],
    answer: &Answer,
    report: &mut impl FnMut(String),
) {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    let mut sums: BTreeMap<&str, i64> = BTreeMap::new();
    for (item, result) in items.iter().zip(results) {
        let status = result.get("status").and_then(Value::as_str).unwrap_or_default();
        let count = counts.entry(status).or_default();
        *count = count.saturating_add(1);
        if status == "posted" {
            let sum = sums.entry(item.submission.kind.code()).or_default();
            *sum = sum.saturating_add(cents(amount(item)));
        }
    }
    let number = |member: &str| answer.body.get(member).and_then(Value::as_u64);
    let statuses = ["posted", "rejected", "refused", "replayed", "invalid"];
    for status in statuses {
        let counted = counts.get(status).copied().unwrap_or(0);
        if number(status) != Some(counted) {
            report(format!("{counted} results are {status}: {answer:?}"));
        }
    }
    let sum: u64 = statuses.iter().filter_map(|status| number(status)).sum();
    if number("items") != Some(sum) || u64::try_from(items.len()) != Ok(sum) {
        report(format!("the counts of {} items do not balance: {answer:?}", items.len()));
    }
    let told = answer.body.get("sums").and_then(Value::as_array).cloned().unwrap_or_default();
    let text =
        |sum: &Value, member: &str| sum.get(member).and_then(Value::as_str).unwrap_or_default().to_owned();
    let told: BTreeMap<String, i64> = told
        .iter()
        .map(|sum| (text(sum, "type"), cents(&text(sum, "posted"))))
        .filter(|(_, sum)| *sum != 0)
        .collect();
    let sums: BTreeMap<String, i64> = sums.into_iter().map(|(kind, sum)| (kind.to_owned(), sum)).collect();
    if told != sums {
        report(format!("the items add up to {sums:?}: {answer:?}"));
    }
}
