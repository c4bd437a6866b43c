//! What an attempt that failed says about the write, and how long to go on trying.
//!
//! The crates' own retries are off: they repeat what is not safe to repeat, and do not know the
//! nonce by which a write whose answer was lost is recognised. Each operation of a port gets one
//! [`Patience`] and spends it over all of its requests, so that a caller hears of an outage in about
//! ten seconds.

use std::sync::Arc;
use std::time::Duration;

use azure_core::error::{Error, ErrorKind};

use super::transport::Unsent;
use crate::backoff::AZURE_OPERATION;
use crate::ports::fault::{Cause, StoreFault};
use crate::ports::world::World;

/// No attempt starts later than this after the operation began.
const LATEST_START: Duration = Duration::from_secs(5);

/// Why there is no good answer.
#[derive(Debug)]
pub(super) enum Failure {
    /// The request never left: nothing was done.
    Unsent(Cause),
    /// It may have been done, and may even still be: no answer, an overloaded service, or an answer
    /// that cannot be understood.
    Unclear(Cause),
    /// The service said no: nothing was done.
    Answered(Answer),
}

/// A refusal of the service.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the storage answered {status} {code}", code = .code.as_deref().unwrap_or("without a code"))]
pub(super) struct Answer {
    /// The HTTP status.
    pub(super) status: u16,
    /// The service's own code, such as `EntityAlreadyExists`. Answers within a batch have none.
    pub(super) code: Option<String>,
    /// Which row of a batch it stumbled over, from 0, by the service's own account. A hint, no proof.
    pub(super) row: Option<usize>,
}

impl Answer {
    pub(super) fn has_code(&self, code: &str) -> bool {
        self.code.as_deref() == Some(code)
    }
}

/// Something else than an answer that can be understood.
#[derive(Debug, thiserror::Error)]
#[error("the storage gave {0}")]
pub(super) struct Nonsense(pub(super) String);

impl Failure {
    /// The failure that a status stands for.
    pub(super) fn of_status(status: u16, code: Option<String>) -> Self {
        Self::of_answer(Answer { status, code, row: None })
    }

    /// The failure that an answer stands for.
    pub(super) fn of_answer(answer: Answer) -> Self {
        let status = answer.status;
        match status {
            // A timeout or an overload inside the service says nothing about the write.
            408 | 429 | 500..=599 => Self::Unclear(Box::new(answer)),
            _ => Self::Answered(answer),
        }
    }

    /// Whether the write may have happened nevertheless.
    pub(super) const fn is_unclear(&self) -> bool {
        match self {
            Self::Unclear(_) => true,
            Self::Unsent(_) | Self::Answered(_) => false,
        }
    }

    /// Whether the service refused with that code.
    pub(super) fn has_code(&self, code: &str) -> bool {
        match self {
            Self::Answered(answer) => answer.has_code(code),
            Self::Unsent(_) | Self::Unclear(_) => false,
        }
    }

    /// Which row of a batch the service names as the one that it refused.
    pub(super) const fn failed_row(&self) -> Option<usize> {
        match self {
            Self::Answered(answer) => answer.row,
            Self::Unsent(_) | Self::Unclear(_) => None,
        }
    }

    /// Whether the service refused with that status.
    pub(super) fn has_status(&self, status: u16) -> bool {
        match self {
            Self::Answered(answer) => answer.status == status,
            Self::Unsent(_) | Self::Unclear(_) => false,
        }
    }

    /// The fault that a caller of the port sees when nothing was written before.
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
            ErrorKind::Io if error.downcast_ref::<Unsent>().is_some() => Self::Unsent(Box::new(error)),
            // Signing comes before sending.
            ErrorKind::Credential => Self::Unsent(Box::new(error)),
            ErrorKind::Io | ErrorKind::DataConversion | ErrorKind::MockFramework | ErrorKind::Other => {
                Self::Unclear(Box::new(error))
            }
        }
    }
}

/// How long one operation of a port goes on trying.
#[derive(Clone)]
pub(super) struct Patience {
    world: Arc<dyn World>,
    started: Duration,
    attempts: u32,
    /// Whether a write of the operation may have happened without an answer that says so.
    unclear: bool,
}

impl Patience {
    /// For an operation that begins now.
    pub(super) fn new(world: &Arc<dyn World>) -> Self {
        let started = world.uptime();
        Self { world: Arc::clone(world), started, attempts: 1, unclear: false }
    }

    /// Remembers what a write that failed leaves open.
    pub(super) const fn note(&mut self, failure: &Failure) {
        self.unclear |= failure.is_unclear();
    }

    /// Remembers that a write has happened, so that nothing after it is told as a refusal.
    pub(super) const fn note_written(&mut self) {
        self.unclear = true;
    }

    /// Whether a write may have happened, as far as its answers tell.
    pub(super) const fn is_unclear(&self) -> bool {
        self.unclear
    }

    /// The fault that a caller of the port sees. A refusal says nothing about a write before it, be it
    /// the refusal of its repetition or of reading it back: only what surely did not happen is refused.
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

    /// Whether one more step may start without a wait.
    pub(super) fn has_time(&self) -> bool {
        self.world.uptime().saturating_sub(self.started) <= LATEST_START
    }

    /// Waits before the next attempt, with full jitter. False, at once, when it is time to give up.
    pub(super) async fn again(&mut self) -> bool {
        let pause = AZURE_OPERATION.delay(self.attempts, &*self.world);
        let elapsed = self.world.uptime().saturating_sub(self.started);
        if self.attempts >= AZURE_OPERATION.attempts || elapsed.saturating_add(pause) > LATEST_START {
            return false;
        }
        self.attempts = self.attempts.saturating_add(1);
        self.world.sleep(pause).await;
        true
    }

    /// Repeats a read until there is an answer, good or bad.
    pub(super) async fn repeat<T, A>(&mut self, attempt: impl Fn() -> A + Send) -> Result<T, Failure>
    where
        A: Future<Output = Result<T, Failure>> + Send,
    {
        loop {
            match attempt().await {
                Err(failure @ (Failure::Unsent(_) | Failure::Unclear(_))) => {
                    if !self.again().await {
                        return Err(failure);
                    }
                }
                answer @ (Ok(_) | Err(Failure::Answered(_))) => return answer,
            }
        }
    }

    /// Repeats a write that is the same done once or twice, and remembers what it leaves open.
    pub(super) async fn repeat_write<T, A>(&mut self, attempt: impl Fn() -> A + Send) -> Result<T, Failure>
    where
        A: Future<Output = Result<T, Failure>> + Send,
    {
        loop {
            match attempt().await {
                Err(failure @ (Failure::Unsent(_) | Failure::Unclear(_))) => {
                    self.note(&failure);
                    if !self.again().await {
                        return Err(failure);
                    }
                }
                answer @ (Ok(_) | Err(Failure::Answered(_))) => return answer,
            }
        }
    }
}
