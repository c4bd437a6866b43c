//! Export of spans with OTLP, the protocol of OpenTelemetry, over HTTP or gRPC.
//!
//! A thread sends the spans in batches. If the collector is slow or not available, spans are lost; the bank never waits for it.

mod client;
mod watched;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use opentelemetry::trace::{
    Link, SpanContext, SpanId, SpanKind as Kind, Status, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{InstrumentationScope, KeyValue, Value};
use opentelemetry_otlp::tonic_types::transport::ClientTlsConfig;
use opentelemetry_otlp::{
    ExporterBuildError, SpanExporter, WithExportConfig as _, WithHttpConfig as _, WithTonicConfig as _,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, SpanData, SpanEvents, SpanLinks, SpanProcessor as _,
};

use self::client::Client;
use self::watched::Watched;
use crate::domain::origin::TraceParent;
use crate::ports::fault::Cause;
use crate::ports::spans::{AttributeValue, Span, SpanCounts, SpanKind, Spans};
use crate::ports::world::World;

/// Path of traces below the URL of a collector, over HTTP.
const HTTP_PATH: &str = "/v1/traces";
/// Longest time for sending a batch, with repetitions.
const EXPORT_TIME_MAX: Duration = Duration::from_secs(5);
/// Longest time for sending the last spans when the process ends.
const CLOSING_TIME_MAX: Duration = Duration::from_secs(2);
/// Maximum number of spans that wait to be sent, a few megabytes.
const WAITING_MAX: usize = 16_384;

/// URL of a collector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint(String);

impl Endpoint {
    /// Takes a URL over HTTP.
    ///
    /// # Errors
    /// The violated rule, as the end of a sentence.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        const ALLOWED: &str = "must be a URL such as http://127.0.0.1:4318, without user, query and fragment";
        let url = reqwest::Url::parse(text).map_err(|_| ALLOWED)?;
        let is_plain = url.username().is_empty() && url.password().is_none();
        let is_plain = is_plain && url.query().is_none() && url.fragment().is_none();
        let is_web = url.has_host() && matches!(url.scheme(), "http" | "https");
        (is_plain && is_web).then(|| Self(text.trim_end_matches('/').to_owned())).ok_or(ALLOWED)
    }
}

/// A transport of OTLP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// Binary protobuf in HTTP requests.
    Http,
    /// gRPC.
    Grpc,
}

/// The process whose spans are exported.
#[derive(Debug, Clone)]
pub struct Exporting {
    /// The name of the program.
    pub service: &'static str,
    /// Its version.
    pub version: &'static str,
    /// Identifies the process among those of the bank.
    pub instance: String,
    /// Whether the store is a SQLite file; otherwise it is Azure Storage.
    pub is_embedded: bool,
}

/// The exporter cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum NotExporting {
    /// The HTTP client cannot be created.
    #[error("the HTTP client of the exporter cannot be created")]
    Client(#[source] reqwest::Error),
    /// The settings are not usable.
    #[error("traces cannot be exported")]
    Exporter(#[source] Cause),
}

impl From<ExporterBuildError> for NotExporting {
    fn from(error: ExporterBuildError) -> Self {
        Self::Exporter(error.into())
    }
}

/// Sends spans to a collector.
pub struct OtlpExport {
    processor: BatchSpanProcessor,
    /// The time at which [`World::uptime`] was zero.
    started: SystemTime,
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
    /// Starts to export. Must be called within a runtime, which sends the requests. The collector need not be available.
    ///
    /// # Errors
    /// [`NotExporting`] when the exporter cannot be created.
    pub fn start(
        endpoint: &Endpoint,
        protocol: Protocol,
        process: Exporting,
        world: &Arc<dyn World>,
    ) -> Result<Self, NotExporting> {
        let exporter = exporter(endpoint, protocol)?;
        let exported: Arc<AtomicU64> = Arc::default();
        let watched = Watched::new(exporter, Arc::clone(&exported), Arc::clone(world));
        let config = BatchConfigBuilder::default().with_max_queue_size(WAITING_MAX).build();
        let mut processor = BatchSpanProcessor::new(watched, config);
        let Exporting { service, version, instance, is_embedded } = process;
        let identity =
            [KeyValue::new("service.version", version), KeyValue::new("service.instance.id", instance)];
        let resource = Resource::builder().with_service_name(service).with_attributes(identity);
        processor.set_resource(&resource.build());
        let now = u64::try_from(world.now().unix_ms()).unwrap_or_default();
        let started = UNIX_EPOCH.checked_add(Duration::from_millis(now).saturating_sub(world.uptime()));
        Ok(Self {
            processor,
            started: started.unwrap_or(UNIX_EPOCH),
            scope: InstrumentationScope::builder("postonce").with_version(version).build(),
            is_embedded,
            recorded: AtomicU64::new(0),
            exported,
        })
    }

    /// Sends the spans that wait, for at most [`CLOSING_TIME_MAX`]. Blocks its thread. Later spans are lost.
    pub fn close(&self) {
        if let Err(fault) = self.processor.shutdown_with_timeout(CLOSING_TIME_MAX) {
            tracing::warn!("The last traces may be lost: {fault}");
        }
    }

    /// Returns the attributes that all spans of a kind have.
    fn system(&self, kind: SpanKind) -> Option<KeyValue> {
        let (name, embedded, on_azure) = match kind {
            SpanKind::Server => return None,
            SpanKind::Client => ("db.system.name", "sqlite", "azure.table_storage"),
            SpanKind::Producer | SpanKind::Consumer => ("messaging.system", "sqlite", "azure.queue_storage"),
        };
        Some(KeyValue::new(name, if self.is_embedded { embedded } else { on_azure }))
    }

    fn time(&self, uptime: Duration) -> SystemTime {
        self.started.checked_add(uptime).unwrap_or(self.started)
    }
}

fn exporter(Endpoint(url): &Endpoint, protocol: Protocol) -> Result<SpanExporter, NotExporting> {
    match protocol {
        Protocol::Http => {
            let http = reqwest::Client::builder().timeout(EXPORT_TIME_MAX).no_proxy().build();
            let client = Client::new(http.map_err(NotExporting::Client)?);
            let exporter = SpanExporter::builder().with_http().with_http_client(client);
            let exporter = exporter.with_endpoint(format!("{url}{HTTP_PATH}"));
            Ok(exporter.with_timeout(EXPORT_TIME_MAX).build()?)
        }
        Protocol::Grpc => {
            let exporter = SpanExporter::builder().with_tonic().with_endpoint(url);
            let exporter = exporter.with_tls_config(ClientTlsConfig::new().with_enabled_roots());
            Ok(exporter.with_timeout(EXPORT_TIME_MAX).build()?)
        }
    }
}

impl Spans for OtlpExport {
    fn counts(&self) -> SpanCounts {
        let (recorded, exported) =
            (self.recorded.load(Ordering::Relaxed), self.exported.load(Ordering::Relaxed));
        SpanCounts { recorded, exported }
    }

    fn record(&self, span: Span) {
        self.recorded.fetch_add(1, Ordering::Relaxed);
        let Span { name, kind, place, parent, began, ended, attributes, links, error } = span;
        let attributes = attributes.into_iter().map(|(name, value)| KeyValue::new(name, value_of(value)));
        let mut of_links = SpanLinks::default();
        of_links.links = links.iter().map(|place| Link::with_context(context(place, false))).collect();
        self.processor.on_end(SpanData {
            span_context: context(&place, false),
            parent_span_id: parent.as_ref().map_or(SpanId::INVALID, span_id),
            parent_span_is_remote: matches!(kind, SpanKind::Server | SpanKind::Consumer),
            span_kind: kind_of(kind),
            name: name.into(),
            start_time: self.time(began),
            end_time: self.time(ended),
            attributes: attributes.chain(self.system(kind)).collect(),
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: of_links,
            status: error.map_or(Status::Unset, Status::error),
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
        SpanKind::Client => Kind::Client,
        SpanKind::Producer => Kind::Producer,
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
        for wrong in
            ["", "127.0.0.1:4318", "ftp://c", "http://u:p@c", "http://c?a=b", "http://c#f", "unix:/run/c"]
        {
            assert!(Endpoint::parse(wrong).is_err(), "{wrong}");
        }
    }
}
