//! Ports that fail on purpose: the fault injection of the tests, outside of production code.
//!
//! [`crashing`] ports kill their process with SIGKILL at a named point, so that nothing is finished,
//! flushed or dropped. [`unreliable`] ports are unavailable on demand. [`deleting_early`] ports
//! make a worker faulty, which tests must detect.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use postonce_shared::domain::decision::AccountCommit;
use postonce_shared::ports::Store;
use postonce_shared::ports::fault::StoreFault;
use postonce_shared::ports::ledger::{Committed, Ledger};
use postonce_shared::ports::queue::{Held, Lease, Message, QueueName, WorkQueue};
use postonce_shared::testing::decorators::{LedgerDecorator, WorkQueueDecorator};

use crate::wait;

/// Where a worker crashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrashPoint {
    /// After messages were received, and before a decision.
    AfterReceive,
    /// After a decision, and before the commit is written.
    BeforeCommit,
    /// After the commit was written, and before its message is deleted.
    AfterCommit,
}

impl CrashPoint {
    /// The name on the command line.
    pub const fn code(self) -> &'static str {
        match self {
            Self::AfterReceive => "after-receive",
            Self::BeforeCommit => "before-commit",
            Self::AfterCommit => "after-commit",
        }
    }

    /// The point with that name.
    pub fn from_code(code: &str) -> Option<Self> {
        [Self::AfterReceive, Self::BeforeCommit, Self::AfterCommit]
            .into_iter()
            .find(|point| point.code() == code)
    }
}

/// The same store; its process crashes at that point.
pub fn crashing(store: Store, point: CrashPoint) -> Store {
    with_fault(store, &PortFault::DiesAt(point))
}

/// Ends this process with SIGKILL.
fn die() -> ! {
    let pid = std::process::id().to_string();
    drop(Command::new("sh").args(["-c", r#"kill -KILL "$1""#, "kill", &pid]).status());
    // The signal may take a moment; nothing may happen in it.
    loop {
        std::thread::park();
    }
}

/// What happens before and after an operation of a port.
#[derive(Debug, Clone)]
enum PortFault {
    DiesAt(CrashPoint),
    Outage(Arc<Outage>),
    DeletesEarly,
}

/// Which operations are unavailable.
#[derive(Debug, Default)]
pub struct Outage {
    /// Commits fail, while the rest of the ledger works.
    pub commits_unavailable: AtomicBool,
    /// Messages can be received, but neither extended nor deleted.
    pub leases_unavailable: AtomicBool,
    /// Number of messages that were received.
    pub received: AtomicU32,
}

/// The same store; some operations fail while `outage` says so.
pub fn unreliable(store: Store, outage: Arc<Outage>) -> Store {
    with_fault(store, &PortFault::Outage(outage))
}

/// The name of [`deleting_early`] ports on the command line.
pub const DELETES_EARLY: &str = "deletes-early";

/// How long [`deleting_early`] ports hold deleted messages, so that a killed process usually loses some.
const HOLD_TIME: Duration = Duration::from_millis(150);

/// The same store, but a message is deleted as soon as it is received: its work is lost if the process ends
/// before the commit.
pub fn deleting_early(store: Store) -> Store {
    with_fault(store, &PortFault::DeletesEarly)
}

fn with_fault(store: Store, fault: &PortFault) -> Store {
    let ledger = Arc::new(FaultyLedger { inner: Arc::clone(&store.ledger), fault: fault.clone() });
    let queue = Arc::new(FaultyQueue { inner: Arc::clone(&store.queue), fault: fault.clone() });
    Store { ledger, queue, ..store }
}

impl PortFault {
    fn reaches(&self, here: CrashPoint) {
        match self {
            Self::DiesAt(point) if *point == here => die(),
            Self::DiesAt(_) | Self::Outage(_) | Self::DeletesEarly => {}
        }
    }

    fn check_commits(&self) -> Result<(), StoreFault> {
        self.check(|outage| &outage.commits_unavailable)
    }

    fn check_leases(&self) -> Result<(), StoreFault> {
        self.check(|outage| &outage.leases_unavailable)
    }

    fn check(&self, part: impl Fn(&Outage) -> &AtomicBool) -> Result<(), StoreFault> {
        match self {
            Self::Outage(outage) if part(outage).load(Ordering::Relaxed) => Err(StoreFault::Unavailable {
                doing: "an operation that a test disabled",
                source: "an outage".into(),
            }),
            Self::Outage(_) | Self::DiesAt(_) | Self::DeletesEarly => Ok(()),
        }
    }

    fn note_received(&self, messages: &[Message]) {
        if let Self::Outage(outage) = self {
            let count = u32::try_from(messages.len()).expect("at most 32 messages");
            outage.received.fetch_add(count, Ordering::Relaxed);
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
        self.fault.note_received(&messages);
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

    async fn extend(
        &self,
        queue: &QueueName,
        lease: &Lease,
        body: &[u8],
        visibility: Duration,
    ) -> Result<Held<Lease>, StoreFault> {
        self.fault.check_leases()?;
        self.inner.extend(queue, lease, body, visibility).await
    }

    async fn delete(&self, queue: &QueueName, lease: &Lease) -> Result<Held<()>, StoreFault> {
        self.fault.check_leases()?;
        self.inner.delete(queue, lease).await
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
        self.fault.check_commits()?;
        self.fault.reaches(CrashPoint::BeforeCommit);
        let committed = self.inner.commit(commit).await?;
        if matches!(committed, Committed::Done { .. }) {
            self.fault.reaches(CrashPoint::AfterCommit);
        }
        Ok(committed)
    }
}
