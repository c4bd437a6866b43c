//! Spans for the work in received messages, following the OpenTelemetry semantic conventions for messaging.

use std::borrow::Cow;

use postonce_shared::domain::decision::Work;
use postonce_shared::domain::ids::TransactionKey;
use postonce_shared::ports::queue::{Message, QueueName};
use postonce_shared::ports::spans::SpanKind;
use postonce_shared::posting::PostFault;
use postonce_shared::posting::queued::Settled;
use postonce_shared::posting::spans::error_of;
use postonce_shared::tracer::{Operation, Tracer};

/// The spans of the work of one account.
pub struct Processing<'a> {
    tracer: &'a Tracer,
    queue: &'a QueueName,
    recorded: Vec<(TransactionKey, Operation<'a>)>,
}

impl<'a> Processing<'a> {
    /// Creates the spans for messages of a queue.
    pub const fn new(tracer: &'a Tracer, queue: &'a QueueName) -> Self {
        Self { tracer, queue, recorded: Vec::new() }
    }

    /// Starts the span of one transaction. Further operations for it are recorded as its children.
    pub fn begin(&mut self, message: &Message, work: &mut Work) {
        let name = format_args!("process {}", self.queue);
        let Some(mut operation) = self.tracer.enter(name, SpanKind::Consumer, &mut work.submission.origin)
        else {
            return;
        };
        operation.set("messaging.operation.name", "process");
        operation.set("messaging.operation.type", "process");
        operation.set("messaging.destination.name", self.queue.as_str().to_owned());
        operation.set("messaging.message.id", message.lease.message_id.clone());
        operation.set("postonce.message_id", work.submission.key.message.to_string());
        self.recorded.push((work.submission.key.clone(), operation));
    }

    pub fn end(self, settled: &[Settled]) {
        for (key, operation) in self.recorded {
            let result = settled.iter().find(|(of, _)| *of == key).map(|(_, result)| result);
            operation.end(result.and_then(|result| result.as_ref().err()).map(error_type));
        }
    }
}

fn error_type(fault: &PostFault) -> Cow<'static, str> {
    match fault {
        PostFault::Ledger(fault) => error_of(fault),
        PostFault::OrderNumbers(_) => "order_numbers".into(),
        PostFault::Contended => "contended".into(),
        PostFault::GateHeld => "gate_held".into(),
        PostFault::AccountUnknown => "account_unknown".into(),
        PostFault::NeverAccepted => "never_accepted".into(),
        PostFault::Bug => "panic".into(),
    }
}
