//! Reads the readiness and the metrics of a process. This causes no storage requests, so tests can read them as often as they
//! like.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::wait;

/// Maximum time of one request.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);
/// Prefix of the metric names.
const PREFIX: &str = "postonce_";

/// Reads the health and the metrics of one process.
#[derive(Debug, Clone)]
pub struct ProcessProbe {
    http: reqwest::Client,
    address: String,
    key: Option<String>,
}

impl ProcessProbe {
    /// Creates a probe of the process at this address.
    pub fn of(address: &str) -> Self {
        let http = reqwest::Client::builder().timeout(ANSWER_TIME_MAX).tcp_nodelay(true).no_proxy().build();
        let http = http.expect("a client with default settings");
        Self { http, address: address.to_owned(), key: None }
    }

    /// Creates a probe of a web process, whose metrics need a key.
    pub fn with_key(address: &str, key: &str) -> Self {
        Self { key: Some(key.to_owned()), ..Self::of(address) }
    }

    /// Waits until the process is ready.
    pub async fn until_ready(&self) {
        wait::until("the worker is ready", wait::TIMEOUT, async || match self.get("/readyz").await {
            Ok((200, _)) => Ok(()),
            other => Err(format!("{other:?}")),
        })
        .await;
    }

    /// Returns the body of `/readyz`, or `None` when the process does not respond.
    pub async fn health(&self) -> Option<serde_json::Value> {
        let (_, text) = self.get("/readyz").await.ok()?;
        Some(serde_json::from_str(&text).expect("it answers with JSON"))
    }

    /// Returns the missing parts that `/readyz` lists, or `None` when the process does not respond.
    pub async fn missing(&self) -> Option<Vec<String>> {
        let health = self.health().await?;
        let missing = health.pointer("/missing").and_then(serde_json::Value::as_array);
        Some(missing.into_iter().flatten().map(|part| part.as_str().unwrap_or_default().to_owned()).collect())
    }

    /// Returns the sum of all samples of a counter since the start of the process, such as `worker_settled`; zero without samples.
    pub async fn count(&self, metric: &str) -> u64 {
        sum(&self.metrics().await, metric)
    }

    /// Like [`Self::count`]. Returns `None` when the process does not respond.
    pub async fn try_count(&self, metric: &str) -> Option<u64> {
        let (status, text) = self.get("/metrics").await.ok()?;
        (status == 200).then(|| sum(&text, metric))
    }

    /// Returns the number of storage requests since the start of the process, by service and operation.
    pub async fn storage_operations(&self) -> BTreeMap<String, u64> {
        storage_operations(&self.metrics().await)
    }

    /// Returns the metrics as text.
    pub async fn metrics(&self) -> String {
        match self.get("/metrics").await {
            Ok((200, text)) => text,
            other => panic!("{} has no metrics: {other:?}", self.address),
        }
    }

    async fn get(&self, path: &str) -> Result<(u16, String), reqwest::Error> {
        let mut request = self.http.get(format!("{}{path}", self.address));
        if let Some(key) = &self.key {
            request = request.bearer_auth(key);
        }
        let response = request.send().await?;
        Ok((response.status().as_u16(), response.text().await?))
    }
}

fn sum(metrics: &str, metric: &str) -> u64 {
    by_label(metrics, metric, "").values().sum()
}

/// Returns the resident memory of a process on this machine, in KiB.
///
/// # Panics
/// When the process does not exist, or the system does not report its memory.
pub fn memory_kib(pid: u32) -> u64 {
    kib(pid, "VmRSS:")
}

/// Returns the peak resident memory of a process, in KiB.
///
/// # Panics
/// Same as [`memory_kib`].
pub fn memory_peak_kib(pid: u32) -> u64 {
    kib(pid, "VmHWM:")
}

fn kib(pid: u32, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the process runs");
    let value = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    value.trim().trim_end_matches(" kB").parse().unwrap_or_else(|_| panic!("no {name} in {status}"))
}

/// Returns the processor time that processes and their running descendants have used so far, in steps of 10 ms.
pub fn processor_time(pids: &[u32]) -> Duration {
    const TICK: Duration = Duration::from_millis(10);
    let entries = std::fs::read_dir("/proc").expect("/proc can be read");
    let ids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    // Process id, parent id, ticks.
    let all: Vec<(u32, u32, u32)> = ids.filter_map(|pid| ticks(pid).map(|(of, at)| (pid, of, at))).collect();
    let mut family: BTreeSet<u32> = pids.iter().copied().collect();
    loop {
        let children = all.iter().filter(|(pid, parent, _)| family.contains(parent) && !family.contains(pid));
        let children: Vec<u32> = children.map(|(pid, _, _)| *pid).collect();
        if children.is_empty() {
            break;
        }
        family.extend(children);
    }
    let used = all.iter().filter(|(pid, _, _)| family.contains(pid));
    used.map(|(_, _, ticks)| TICK.saturating_mul(*ticks)).sum()
}

/// Returns the parent and the ticks of a process, or `None` if it has ended.
fn ticks(pid: u32) -> Option<(u32, u32)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name can contain anything. After it follow state, parent, and other fields; the ticks are the 12th and 13th of them.
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u32>().ok();
    Some((number(1)?, number(11)?.saturating_add(number(12)?)))
}

/// Returns the storage requests in the metrics of a process, by service and operation.
pub fn storage_operations(metrics: &str) -> BTreeMap<String, u64> {
    let samples = metrics.lines().filter_map(sample);
    let of_store = samples.filter(|(name, _, _)| *name == "postonce_storage_operations_total");
    of_store.map(|(_, labels, count)| (kind(labels), count)).collect()
}

/// Returns the samples of a counter in the metrics of a process, by the value of a label. Samples without the label have an
/// empty value. The result is empty if the process does not export the counter.
pub fn by_label(metrics: &str, metric: &str, label: &str) -> BTreeMap<String, u64> {
    let name = format!("{PREFIX}{metric}_total");
    let mut counts = BTreeMap::<String, u64>::new();
    for (_, labels, count) in metrics.lines().filter_map(sample).filter(|(named, _, _)| *named == name) {
        let sum = counts.entry(value(labels, label).unwrap_or_default().to_owned()).or_default();
        *sum = sum.saturating_add(count);
    }
    counts
}

/// Parses a line such as `name{label="value"} 12` into name, labels and count.
fn sample(line: &str) -> Option<(&str, &str, u64)> {
    let (metric, count) = line.rsplit_once(' ')?;
    let (name, labels) = metric.split_once('{').unwrap_or((metric, ""));
    Some((name, labels.trim_end_matches('}'), count.parse().ok()?))
}

/// Converts labels such as `service="table",operation="insert"` to `table/insert`.
fn kind(labels: &str) -> String {
    let text = |label| value(labels, label).unwrap_or_default();
    format!("{}/{}", text("service"), text("operation"))
}

fn value<'a>(labels: &'a str, label: &str) -> Option<&'a str> {
    labels.split(',').find_map(|pair| {
        let (name, quoted) = pair.split_once('=')?;
        (name == label).then(|| quoted.trim_matches('"'))
    })
}

#[cfg(test)]
mod tests {
    use super::{by_label, kind, sample};

    #[test]
    fn samples_are_read_with_and_without_labels() {
        assert_eq!(
            sample("postonce_worker_settled_total 12"),
            Some(("postonce_worker_settled_total", "", 12))
        );
        let line = r#"ops_total{service="table",operation="insert"} 3"#;
        let (name, labels, count) = sample(line).unwrap();
        assert_eq!((name, kind(labels).as_str(), count), ("ops_total", "table/insert", 3));
        assert_eq!(sample("# EOF"), None);
    }

    #[test]
    fn a_counter_is_read_by_label_and_may_be_absent() {
        let metrics = "postonce_queued_requests_total{kind=\"a\",reason=\"busy\"} 3\n\
                       postonce_queued_requests_total{kind=\"b\",reason=\"busy\"} 4\n\
                       postonce_queued_requests_total{reason=\"held\"} 5\n";
        let counts = by_label(metrics, "queued_requests", "reason");
        assert_eq!(counts.into_iter().collect::<Vec<_>>(), [("busy".to_owned(), 7), ("held".to_owned(), 5)]);
        assert_eq!(by_label(metrics, "queued_requests", "").values().sum::<u64>(), 12);
        assert!(by_label(metrics, "posted_immediately", "").is_empty());
    }
}
