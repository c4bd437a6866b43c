//! The alert rules, with the metrics of running processes that a test disturbs: the alerts of the cause fire, and no others.
//!
//! An alert waits for minutes, so the rules are evaluated over a course in which the samples before the disturbance last for an
//! hour, and then what was seen during it goes on for an hour: gauges stay, and counters grow as they did.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use postonce_shared::messaging::envelope::{self, Envelope};
use postonce_shared::testing::prelude::*;
use postonce_tests::certificates::{Authority, TlsFiles};
use postonce_tests::prelude::*;
use postonce_tests::{promtool, wait, workspace};
use reqwest::Method;
use rust_decimal::Decimal;
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use serde_json::json;

/// The values of all series, by their names with labels.
type Samples = BTreeMap<String, String>;

/// Length of the course, in seconds.
const COURSE_S: u32 = 7200;

/// Whether a series grows only.
fn is_counter(series: &str) -> bool {
    let name = series.split('{').next().unwrap_or_default();
    ["_total", "_bucket", "_count", "_sum"].iter().any(|end| name.ends_with(end))
}

/// Returns a value on the clock of the evaluation, which ends at [`COURSE_S`]: points in time are as far away as they were.
fn on_course(series: &str, value: &str) -> String {
    if !series.contains("_timestamp_seconds") && !series.contains("_start_time_") {
        return value.to_owned();
    }
    let now = Decimal::from(SystemWorld::new().now().unix_ms().div_euclid(1000));
    let at = value.parse::<Decimal>().expect("a decimal number");
    at.checked_sub(now).and_then(|away| away.checked_add(COURSE_S.into())).expect("a time").to_string()
}

/// Adds the samples of a process, and whether it answers.
async fn add(samples: &mut Samples, instance: &str, probe: &ProcessProbe, is_running: bool) {
    let up = format!("up{{job=\"postonce\",instance=\"{instance}\"}}");
    samples.insert(up, u8::from(is_running).to_string());
    if !is_running {
        return;
    }
    add_lines(samples, instance, &probe.metrics().await);
}

fn add_lines(samples: &mut Samples, instance: &str, metrics: &str) {
    for line in metrics.lines().filter(|line| !line.starts_with('#')) {
        let (series, value) = line.rsplit_once(' ').expect("a series and its value");
        let labels = format!("job=\"postonce\",instance=\"{instance}\"");
        let series = match series.split_once('{') {
            Some((name, rest)) => format!("{name}{{{labels},{rest}"),
            None => format!("{series}{{{labels}}}"),
        };
        let value = on_course(&series, value);
        samples.insert(series, value);
    }
}

async fn samples(bank: &Scenario, is_worker_running: bool) -> Samples {
    let mut samples = Samples::new();
    let web = ProcessProbe::with_key(bank.webs[0].address(), bank.key());
    add(&mut samples, "web-1", &web, true).await;
    add(&mut samples, "worker-1", &bank.probe(0), is_worker_running).await;
    samples
}

/// Evaluates the rules over the course from the samples before to those after, an hour each; asserts that exactly these alerts
/// fire at its end.
fn assert_alerts(cause: &str, before: &Samples, after: &Samples, expected: &[&str]) {
    let rules = workspace::root().join("deploy/prometheus/rules.yaml");
    let mut test = format!("rule_files: ['{}']\nevaluation_interval: 1m\ntests:\n", rules.display());
    test += "- interval: 1m\n  input_series:\n";
    for series in before.keys().chain(after.keys()).collect::<BTreeSet<_>>() {
        let [old, new] = [before, after].map(|samples| samples.get(series).cloned());
        let values = match (old, new) {
            (old, Some(new)) if is_counter(series) => {
                let old = old.unwrap_or_else(|| "0".to_owned());
                let growth = difference(&new, &old);
                format!("{old}x60 {old}+{growth}x60")
            }
            (Some(old), Some(new)) => format!("{old}x60 {new}x60"),
            (Some(old), None) => format!("{old}x60"),
            (None, Some(new)) => format!("_x60 {new}x60"),
            (None, None) => continue,
        };
        writeln!(test, "  - {{series: '{series}', values: '{values}'}}").expect("text can be written");
    }
    test += "  promql_expr_test:\n  - expr: 'group by (alertname) (ALERTS{alertstate=\"firing\"})'\n";
    test += "    eval_time: 2h\n    exp_samples:\n";
    for alert in expected {
        writeln!(test, "    - {{labels: '{{alertname=\"{alert}\"}}', value: 1}}")
            .expect("text can be written");
    }
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("test.yaml"), test).expect("a file");
    let (is_fine, output) = promtool::run(&["test", "rules", "test.yaml"], folder.path(), "");
    assert!(is_fine && output.contains("SUCCESS"), "{cause}:\n{output}");
}

/// The difference of two numbers as Prometheus writes them.
fn difference(new: &str, old: &str) -> String {
    let number = |text: &str| text.parse::<Decimal>().expect("a decimal number");
    number(new).checked_sub(number(old)).expect("a difference").to_string()
}

/// Waits until requests to the storage, for work and for the polls of a second, no longer fail: the first ones after an outage may
/// use connections that it broke.
async fn until_without_errors(bank: &Scenario, work: impl AsyncFn()) -> Samples {
    let errors = |samples: &Samples| -> Vec<String> {
        let of_errors =
            samples.iter().filter(|(series, _)| series.starts_with("postonce_storage_errors_total"));
        of_errors.map(|(series, value)| format!("{series} {value}")).collect()
    };
    wait::until("the storage answers without errors", wait::TIMEOUT, async || {
        let before = samples(bank, true).await;
        work().await;
        wait::pass(Duration::from_secs(1)).await;
        let after = samples(bank, true).await;
        if errors(&before) == errors(&after) { Ok(after) } else { Err(format!("{:?}", errors(&after))) }
    })
    .await
}

/// Waits until the clocks of that many processes differ from the clock of the storage.
async fn until_skewed(bank: &Scenario, expected: usize) -> Samples {
    wait::until("the clock is noticed", wait::TIMEOUT, async || {
        bank.client(0).open(fresh_account()).await;
        let samples = samples(bank, true).await;
        let is_ahead = |(series, value): &(&String, &String)| {
            let is_min =
                series.starts_with("postonce_clock_skew_seconds{") && series.contains("bound=\"min\"");
            is_min && value.parse::<Decimal>().is_ok_and(|seconds| seconds > Decimal::ONE)
        };
        let count = samples.iter().filter(is_ahead).count();
        if count == expected { Ok(samples) } else { Err(format!("{count} processes")) }
    })
    .await
}

#[tokio::test]
async fn alerts_fire_for_disturbances_of_a_running_bank_and_for_nothing_else() {
    let plan = Plan::on(StoreKind::Azurite).behind_proxies().processes(1, 1).polling_often();
    let mut bank = plan.start().await;
    bank.until_workers_ready().await;
    let (client, account) = (bank.client(0), fresh_account());
    client.open(account).await;
    let deposit = Submission::deposit("1.00");
    let work = async || drop(client.post(account, fresh_id(), &deposit).await);
    work().await;
    let idle = samples(&bank, true).await;
    for _ in 0..20 {
        work().await;
    }
    let busy = samples(&bank, true).await;
    assert_alerts("a busy service", &idle, &busy, &[]);

    drop(client.call(Method::PUT, "/v1/admin/gate", &json!({"state": "held"})).await.expect(200));
    let held = samples(&bank, true).await;
    assert_alerts("a held gate", &busy, &held, &["PostonceGateHeld"]);
    drop(client.call(Method::PUT, "/v1/admin/gate", &json!({"state": "released"})).await.expect(200));

    let healthy = samples(&bank, true).await;
    let queue = envelope::queues(1).swap_remove(0);
    let store = bank.store().await;
    store.queue.send(&queue, b"{\"v\":1", Duration::ZERO).await.expect("the queue takes any body");
    wait::until("the message is a dead letter", wait::TIMEOUT, async || {
        match bank.probe(0).count("worker_dead_letters").await {
            0 => Err("none".to_owned()),
            _ => Ok(()),
        }
    })
    .await;
    let poisoned = samples(&bank, true).await;
    assert_alerts("a message that nobody can read", &healthy, &poisoned, &["PostonceDeadLetters"]);

    bank.proxies().switch_all(Mode::Refuse);
    join_all((0..20).map(|_| client.submit(account, fresh_id(), &deposit))).await;
    wait::until("both processes notice the outage", wait::TIMEOUT, async || {
        let worker = bank.probe(0).missing().await.unwrap_or_default();
        let web = client.ready().await.status;
        if web == 503 && !worker.is_empty() { Ok(()) } else { Err(format!("{web}, {worker:?}")) }
    })
    .await;
    let outage = samples(&bank, true).await;
    let of_outage = ["PostonceNotReady", "PostonceRequestsFail", "PostonceStorageFails"];
    assert_alerts("an outage of the storage", &poisoned, &outage, &of_outage);
    bank.proxies().switch_all(Mode::Forward);
    client.until_ready().await;

    bank.probe(0).until_ready().await;
    let healthy = until_without_errors(&bank, work).await;
    bank.storage_proxies().set_clock_back(60);
    let skewed = until_skewed(&bank, 2).await;
    assert_alerts("a clock that differs", &healthy, &skewed, &["PostonceClockSkew"]);
    bank.storage_proxies().set_clock_back(0);

    let healthy = until_skewed(&bank, 0).await;
    bank.workers[0].kill();
    let alone = samples(&bank, false).await;
    assert_alerts("a worker that was killed", &healthy, &alone, &["PostonceProcessDown"]);
}

/// A secret of another bank.
const FOREIGN_SECRET: &str = "secret-of-another-bank";
/// Longest time until the scrubber finds something.
const SCRUBBING_MAX: Duration = Duration::from_secs(150);

/// A bank with a web and a worker process, and its last samples.
struct Disturbed {
    bank: Scenario,
    client: Client,
    before: Samples,
}

impl Disturbed {
    /// Asserts that exactly these alerts fire since the last time.
    async fn assert_alerts(&mut self, cause: &str, expected: &[&str]) {
        let after = samples(&self.bank, true).await;
        assert_alerts(cause, &self.before, &after, expected);
        self.settled().await;
    }

    /// Forgets what happened until now.
    async fn settled(&mut self) {
        self.before = samples(&self.bank, true).await;
    }

    /// Waits until a metric is above a limit in one of the processes.
    async fn until_above(&self, metric: &str, limit: u64) {
        self.until(metric, |values| values.iter().any(|value| *value > limit.into())).await;
    }

    /// Waits until the values of a metric are as expected.
    async fn until(&self, metric: &str, is_expected: impl Fn(&[Decimal]) -> bool) {
        wait::until(metric, SCRUBBING_MAX, async || {
            let samples = samples(&self.bank, true).await;
            let of_metric = samples.iter().filter(|(series, _)| series.split('{').next() == Some(metric));
            let values: Vec<Decimal> = of_metric.filter_map(|(_, value)| value.parse().ok()).collect();
            if is_expected(&values) { Ok(()) } else { Err(format!("{values:?}")) }
        })
        .await;
    }

    /// Lets the worker open this many more files only. Returns its limit before.
    async fn allow_files(&self, more: u64) -> u64 {
        let metrics = self.bank.probe(0).metrics().await;
        let number =
            |name: &str| metrics.lines().find_map(|line| line.strip_prefix(name)?.parse::<u64>().ok());
        let open = number("process_open_fds ").expect("a number of files");
        self.limit_files(open.saturating_add(more));
        number("process_max_fds ").expect("a limit")
    }

    fn limit_files(&self, limit: u64) {
        let pid = i32::try_from(self.bank.workers[0].pid()).ok().and_then(Pid::from_raw);
        // The hard limit is that of this process, from which the worker inherited it.
        let limits = Rlimit { current: Some(limit), ..getrlimit(Resource::Nofile) };
        prlimit(Some(pid.expect("a process id")), Resource::Nofile, limits).expect("a limit");
    }

    /// The work of a transaction that is accepted while the gate is held; its message is removed.
    async fn accepted(&self) -> Work {
        let (account, message) = (fresh_account(), fresh_id());
        self.client.open(account).await;
        drop(self.client.hold(2).await);
        drop(self.client.submit_until_accepted(account, message, &Submission::deposit("1.00")).await);
        let (store, queue) = (self.bank.store().await, envelope::queues(1).swap_remove(0));
        let mut sent =
            store.queue.receive(&queue, 1, Duration::from_secs(60)).await.expect("the queue answers");
        let lease = sent.pop().expect("a message").lease;
        drop(store.queue.delete(&queue, &lease).await.expect("the queue answers"));
        let partner = PartnerId::parse("bootstrap").expect("a name");
        let key = TransactionKey { account, partner, message };
        let stored = store.ledger.transaction(&key).await.expect("the store answers").expect("it is stored");
        stored.work().expect("it is accepted")
    }

    /// Sends a message with this body, and releases the gate.
    async fn send(&self, body: &[u8]) {
        let (store, queue) = (self.bank.store().await, envelope::queues(1).swap_remove(0));
        store.queue.send(&queue, body, Duration::ZERO).await.expect("the queue takes it");
        drop(self.client.release(2).await);
    }
}

#[tokio::test]
async fn alerts_fire_for_misuse_and_damage() {
    let plan = Plan::on(StoreKind::Sqlite).processes(1, 1).polling_often();
    let bank = plan.with("POSTONCE_SCRUBBER_OPERATIONS_PER_DAY", "100000000").start().await;
    bank.until_workers_ready().await;
    let (client, before) = (bank.client(0), samples(&bank, true).await);
    let mut it = Disturbed { bank, client, before };

    let greedy =
        it.bank.operate(&["partners", "add", "greedy", "--all-accounts", "--rate", "1", "--burst", "1"]);
    let greedy = greedy.split_whitespace().find(|word| word.starts_with("po_")).expect("a key").to_owned();
    let greedy = it.client.with_key(&greedy);
    it.settled().await;
    for _ in 0..100 {
        drop(greedy.get("/v1/batches").await);
    }
    it.assert_alerts("a partner above its rate", &["PostoncePartnerOverRate"]).await;

    let work = it.accepted().await;
    it.settled().await;
    let foreign =
        Seal::new(&DoorbellSecret::new(Some(&DoorbellKeys::parse(FOREIGN_SECRET).expect("a secret"))));
    it.send(&Envelope::of(vec![work]).encode(&foreign)).await;
    it.until_above("postonce_worker_unsealed_messages_total", 0).await;
    it.assert_alerts("a message without a valid seal", &["PostonceUnsealedMessages"]).await;

    let work = it.accepted().await;
    let seal = it.bank.seal().await;
    it.settled().await;
    let mut late = work.clone();
    late.submission.accepted_at =
        Timestamp::from_unix_ms(work.submission.accepted_at.unix_ms().saturating_sub(600_000));
    it.send(&Envelope::of(vec![late]).encode(&seal)).await;
    drop(it.client.until_final(work.submission.key.account, work.submission.key.message).await);
    it.assert_alerts("work that was posted late", &["PostoncePostingSlow"]).await;

    let account = work.submission.key.account;
    let file = it.bank.directory().join("postonce.db");
    let refuse = |statement: &str| {
        let store = rusqlite::Connection::open(&file).expect("the store");
        store.execute_batch(statement).expect("a statement");
    };
    refuse(
        "CREATE TRIGGER full BEFORE INSERT ON records WHEN NEW.collection = 'audit' BEGIN SELECT RAISE(ABORT, ''); END",
    );
    drop(it.client.call(Method::PUT, "/v1/admin/gate", &json!({"state": "released"})).await);
    // The store refused the row: that share of the few operations is a fault of the storage, too.
    it.assert_alerts("an act without a row", &["PostonceAuditRowsMissing", "PostonceStorageFails"]).await;
    refuse("DROP TRIGGER full");
    it.until("postonce_audit_rows_missing", |values| values == [Decimal::ZERO]).await;
    it.settled().await;

    let log = it.bank.directory().join("postonce.db-wal");
    let log = std::fs::OpenOptions::new().write(true).open(log).expect("a write-ahead log");
    let length = log.metadata().expect("a size").len();
    log.set_len(2 << 30).expect("a sparse file");
    it.until_above("postonce_store_log_bytes", 1 << 30).await;
    it.assert_alerts("a large write-ahead log", &["PostonceLogLarge"]).await;
    log.set_len(length).expect("a file");
    it.until("postonce_store_log_bytes", |values| values.iter().all(|value| *value < (1 << 30).into())).await;
    it.settled().await;

    let allowed = it.allow_files(3).await;
    it.assert_alerts("few files", &["PostonceFilesExhausted"]).await;
    it.limit_files(allowed);

    it.settled().await;
    it.bank.tamper().garble_page(account, 1).await;
    it.until_above("postonce_scrubber_findings_total", 0).await;
    it.assert_alerts("a damaged row", &["PostonceLedgerFindings"]).await;

    let (world, store): (Arc<dyn World>, _) = (Arc::new(SystemWorld::new()), it.bank.store().await);
    let claim =
        ClaimCheck::new(&store, &seal, world).put(Envelope::of(vec![work])).await.expect("it is stored");
    store.payloads.delete(claim.payload.as_deref().expect("a name")).await.expect("it is deleted");
    it.send(&claim.encode(&seal)).await;
    it.until_above("postonce_worker_payloads_missing_total", 0).await;
    it.assert_alerts("a payload that was lost", &["PostoncePayloadsMissing"]).await;
}

#[tokio::test]
async fn alerts_fire_before_a_certificate_expires_and_while_backups_fail() {
    let directory = tempfile::tempdir().expect("a folder");
    let (authority, files) = (Authority::named("test authority"), TlsFiles::within(directory.path()));
    files.write(&authority.certify_for("bank", Duration::from_secs(10 * 24 * 3600)));
    let no_folder = directory.path().join("file");
    std::fs::write(&no_folder, "").expect("a file");
    let plan = files.serve(Plan::on(StoreKind::Sqlite), &authority);
    let bank = plan.with("POSTONCE_BACKUP_FOLDER", &no_folder.to_string_lossy()).start().await;
    let client = bank.client(0);
    let observed = wait::until("the backup fails", wait::TIMEOUT, async || {
        let mut samples = Samples::new();
        let text = client.get("/metrics").await.expect(200).text;
        add_lines(&mut samples, "web-1", &text);
        let failed = samples
            .iter()
            .any(|(series, value)| series.starts_with("postonce_scheduled_backup_current{") && value == "0");
        if failed { Ok(samples) } else { Err(text) }
    })
    .await;
    assert_alerts(
        "a certificate that expires, and no backup",
        &observed,
        &observed,
        &["PostonceBackupFails", "PostonceCertificateExpires"],
    );
}
