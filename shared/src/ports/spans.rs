//! Spans: the operations of a trace, for systems that show traces (OpenTelemetry).

use std::borrow::Cow;
use std::time::Duration;

use crate::domain::origin::TraceParent;

/// Exports the spans of a process.
pub trait Spans: Send + Sync {
    /// Takes a span. Never waits: spans are dropped while too many wait to be exported.
    fn record(&self, span: Span);

    /// Returns how many spans there were since the start of the process.
    fn counts(&self) -> SpanCounts;
}

/// Numbers of spans. Those that are not exported wait, or were lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SpanCounts {
    /// Spans of operations that ended.
    pub recorded: u64,
    /// Spans of the batches that the collector received. (It may have left out some of them.)
    pub exported: u64,
}

/// An operation that ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// What was done, such as `POST /v1/batches`. There are only a few different names.
    pub name: String,
    /// The role in the trace.
    pub kind: SpanKind,
    /// The place of the operation.
    pub place: TraceParent,
    /// The place of the operation that caused it, in the same trace.
    pub parent: Option<TraceParent>,
    /// When it began ([`World::uptime`](crate::ports::world::World::uptime)).
    pub began: Duration,
    /// When it ended.
    pub ended: Duration,
    /// Names by the semantic conventions of OpenTelemetry, and their values.
    pub attributes: Vec<(&'static str, AttributeValue)>,
    /// Operations of other traces that had the same effect.
    pub links: Vec<TraceParent>,
    /// The kind of the error, if it failed.
    pub error: Option<Cow<'static, str>>,
}

/// The role of an operation in its trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanKind {
    /// Answers a request.
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
