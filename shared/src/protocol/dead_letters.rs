//! Where work goes that could not be posted, and how a person sends it on or gives it up.
//!
//! Every step is safe to repeat: a letter is written before its queue message is deleted, and
//! resolved after its work was sent again or made final.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::domain::decision::Work;
use crate::domain::ids::{AccountKey, TransactionKey};
use crate::messaging::envelope::seal::Seal;
use crate::messaging::envelope::{self, Body, Content, Name, Names, Unreadable};
use crate::ports::Store;
use crate::ports::dead_letters::{DeadLetter, DeadLetters, Resolution, ResolutionKind};
use crate::ports::doorbell::Doorbell;
use crate::ports::fault::StoreFault;
use crate::ports::ledger::{Ledger, Marks, StoredTransaction};
use crate::ports::queue::{Message, QueueName, WorkQueue};
use crate::ports::world::World;
use crate::protocol::post::{PostFault, Poster};

/// How often a mark is tried anew when the row changes at the same time.
const MARK_ATTEMPTS_MAX: u32 = 5;

/// Most characters of a reason. It may quote what somebody sent, and every store has to be able to keep
/// it: a letter that cannot be written would leave its message on the queue for ever.
pub const REASON_CHARS_MAX: usize = 2000;

/// What became of a person's wish.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decided {
    /// It is done and recorded.
    Done,
    /// There is no such letter.
    Unknown,
    /// Somebody decided about this letter before.
    AlreadyResolved,
}

/// The wish could not be carried out; the letter is still open, and asking again is safe.
#[derive(Debug, thiserror::Error)]
pub enum DeadLetterFault {
    /// The store could not be used.
    #[error("the dead letter could not be resolved")]
    Store(#[from] StoreFault),
    /// Its work could not be made final.
    #[error("the work of the dead letter could not be discarded")]
    Post(#[source] PostFault),
}

impl DeadLetterFault {
    /// Whether trying again later can help.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Store(fault) => fault.is_transient(),
            Self::Post(fault) => fault.is_transient(),
        }
    }
}

/// Sets letters aside, and resolves them.
pub struct DeadLetterService {
    ledger: Arc<dyn Ledger>,
    letters: Arc<dyn DeadLetters>,
    queue: Arc<dyn WorkQueue>,
    poster: Arc<Poster>,
    doorbell: Arc<dyn Doorbell>,
    seal: Seal,
    world: Arc<dyn World>,
    queue_count: u16,
}

impl DeadLetterService {
    /// The office of a store.
    pub fn new(
        store: &Store,
        seal: &Seal,
        poster: Arc<Poster>,
        doorbell: Arc<dyn Doorbell>,
        world: Arc<dyn World>,
        queue_count: u16,
    ) -> Self {
        let (ledger, letters, queue) =
            (Arc::clone(&store.ledger), Arc::clone(&store.dead_letters), Arc::clone(&store.queue));
        let seal = seal.clone();
        Self { ledger, letters, queue, poster, doorbell, seal, world, queue_count }
    }

    /// Keeps a message for a person, and marks the transactions that are `held` in it, so that repair stays
    /// away; not those that a message without a seal only names. The caller deletes the message afterwards,
    /// and only then.
    ///
    /// # Errors
    /// [`StoreFault`] when that could not be done whole; the message must stay on the queue.
    pub async fn set_aside(
        &self,
        queue: &QueueName,
        message: &Message,
        held: &[TransactionKey],
        reason: &str,
    ) -> Result<(), StoreFault> {
        let letter = DeadLetter {
            id: message.lease.message_id.clone(),
            queue: queue.clone(),
            reason: reason.chars().take(REASON_CHARS_MAX).collect(),
            body: message.body.clone(),
            dequeue_count: message.dequeue_count,
            inserted_at: message.inserted_at,
            dead_at: self.world.now(),
            resolution: None,
        };
        self.letters.add(&letter).await?;
        for key in held {
            match self.mark(key, true).await {
                Ok(_) => {}
                Err(fault) if fault.is_transient() => return Err(fault),
                // Such a row cannot be marked, and the letter is written: it is for a person now.
                Err(fault) => tracing::warn!(transaction = %key, "Could not mark a transaction: {fault}"),
            }
        }
        Ok(())
    }

    /// Sends the work of a letter again.
    ///
    /// # Errors
    /// [`DeadLetterFault`]: some of the work may have been sent, which does no harm.
    pub async fn replay(&self, id: &str, by: &str) -> Result<Decided, DeadLetterFault> {
        let letter = match self.open_letter(id).await? {
            Ok(letter) => letter,
            Err(decided) => return Ok(decided),
        };
        match Body::decode(&letter.body, &self.seal) {
            Ok(Body::Content(Content::Work(envelope))) => {
                self.send_again(&envelope.items, envelope.traceparent.as_deref()).await?;
            }
            Ok(Body::Content(Content::Names(names))) => self.send_named_again(&names, &letter.queue).await?,
            // What is in the payload may have been changed since: the worker decides when it receives it.
            Ok(Body::Claim(_)) => self.send(&letter.queue, &letter.body).await?,
            Err(Unreadable::Items { readable, bad, .. }) => {
                self.send_again(&readable, None).await?;
                // A letter holds more than a message does.
                for part in envelope::pack_raw(&bad) {
                    self.send(&letter.queue, &part).await?;
                }
            }
            // Perhaps a newer worker can read it, or what a direct producer wrote is acceptable by now;
            // if not, it comes back as another letter.
            Err(
                Unreadable::Newer(_)
                | Unreadable::Unsealed(_)
                | Unreadable::Malformed(_)
                | Unreadable::Damaged { .. }
                | Unreadable::Empty,
            ) => self.send(&letter.queue, &letter.body).await?,
        }
        self.resolve(id, ResolutionKind::Replayed, by).await
    }

    /// Gives up the work of a letter: what is not final is rejected with the reason `discarded`. A letter
    /// without a seal may name any transaction: of these, only those are given up that are marked as lying
    /// in the dead letters. A letter of a claim gives up nothing: its transactions were not marked with it, and
    /// others may have changed the payload since; what is not final of them, repair sends again.
    ///
    /// # Errors
    /// [`DeadLetterFault`]: some of the work may be rejected already.
    pub async fn discard(&self, id: &str, by: &str) -> Result<Decided, DeadLetterFault> {
        let letter = match self.open_letter(id).await? {
            Ok(letter) => letter,
            Err(decided) => return Ok(decided),
        };
        // The marks stay: until the work is final, they keep repair away from what was given up.
        let mut by_account: BTreeMap<AccountKey, BTreeMap<TransactionKey, Work>> = BTreeMap::new();
        let (keys, marked_only) = match held(Body::decode(&letter.body, &self.seal)) {
            Held::Sealed(keys) => (keys, false),
            Held::Unsealed(keys) => (keys, true),
        };
        for key in keys {
            let stored = self.ledger.transaction(&key).await?;
            let stored = stored.filter(|stored| stored.marks.dead_letter || !marked_only);
            if let Some(work) = stored.and_then(|stored| stored.work()) {
                by_account.entry(work.key.account).or_default().insert(work.key.clone(), work);
            }
        }
        for (account, work) in by_account {
            let settled = self.poster.discard(account, work.into_values().collect()).await;
            if let Some(fault) = settled.into_iter().find_map(|(_, result)| result.err()) {
                return Err(DeadLetterFault::Post(fault));
            }
        }
        self.resolve(id, ResolutionKind::Discarded, by).await
    }

    async fn open_letter(&self, id: &str) -> Result<Result<DeadLetter, Decided>, StoreFault> {
        Ok(match self.letters.find(id).await? {
            None => Err(Decided::Unknown),
            Some(letter) if letter.resolution.is_some() => Err(Decided::AlreadyResolved),
            Some(letter) => Ok(letter),
        })
    }

    async fn resolve(&self, id: &str, kind: ResolutionKind, by: &str) -> Result<Decided, DeadLetterFault> {
        let resolution = Resolution { kind, by: by.to_owned(), at: self.world.now() };
        let resolved = self.letters.resolve(id, &resolution).await?;
        tracing::info!(dead_letter = id, by, "A person {} dead letter {id}", kind.code());
        Ok(if resolved { Decided::Done } else { Decided::AlreadyResolved })
    }

    /// Sends work that is not final, each key once and as its row now is. Work that the log does not
    /// know goes as it came: perhaps the log will know it again.
    async fn send_again(&self, items: &[Work], traceparent: Option<&str>) -> Result<(), StoreFault> {
        let mut open: BTreeMap<&TransactionKey, Work> = BTreeMap::new();
        for item in items {
            match self.mark(&item.key, false).await? {
                Marked::Open(work) => drop(open.insert(&item.key, *work)),
                Marked::Unknown => drop(open.insert(&item.key, item.clone())),
                Marked::Final => {}
            }
        }
        self.send_each(open.into_values(), traceparent).await
    }

    /// Sends work in one message each: a bad one must not drag others along.
    async fn send_each(
        &self,
        work: impl Iterator<Item = Work>,
        traceparent: Option<&str>,
    ) -> Result<(), StoreFault> {
        for work in work {
            let queue = envelope::queue_of(work.key.account, self.queue_count);
            for envelope in envelope::pack(std::slice::from_ref(&work), traceparent) {
                self.send(&queue, &envelope.encode(&self.seal)).await?;
            }
        }
        Ok(())
    }

    /// Sends what a letter without a seal names: known transactions as their rows say, and the rest as it
    /// came, which stays without a seal.
    async fn send_named_again(&self, names: &Names, queue: &QueueName) -> Result<(), StoreFault> {
        let mut known: BTreeMap<&TransactionKey, Work> = BTreeMap::new();
        let mut rest: Vec<&Name> = Vec::new();
        for name in names.items() {
            let marked = match &name.key {
                Some(key) => self.mark(key, false).await?,
                None => Marked::Unknown,
            };
            match (marked, &name.key) {
                (Marked::Open(work), Some(key)) => drop(known.insert(key, *work)),
                (Marked::Final, _) => {}
                (Marked::Open(_) | Marked::Unknown, _) => rest.push(name),
            }
        }
        self.send_each(known.into_values(), None).await?;
        if rest.is_empty() {
            return Ok(());
        }
        for part in envelope::pack_raw(&Names::body_of(rest)) {
            self.send(queue, &part).await?;
        }
        Ok(())
    }

    async fn send(&self, queue: &QueueName, body: &[u8]) -> Result<(), StoreFault> {
        self.queue.send(queue, body, Duration::ZERO).await?;
        self.doorbell.ring(queue);
        Ok(())
    }

    /// Sets or clears the mark on a transaction that is not final.
    async fn mark(&self, key: &TransactionKey, dead_letter: bool) -> Result<Marked, StoreFault> {
        for _ in 0..MARK_ATTEMPTS_MAX {
            let Some(stored) = self.ledger.transaction(key).await? else { return Ok(Marked::Unknown) };
            let Some(found) = stored.work() else { return Ok(Marked::Final) };
            let StoredTransaction { marks, revision, .. } = stored;
            if marks.dead_letter == dead_letter {
                return Ok(Marked::Open(Box::new(found)));
            }
            let marked = self.ledger.mark(key, &revision, Marks { dead_letter, ..marks }).await?;
            if let Some(revision) = marked {
                return Ok(Marked::Open(Box::new(Work { revision, ..found })));
            }
        }
        let source = format!("transaction {key} changed {MARK_ATTEMPTS_MAX} times").into();
        Err(StoreFault::Unavailable { doing: "marking a transaction", source })
    }
}

/// The transactions that a letter holds, as far as they can be read.
enum Held {
    /// Under a seal: it is their letter.
    Sealed(BTreeSet<TransactionKey>),
    /// Without one: it only names them.
    Unsealed(BTreeSet<TransactionKey>),
}

fn held(body: Result<Body, Unreadable>) -> Held {
    let keys = |items: Vec<Work>| Held::Sealed(items.into_iter().map(|work| work.key).collect());
    match body {
        Ok(Body::Content(Content::Work(envelope))) => keys(envelope.items),
        Ok(Body::Content(Content::Names(names))) => {
            Held::Unsealed(names.keys().into_iter().cloned().collect())
        }
        Err(Unreadable::Items { readable, .. }) => keys(readable),
        Ok(Body::Claim(_))
        | Err(
            Unreadable::Newer(_)
            | Unreadable::Unsealed(_)
            | Unreadable::Malformed(_)
            | Unreadable::Damaged { .. }
            | Unreadable::Empty,
        ) => Held::Unsealed(BTreeSet::new()),
    }
}

/// A transaction whose mark was to be changed.
enum Marked {
    /// It is not final; its work as its row now is.
    Open(Box<Work>),
    /// It is final: marks have no meaning any more.
    Final,
    /// The log does not know it.
    Unknown,
}
