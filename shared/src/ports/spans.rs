//! Spans: the operations of a trace, for tracing systems (OpenTelemetry).

use std::borrow::Cow;
use std::time::Duration;

use crate::domain::origin::TraceParent;

/// Exports the spans of a process.
pub trait Spans: Send + Sync {
    /// Queues a span for export. Never waits: spans are dropped while too many are queued.
    fn record(&self, span: Span);

    /// Returns the numbers of spans since the start of the process.
    fn counts(&self) -> SpanCounts;
}

/// Numbers of spans. Spans that are not exported are queued, or were lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SpanCounts {
    /// Spans of completed operations.
    pub recorded: u64,
    /// Spans in batches that the collector accepted. It may still have rejected some of them.
    pub exported: u64,
}

/// A completed operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// What was done, such as `POST /v1/batches`. The number of distinct names is small.
    pub name: String,
    /// The role in the trace.
    pub kind: SpanKind,
    /// The trace and span id of the operation.
    pub place: TraceParent,
    /// The operation that caused it, in the same trace.
    pub parent: Option<TraceParent>,
    /// When it began ([`World::uptime`](crate::ports::world::World::uptime)).
    pub began: Duration,
    /// When it ended.
    pub ended: Duration,
    /// Attribute names by the semantic conventions of OpenTelemetry, with their values.
    pub attributes: Vec<(&'static str, AttributeValue)>,
    /// Operations of other traces that share this operation.
    pub links: Vec<TraceParent>,
    /// The kind of the error if the operation failed.
    pub error: Option<Cow<'static, str>>,
}

/// The role of an operation in its trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanKind {
    /// Serves a request.
    Server,
    /// Uses the ledger.
    Database,
    /// Sends messages.
    Sender,
    /// Processes a message.
    Consumer,
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttributeValue {
    /// A text.
    Text(Cow<'static, str>),
    /// A number.
    Number(i64),
}

impl From<String> for AttributeValue {
    fn from(text: String) -> Self {
        Self::Text(text.into())
    }
}

impl From<&'static str> for AttributeValue {
    fn from(text: &'static str) -> Self {
        Self::Text(text.into())
    }
}

impl From<usize> for AttributeValue {
    fn from(number: usize) -> Self {
        Self::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}
