//! Ports that die at a named point: the fault points of the tests, outside production code.
//!
//! The process that uses them kills itself with SIGKILL right there, so that nothing is finished,
//! flushed or dropped.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use postonce_shared::domain::account::{Account, Revision, Versioned};
use postonce_shared::domain::decision::AccountCommit;
use postonce_shared::domain::ids::{AccountKey, TransactionKey};
use postonce_shared::ports::Store;
use postonce_shared::ports::fault::StoreFault;
use postonce_shared::ports::ledger::{
    AcceptOutcome, Committed, Ledger, Marks, NewTransaction, StoredTransaction,
};
use postonce_shared::ports::queue::{Backlog, Held, Lease, Message, QueueName, WorkQueue};

/// Where a worker dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Point {
    /// Messages were received; nothing was decided.
    AfterReceive,
    /// A commit was decided; nothing was written.
    BeforeCommit,
    /// A commit was written; its message was not deleted.
    AfterCommit,
}

impl Point {
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

/// The same store, but whoever uses it dies at that point.
pub fn deadly(store: Store, point: Point) -> Store {
    let ledger = Arc::new(DeadlyLedger { inner: Arc::clone(&store.ledger), point });
    let queue = Arc::new(DeadlyQueue { inner: Arc::clone(&store.queue), point });
    Store { ledger, queue, ..store }
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

struct DeadlyQueue {
    inner: Arc<dyn WorkQueue>,
    point: Point,
}

#[async_trait]
impl WorkQueue for DeadlyQueue {
    async fn send(&self, queue: &QueueName, body: &[u8], delay: Duration) -> Result<(), StoreFault> {
        self.inner.send(queue, body, delay).await
    }

    async fn receive(
        &self,
        queue: &QueueName,
        max: usize,
        visibility: Duration,
    ) -> Result<Vec<Message>, StoreFault> {
        let messages = self.inner.receive(queue, max, visibility).await?;
        if self.point == Point::AfterReceive && !messages.is_empty() {
            die();
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
        self.inner.extend(queue, lease, body, visibility).await
    }

    async fn delete(&self, queue: &QueueName, lease: &Lease) -> Result<Held<()>, StoreFault> {
        self.inner.delete(queue, lease).await
    }

    async fn backlog(&self, queue: &QueueName) -> Result<Backlog, StoreFault> {
        self.inner.backlog(queue).await
    }
}

struct DeadlyLedger {
    inner: Arc<dyn Ledger>,
    point: Point,
}

#[async_trait]
impl Ledger for DeadlyLedger {
    async fn accept(&self, group: &[NewTransaction]) -> Result<Vec<AcceptOutcome>, StoreFault> {
        self.inner.accept(group).await
    }

    async fn commit(&self, commit: &AccountCommit) -> Result<Committed, StoreFault> {
        if self.point == Point::BeforeCommit {
            die();
        }
        let committed = self.inner.commit(commit).await?;
        if self.point == Point::AfterCommit && matches!(committed, Committed::Done { .. }) {
            die();
        }
        Ok(committed)
    }

    async fn account(&self, key: AccountKey) -> Result<Option<Versioned<Account>>, StoreFault> {
        self.inner.account(key).await
    }

    async fn transaction(&self, key: &TransactionKey) -> Result<Option<StoredTransaction>, StoreFault> {
        self.inner.transaction(key).await
    }

    async fn mark(
        &self,
        key: &TransactionKey,
        revision: &Revision,
        marks: Marks,
    ) -> Result<Option<Revision>, StoreFault> {
        self.inner.mark(key, revision, marks).await
    }

    async fn probe(&self) -> Result<(), StoreFault> {
        self.inner.probe().await
    }
}
