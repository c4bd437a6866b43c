//! A bank over TLS with the data that floods request, and another partner.

use std::fs;
use std::time::Duration;

use futures::future::join_all;
use hdrhistogram::Histogram;
use postonce_shared::domain::ids::AccountKey;
use reqwest::Method;
use reqwest::header::SET_COOKIE;
use reqwest::redirect::Policy;
use serde_json::json;
use tempfile::TempDir;

use super::{Answer, Flood, Target};
use crate::certificates::{Authority, TlsFiles, trusting};
use crate::prelude::*;
use crate::process_probe::memory_peak_kib;

/// Number of deposits of a large page, and length of the metadata of each.
const LARGE_DEPOSITS: usize = 300;
const METADATA_CHARS: usize = 2000;
/// Number of items of the batch whose results are requested.
const ITEMS: usize = 5000;
/// Interval between requests of the other partner.
const PACE: Duration = Duration::from_millis(10);

/// Latency of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Latency {
    /// Median in microseconds.
    pub p50_us: u64,
    /// 99th percentile in microseconds.
    pub p99_us: u64,
    /// Number of successful requests.
    pub answered: u64,
    /// Number of requests that were refused or got no response.
    pub failed: u64,
}

/// A bank that floods are sent to.
pub struct FloodBank {
    bank: Scenario,
    authority: String,
    /// The key of the partner that floods.
    key: String,
    cookie: String,
    account: AccountKey,
    batch: String,
    waiting: String,
    other: (Client, AccountKey),
    _directory: TempDir,
}

impl FloodBank {
    /// Starts a bank with all data that floods request.
    pub async fn start() -> Self {
        let directory = TempDir::with_prefix("postonce-tls-").expect("a directory");
        let (authority, files) = (Authority::named("floods"), TlsFiles::within(directory.path()));
        files.write(&authority.certify("bank"));
        let plan = files.serve(Plan::on(StoreKind::Sqlite), &authority);
        let bank = plan.start().await;
        bank.until_workers_ready().await;
        let scopes = ["accounts", "deposit", "batch", "read", "metrics"];
        let key = bank.add_partner("flood", &scopes);
        let other = bank.client(0).with_key(&bank.add_partner("work", &scopes)).on_own_connections();
        let accounts = (fresh_account(), fresh_account());
        let client = bank.client(0).with_key(&key);
        client.open(accounts.0).await;
        other.open(accounts.1).await;
        add_deposits(&client, accounts.0).await;
        let batch = submit_batch(&client, accounts.0, ITEMS).await;
        client.until_status(&format!("{batch}/results"), 200).await;
        let authority = authority.pem().to_owned();
        let cookie = sign_in(&bank, &authority).await;
        drop(bank.client(0).set_gate(&json!({ "state": "held" })).await.expect(200));
        let waiting = submit_batch(&client, accounts.0, 2).await;
        let other = (other, accounts.1);
        Self {
            bank,
            authority,
            key,
            cookie,
            account: accounts.0,
            batch,
            waiting,
            other,
            _directory: directory,
        }
    }

    fn pid(&self) -> u32 {
        self.bank.webs.first().expect("a web process").pid()
    }

    /// Returns the target of a flood.
    ///
    /// # Panics
    /// When the bank has no valid address.
    pub fn target(&self, flood: Flood) -> Target {
        let address = self.bank.webs.first().expect("a web process").address();
        let address = address.trim_start_matches("https://").parse().expect("an address");
        let path = match flood.answer {
            Answer::Livez => "/livez".to_owned(),
            Answer::Docs => "/docs/swagger-ui-bundle.js".to_owned(),
            Answer::Statement => format!("{}/transactions?limit=1000", path_of(self.account)),
            Answer::Results => format!("{}/results", self.batch),
            Answer::Batches => "/v1/batches".to_owned(),
            Answer::Console if flood.has_key => "/console".to_owned(),
            Answer::Console => "/console/sign-in".to_owned(),
            Answer::Metrics => "/metrics".to_owned(),
            Answer::Waiting => self.waiting.clone(),
        };
        let mut fields = Vec::new();
        if flood.has_key && flood.answer == Answer::Console {
            fields.push(("cookie", self.cookie.clone()));
        } else if flood.has_key {
            fields.push(("authorization", format!("Bearer {}", self.key)));
        }
        if flood.answer == Answer::Waiting {
            fields.push(("prefer", "wait=30".to_owned()));
        }
        Target { address, authority: self.authority.clone(), path, fields }
    }

    /// Resets the peak memory of the process.
    ///
    /// # Panics
    /// When the kernel does not allow it.
    pub fn forget_memory_peak(&self) {
        fs::write(format!("/proc/{}/clear_refs", self.pid()), "5").expect("the process is ours");
    }

    /// Returns the peak memory of the process since the reset, in KiB.
    pub fn memory_peak_kib(&self) -> u64 {
        memory_peak_kib(self.pid())
    }

    /// Sends requests of the other partner for this duration, and measures each.
    ///
    /// # Panics
    /// When a duration cannot be recorded.
    pub async fn latency(&self, lasting: Duration) -> Latency {
        let (client, account) = &self.other;
        let (watch, mut failed) = (Stopwatch::start(), 0_u64);
        let mut times = Histogram::<u64>::new(3).expect("a histogram");
        while watch.elapsed() < lasting {
            let started = Stopwatch::start();
            let sent = client.try_send(client.request(Method::GET, &path_of(*account))).await;
            let took = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
            match sent {
                Ok(answer) if answer.status == 200 => times.record(took).expect("a duration"),
                Ok(_) | Err(_) => failed = failed.saturating_add(1),
            }
            wait::pass(PACE).await;
        }
        let (p50_us, p99_us) = (times.value_at_quantile(0.5), times.value_at_quantile(0.99));
        Latency { p50_us, p99_us, answered: times.len(), failed }
    }
}

async fn add_deposits(client: &Client, account: AccountKey) {
    let deposits = (0..LARGE_DEPOSITS).map(async |_| {
        let metadata = json!({ "a": "x".repeat(METADATA_CHARS) });
        let submission = Submission::deposit("1.00").with("metadata", metadata);
        drop(client.submit(account, fresh_id(), &submission).await.expect(202));
    });
    drop(join_all(deposits).await);
}

/// Submits a batch of deposits, and returns its path.
async fn submit_batch(client: &Client, account: AccountKey, items: usize) -> String {
    let item = |_| {
        let item = json!({
            "user_id": account.user.to_string(), "account_id": account.account.to_string(),
            "message_id": fresh_id().to_string(), "type": "deposit", "amount": "1.00", "currency": "EUR",
        });
        format!("{item}\n")
    };
    let id = fresh_id();
    let request = client.request(Method::POST, "/v1/batches").header("Idempotency-Key", id.to_string());
    let request = request.header("Content-Type", "application/x-ndjson");
    drop(client.send(request.body((0..items).map(item).collect::<String>())).await.expect(202));
    format!("/v1/batches/{id}")
}

/// Signs in to the console with the first key, and returns the cookie.
async fn sign_in(bank: &Scenario, authority: &str) -> String {
    let http = trusting(reqwest::Client::builder().redirect(Policy::none()).no_proxy(), authority);
    let http = http.build().expect("a client");
    let address = bank.webs.first().expect("a web process").address();
    let form = format!("key={}", bank.key());
    let request = http.post(format!("{address}/console/sign-in"));
    let request = request.header("content-type", "application/x-www-form-urlencoded").body(form);
    let answer = request.send().await.expect("the process answers");
    let cookie = answer.headers().get(SET_COOKIE).and_then(|value| value.to_str().ok()).expect("a cookie");
    cookie.split(';').next().unwrap_or_default().to_owned()
}
