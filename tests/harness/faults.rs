//! Ports that fail on purpose: the fault points of the tests, outside production code.
//!
//! [`deadly`] ports die at a named point: the process that uses them kills itself with SIGKILL right
//! there, so that nothing is finished, flushed or dropped. [`unreliable`] ports are away while they
//! are told to. [`hasty`] ports make a worker of which tests have to find out that it is wrong.

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
    with_fate(store, &Fate::DiesAt(point))
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
enum Fate {
    DiesAt(Point),
    Weather(Arc<Weather>),
    DeletesEarly,
}

/// What is away at the moment.
#[derive(Debug, Default)]
pub struct Weather {
    /// Nothing can be committed, though the ledger answers otherwise.
    pub commits_away: AtomicBool,
    /// Messages can be received, but neither given back nor deleted.
    pub leases_away: AtomicBool,
    /// Messages that were received so far.
    pub received: AtomicU32,
}

/// The same store, but parts of it are away while the weather says so.
pub fn unreliable(store: Store, weather: Arc<Weather>) -> Store {
    with_fate(store, &Fate::Weather(weather))
}

/// The name of [`hasty`] ports on the command line.
pub const DELETES_EARLY: &str = "deletes-early";

/// How long [`hasty`] ports keep what they deleted, so that who is killed mostly has something in hand.
const HASTE: Duration = Duration::from_millis(150);

/// The same store, but a message is deleted as soon as it is received: its work is lost when whoever
/// received it dies before the commit.
pub fn hasty(store: Store) -> Store {
    with_fate(store, &Fate::DeletesEarly)
}

fn with_fate(store: Store, fate: &Fate) -> Store {
    let ledger = Arc::new(FatefulLedger { inner: Arc::clone(&store.ledger), fate: fate.clone() });
    let queue = Arc::new(FatefulQueue { inner: Arc::clone(&store.queue), fate: fate.clone() });
    Store { ledger, queue, ..store }
}

impl Fate {
    fn strikes(&self, here: Point) {
        match self {
            Self::DiesAt(point) if *point == here => die(),
            Self::DiesAt(_) | Self::Weather(_) | Self::DeletesEarly => {}
        }
    }

    fn check_commits(&self) -> Result<(), StoreFault> {
        self.check(|weather| &weather.commits_away)
    }

    fn check_leases(&self) -> Result<(), StoreFault> {
        self.check(|weather| &weather.leases_away)
    }

    fn check(&self, part: impl Fn(&Weather) -> &AtomicBool) -> Result<(), StoreFault> {
        match self {
            Self::Weather(weather) if part(weather).load(Ordering::Relaxed) => {
                Err(StoreFault::Unavailable { doing: "what a test forbids", source: "bad weather".into() })
            }
            Self::Weather(_) | Self::DiesAt(_) | Self::DeletesEarly => Ok(()),
        }
    }

    fn note_received(&self, messages: &[Message]) {
        if let Self::Weather(weather) = self {
            let count = u32::try_from(messages.len()).expect("at most 32 messages");
            weather.received.fetch_add(count, Ordering::Relaxed);
        }
    }
}

struct FatefulQueue {
    inner: Arc<dyn WorkQueue>,
    fate: Fate,
}

#[async_trait]
impl WorkQueueDecorator for FatefulQueue {
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
        self.fate.note_received(&messages);
        if matches!(self.fate, Fate::DeletesEarly) && !messages.is_empty() {
            for message in &messages {
                drop(self.inner.delete(queue, &message.lease).await?);
            }
            wait::pass(HASTE).await;
        }
        if !messages.is_empty() {
            self.fate.strikes(Point::AfterReceive);
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
        self.fate.check_leases()?;
        self.inner.extend(queue, lease, body, visibility).await
    }

    async fn delete(&self, queue: &QueueName, lease: &Lease) -> Result<Held<()>, StoreFault> {
        self.fate.check_leases()?;
        self.inner.delete(queue, lease).await
    }
}

struct FatefulLedger {
    inner: Arc<dyn Ledger>,
    fate: Fate,
}

#[async_trait]
impl LedgerDecorator for FatefulLedger {
    fn inner(&self) -> &dyn Ledger {
        &*self.inner
    }

    async fn commit(&self, commit: &AccountCommit) -> Result<Committed, StoreFault> {
        self.fate.check_commits()?;
        self.fate.strikes(Point::BeforeCommit);
        let committed = self.inner.commit(commit).await?;
        if matches!(committed, Committed::Done { .. }) {
            self.fate.strikes(Point::AfterCommit);
        }
        Ok(committed)
    }
}
