//! Ids of a request, returned in its answer and logged in all processes, so that a partner and an operator can refer
//! to the same request. They have no effect: only the `Idempotency-Key` identifies a repetition.

use actix_web::http::header::{HeaderMap, HeaderName, HeaderValue};
use postonce_shared::domain::origin::{Origin, RequestId, TraceParent};
use postonce_shared::ports::world::{World, WorldExt as _};
use postonce_shared::tracer::Tracer;

use crate::headers::{self, TRACERESPONSE, X_REQUEST_ID};

/// Request id and trace context of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestIds {
    request: RequestId,
    /// Position of the request in its trace, which is that of the client or a new one.
    trace: TraceParent,
    /// Position of the client in the trace, if it sent one.
    parent: Option<TraceParent>,
}

impl RequestIds {
    /// Takes the ids from the headers of a request. A request id is replaced if it is missing, repeated, or not
    /// suitable for log lines; a trace if it is missing, repeated or invalid. If both are replaced, the new ids are
    /// equal. `tracer` decides whether the trace is recorded.
    pub fn of(sent: &HeaderMap, tracer: &Tracer, world: &dyn World) -> Self {
        let new = world.uuid();
        let mut values = sent.get_all(X_REQUEST_ID).filter_map(|value| value.to_str().ok());
        let request = values.next().and_then(|value| RequestId::parse(value).ok());
        let is_only = sent.get_all(X_REQUEST_ID).count() == 1;
        let request = request.filter(|_| is_only).unwrap_or_else(|| {
            RequestId::parse(&new.simple().to_string()).expect("hexadecimal digits are an id")
        });
        let parent = headers::traceparent(sent);
        let trace = match &parent {
            Some(of_client) => of_client.child(world.random()),
            None => TraceParent::begin(new, world.random()),
        };
        Self { request, trace: tracer.sample(trace), parent }
    }

    /// Returns the id of the request.
    pub fn request_id(&self) -> &str {
        self.request.as_str()
    }

    /// Returns the id of the trace.
    pub fn trace_id(&self) -> &str {
        self.trace.trace_id()
    }

    /// Returns the position of the request in its trace.
    pub const fn place(&self) -> &TraceParent {
        &self.trace
    }

    /// Returns the position of the client in the trace; `None` if the trace starts with the request.
    pub const fn parent(&self) -> Option<&TraceParent> {
        self.parent.as_ref()
    }

    /// Returns the ids that are stored with the instruction. A trace with the request id is omitted unless it is recorded.
    pub fn origin(&self) -> Origin {
        let is_implied = self.trace.trace_id() == self.request.as_str() && !self.trace.is_sampled();
        let traceparent = (!is_implied).then(|| self.trace.clone());
        Origin { request_id: Some(self.request.clone()), traceparent }
    }

    /// Returns the response headers with the ids.
    pub fn of_answer(&self) -> [(HeaderName, HeaderValue); 2] {
        let value = |text| HeaderValue::from_str(text).expect("ids are visible ASCII");
        [(X_REQUEST_ID, value(self.request.as_str())), (TRACERESPONSE, value(self.trace.as_str()))]
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use postonce_shared::adapters::memory::world::TestWorld;

    use super::*;
    use crate::headers::TRACEPARENT;

    fn ids(values: &[(HeaderName, &str)]) -> RequestIds {
        let mut headers = HeaderMap::new();
        for (name, value) in values {
            headers.append(name.clone(), HeaderValue::from_str(value).unwrap());
        }
        let world = Arc::new(TestWorld::new(u64::try_from(values.len()).unwrap()));
        RequestIds::of(&headers, &Tracer::new(Arc::<TestWorld>::clone(&world)), &*world)
    }

    fn id(values: &[&str]) -> String {
        let values: Vec<_> = values.iter().map(|value| (X_REQUEST_ID, *value)).collect();
        ids(&values).request_id().to_owned()
    }

    #[test]
    fn valid_ids_are_kept_and_all_others_replaced() {
        for kept in ["1", "4f9d0c9e-5d3e-4c0e-9a51-1b7a4a4e2f10", "Root=1-67891233:abc/+@~._"] {
            assert_eq!(id(&[kept]), kept);
        }
        for replaced in ["", "a b", "\u{fc}", &"x".repeat(65)] {
            let made = id(&[replaced]);
            assert_eq!((made.len(), made == replaced), (32, false), "{replaced}");
        }
        assert_eq!(id(&["one", "two"]).len(), 32);
        assert_eq!(id(&["one", "\u{fc}"]).len(), 32);
        assert_ne!(id(&[]), id(&["\u{fc}"]));
    }

    #[test]
    fn a_trace_is_continued_or_begun() {
        let trace = HeaderName::from_static(TRACEPARENT);
        let sent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let continued = ids(&[(X_REQUEST_ID, "1"), (trace.clone(), sent)]);
        assert_eq!(continued.trace_id(), "4bf92f3577b34da6a3ce929d0e0e4736");
        let [_, (name, answer)] = continued.of_answer();
        let answer = answer.to_str().unwrap();
        assert_eq!((name, answer.len()), (TRACERESPONSE, 55));
        assert!(answer.starts_with(&sent[..36]) && answer.ends_with("-01"), "{answer}");
        assert!(!answer.contains("00f067aa0ba902b7"), "this process has a place of its own: {answer}");
        assert_eq!(continued.origin().traceparent.unwrap().as_str(), answer);

        let begun = ids(&[]);
        assert_eq!((begun.trace_id(), begun.request_id().len()), (begun.request_id(), 32));
        assert_eq!(begun.origin().traceparent, None, "the id of the request says it");
        assert_eq!(begun.origin().trace_id(), Some(begun.trace_id()));
        let later = sent.replacen("00", "01", 1) + "-more";
        let later = ids(&[(trace.clone(), &later), (HeaderName::from_static("tracestate"), "a=1")]);
        assert_eq!(later.trace_id(), continued.trace_id(), "a later version is continued in this one");
        assert_eq!(later.parent(), continued.parent());
        assert!(later.origin().traceparent.unwrap().as_str().starts_with(&sent[..36]));
        for (name, value) in [("tracestate", ""), ("tracestate", "a=1,a=2"), ("tracestate", "\u{fc}")] {
            let state = HeaderName::from_static(name);
            let several = ids(&[(trace.clone(), sent), (state.clone(), value), (state, "b=1")]);
            assert_eq!(several.trace_id(), continued.trace_id(), "{value}: it has no effect");
        }
        let other = sent.replace("4bf9", "4bf8");
        for second in [sent, other.as_str(), "", "00-invalid"] {
            let twice = ids(&[(trace.clone(), sent), (trace.clone(), second)]);
            assert_eq!((twice.parent(), twice.trace_id()), (None, twice.request_id()), "{second}");
        }
        let named = ids(&[(X_REQUEST_ID, "1"), (trace, "00-invalid")]);
        assert_eq!(named.origin().trace_id(), Some(named.trace_id()), "it is passed on");
    }
}
