//! Prometheus metrics. Collecting them does not access the store.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use postonce_process::meter::Meter;
use postonce_process::metrics::{Family as MetricFamily, Format, ProcessMetrics};
use postonce_process::readiness::Readiness;
use postonce_shared::bank::Bank;
use postonce_shared::domain::time::Timestamp;
use postonce_shared::oversight::audit::AuditTrail;
use postonce_shared::posting::waiting::{QueueReason, ServedCounts};
use postonce_shared::protocol::accept::{AcceptFault, Acceptance, Accepted};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric as _};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResponseLabels {
    route: String,
    method: &'static str,
    status: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabels {
    route: String,
    method: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PartnerLabels {
    partner: String,
}

static REQUESTS: MetricFamily =
    MetricFamily::counter("http_requests", &["route", "method", "status"], "Completed requests");
static DURATIONS: MetricFamily =
    MetricFamily::histogram("http_request_seconds", &["route", "method"], "Time until the response");
static SUBMISSIONS: MetricFamily =
    MetricFamily::counter("submissions", &["outcome"], "Deposits and withdrawals by result of the request");
static POSTED_IMMEDIATELY: MetricFamily = MetricFamily::counter(
    "posted_immediately",
    &[],
    "Transactions posted or rejected by the process that received them, without the queue",
);
static QUEUED: MetricFamily = MetricFamily::counter(
    "queued_requests",
    &["reason"],
    "Deposits and withdrawals that took the queue, by reason",
);
static OVER_RATE: MetricFamily = MetricFamily::counter(
    "requests_over_rate",
    &["partner"],
    "Requests answered with 429; partners after the first 100 count as `(other)`",
);
static CERTIFICATE_EXPIRES: MetricFamily = MetricFamily::gauge(
    "tls_certificate_expires_timestamp_seconds",
    &[],
    "When the TLS certificate in use expires",
);
static AUDIT_ROWS_MISSING: MetricFamily = MetricFamily::gauge(
    "audit_rows_missing",
    &[],
    "Administrative acts of this process that were done, but are no rows of the audit trail",
);

/// Metric families of a web process besides those of a worker.
static FAMILIES: [&MetricFamily; 8] = [
    &REQUESTS,
    &DURATIONS,
    &SUBMISSIONS,
    &POSTED_IMMEDIATELY,
    &QUEUED,
    &OVER_RATE,
    &CERTIFICATE_EXPIRES,
    &AUDIT_ROWS_MISSING,
];

/// Maximum number of partners with a label of their own. Each label is a time series.
const LABELLED_PARTNERS_MAX: usize = 100;
/// Label for all other partners. It is not a valid partner id.
const OTHER_PARTNERS: &str = "(other)";

/// Returns all metric families of the service, sorted by name.
pub fn families() -> Vec<MetricFamily> {
    let of_web = FAMILIES.into_iter().cloned();
    let mut families: Vec<_> = postonce_process::metrics::families().into_iter().chain(of_web).collect();
    families.sort_by(|one, other| one.name.cmp(&other.name));
    families
}

/// Returns the list of all metrics of the service, in Markdown.
pub fn page() -> String {
    let row = |family: &MetricFamily| {
        let labels = match family.labels {
            [] => "–".to_owned(),
            labels => labels.iter().map(|label| format!("`{label}`")).collect::<Vec<_>>().join(", "),
        };
        format!("| `{}` | {} | {labels} | {} |", family.full_name(), family.kind.as_str(), family.help)
    };
    let rows: Vec<String> = families().iter().map(row).collect();
    format!("{PAGE_HEAD}{}", rows.join("\n"))
}

/// The text before the rows of the page.
const PAGE_HEAD: &str = "# Metrics

The metrics of web and worker processes at `/metrics`. The unit is the end of the name: seconds, bytes, dollars, a ratio from 0 to
1, or a count. A process has the metrics of what it does: only those of the process that scrubs have the state of the round, and
only those with a store that costs money have prices. Printed by `postonce-web metrics`.

| metric | type | labels | meaning |
|---|---|---|---|
";

/// Metrics of a process.
pub struct Metrics {
    process: Mutex<ProcessMetrics>,
    requests: Family<ResponseLabels, Counter>,
    durations: Family<RouteLabels, Histogram, fn() -> Histogram>,
    submissions: Family<OutcomeLabels, Counter>,
    over_rate: OverRate,
    certificate_expires_at: Arc<Mutex<Option<Timestamp>>>,
    meter: Arc<Meter>,
}

/// Counts of requests over the rate limit, by partner.
struct OverRate {
    counts: Family<PartnerLabels, Counter>,
    partners: Mutex<BTreeSet<String>>,
}

impl OverRate {
    fn count(&self, partner: &str) {
        let has_label = {
            let mut partners = self.partners.lock();
            partners.contains(partner)
                || partners.len() < LABELLED_PARTNERS_MAX && partners.insert(partner.to_owned())
        };
        let partner = if has_label { partner } else { OTHER_PARTNERS }.to_owned();
        self.counts.get_or_create(&PartnerLabels { partner }).inc();
    }
}

impl Metrics {
    /// Creates the metrics of a web process, including those that every process has. `meter` has the counters of the worker
    /// in this process, if there is one.
    pub fn new(bank: &Bank, meter: &Arc<Meter>, readiness: &Arc<Readiness>) -> Self {
        let mut process = ProcessMetrics::of(bank, meter, readiness);
        let registry = process.of_bank();
        let requests = Family::<ResponseLabels, Counter>::default();
        let durations: Family<RouteLabels, Histogram, fn() -> Histogram> =
            Family::new_with_constructor(histogram);
        let submissions = Family::<OutcomeLabels, Counter>::default();
        registry.register(REQUESTS.name.clone(), REQUESTS.help, requests.clone());
        registry.register(DURATIONS.name.clone(), DURATIONS.help, durations.clone());
        registry.register(SUBMISSIONS.name.clone(), SUBMISSIONS.help, submissions.clone());
        let over_rate = Family::<PartnerLabels, Counter>::default();
        registry.register(OVER_RATE.name.clone(), OVER_RATE.help, over_rate.clone());
        registry.register_collector(Box::new(ServedCollector(Arc::clone(bank.acceptor.served()))));
        registry.register_collector(Box::new(AuditCollector(Arc::clone(&bank.audit))));
        let certificate_expires_at = Arc::<Mutex<Option<Timestamp>>>::default();
        registry.register_collector(Box::new(CertificateCollector(Arc::clone(&certificate_expires_at))));
        let over_rate = OverRate { counts: over_rate, partners: Mutex::default() };
        Self {
            process: Mutex::new(process),
            requests,
            durations,
            submissions,
            over_rate,
            certificate_expires_at,
            meter: Arc::clone(meter),
        }
    }

    /// Registers additional metrics.
    pub fn register(&self, register: impl FnOnce(&mut Registry)) {
        register(self.process.lock().of_bank());
    }

    /// Sets the expiry of the TLS certificate; `None` without a certificate.
    pub fn certificate_expires(&self, at: Option<Timestamp>) {
        *self.certificate_expires_at.lock() = at;
    }

    /// Counts a request that was refused because its partner exceeded its rate or its shares.
    pub fn over_rate(&self, partner: &str) {
        self.over_rate.count(partner);
    }

    /// Counts a completed request. `route` is the path template.
    pub fn answered(&self, route: &str, method: &'static str, status: u16, took: Duration) {
        let route = route.to_owned();
        self.durations
            .get_or_create(&RouteLabels { route: route.clone(), method })
            .observe(took.as_secs_f64());
        self.requests.get_or_create(&ResponseLabels { route, method, status }).inc();
    }

    /// Counts a request that failed because of the service. The process reports the count in its recent activity.
    pub fn failed(&self) {
        self.meter.request_errors.add(1);
    }

    /// Counts the result of a deposit or a withdrawal that reached the acceptor.
    pub fn submitted(&self, acceptance: &Result<Acceptance, AcceptFault>) {
        let outcome = match acceptance {
            Ok(Acceptance::Accepted(Accepted { replayed: false, .. })) => "accepted",
            Ok(Acceptance::Accepted(Accepted { replayed: true, .. })) => "replayed",
            Ok(Acceptance::KeyReused) => "key_reused",
            Ok(Acceptance::AccountUnknown) => "account_unknown",
            Ok(Acceptance::CurrencyMismatch { .. }) => "currency_mismatch",
            Err(_) => "fault",
        };
        self.submissions.get_or_create(&OutcomeLabels { outcome }).inc();
    }

    /// Encodes all metrics.
    ///
    /// # Errors
    /// [`fmt::Error`] when a collector fails.
    pub fn encode(&self, format: Format) -> Result<Vec<u8>, fmt::Error> {
        self.process.lock().encode(format)
    }
}

/// Collects the counts of transactions that were posted immediately or queued.
#[derive(Debug)]
struct ServedCollector(Arc<ServedCounts>);

impl Collector for ServedCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        POSTED_IMMEDIATELY.count(&mut encoder, self.0.immediate())?;
        let mut family = QUEUED.begin(&mut encoder)?;
        for reason in QueueReason::ALL {
            let count = ConstCounter::new(self.0.queued(reason));
            count.encode(family.encode_family(&[("reason", reason.code())])?)?;
        }
        Ok(())
    }
}

/// Collects the number of administrative acts that have no row in the audit trail.
struct AuditCollector(Arc<AuditTrail>);

impl fmt::Debug for AuditCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AuditCollector")
    }
}

impl Collector for AuditCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        AUDIT_ROWS_MISSING.measure(&mut encoder, self.0.missing())
    }
}

/// Collects the expiry of the TLS certificate in use; collects nothing without a certificate.
#[derive(Debug)]
struct CertificateCollector(Arc<Mutex<Option<Timestamp>>>);

impl Collector for CertificateCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(expires_at) = *self.0.lock() else { return Ok(()) };
        CERTIFICATE_EXPIRES.measure(&mut encoder, expires_at.unix_ms().div_euclid(1000))
    }
}

/// Histogram with buckets in seconds, from a cache hit to the longest time that a client waits.
fn histogram() -> Histogram {
    let bounds = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];
    Histogram::new(bounds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_labelled_partners_is_bounded() {
        let over_rate = OverRate { counts: Family::default(), partners: Mutex::default() };
        for round in 0..2 {
            for partner in 0..LABELLED_PARTNERS_MAX + 7 {
                over_rate.count(&format!("shop-{partner}"));
            }
            let count = |partner: &str| {
                over_rate.counts.get_or_create(&PartnerLabels { partner: partner.to_owned() }).get()
            };
            assert_eq!((count("shop-0"), count("(other)")), (round + 1, 7 * (round + 1)));
        }
    }

    #[test]
    fn the_page_in_schemas_is_up_to_date() {
        let command = "cargo run -- metrics > schemas/metrics.md";
        assert_eq!(include_str!("../../schemas/metrics.md").trim_end(), page(), "update it with: {command}");
    }
}
