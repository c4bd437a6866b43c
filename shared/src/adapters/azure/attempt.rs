//! Classifies failed requests, and decides how long an operation is retried.
//!
//! The retries of the Azure crates are disabled, because they repeat requests that are not idempotent, and do not know
//! the nonce that identifies a write whose response was lost. Each operation of a port has one [`Retries`] for all its
//! requests, so that callers learn of an outage after about ten seconds.

use std::sync::Arc;
use std::time::Duration;

use azure_core::error::{Error, ErrorKind};

use super::wire::WireFault;
use crate::backoff::AZURE_OPERATION;
use crate::ports::fault::{Cause, StoreFault};
use crate::ports::world::World;

/// Latest start of an attempt, relative to the start of the operation.
const LATEST_START: Duration = Duration::from_secs(5);

/// Why a request failed, classified by whether a write may have been applied.
#[derive(Debug)]
pub(super) enum RequestFault {
    /// The request was not sent. Nothing was written.
    Unsent(Cause),
    /// The write may have been applied, or may still be: there was no response, an overload, or an invalid response.
    Unclear(Cause),
    /// The service rejected the request. Nothing was written.
    Answered(ErrorResponse),
}

/// An error response of the service.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the storage responded with {status} {code}", code = .code.as_deref().unwrap_or("without a code"))]
pub(super) struct ErrorResponse {
    /// The HTTP status.
    pub(super) status: u16,
    /// The error code of the service, such as `EntityAlreadyExists`. Responses within a batch have no code.
    pub(super) code: Option<String>,
    /// Index of the row of a batch that the service reports as the cause. It is a hint and not reliable.
    pub(super) row: Option<usize>,
}

impl ErrorResponse {
    pub(super) fn has_code(&self, code: &str) -> bool {
        self.code.as_deref() == Some(code)
    }
}

/// Returns whether a status reports a timeout or an overload of the service.
pub(super) const fn is_unavailable(status: u16) -> bool {
    matches!(status, 408 | 429 | 500..=599)
}

/// A response that cannot be parsed or contradicts an earlier one.
#[derive(Debug, thiserror::Error)]
#[error("unexpected response of the storage: {0}")]
pub(super) struct UnexpectedResponse(pub(super) String);

impl RequestFault {
    pub(super) fn of_status(status: u16, code: Option<String>) -> Self {
        Self::of_answer(ErrorResponse { status, code, row: None })
    }

    pub(super) fn of_answer(answer: ErrorResponse) -> Self {
        match (answer.status, answer.code.as_deref()) {
            // The status does not tell whether the write was applied.
            (status, _) if is_unavailable(status) => Self::Unclear(Box::new(answer)),
            // After a deletion, no queue, container or table with the same name can be created for some time.
            (409, Some(code)) if code.ends_with("BeingDeleted") => Self::Unclear(Box::new(answer)),
            _ => Self::Answered(answer),
        }
    }

    /// Returns whether the write may have been applied.
    pub(super) const fn is_unclear(&self) -> bool {
        match self {
            Self::Unclear(_) => true,
            Self::Unsent(_) | Self::Answered(_) => false,
        }
    }

    /// Returns whether the service rejected the request with this code.
    pub(super) fn has_code(&self, code: &str) -> bool {
        match self {
            Self::Answered(answer) => answer.has_code(code),
            Self::Unsent(_) | Self::Unclear(_) => false,
        }
    }

    /// Returns the index of the row of a batch that the service reports as the cause.
    pub(super) const fn failed_row(&self) -> Option<usize> {
        match self {
            Self::Answered(answer) => answer.row,
            Self::Unsent(_) | Self::Unclear(_) => None,
        }
    }

    /// Returns whether the service rejected the request with this status.
    pub(super) fn has_status(&self, status: u16) -> bool {
        match self {
            Self::Answered(answer) => answer.status == status,
            Self::Unsent(_) | Self::Unclear(_) => false,
        }
    }

    /// Converts to the fault of the port. Only correct if no earlier request of the operation may have written.
    pub(super) fn into_fault(self, doing: &'static str) -> StoreFault {
        match self {
            Self::Unsent(source) | Self::Unclear(source) => StoreFault::Unavailable { doing, source },
            Self::Answered(answer) => StoreFault::Refused { doing, source: Box::new(answer) },
        }
    }
}

impl From<Error> for RequestFault {
    fn from(error: Error) -> Self {
        match error.kind() {
            ErrorKind::HttpResponse { status, error_code } => {
                Self::of_status(u16::from(*status), error_code.clone())
            }
            ErrorKind::Io if matches!(error.downcast_ref(), Some(WireFault::Unsent(_))) => {
                Self::Unsent(Box::new(error))
            }
            // A request is signed before it is sent.
            ErrorKind::Credential => Self::Unsent(Box::new(error)),
            ErrorKind::Io | ErrorKind::DataConversion | ErrorKind::MockFramework | ErrorKind::Other => {
                Self::Unclear(Box::new(error))
            }
        }
    }
}

/// Limits the retries of one operation, and records whether its outcome is unclear.
#[derive(Clone)]
pub(super) struct Retries {
    world: Arc<dyn World>,
    started: Duration,
    attempts: u32,
    /// Whether a write of the operation may have been applied without a confirmation.
    unclear: bool,
}

impl Retries {
    /// Creates the state of an operation that starts now.
    pub(super) fn new(world: &Arc<dyn World>) -> Self {
        let started = world.uptime();
        Self { world: Arc::clone(world), started, attempts: 1, unclear: false }
    }

    /// Records whether a failed write may have been applied.
    pub(super) const fn record_failure(&mut self, failure: &RequestFault) {
        self.unclear |= failure.is_unclear();
    }

    /// Records that a write was applied, so that no later failure is reported as a rejection.
    pub(super) const fn record_write(&mut self) {
        self.unclear = true;
    }

    /// Returns whether a write may have been applied without a confirmation.
    pub(super) const fn is_unclear(&self) -> bool {
        self.unclear
    }

    /// Converts to the fault of the port. After an unclear write, a rejection does not prove that nothing was written, because
    /// it may answer the retry or the read-back. So only an operation that certainly wrote nothing is reported as refused.
    pub(super) fn fault(&self, failure: RequestFault, doing: &'static str) -> StoreFault {
        match failure {
            RequestFault::Answered(answer) if self.unclear => {
                StoreFault::Unavailable { doing, source: Box::new(answer) }
            }
            failure @ (RequestFault::Unsent(_) | RequestFault::Unclear(_) | RequestFault::Answered(_)) => {
                failure.into_fault(doing)
            }
        }
    }

    /// Returns whether another step may start now.
    pub(super) fn has_time(&self) -> bool {
        self.world.uptime().saturating_sub(self.started) <= LATEST_START
    }

    /// Waits before the next attempt, with full jitter. Returns false immediately when no attempt is left.
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

    /// Repeats a read until the service responds. Error responses are not retried.
    pub(super) async fn retry_read<T, A>(&mut self, attempt: impl Fn() -> A + Send) -> Result<T, RequestFault>
    where
        A: Future<Output = Result<T, RequestFault>> + Send,
    {
        loop {
            match attempt().await {
                Err(failure @ (RequestFault::Unsent(_) | RequestFault::Unclear(_))) => {
                    if !self.wait_for_retry().await {
                        return Err(failure);
                    }
                }
                answer @ (Ok(_) | Err(RequestFault::Answered(_))) => return answer,
            }
        }
    }

    /// Repeats an idempotent write until the service responds, and records whether its outcome is unclear.
    pub(super) async fn retry_write<T, A>(
        &mut self,
        attempt: impl Fn() -> A + Send,
    ) -> Result<T, RequestFault>
    where
        A: Future<Output = Result<T, RequestFault>> + Send,
    {
        loop {
            match attempt().await {
                Err(failure @ (RequestFault::Unsent(_) | RequestFault::Unclear(_))) => {
                    self.record_failure(&failure);
                    if !self.wait_for_retry().await {
                        return Err(failure);
                    }
                }
                answer @ (Ok(_) | Err(RequestFault::Answered(_))) => return answer,
            }
        }
    }
}
