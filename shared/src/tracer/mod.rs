//! Starts and ends the operations of sampled traces. Does nothing without an exporter.

mod sampling;

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

pub use self::sampling::Sampling;
use crate::domain::origin::{Origin, TraceParent};
use crate::ports::spans::{AttributeValue, Span, SpanCounts, SpanKind, Spans};
use crate::ports::world::World;

const CANCELLED: &str = "cancelled";

/// Traces the operations of a process.
pub struct Tracer {
    export: OnceLock<Export>,
    world: Arc<dyn World>,
}

struct Export {
    spans: Arc<dyn Spans>,
    sampling: Sampling,
}

/// An operation in progress, with one span in each of its traces. Dropping it ends it as cancelled.
pub struct Operation<'a> {
    export: &'a Export,
    world: &'a dyn World,
    /// Each span with the index of its request.
    spans: Vec<(usize, Span)>,
}

impl Tracer {
    /// Creates a tracer that records nothing.
    pub const fn new(world: Arc<dyn World>) -> Self {
        Self { export: OnceLock::new(), world }
    }

    /// Starts to record the operations of sampled traces. Only the first call has an effect.
    pub fn export_to(&self, spans: Arc<dyn Spans>, sampling: Sampling) {
        drop(self.export.set(Export { spans, sampling }));
    }

    /// Returns the numbers of spans; zeros without an exporter.
    pub fn counts(&self) -> SpanCounts {
        self.export.get().map(|export| export.spans.counts()).unwrap_or_default()
    }

    /// Decides whether a trace that enters the bank is recorded. Ignores the flag of the client, because many clients set
    /// it in all requests, which would all be exported. Without an exporter, the flag is passed on unchanged.
    pub fn sample(&self, place: TraceParent) -> TraceParent {
        match self.export.get() {
            Some(export) => place.with_sampling(export.sampling.includes(place.trace_id())),
            None => place,
        }
    }

    /// Returns whether the operations at a place are recorded.
    pub fn records(&self, place: &TraceParent) -> bool {
        self.export_of(place).is_some()
    }

    fn export_of(&self, place: &TraceParent) -> Option<&Export> {
        self.export.get().filter(|export| export.records(place))
    }

    /// Starts an operation of one trace at `place`. Returns `None` if it is not recorded.
    pub fn begin(
        &self,
        name: fmt::Arguments<'_>,
        kind: SpanKind,
        place: &TraceParent,
        parent: Option<TraceParent>,
    ) -> Option<Operation<'_>> {
        let export = self.export_of(place)?;
        let began = self.world.uptime();
        let span = span(name.to_string(), kind, (place.clone(), parent), began);
        Some(Operation { export, world: &*self.world, spans: vec![(0, span)] })
    }

    /// Starts an operation as a child of the place of a request, which is replaced by the place of the operation. Returns
    /// `None` if it is not recorded; the place then stays.
    pub fn enter(&self, name: fmt::Arguments<'_>, kind: SpanKind, of: &mut Origin) -> Option<Operation<'_>> {
        let parent = of.traceparent.as_ref().filter(|parent| self.records(parent))?;
        let place = parent.child(self.world.random());
        let operation = self.begin(name, kind, &place, Some(parent.clone()))?;
        of.traceparent = Some(place);
        Some(operation)
    }

    /// Starts an operation for many requests, with a span in the trace of each. The spans are linked to each other.
    /// Returns `None` if none is recorded.
    pub fn begin_shared<'o>(
        &self,
        name: fmt::Arguments<'_>,
        kind: SpanKind,
        origins: impl Iterator<Item = &'o Origin>,
    ) -> Option<Operation<'_>> {
        let export = self.export.get()?;
        let began = self.world.uptime();
        let begin = |(position, origin): (usize, &Origin)| {
            let parent = origin.traceparent.as_ref().filter(|parent| export.records(parent))?;
            let place = parent.child(self.world.random());
            Some((position, span(name.to_string(), kind, (place, Some(parent.clone())), began)))
        };
        let mut spans: Vec<(usize, Span)> = origins.enumerate().filter_map(begin).collect();
        let ((_, first), others) = spans.split_first_mut()?;
        first.links = others.iter().map(|(_, span)| span.place.clone()).collect();
        for (_, other) in others {
            other.links.push(first.place.clone());
        }
        Some(Operation { export, world: &*self.world, spans })
    }
}

impl Export {
    fn records(&self, place: &TraceParent) -> bool {
        place.is_sampled() && self.sampling.includes(place.trace_id())
    }
}

impl Operation<'_> {
    /// Adds an attribute.
    pub fn set(&mut self, name: &'static str, value: impl Into<AttributeValue>) {
        let value = value.into();
        self.spans.iter_mut().for_each(|(_, span)| span.attributes.push((name, value.clone())));
    }

    /// Ends the operation with success, or with a kind of error.
    pub fn end(self, error: Option<Cow<'static, str>>) {
        self.end_each(|_| error.clone());
    }

    /// Ends an operation that may have failed for some of its requests. `error_of` receives the index of a request in the
    /// order in which the operation was started.
    pub fn end_each(mut self, error_of: impl Fn(usize) -> Option<Cow<'static, str>>) {
        self.record(error_of);
    }

    fn record(&mut self, error_of: impl Fn(usize) -> Option<Cow<'static, str>>) {
        let ended = self.world.uptime();
        for (position, mut span) in self.spans.drain(..) {
            span.ended = ended;
            if let Some(error) = error_of(position) {
                span.attributes.push(("error.type", AttributeValue::Text(error.clone())));
                span.error = Some(error);
            }
            self.export.spans.record(span);
        }
    }
}

impl Drop for Operation<'_> {
    fn drop(&mut self) {
        self.record(|_| Some(Cow::Borrowed(CANCELLED)));
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
        tracer_of("1")
    }

    fn tracer_of(part: &str) -> (Tracer, Arc<Recorded>) {
        let (tracer, recorded) = (Tracer::new(Arc::new(TestWorld::new(1))), Arc::<Recorded>::default());
        let spans: Arc<dyn Spans> = Arc::<Recorded>::clone(&recorded);
        tracer.export_to(spans, Sampling::parse(part).unwrap());
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
            tracer.begin_shared(format_args!("commit"), SpanKind::Database, origins.iter()).unwrap();
        operation.set("db.operation.batch.size", 5);
        let failed = |position| (position == 3).then(|| "corrupt".into());
        operation.end_each(failed);
        let spans = recorded.0.lock();
        let parents: Vec<_> = spans.iter().map(|span| span.parent.clone()).collect();
        assert_eq!(parents, [&origins[0], &origins[3], &origins[4]].map(|origin| origin.traceparent.clone()));
        for span in &*spans {
            let parent = span.parent.as_ref().unwrap();
            assert_eq!(span.place.trace_id(), parent.trace_id());
            assert_ne!(span.place.span_id(), parent.span_id());
        }
        let errors: Vec<_> = spans.iter().map(|span| span.error.as_deref()).collect();
        assert_eq!(errors, [None, Some("corrupt"), None], "only the request that failed");
        assert_eq!(spans.iter().map(|span| span.attributes.len()).collect::<Vec<_>>(), [1, 2, 1]);
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
                .begin_shared(format_args!("commit"), SpanKind::Database, [origin(1, false)].iter())
                .is_none()
        );
        assert_eq!(tracer.sample(not.clone()), sampled, "the bank decides");
        let (none, _) = tracer_of("0");
        assert!(
            !none.records(&sampled)
                && none.enter(format_args!("process"), SpanKind::Consumer, &mut origin(1, true)).is_none(),
            "also in a process that did not sample the trace"
        );

        let off = Tracer::new(Arc::new(TestWorld::new(1)));
        assert!(off.begin(format_args!("GET /"), SpanKind::Server, &sampled, None).is_none());
        assert!(
            off.begin_shared(format_args!("commit"), SpanKind::Database, [origin(1, true)].iter()).is_none()
        );
        assert_eq!((off.sample(sampled.clone()), off.sample(not.clone())), (sampled, not), "passed on");
    }
}
