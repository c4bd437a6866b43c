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
use crate::ports::fault::{Cause, StoreFault};
use crate::ports::world::{World, WorldExt as _};

/// No attempt starts later than this after the operation began.
const LATEST_START: Duration = Duration::from_secs(5);
/// Most attempts of one operation, however short the waits were drawn.
const ATTEMPTS_MAX: u32 = 8;
/// Longest wait before the second attempt; doubles with each further one.
const PAUSE_FIRST: Duration = Duration::from_millis(50);
/// Longest wait of all.
const PAUSE_MAX: Duration = Duration::from_secs(1);

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
        let answer = Answer { status, code };
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

    /// Whether the service refused with that status.
    pub(super) fn has_status(&self, status: u16) -> bool {
        match self {
            Self::Answered(answer) => answer.status == status,
            Self::Unsent(_) | Self::Unclear(_) => false,
        }
    }

    /// The same failure when an attempt before it was unclear: a refusal of the later one says nothing
    /// about the earlier one.
    pub(super) fn after(self, unclear: bool) -> Self {
        match self {
            Self::Answered(answer) if unclear => Self::Unclear(Box::new(answer)),
            same @ (Self::Unsent(_) | Self::Unclear(_) | Self::Answered(_)) => same,
        }
    }

    /// The fault that a caller of the port sees.
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
    pause_max: Duration,
}

impl Patience {
    /// For an operation that begins now.
    pub(super) fn new(world: &Arc<dyn World>) -> Self {
        let started = world.uptime();
        Self { world: Arc::clone(world), started, attempts: 1, pause_max: PAUSE_FIRST }
    }

    /// Waits before the next attempt, with full jitter. False, at once, when it is time to give up.
    pub(super) async fn again(&mut self) -> bool {
        let pause = self.world.jitter(self.pause_max);
        let elapsed = self.world.uptime().saturating_sub(self.started);
        if self.attempts >= ATTEMPTS_MAX || elapsed.saturating_add(pause) > LATEST_START {
            return false;
        }
        self.attempts = self.attempts.saturating_add(1);
        self.pause_max = self.pause_max.saturating_mul(2).min(PAUSE_MAX);
        self.world.sleep(pause).await;
        true
    }

    /// Repeats what is safe to repeat until there is an answer, good or bad.
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
}
