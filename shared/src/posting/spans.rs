//! Spans of writes to the ledger, by OpenTelemetry's semantic conventions for databases, without keys and amounts.

use std::borrow::Cow;

use crate::domain::decision::AccountCommit;
use crate::ports::fault::StoreFault;
use crate::ports::ledger::Committed;
use crate::ports::spans::SpanKind;
use crate::tracer::{Operation, Tracer};

/// Awaits a step that writes commits, and records it as an operation in the trace of each request.
///
/// # Errors
/// The fault of the step.
pub async fn traced_commits(
    tracer: &Tracer,
    commits: &[AccountCommit],
    step: impl Future<Output = Result<Vec<Committed>, StoreFault>>,
) -> Result<Vec<Committed>, StoreFault> {
    let decided = || commits.iter().flat_map(|commit| &commit.decided);
    let origins = decided().map(|decided| &decided.submission().origin);
    let operation = tracer.begin_shared(format_args!("commit"), SpanKind::Database, origins);
    let committed = step.await;
    if let Some(mut operation) = operation {
        // A refusal is not an error: the guards work as intended, and another attempt follows.
        if let Ok(committed) = &committed {
            let is_done = committed.iter().all(|it| matches!(it, Committed::Done { .. }));
            operation.set("postonce.commit.result", if is_done { "done" } else { "refused" });
        }
        let error = committed.as_ref().err();
        end_write(operation, "commit", decided().count(), |_| error.map(error_of));
    }
    committed
}

/// Ends the operation of a write of `size` transactions. `error_of` returns the error of the transaction at a position.
pub fn end_write(
    mut operation: Operation<'_>,
    name: &'static str,
    size: usize,
    error_of: impl Fn(usize) -> Option<Cow<'static, str>>,
) {
    operation.set("db.operation.name", name);
    // By the conventions, a batch has two or more operations.
    if size > 1 {
        operation.set("db.operation.batch.size", size);
    }
    operation.end_each(error_of);
}

/// Returns the kind of a fault as the error type of a span.
pub fn error_of(fault: &StoreFault) -> Cow<'static, str> {
    let kind = match fault {
        StoreFault::Unavailable { .. } => "unavailable",
        StoreFault::Corrupt { .. } => "corrupt",
        StoreFault::Refused { .. } => "refused",
        StoreFault::ForeignCursor { .. } => "foreign_cursor",
    };
    kind.into()
}
