//! Collects the effects of attacks, so that a test with many variants reports each one that succeeded.

use std::fmt::Debug;

use postonce_shared::testing::prelude::*;
use serde_json::Value;

use crate::prelude::*;
use crate::verify::verify;

/// Everything that the API returns about a transaction and its account.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    /// The body of the response, byte for byte.
    pub transaction: String,
    /// The balance of the account.
    pub balance: String,
    /// The lines of the statement.
    pub statement: Vec<Value>,
}

impl Snapshot {
    /// Reads a transaction and its account.
    pub async fn of(client: &Client, account: AccountKey, id: MessageId) -> Self {
        Self {
            transaction: client.transaction(account, id).await.expect(200).text,
            balance: client.balance(account).await,
            statement: client.listing(account, None, 100).await,
        }
    }
}

/// The effects found so far.
#[derive(Debug, Default)]
pub struct AttackFindings(Vec<String>);

impl AttackFindings {
    /// Adds a finding unless the condition holds.
    pub fn check(&mut self, what: &str, holds: bool) {
        if !holds {
            self.0.push(what.to_owned());
        }
    }

    /// Adds a finding unless both values are equal.
    pub fn compare<T: Debug + PartialEq>(&mut self, what: &str, found: &T, expected: &T) {
        self.check(&format!("{what}\n    found    {found:?}\n    expected {expected:?}"), found == expected);
    }

    /// Adds a finding unless a regular deposit of 1.00 is posted and the account then has the expected balance.
    pub async fn check_posting(&mut self, what: &str, client: &Client, account: AccountKey, balance: &str) {
        let deposit = client.submission(account, fresh_id(), &Submission::deposit("1.00"));
        let answer = client.send(deposit.header("Prefer", "wait=20")).await;
        let found = (answer.transaction_status().to_owned(), client.balance(account).await);
        let expected = ("posted".to_owned(), balance.to_owned());
        self.compare(&format!("{what}: the next deposit, and the balance"), &found, &expected);
    }

    /// Adds a finding unless the process has counted messages without a valid seal.
    pub async fn check_count(&mut self, probe: &ProcessProbe) {
        let count = probe.count("worker_unsealed_messages").await;
        self.check(&format!("postonce_worker_unsealed_messages_total is {count}"), count > 0);
    }

    /// Audits the ledger, searches the logs for panics, and reports all findings.
    ///
    /// # Panics
    /// When there is a finding.
    pub async fn conclude(mut self, bank: &Scenario) {
        let verified = verify(bank, &[]).await;
        let messages = verified.findings.iter().filter_map(|finding| finding["message"].as_str());
        let messages: Vec<String> = messages.map(|message| format!("\n    {message}")).collect();
        self.check(&format!("verify finds:{}", messages.concat()), verified.findings.is_empty());
        self.compare("exit code of verify", &verified.code, &Some(0));
        let lines: Vec<String> =
            bank.webs.iter().chain(&bank.workers).flat_map(|process| process.log().lines()).collect();
        let panics = lines.iter().filter(|line| line.contains("panicked at")).count();
        self.check(&format!("{panics} panics in the logs"), panics == 0);
        let count = self.0.len();
        assert!(self.0.is_empty(), "{count} findings:\n- {}", self.0.join("\n- "));
    }
}
