//! Begins and ends the operations of sampled traces. Without an exporter it does nothing.

mod sampling;

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

pub use self::sampling::Sampling;
use crate::domain::origin::{Origin, TraceParent};
use crate::ports::spans::{AttributeValue, Span, SpanCounts, SpanKind, Spans};
use crate::ports::world::World;

/// Error of an operation that its caller did not wait for.
const CANCELLED: &str = "cancelled";

/// The operations of a process.
pub struct Tracer {
    export: OnceLock<Export>,
    world: Arc<dyn World>,
}

struct Export {
    spans: Arc<dyn Spans>,
    sampling: Sampling,
}

/// An operation in progress: one span in each of its traces. Dropping it ends it as cancelled.
pub struct Operation<'a> {
    export: &'a Export,
    world: &'a dyn World,
    spans: Vec<Span>,
}

impl Tracer {
    /// Creates a tracer that records nothing.
    pub const fn new(world: Arc<dyn World>) -> Self {
        Self { export: OnceLock::new(), world }
    }

    /// Records the operations of sampled traces from now on. Only the first call has an effect.
    pub fn export_to(&self, spans: Arc<dyn Spans>, sampling: Sampling) {
        drop(self.export.set(Export { spans, sampling }));
    }

    /// Returns how many spans there were; none without an exporter.
    pub fn counts(&self) -> SpanCounts {
        self.export.get().map(|export| export.spans.counts()).unwrap_or_default()
    }

    /// Decides whether a trace that enters the bank is recorded. The decision of the client is not used: it would decide what
    /// the bank stores. Without an exporter, the place is passed on as it came.
    pub fn sample(&self, place: TraceParent) -> TraceParent {
        match self.export.get() {
            Some(export) => place.with_sampling(export.sampling.includes(place.trace_id())),
            None => place,
        }
    }

    /// Begins an operation of one trace at `place`. Returns `None` if it is not recorded.
    pub fn begin(
        &self,
        name: fmt::Arguments<'_>,
        kind: SpanKind,
        place: &TraceParent,
        parent: Option<TraceParent>,
    ) -> Option<Operation<'_>> {
        let export = self.export.get().filter(|_| place.is_sampled())?;
        let began = self.world.uptime();
        let span = span(name.to_string(), kind, (place.clone(), parent), began);
        Some(Operation { export, world: &*self.world, spans: vec![span] })
    }

    /// Begins an operation below the place of a request, which is now the place of the operation. Returns `None` if it is not
    /// recorded; then the place stays as it is.
    pub fn enter(&self, name: fmt::Arguments<'_>, kind: SpanKind, of: &mut Origin) -> Option<Operation<'_>> {
        let parent =
            of.traceparent.as_ref().filter(|parent| parent.is_sampled() && self.export.get().is_some())?;
        let place = parent.child(self.world.random());
        let operation = self.begin(name, kind, &place, Some(parent.clone()))?;
        of.traceparent = Some(place);
        Some(operation)
    }

    /// Begins an operation with an effect for many requests: a span in the trace of each. The spans have links to each other.
    /// Returns `None` if none is recorded.
    pub fn begin_shared<'o>(
        &self,
        name: fmt::Arguments<'_>,
        kind: SpanKind,
        origins: impl Iterator<Item = &'o Origin>,
    ) -> Option<Operation<'_>> {
        let export = self.export.get()?;
        let parents = origins.filter_map(|origin| origin.traceparent.as_ref());
        let began = self.world.uptime();
        let begin = |parent: &TraceParent| {
            let place = parent.child(self.world.random());
            span(name.to_string(), kind, (place, Some(parent.clone())), began)
        };
        let mut spans: Vec<Span> = parents.filter(|parent| parent.is_sampled()).map(begin).collect();
        let (first, others) = spans.split_first_mut()?;
        first.links = others.iter().map(|span| span.place.clone()).collect();
        for other in others {
            other.links.push(first.place.clone());
        }
        Some(Operation { export, world: &*self.world, spans })
    }
}

impl Operation<'_> {
    /// Adds an attribute.
    pub fn set(&mut self, name: &'static str, value: impl Into<AttributeValue>) {
        let value = value.into();
        self.spans.iter_mut().for_each(|span| span.attributes.push((name, value.clone())));
    }

    /// Ends the operation with success, or with the kind of an error.
    pub fn end(mut self, error: Option<Cow<'static, str>>) {
        self.record(error.as_ref());
    }

    fn record(&mut self, error: Option<&Cow<'static, str>>) {
        let ended = self.world.uptime();
        for mut span in self.spans.drain(..) {
            span.ended = ended;
            if let Some(error) = error {
                span.attributes.push(("error.type", AttributeValue::Text(error.clone())));
                span.error = Some(error.clone());
            }
            self.export.spans.record(span);
        }
    }
}

impl Drop for Operation<'_> {
    fn drop(&mut self) {
        self.record(Some(&Cow::Borrowed(CANCELLED)));
    }
}

fn span(
    name: String,
    kind: SpanKind,
    (place, parent): (TraceParent, Option<TraceParent>),
    began: Duration,
) -> Span {
    let (attributes, links) = (Vec::new(), Vec::new());
    Span { name, kind, place, parent, began, ended: began, attributes, links, error: None }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;
    use crate::adapters::memory::world::TestWorld;

    #[derive(Default)]
    struct Recorded(Mutex<Vec<Span>>);

    impl Spans for Recorded {
        fn record(&self, span: Span) {
            self.0.lock().push(span);
        }

        fn counts(&self) -> SpanCounts {
            SpanCounts::default()
        }
    }

    fn tracer() -> (Tracer, Arc<Recorded>) {
        let (tracer, recorded) = (Tracer::new(Arc::new(TestWorld::new(1))), Arc::<Recorded>::default());
        let spans: Arc<dyn Spans> = Arc::<Recorded>::clone(&recorded);
        tracer.export_to(spans, Sampling::parse("1").unwrap());
        (tracer, recorded)
    }

    fn origin(span: u64, is_sampled: bool) -> Origin {
        let trace = TraceParent::begin(uuid::Uuid::from_u128(u128::from(span)), span);
        Origin { request_id: None, traceparent: Some(trace.with_sampling(is_sampled)) }
    }

    #[test]
    fn a_shared_operation_has_a_linked_span_in_each_sampled_trace() {
        let (tracer, recorded) = tracer();
        let origins =
            [origin(1, true), origin(2, false), Origin::default(), origin(3, true), origin(4, true)];
        let mut operation =
            tracer.begin_shared(format_args!("commit"), SpanKind::Client, origins.iter()).unwrap();
        operation.set("db.operation.batch.size", 5);
        operation.end(None);
        let spans = recorded.0.lock();
        let parents: Vec<_> = spans.iter().map(|span| span.parent.clone()).collect();
        assert_eq!(parents, [&origins[0], &origins[3], &origins[4]].map(|origin| origin.traceparent.clone()));
        for span in &*spans {
            let parent = span.parent.as_ref().unwrap();
            assert_eq!(span.place.trace_id(), parent.trace_id());
            assert_ne!(span.place.span_id(), parent.span_id());
            assert_eq!((span.attributes.len(), &span.error), (1, &None));
        }
        assert_eq!(spans[0].links, [spans[1].place.clone(), spans[2].place.clone()]);
        assert_eq!(spans[1].links, [spans[0].place.clone()]);
        assert_eq!(spans[2].links, [spans[0].place.clone()]);
    }

    #[test]
    fn a_dropped_operation_was_cancelled() {
        let (tracer, recorded) = tracer();
        let place = origin(1, true).traceparent.unwrap();
        drop(tracer.begin(format_args!("GET /"), SpanKind::Server, &place, None).unwrap());
        let spans = recorded.0.lock();
        assert_eq!(spans[0].error.as_deref(), Some(CANCELLED));
        assert_eq!(spans[0].attributes, [("error.type", AttributeValue::from(CANCELLED))]);
    }

    #[test]
    fn nothing_is_recorded_without_an_exporter_or_a_sampled_trace() {
        let (tracer, _) = tracer();
        let (sampled, not) = (origin(1, true).traceparent.unwrap(), origin(1, false).traceparent.unwrap());
        assert!(tracer.begin(format_args!("GET /"), SpanKind::Server, &not, None).is_none());
        assert!(
            tracer
                .begin_shared(format_args!("commit"), SpanKind::Client, [origin(1, false)].iter())
                .is_none()
        );
        assert_eq!(tracer.sample(not.clone()), sampled, "the bank decides");

        let off = Tracer::new(Arc::new(TestWorld::new(1)));
        assert!(off.begin(format_args!("GET /"), SpanKind::Server, &sampled, None).is_none());
        assert!(
            off.begin_shared(format_args!("commit"), SpanKind::Client, [origin(1, true)].iter()).is_none()
        );
        assert_eq!((off.sample(sampled.clone()), off.sample(not.clone())), (sampled, not), "passed on");
    }
}
