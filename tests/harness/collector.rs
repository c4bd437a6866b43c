//! An OpenTelemetry collector, based on the protocol library of OpenTelemetry for Python.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use crate::certificates::TlsFiles;
use crate::prelude::*;

/// Maximum time until it listens.
const START_TIME_MAX: Duration = Duration::from_secs(60);

/// A running collector.
#[derive(Debug)]
pub struct Collector {
    process: Process,
    port: u16,
    scheme: &'static str,
}

/// A received span.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct CollectedSpan {
    /// `Authorization` header of the request that sent it; empty if there was none.
    pub authorization: String,
    /// Resource attributes, which describe the process.
    pub resource: BTreeMap<String, Value>,
    /// Instrumentation scope, which names the library.
    pub scope: String,
    /// Name of the operation.
    pub name: String,
    /// Kind of the span, such as `SPAN_KIND_SERVER`.
    pub kind: String,
    /// Id of the trace.
    pub trace: String,
    /// Id of the span.
    pub span: String,
    /// Id of the parent span; empty if there is none.
    pub parent: String,
    /// Start time, in nanoseconds since 1970.
    pub begun_ns: u64,
    /// End time, in nanoseconds since 1970.
    pub ended_ns: u64,
    /// Attributes of the span.
    pub attributes: BTreeMap<String, Value>,
    /// Linked spans: trace id and span id, joined by `-`.
    pub links: Vec<String>,
    /// Status of the span.
    pub status: String,
}

impl Collector {
    /// Starts a collector on a free port.
    pub fn start() -> Self {
        Self::start_at(0)
    }

    /// Starts a collector on a port.
    pub fn start_at(port: u16) -> Self {
        Self::start_with("http", port, None)
    }

    /// Starts a collector that listens over TLS.
    pub fn start_with_tls(files: &TlsFiles) -> Self {
        Self::start_with("http", 0, Some(files))
    }

    /// Starts a gateway that responds to spans with a redirect.
    pub fn redirecting() -> Self {
        Self::start_with("redirecting", 0, None)
    }

    fn start_with(kind: &str, port: u16, files: Option<&TlsFiles>) -> Self {
        let script = python::directory().join("otlp_collector.py");
        let scheme = if files.is_some() { "https" } else { "http" };
        let files = files.into_iter().flat_map(|files| [files.certificate.clone(), files.key.clone()]);
        let arguments = [script.into_os_string(), kind.into(), port.to_string().into()];
        let arguments = arguments.into_iter().chain(files.map(Into::into));
        let launch =
            Launch::of("the collector", python::program(), &python::directory()).arguments(arguments);
        let process = Process::start(&launch);
        let listens = || {
            let port = process.log().find(|line| line.strip_prefix("port ")?.parse().ok());
            port.ok_or_else(|| process.log().lines().join("\n"))
        };
        let port = wait::block_until(START_TIME_MAX, listens)
            .unwrap_or_else(|log| panic!("the collector does not listen: {log}"));
        Self { process, port, scheme }
    }

    /// Returns the port on which it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the endpoint setting for processes that send their traces to it.
    pub fn endpoint(&self) -> String {
        format!("{}://127.0.0.1:{}", self.scheme, self.port)
    }

    /// Returns the spans received so far.
    ///
    /// # Panics
    /// When the process printed anything else.
    pub fn spans(&self) -> Vec<CollectedSpan> {
        let lines = self.process.log().lines();
        let spans = lines.iter().filter(|line| !line.starts_with("port "));
        spans
            .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
            .collect()
    }

    /// Waits until `pick` returns a value for the spans received so far.
    pub async fn until<T>(&self, what: &str, pick: impl Fn(&[CollectedSpan]) -> Option<T>) -> T {
        wait::until(what, wait::TIMEOUT, async || {
            let spans = self.spans();
            pick(&spans).ok_or_else(|| format!("{spans:#?}"))
        })
        .await
    }
}
