//! Exports spans with OTLP, the protocol of OpenTelemetry, over HTTP.
//!
//! A thread sends the spans in batches. If the collector is slow or unavailable, spans are lost; the bank never waits.

mod client;
mod headers;
mod watched;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use opentelemetry::trace::{
    Link, SpanContext, SpanId, SpanKind as Kind, Status, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{InstrumentationScope, KeyValue, Value};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, SpanData, SpanEvents, SpanLinks, SpanProcessor as _,
};
use parking_lot::Mutex;
use reqwest::redirect;

pub use self::headers::ExportHeaders;

use self::client::Client;
use self::watched::Watched;
use crate::adapters::authorities::trusting_only;
use crate::domain::origin::TraceParent;
use crate::ports::fault::Cause;
use crate::ports::spans::{AttributeValue, Span, SpanCounts, SpanKind, Spans};
use crate::ports::world::World;

/// Path for traces, relative to the URL of a collector.
const HTTP_PATH: &str = "/v1/traces";
/// Timeout for sending a batch, including the connection and all retries.
const EXPORT_TIME_MAX: Duration = Duration::from_secs(5);
/// Timeout for sending the last spans when the process exits.
const CLOSING_TIME_MAX: Duration = Duration::from_secs(2);
/// Minimum difference that is taken as a step of the wall clock. Smaller differences are drift.
const CLOCK_STEP_MIN: Duration = Duration::from_millis(100);
/// Maximum number of spans that wait to be sent. They use up to about 20 MB.
const WAITING_MAX: usize = 16_384;

/// URL of a collector, without a trailing slash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint(String);

impl Endpoint {
    /// Parses a URL.
    ///
    /// # Errors
    /// Returns the violated rule, as the end of a sentence.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        const ALLOWED: &str = "must be a URL such as http://127.0.0.1:4318, without user, query and fragment";
        let url = reqwest::Url::parse(text).map_err(|_| ALLOWED)?;
        let is_plain = url.username().is_empty() && url.password().is_none();
        let is_plain = is_plain && url.query().is_none() && url.fragment().is_none();
        let is_web = url.has_host() && matches!(url.scheme(), "http" | "https");
        (is_plain && is_web).then(|| Self(url.as_str().trim_end_matches('/').to_owned())).ok_or(ALLOWED)
    }

    /// Returns whether spans are sent over TLS.
    pub fn is_secure(&self) -> bool {
        self.0.starts_with("https:")
    }
}

/// The process whose spans are exported, and its settings.
#[derive(Debug, Clone)]
pub struct Exporting {
    /// The name of the program.
    pub service: &'static str,
    /// The version of the program.
    pub version: &'static str,
    /// Identifies the process among the processes of the bank.
    pub instance: String,
    /// The headers of all requests.
    pub headers: Option<ExportHeaders>,
    /// The certificate authorities for the collector's certificate, as PEM. The default is the public ones.
    pub authorities: Option<Vec<u8>>,
    /// Whether the store is a SQLite file; otherwise it is Azure Storage.
    pub is_embedded: bool,
}

/// Why the exporter cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The file of authorities contains no usable certificate.
    #[error("the file does not contain certificates as PEM")]
    Authorities,
    /// The HTTP client cannot be created.
    #[error("the client of the collector cannot be created")]
    Client(#[source] Cause),
}

/// Sends spans to a collector.
pub struct OtlpExport {
    processor: BatchSpanProcessor,
    world: Arc<dyn World>,
    /// Wall-clock time, since 1970, at which [`World::uptime`] was zero.
    started: Mutex<Duration>,
    scope: InstrumentationScope,
    is_embedded: bool,
    recorded: AtomicU64,
    exported: Arc<AtomicU64>,
}

impl fmt::Debug for OtlpExport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OtlpExport").finish_non_exhaustive()
    }
}

impl OtlpExport {
    /// Starts the exporter. Must be called within a runtime, which sends the requests. The collector need not be available.
    ///
    /// # Errors
    /// [`ExportError`] when the exporter cannot be created.
    pub fn start(
        endpoint: &Endpoint,
        process: Exporting,
        world: &Arc<dyn World>,
    ) -> Result<Self, ExportError> {
        let exporter = exporter(endpoint, process.authorities.as_deref(), process.headers)?;
        let exported: Arc<AtomicU64> = Arc::default();
        let watched = Watched::new(exporter, Arc::clone(&exported), Arc::clone(world));
        let config = BatchConfigBuilder::default().with_max_queue_size(WAITING_MAX).build();
        let mut processor = BatchSpanProcessor::new(watched, config);
        let Exporting { service, version, instance, is_embedded, .. } = process;
        let identity =
            [KeyValue::new("service.version", version), KeyValue::new("service.instance.id", instance)];
        let resource = Resource::builder().with_service_name(service).with_attributes(identity);
        processor.set_resource(&resource.build());
        Ok(Self {
            processor,
            world: Arc::clone(world),
            started: Mutex::new(started(&**world)),
            scope: InstrumentationScope::builder("postonce").with_version(version).build(),
            is_embedded,
            recorded: AtomicU64::new(0),
            exported,
        })
    }

    /// Sends the waiting spans, for at most [`CLOSING_TIME_MAX`]. Blocks the calling thread. Later spans are lost.
    pub fn close(&self) {
        if let Err(fault) = self.processor.shutdown_with_timeout(CLOSING_TIME_MAX) {
            tracing::warn!("The last traces may be lost: {fault}");
        }
    }

    /// Returns the attribute that all spans of a kind have in common.
    fn system(&self, kind: SpanKind) -> Option<KeyValue> {
        let (name, embedded, on_azure) = match kind {
            SpanKind::Server => return None,
            SpanKind::Database => ("db.system.name", "sqlite", "azure.table_storage"),
            SpanKind::Sender | SpanKind::Consumer => ("messaging.system", "sqlite", "azure.queue_storage"),
        };
        Some(KeyValue::new(name, if self.is_embedded { embedded } else { on_azure }))
    }

    /// Converts the start and the end of an operation to wall-clock time. The result follows steps of the wall clock
    /// but ignores its drift, so that operations keep their order.
    fn times(&self, began: Duration, ended: Duration) -> (SystemTime, SystemTime) {
        let by_clock = started(&*self.world);
        let mut started = self.started.lock();
        if by_clock.abs_diff(*started) > CLOCK_STEP_MIN {
            *started = by_clock;
        }
        let time = |uptime| UNIX_EPOCH.checked_add(started.saturating_add(uptime)).unwrap_or(UNIX_EPOCH);
        (time(began), time(ended))
    }
}

/// Returns the wall-clock time, since 1970, at which [`World::uptime`] was zero.
fn started(world: &dyn World) -> Duration {
    let now = Duration::from_millis(u64::try_from(world.now().unix_ms()).unwrap_or_default());
    now.saturating_sub(world.uptime())
}

fn exporter(
    endpoint: &Endpoint,
    authorities: Option<&[u8]>,
    headers: Option<ExportHeaders>,
) -> Result<SpanExporter, ExportError> {
    let certificates = authorities.map(certificates).transpose()?;
    let client = Client::new(http_client(certificates)?, headers);
    let exporter = SpanExporter::builder().with_http().with_http_client(client);
    // Without this call, an environment variable could select another protocol.
    let exporter = exporter.with_protocol(Protocol::HttpBinary);
    let exporter = exporter.with_endpoint(format!("{}{HTTP_PATH}", endpoint.0)).with_timeout(EXPORT_TIME_MAX);
    exporter.build().map_err(|error| ExportError::Client(error.into()))
}

fn certificates(pem: &[u8]) -> Result<Vec<reqwest::Certificate>, ExportError> {
    let found = reqwest::Certificate::from_pem_bundle(pem).unwrap_or_default();
    if found.is_empty() { Err(ExportError::Authorities) } else { Ok(found) }
}

fn http_client(authorities: Option<Vec<reqwest::Certificate>>) -> Result<reqwest::Client, ExportError> {
    // A redirect would send the secret headers to another host.
    let http = reqwest::Client::builder().redirect(redirect::Policy::none()).no_proxy();
    let http = http.timeout(EXPORT_TIME_MAX);
    let http = match authorities {
        Some(authorities) => trusting_only(http, authorities),
        None => http,
    };
    http.build().map_err(|error| ExportError::Client(error.into()))
}

impl Spans for OtlpExport {
    fn counts(&self) -> SpanCounts {
        let (recorded, exported) =
            (self.recorded.load(Ordering::Relaxed), self.exported.load(Ordering::Relaxed));
        SpanCounts { recorded, exported }
    }

    fn record(&self, span: Span) {
        self.recorded.fetch_add(1, Ordering::Relaxed);
        let (start_time, end_time) = self.times(span.began, span.ended);
        let Span { name, kind, place, parent, attributes, links, error, began: _, ended: _ } = span;
        let attributes = attributes.into_iter().map(|(name, value)| KeyValue::new(name, value_of(value)));
        let mut of_links = SpanLinks::default();
        of_links.links = links.iter().map(|place| Link::with_context(context(place, false))).collect();
        self.processor.on_end(SpanData {
            span_context: context(&place, false),
            parent_span_id: parent.as_ref().map_or(SpanId::INVALID, span_id),
            parent_span_is_remote: parent.is_some() && matches!(kind, SpanKind::Server | SpanKind::Consumer),
            span_kind: kind_of(kind),
            name: name.into(),
            start_time,
            end_time,
            attributes: attributes.chain(self.system(kind)).collect(),
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: of_links,
            // A description would repeat `error.type`.
            status: error.map_or(Status::Unset, |_| Status::error("")),
            instrumentation_scope: self.scope.clone(),
        });
    }
}

fn context(place: &TraceParent, is_remote: bool) -> SpanContext {
    let trace = TraceId::from_hex(place.trace_id()).unwrap_or(TraceId::INVALID);
    SpanContext::new(trace, span_id(place), TraceFlags::SAMPLED, is_remote, TraceState::default())
}

fn span_id(place: &TraceParent) -> SpanId {
    SpanId::from_hex(place.span_id()).unwrap_or(SpanId::INVALID)
}

const fn kind_of(kind: SpanKind) -> Kind {
    match kind {
        SpanKind::Server => Kind::Server,
        // A message contains the trace context of its request, not of the send span, so the send span has no consumers.
        SpanKind::Database | SpanKind::Sender => Kind::Client,
        SpanKind::Consumer => Kind::Consumer,
    }
}

fn value_of(value: AttributeValue) -> Value {
    match value {
        AttributeValue::Text(text) => Value::String(text.into()),
        AttributeValue::Number(number) => Value::I64(number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_a_plain_url() {
        assert_eq!(
            Endpoint::parse("https://c.example:4317/").unwrap(),
            Endpoint("https://c.example:4317".into())
        );
        let written_otherwise = Endpoint::parse(" http:c.example:4318").unwrap();
        assert_eq!(written_otherwise, Endpoint("http://c.example:4318".into()));
        assert!(!written_otherwise.is_secure());
        assert!(Endpoint::parse("https://c.example/otlp").unwrap().is_secure());
        for wrong in
            ["", "127.0.0.1:4318", "ftp://c", "http://u:p@c", "http://c?a=b", "http://c#f", "unix:/run/c"]
        {
            assert!(Endpoint::parse(wrong).is_err(), "{wrong}");
        }
    }
}
