//! Runs `postonce-web verify` as an operator does.

use std::time::Duration;

use postonce_shared::domain::ids::AccountKey;
use serde_json::Value;

use crate::prelude::*;

/// Maximum time of an audit in a test.
const AUDIT_TIME_MAX: Duration = Duration::from_secs(120);

/// The result of an audit.
#[derive(Debug)]
pub struct Verified {
    /// The exit code of the process.
    pub code: Option<i32>,
    /// The output, including the log.
    pub lines: Vec<String>,
    /// Findings and notices.
    pub findings: Vec<Value>,
}

impl Verified {
    /// Returns the sorted kinds of the findings for an account.
    pub fn kinds(&self, account: AccountKey) -> Vec<&str> {
        let mut kinds: Vec<&str> =
            self.on(account).filter_map(|finding| finding.get("kind").and_then(Value::as_str)).collect();
        kinds.sort_unstable();
        kinds
    }

    /// Returns the findings for an account.
    pub fn on(&self, account: AccountKey) -> impl Iterator<Item = &Value> {
        let (user, account) = (account.user.to_string(), account.account.to_string());
        self.findings.iter().filter(move |finding| {
            finding.get("user_id").and_then(Value::as_str) == Some(&user)
                && finding.get("account_id").and_then(Value::as_str) == Some(&account)
        })
    }

    /// Returns a count in the summary.
    pub fn count(&self, name: &str) -> u64 {
        let objects = self.lines.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let summary = objects.into_iter().find(|object| object.get("type") == Some(&Value::from("summary")));
        let count = summary.as_ref().and_then(|summary| summary.get(name)).and_then(Value::as_u64);
        count.unwrap_or_else(|| panic!("no {name} in a summary of {:#?}", self.lines))
    }
}

/// Audits the ledger of a bank with JSON output, without blocking other tasks of the test.
pub async fn verify(bank: &Scenario, arguments: &[&str]) -> Verified {
    verify_with(&bank.settings, bank, arguments).await
}

/// Like [`verify`], with other settings.
pub async fn verify_with(settings: &Settings, bank: &Scenario, arguments: &[&str]) -> Verified {
    let arguments: Vec<&str> = ["verify", "--json"].iter().chain(arguments).copied().collect();
    let mut process = Process::start(&service::launch(Binary::Web, settings, &arguments, &bank.directory()));
    let status = wait::until("the audit ends", AUDIT_TIME_MAX, async || {
        process.ended().ok_or_else(|| process.log().lines().join("\n"))
    })
    .await;
    process.wait_for_output();
    let lines = process.log().lines();
    let findings = lines
        .iter()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|object| object.get("kind").is_some())
        .collect();
    Verified { code: status.code(), lines, findings }
}
