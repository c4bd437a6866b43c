//! Ports that fail on purpose: fault injection for tests, outside of production code.
//!
//! [`crashing`] ports kill their process with SIGKILL at a named point, so nothing is finished, flushed or dropped.
//! [`deleting_early`] ports make a worker faulty, which tests must detect.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use postonce_shared::testing::prelude::*;

use crate::wait;

/// Point at which a worker crashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrashPoint {
    /// After messages were received, before a decision.
    AfterReceive,
    /// After a decision, before the commit is written.
    BeforeCommit,
    /// After the commit was written, before its message is deleted.
    AfterCommit,
}

impl CrashPoint {
    /// Returns the name of the point on the command line.
    pub const fn code(self) -> &'static str {
        match self {
            Self::AfterReceive => "after-receive",
            Self::BeforeCommit => "before-commit",
            Self::AfterCommit => "after-commit",
        }
    }

    /// Finds the point by its name.
    pub fn from_code(code: &str) -> Option<Self> {
        [Self::AfterReceive, Self::BeforeCommit, Self::AfterCommit]
            .into_iter()
            .find(|point| point.code() == code)
    }
}

/// Wraps a store so that the process crashes at this point.
pub fn crashing(store: Store, point: CrashPoint) -> Store {
    with_fault(store, PortFault::DiesAt(point))
}

fn die() -> ! {
    let pid = std::process::id().to_string();
    drop(Command::new("sh").args(["-c", r#"kill -KILL "$1""#, "kill", &pid]).status());
    // The signal may take a moment, in which nothing may happen.
    loop {
        std::thread::park();
    }
}

/// The fault of a wrapped port.
#[derive(Debug, Clone, Copy)]
enum PortFault {
    DiesAt(CrashPoint),
    DeletesEarly,
}

/// Name of [`deleting_early`] ports on the command line.
pub const DELETES_EARLY: &str = "deletes-early";

/// Time for which [`deleting_early`] ports hold deleted messages, so that a killed process usually loses some.
const HOLD_TIME: Duration = Duration::from_millis(150);

/// Wraps a store so that messages are deleted as soon as they are received. Their work is lost if the process ends before the
/// commit.
pub fn deleting_early(store: Store) -> Store {
    with_fault(store, PortFault::DeletesEarly)
}

fn with_fault(store: Store, fault: PortFault) -> Store {
    let ledger = Arc::new(FaultyLedger { inner: Arc::clone(&store.ledger), fault });
    let queue = Arc::new(FaultyQueue { inner: Arc::clone(&store.queue), fault });
    Store { ledger, queue, ..store }
}

impl PortFault {
    fn reaches(self, here: CrashPoint) {
        match self {
            Self::DiesAt(point) if point == here => die(),
            Self::DiesAt(_) | Self::DeletesEarly => {}
        }
    }
}

struct FaultyQueue {
    inner: Arc<dyn WorkQueue>,
    fault: PortFault,
}

#[async_trait]
impl WorkQueueDecorator for FaultyQueue {
    fn inner(&self) -> &dyn WorkQueue {
        &*self.inner
    }

    async fn receive(
        &self,
        queue: &QueueName,
        max: usize,
        visibility: Duration,
    ) -> Result<Vec<Message>, StoreFault> {
        let messages = self.inner.receive(queue, max, visibility).await?;
        if matches!(self.fault, PortFault::DeletesEarly) && !messages.is_empty() {
            for message in &messages {
                drop(self.inner.delete(queue, &message.lease).await?);
            }
            wait::pass(HOLD_TIME).await;
        }
        if !messages.is_empty() {
            self.fault.reaches(CrashPoint::AfterReceive);
        }
        Ok(messages)
    }
}

struct FaultyLedger {
    inner: Arc<dyn Ledger>,
    fault: PortFault,
}

#[async_trait]
impl LedgerDecorator for FaultyLedger {
    fn inner(&self) -> &dyn Ledger {
        &*self.inner
    }

    async fn commit(&self, commit: &AccountCommit) -> Result<Committed, StoreFault> {
        self.fault.reaches(CrashPoint::BeforeCommit);
        let committed = self.inner.commit(commit).await?;
        if matches!(committed, Committed::Done { .. }) {
            self.fault.reaches(CrashPoint::AfterCommit);
        }
        Ok(committed)
    }
}
