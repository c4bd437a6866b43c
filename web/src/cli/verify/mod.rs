//! `postonce-web verify`: audits the whole ledger. It reads the store directly while servers use it, and changes nothing.

use std::io::{self, IsTerminal as _, Write};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::Args;
use futures::future::{Either, select};
use indicatif::{ProgressBar, ProgressStyle};
use parking_lot::Mutex;
use postonce_shared::command_output::tell;
use postonce_shared::domain::anchor::signed::{AnchorKey, AnchorPublicKey};
use postonce_shared::domain::ids::{AccountKey, PartnerId};
use postonce_shared::oversight::verify::{
    AnchorCopies, Extent, Finding, Totals, Verifier, Watcher, count_accounts,
};
use postonce_shared::ports::Store;
use postonce_shared::ports::world::World;
use postonce_shared::text::whole_number;
use serde::Serialize;
use tokio::sync::Notify;

use crate::cli::anchors::read_copies;
use crate::cli::ids::parse_account;

/// Maximum of `--concurrency`: accounts that are read concurrently.
const CONCURRENCY_MAX: usize = 64;
/// Interval of progress lines without a progress bar.
const LINE_INTERVAL: Duration = Duration::from_secs(10);
const BAR_INTERVAL: Duration = Duration::from_millis(200);

/// Arguments of `verify`.
#[derive(Debug, Clone, Args)]
pub struct VerifyCommand {
    /// Audit one account only, no batches and no audit trail; its order numbers are compared only with each other
    #[arg(long, value_name = "USER/ACCOUNT", value_parser = parse_account)]
    account: Option<AccountKey>,
    /// Print findings and summary as JSON, one object per line
    #[arg(long)]
    json: bool,
    /// Number of accounts that are read concurrently, 1 to 64
    #[arg(long, default_value = "8", value_parser = parse_concurrency)]
    concurrency: NonZeroUsize,
    /// Compare the store with anchors that were kept elsewhere: a file with the output of `postonce-web anchors`
    #[arg(long, value_name = "FILE")]
    anchors: Option<PathBuf>,
    /// Public key that may have signed the anchors, in base64; repeat it, or separate keys with commas [default: the one
    /// that belongs to anchor-key]
    #[arg(long = "anchor-public-key", value_name = "KEY", requires = "anchors", value_delimiter = ',',
          value_parser = parse_public_key)]
    public_keys: Vec<AnchorPublicKey>,
}

pub(super) fn parse_public_key(text: &str) -> Result<AnchorPublicKey, &'static str> {
    AnchorPublicKey::parse(text).ok_or("must be base64 of the 32 bytes of a public key")
}

impl VerifyCommand {
    /// Reads the file with copies of anchors, and the public keys that may have signed them.
    fn copies(&self, configured: Option<&AnchorKey>) -> anyhow::Result<Option<AnchorCopies>> {
        let Some(file) = &self.anchors else { return Ok(None) };
        let mut accepted = self.public_keys.clone();
        if accepted.is_empty() {
            accepted.extend(configured.map(AnchorKey::public));
        }
        ensure!(!accepted.is_empty(), "use --anchor-public-key, or set anchor-key");
        Ok(Some(AnchorCopies { copies: read_copies(file)?, accepted }))
    }
}

fn parse_concurrency(text: &str) -> Result<NonZeroUsize, String> {
    whole_number::<NonZeroUsize>(text)
        .filter(|count| count.get() <= CONCURRENCY_MAX)
        .ok_or_else(|| format!("must be from 1 to {CONCURRENCY_MAX}"))
}

/// Audits the store. Prints the findings and a summary; progress goes to stderr. `key` is the configured anchor key. Returns
/// exit code 1 if there are findings.
///
/// # Errors
/// When the store could not be read completely, or the output failed. The audit then gives no assurance about the ledger.
pub async fn run(
    command: &VerifyCommand,
    (store, key): (&Store, Option<&AnchorKey>),
    world: &Arc<dyn World>,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<ExitCode> {
    let VerifyCommand { account, json, concurrency, .. } = *command;
    let copies = command.copies(key)?;
    let bar = if io::stderr().is_terminal() { Some(bar(account, store, world).await?) } else { None };
    let began = world.uptime();
    let printer = Printer {
        form: if json { Form::Json } else { Form::Text },
        bar,
        world: Arc::clone(world),
        state: Mutex::new(State { out, printed_at: began, failure: None }),
        failed: Notify::new(),
    };
    let audit = Verifier::new(store, Arc::clone(world), &printer).anchored_by(copies).run(Extent {
        account,
        concurrency,
        batches_at_once: Extent::BATCHES_AT_ONCE,
    });
    let totals = match select(pin!(audit), pin!(printer.failed.notified())).await {
        Either::Left((audited, _)) => audited.map(Some),
        Either::Right(_) => Ok(None),
    };
    if let Some(bar) = &printer.bar {
        bar.finish_and_clear();
    }
    let totals = totals.context("the audit did not complete, so it gives no assurance about the ledger")?;
    if let Some(totals) = &totals {
        printer.summary(totals, world.uptime().saturating_sub(began));
    }
    if let Some(failure) = printer.state.lock().failure.take() {
        return Err(failure).context("the findings could not be printed");
    }
    let has_findings = totals.is_some_and(|totals| totals.findings > 0);
    Ok(if has_findings { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

async fn bar(
    account: Option<AccountKey>,
    store: &Store,
    world: &Arc<dyn World>,
) -> anyhow::Result<ProgressBar> {
    let count = match account {
        Some(_) => 1,
        None => count_accounts(store, world).await.context("the accounts could not be counted")?,
    };
    let bar = ProgressBar::new(count);
    let template = "{elapsed_precise} [{wide_bar}] {pos}/{len} accounts, {msg}, {eta} left";
    bar.set_style(ProgressStyle::with_template(template).context("the progress bar cannot be drawn")?);
    bar.enable_steady_tick(BAR_INTERVAL);
    Ok(bar)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Text,
    Json,
}

struct State<'a> {
    out: &'a mut (dyn Write + Send),
    printed_at: Duration,
    failure: Option<io::Error>,
}

/// Prints the findings and the progress of an audit.
struct Printer<'a> {
    form: Form,
    bar: Option<ProgressBar>,
    world: Arc<dyn World>,
    state: Mutex<State<'a>>,
    /// Notified when the output fails, so that the audit can stop.
    failed: Notify,
}

#[derive(Serialize)]
struct FindingLine<'a> {
    r#type: &'static str,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    user_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    account_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sequence: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    partner: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    batch_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    audit_row: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expected: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    found: Option<&'a str>,
    message: String,
}

#[derive(Serialize)]
struct SummaryLine {
    r#type: &'static str,
    accounts: u64,
    pages: u64,
    entries: u64,
    transactions: u64,
    order_numbers: u64,
    batches: u64,
    audit_rows: u64,
    anchored_accounts: u64,
    findings: u64,
    notices: u64,
    duration_ms: u64,
}

impl<'a> Printer<'a> {
    fn print(&self, line: &str) {
        let print = || {
            let mut state = self.state.lock();
            if let Err(error) = writeln!(state.out, "{line}") {
                state.failure.get_or_insert(error);
                self.failed.notify_one();
            }
        };
        match &self.bar {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }

    fn summary(&self, totals: &Totals, time: Duration) {
        let Totals {
            accounts,
            pages,
            entries,
            transactions,
            order_numbers,
            batches,
            audit_rows,
            anchored_accounts,
            findings,
            notices,
        } = *totals;
        if self.form == Form::Json {
            let duration_ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
            return self.print(&json(&SummaryLine {
                r#type: "summary",
                accounts,
                pages,
                entries,
                transactions,
                order_numbers,
                batches,
                audit_rows,
                anchored_accounts,
                findings,
                notices,
                duration_ms,
            }));
        }
        let (seconds, tenths) = (time.as_secs(), time.subsec_millis().div_euclid(100));
        self.print(&format!(
            "audited {accounts} accounts: {pages} pages, {entries} entries, {transactions} transactions, \
             {order_numbers} order numbers, {batches} batches, {audit_rows} audit rows, in {seconds}.{tenths} s"
        ));
        if anchored_accounts > 0 {
            self.print(&format!("compared {anchored_accounts} accounts with an anchor"));
        }
        self.print(&format!("findings: {findings}, notices: {notices}"));
    }
}

impl Watcher for Printer<'_> {
    fn found(&self, finding: &Finding) {
        let (severity, kind) = (finding.kind.severity().code(), finding.kind.code());
        let line = match self.form {
            Form::Text => format!("{severity} [{kind}] {finding}"),
            Form::Json => json(&FindingLine {
                r#type: severity,
                kind,
                user_id: finding.account.map(|account| account.user.to_string()),
                account_id: finding.account.map(|account| account.account.to_string()),
                sequence: finding.sequence,
                partner: finding.partner().map(PartnerId::as_str),
                message_id: finding.transaction.as_ref().map(|(_, message)| message.to_string()),
                batch_id: finding.batch.as_ref().map(|key| key.batch.to_string()),
                audit_row: finding.audit_row,
                expected: finding.expected.as_deref(),
                found: finding.found.as_deref(),
                message: finding.to_string(),
            }),
        };
        self.print(&line);
    }

    fn progressed(&self, totals: &Totals) {
        let Totals { accounts, entries, transactions, findings, .. } = *totals;
        if let Some(bar) = &self.bar {
            // Accounts can be opened during the audit.
            bar.set_length(bar.length().unwrap_or(0).max(accounts));
            bar.set_position(accounts);
            bar.set_message(format!("{entries} entries, {transactions} transactions, {findings} findings"));
            return;
        }
        let now = self.world.uptime();
        let mut state = self.state.lock();
        if now.saturating_sub(state.printed_at) >= LINE_INTERVAL {
            state.printed_at = now;
            // A failed progress output must not stop the audit.
            tell(format_args!(
                "audited {accounts} accounts so far: {entries} entries, {transactions} transactions; \
                 findings: {findings}"
            ));
        }
    }
}

fn json(line: &impl Serialize) -> String {
    serde_json::to_string(line).expect("strings and numbers always serialize to JSON")
}

#[cfg(test)]
mod tests;
