//! The alert rules, with the metrics of running processes whose storage, gate, queue or worker a test disturbs: the alerts of
//! the cause fire, and no others.
//!
//! An alert waits for minutes, so the rules are evaluated over a course in which the samples before the disturbance last for an
//! hour, and then what was seen during it goes on for an hour: gauges stay, and counters grow as they did.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use futures::future::join_all;
use postonce_shared::messaging::envelope;
use postonce_tests::client::Submission;
use postonce_tests::process_probe::ProcessProbe;
use postonce_tests::proxy::Mode;
use postonce_tests::scenario::{Plan, Scenario, StoreKind, fresh_account, fresh_id};
use postonce_tests::{promtool, wait, workspace};
use reqwest::Method;
use rust_decimal::Decimal;
use serde_json::json;

/// The values of all series, by their names with labels.
type Samples = BTreeMap<String, String>;

/// Whether a series grows only.
fn is_counter(series: &str) -> bool {
    let name = series.split('{').next().unwrap_or_default();
    ["_total", "_bucket", "_count", "_sum"].iter().any(|end| name.ends_with(end))
}

/// Whether a series is a point in time, which means nothing on the clock of the evaluation.
fn is_time(series: &str) -> bool {
    series.contains("_timestamp_seconds") || series.contains("_start_time_")
}

/// Adds the samples of a process, and whether it answers.
async fn add(samples: &mut Samples, instance: &str, probe: &ProcessProbe, is_running: bool) {
    let up = format!("up{{job=\"postonce\",instance=\"{instance}\"}}");
    samples.insert(up, u8::from(is_running).to_string());
    if !is_running {
        return;
    }
    for line in probe.metrics().await.lines().filter(|line| !line.starts_with('#')) {
        let (series, value) = line.rsplit_once(' ').expect("a series and its value");
        let labels = format!("job=\"postonce\",instance=\"{instance}\"");
        let series = match series.split_once('{') {
            Some((name, rest)) => format!("{name}{{{labels},{rest}"),
            None => format!("{series}{{{labels}}}"),
        };
        if !is_time(&series) {
            samples.insert(series, value.to_owned());
        }
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
    test += "  promql_expr_test:\n  - expr: 'count by (alertname) (ALERTS{alertstate=\"firing\"})'\n";
    test += "    eval_time: 2h\n    exp_samples:\n";
    for alert in expected {
        writeln!(test, "    - {{labels: '{{alertname=\"{alert}\"}}', value: 1}}")
            .expect("text can be written");
    }
    let test = test.replace("count by (alertname)", "group by (alertname)");
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
    let healthy = samples(&bank, true).await;
    bank.workers[0].kill();
    let alone = samples(&bank, false).await;
    assert_alerts("a worker that was killed", &healthy, &alone, &["PostonceProcessDown"]);
}
