//! Classifies failed requests, and decides how long an operation is retried.
//!
//! The retries of the Azure crates are off: they repeat requests that are not safe to repeat, and do not know the
//! nonce by which a write with a lost response is recognised. Each operation of a port has one [`Retries`] for
//! all of its requests, so that a caller learns of an outage after about ten seconds.

use std::sync::Arc;
use std::time::Duration;

use azure_core::error::{Error, ErrorKind};

use super::wire::WireFault;
use crate::backoff::AZURE_OPERATION;
use crate::ports::fault::{Cause, StoreFault};
use crate::ports::world::World;

/// Latest start of an attempt, after the start of the operation.
const LATEST_START: Duration = Duration::from_secs(5);

/// Why a request failed, sorted by whether the write may have happened.
#[derive(Debug)]
pub(super) enum Failure {
    /// The request was never sent: nothing was written.
    Unsent(Cause),
    /// The write may have happened, or may still happen: there was no response, the service was overloaded, or the
    /// response cannot be understood.
    Unclear(Cause),
    /// The service rejected the request: nothing was written.
    Answered(ErrorResponse),
}

/// A response with which the service rejected a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the storage responded with {status} {code}", code = .code.as_deref().unwrap_or("without a code"))]
pub(super) struct ErrorResponse {
    /// The HTTP status.
    pub(super) status: u16,
    /// The error code of the service, such as `EntityAlreadyExists`. Responses within a batch have none.
    pub(super) code: Option<String>,
    /// Index of the row of a batch that the service names as the cause. A hint, not a proof.
    pub(super) row: Option<usize>,
}

impl ErrorResponse {
    pub(super) fn has_code(&self, code: &str) -> bool {
        self.code.as_deref() == Some(code)
    }
}

/// Returns whether a status is that of a timeout or an overload inside the service.
pub(super) const fn is_unavailable(status: u16) -> bool {
    matches!(status, 408 | 429 | 500..=599)
}

/// A response that cannot be understood, or contradicts an earlier one.
#[derive(Debug, thiserror::Error)]
#[error("unexpected response of the storage: {0}")]
pub(super) struct UnexpectedResponse(pub(super) String);

impl Failure {
    /// Returns the failure for an HTTP status.
    pub(super) fn of_status(status: u16, code: Option<String>) -> Self {
        Self::of_answer(ErrorResponse { status, code, row: None })
    }

    /// Returns the failure for a response.
    pub(super) fn of_answer(answer: ErrorResponse) -> Self {
        match (answer.status, answer.code.as_deref()) {
            // It says nothing about the write.
            (status, _) if is_unavailable(status) => Self::Unclear(Box::new(answer)),
            // For some time after a deletion, no queue, container or table of that name can be created.
            (409, Some(code)) if code.ends_with("BeingDeleted") => Self::Unclear(Box::new(answer)),
            _ => Self::Answered(answer),
        }
    }

    /// Returns whether the write may have happened.
    pub(super) const fn is_unclear(&self) -> bool {
        match self {
            Self::Unclear(_) => true,
            Self::Unsent(_) | Self::Answered(_) => false,
        }
    }

    /// Returns whether the service rejected the request with that code.
    pub(super) fn has_code(&self, code: &str) -> bool {
        match self {
            Self::Answered(answer) => answer.has_code(code),
            Self::Unsent(_) | Self::Unclear(_) => false,
        }
    }

    /// Returns the index of the row of a batch that the service names as the cause.
    pub(super) const fn failed_row(&self) -> Option<usize> {
        match self {
            Self::Answered(answer) => answer.row,
            Self::Unsent(_) | Self::Unclear(_) => None,
        }
    }

    /// Returns whether the service rejected the request with that status.
    pub(super) fn has_status(&self, status: u16) -> bool {
        match self {
            Self::Answered(answer) => answer.status == status,
            Self::Unsent(_) | Self::Unclear(_) => false,
        }
    }

    /// Returns the fault for the caller of the port, if nothing was written before.
    pub(super) fn into_fault(self, doing: &'static str) -> StoreFault {
        match self {
            Self::Unsent(source) | Self::Unclear(source) => StoreFault::Unavailable { doing, source },
            Self::Answered(answer) => StoreFault::Refused { doing, source: Box::new(answer) },
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error.kind() {
            ErrorKind::HttpResponse { status, error_code } => {
                Self::of_status(u16::from(*status), error_code.clone())
            }
            ErrorKind::Io if matches!(error.downcast_ref(), Some(WireFault::Unsent(_))) => {
                Self::Unsent(Box::new(error))
            }
            // The request is signed before it is sent.
            ErrorKind::Credential => Self::Unsent(Box::new(error)),
            ErrorKind::Io | ErrorKind::DataConversion | ErrorKind::MockFramework | ErrorKind::Other => {
                Self::Unclear(Box::new(error))
            }
        }
    }
}

/// Limits the retries of one operation of a port, and remembers whether its outcome is unclear.
#[derive(Clone)]
pub(super) struct Retries {
    world: Arc<dyn World>,
    started: Duration,
    attempts: u32,
    /// Whether a write of the operation may have happened without a response that confirms it.
    unclear: bool,
}

impl Retries {
    /// Creates the state of an operation that starts now.
    pub(super) fn new(world: &Arc<dyn World>) -> Self {
        let started = world.uptime();
        Self { world: Arc::clone(world), started, attempts: 1, unclear: false }
    }

    /// Records whether a failed write may have happened.
    pub(super) const fn record_failure(&mut self, failure: &Failure) {
        self.unclear |= failure.is_unclear();
    }

    /// Records that a write has happened, so that no later failure is reported as a rejection.
    pub(super) const fn record_write(&mut self) {
        self.unclear = true;
    }

    /// Returns whether a write may have happened without a confirmation.
    pub(super) const fn is_unclear(&self) -> bool {
        self.unclear
    }

    /// Returns the fault for the caller of the port. After an unclear write, a rejection says nothing about that
    /// write: it may answer the repetition, or the read-back. So only an operation that certainly wrote nothing is
    /// reported as refused.
    pub(super) fn fault(&self, failure: Failure, doing: &'static str) -> StoreFault {
        match failure {
            Failure::Answered(answer) if self.unclear => {
                StoreFault::Unavailable { doing, source: Box::new(answer) }
            }
            failure @ (Failure::Unsent(_) | Failure::Unclear(_) | Failure::Answered(_)) => {
                failure.into_fault(doing)
            }
        }
    }

    /// Returns whether one more step may start without a delay.
    pub(super) fn has_time(&self) -> bool {
        self.world.uptime().saturating_sub(self.started) <= LATEST_START
    }

    /// Waits before the next attempt, with full jitter. Returns false at once when the limits are reached.
    pub(super) async fn wait_for_retry(&mut self) -> bool {
        let pause = AZURE_OPERATION.delay(self.attempts, &*self.world);
        let elapsed = self.world.uptime().saturating_sub(self.started);
        if self.attempts >= AZURE_OPERATION.attempts || elapsed.saturating_add(pause) > LATEST_START {
            return false;
        }
        self.attempts = self.attempts.saturating_add(1);
        self.world.sleep(pause).await;
        true
    }

    /// Repeats a read until the service responds. An error response is not retried.
    pub(super) async fn retry_read<T, A>(&mut self, attempt: impl Fn() -> A + Send) -> Result<T, Failure>
    where
        A: Future<Output = Result<T, Failure>> + Send,
    {
        loop {
            match attempt().await {
                Err(failure @ (Failure::Unsent(_) | Failure::Unclear(_))) => {
                    if !self.wait_for_retry().await {
                        return Err(failure);
                    }
                }
                answer @ (Ok(_) | Err(Failure::Answered(_))) => return answer,
            }
        }
    }

    /// Repeats an idempotent write, and records whether its outcome is unclear.
    pub(super) async fn retry_write<T, A>(&mut self, attempt: impl Fn() -> A + Send) -> Result<T, Failure>
    where
        A: Future<Output = Result<T, Failure>> + Send,
    {
        loop {
            match attempt().await {
                Err(failure @ (Failure::Unsent(_) | Failure::Unclear(_))) => {
                    self.record_failure(&failure);
                    if !self.wait_for_retry().await {
                        return Err(failure);
                    }
                }
                answer @ (Ok(_) | Err(Failure::Answered(_))) => return answer,
            }
        }
    }
}
