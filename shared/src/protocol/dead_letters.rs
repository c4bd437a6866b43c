//! Sets aside work that could not be posted, and lets operators replay or discard it.
//!
//! Every step can be repeated safely: a dead letter is written before its queue message is deleted, and resolved after
//! its work was sent again or made final.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::access::partner_cache::Standing;
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
use crate::posting::PostFault;
use crate::posting::queued::Poster;

/// Largest number of attempts to change a mark while the row changes concurrently.
const MARK_ATTEMPTS_MAX: u32 = 5;

/// Largest number of characters in a reason, which may quote any input. Every store must be able to keep it: a message
/// whose dead letter cannot be written would stay on the queue for ever.
pub const REASON_CHARS_MAX: usize = 2000;

/// Result of resolving a dead letter.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResolveOutcome {
    /// The dead letter was replayed or discarded, and this was recorded.
    Done,
    /// There is no dead letter with this id.
    Unknown,
    /// The dead letter was resolved before.
    AlreadyResolved,
}

/// Error: a dead letter could not be resolved. It is still open, and repeating the call is safe.
#[derive(Debug, thiserror::Error)]
pub enum DeadLetterFault {
    /// The store could not be used.
    #[error("the dead letter could not be resolved")]
    Store(#[from] StoreFault),
    /// The work could not be made final.
    #[error("the work of the dead letter could not be discarded")]
    Post(#[source] PostFault),
}

impl DeadLetterFault {
    /// Returns whether a retry later can succeed.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Store(fault) => fault.is_transient(),
            Self::Post(fault) => fault.is_transient(),
        }
    }
}

/// Creates dead letters, and resolves them.
#[derive(Clone)]
pub struct DeadLetterService {
    ledger: Arc<dyn Ledger>,
    letters: Arc<dyn DeadLetters>,
    queue: Arc<dyn WorkQueue>,
    poster: Arc<Poster>,
    doorbell: Arc<dyn Doorbell>,
    seal: Seal,
    world: Arc<dyn World>,
    queue_count: u16,
    standing: Standing,
}

impl DeadLetterService {
    /// Creates the service for a store.
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
        let (seal, standing) = (seal.clone(), Standing::ALWAYS);
        Self { ledger, letters, queue, poster, doorbell, seal, world, queue_count, standing }
    }

    /// Returns the service for an operator, which carries out nothing of a decision once the rights of the operator have changed.
    pub fn acting_on(&self, standing: &Standing) -> Self {
        Self { standing: standing.clone(), ..self.clone() }
    }

    /// Stores a message as a dead letter and marks the transactions in `contained`, so that repair does not send them.
    /// `contained` must not include transactions that an unsealed message only names. The caller deletes the message
    /// after this call has succeeded.
    ///
    /// If an earlier call was incomplete, an operator may have resolved the dead letter since. The open work is then
    /// sent again: a mark without an open dead letter would prevent it from being posted for ever.
    ///
    /// # Errors
    /// [`StoreFault`] if the dead letter, a mark or work could not be written or sent. The message must stay on the queue.
    pub async fn set_aside(
        &self,
        queue: &QueueName,
        message: &Message,
        contained: &[TransactionKey],
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
        for key in contained {
            let _marked = skip_damaged(key, self.mark(key, true).await)?;
        }
        // Read after the marks, so that an operator who resolves the dead letter later finds them.
        if let Ok(_open) = self.open_letter(&letter.id).await? {
            return Ok(());
        }
        self.send_marked_again(contained).await
    }

    /// Sends open work again that is still marked after its dead letter was resolved.
    async fn send_marked_again<'a>(
        &self,
        keys: impl IntoIterator<Item = &'a TransactionKey>,
    ) -> Result<(), StoreFault> {
        for key in keys {
            let stored = skip_damaged(key, self.ledger.transaction(key).await)?.flatten();
            if !stored.is_some_and(|stored| stored.marks.dead_letter) {
                continue;
            }
            if let Some(Marked::Open(work)) = skip_damaged(key, self.mark(key, false).await)? {
                self.send_each(std::iter::once(*work)).await?;
            }
        }
        Ok(())
    }

    /// Replays a dead letter: sends its work again.
    ///
    /// # Errors
    /// [`DeadLetterFault`]; some of the work may have been sent, which is harmless.
    pub async fn replay(&self, id: &str, by: &str) -> Result<ResolveOutcome, DeadLetterFault> {
        let letter = match self.open_letter(id).await? {
            Ok(letter) => letter,
            Err(decided) => return Ok(decided),
        };
        self.standing.check("replaying a dead letter")?;
        match self.content_of(&letter) {
            Ok(Body::Content(Content::Work(envelope))) => {
                self.send_again(&envelope.items).await?;
            }
            Ok(Body::Content(Content::Names(names))) => self.send_named_again(&names, &letter.queue).await?,
            // The payload may have changed since. The worker checks it when it receives the claim.
            Ok(Body::Claim(_)) => self.send(&letter.queue, &letter.body).await?,
            Err(Unreadable::Items { readable, bad, .. }) => {
                self.send_again(&readable).await?;
                // A dead letter can be larger than a message.
                for part in envelope::pack_raw(&bad) {
                    self.send(&letter.queue, &part).await?;
                }
            }
            // A newer worker may decode it, or the order of a direct producer may be accepted by now. Otherwise it is set aside again.
            Err(
                Unreadable::Newer(_)
                | Unreadable::Unsealed(_)
                | Unreadable::Malformed(_)
                | Unreadable::Damaged { .. }
                | Unreadable::Empty,
            ) => self.send(&letter.queue, &letter.body).await?,
        }
        let resolved = self.resolve(id, ResolutionKind::Replayed, by).await?;
        // If an earlier call was incomplete, a worker may have set the message aside again after the marks were
        // cleared. From now on, a worker that does so finds the dead letter resolved.
        let (LetterKeys::Sealed(keys) | LetterKeys::Unsealed(keys)) = keys_of(self.content_of(&letter));
        self.send_marked_again(&keys).await?;
        Ok(resolved)
    }

    /// Discards the work of a dead letter: open transactions are rejected with the reason `discarded`. An unsealed dead letter
    /// may name any transaction, so only those with a dead-letter mark are discarded. A dead letter with a claim discards
    /// nothing: its transactions were not marked, and the payload may have changed since. Repair sends the open ones again.
    ///
    /// # Errors
    /// [`DeadLetterFault`]; some of the work may already be rejected.
    pub async fn discard(&self, id: &str, by: &str) -> Result<ResolveOutcome, DeadLetterFault> {
        let letter = match self.open_letter(id).await? {
            Ok(letter) => letter,
            Err(decided) => return Ok(decided),
        };
        // The marks are kept: they prevent repair from sending the work until it is final.
        let mut by_account: BTreeMap<AccountKey, BTreeMap<TransactionKey, Work>> = BTreeMap::new();
        let (keys, marked_only) = match keys_of(self.content_of(&letter)) {
            LetterKeys::Sealed(keys) => (keys, false),
            LetterKeys::Unsealed(keys) => (keys, true),
        };
        for key in keys {
            let stored = self.ledger.transaction(&key).await?;
            let stored = stored.filter(|stored| stored.marks.dead_letter || !marked_only);
            if let Some(work) = stored.and_then(|stored| stored.work()) {
                by_account
                    .entry(work.submission.key.account)
                    .or_default()
                    .insert(work.submission.key.clone(), work);
            }
        }
        for (account, work) in by_account {
            self.standing.check("discarding a dead letter")?;
            let settled = self.poster.discard(account, work.into_values().collect()).await;
            if let Some(fault) = settled.into_iter().find_map(|(_, result)| result.err()) {
                return Err(DeadLetterFault::Post(fault));
            }
        }
        self.resolve(id, ResolutionKind::Discarded, by).await
    }

    /// Decodes the body. That of a direct producer is none of the bank's, even if it is a copy of a sealed message.
    fn content_of(&self, letter: &DeadLetter) -> Result<Body, Unreadable> {
        match letter.queue.ingest() {
            Some(_) => Err(Unreadable::Empty),
            None => Body::decode(&letter.body, &self.seal),
        }
    }

    async fn open_letter(&self, id: &str) -> Result<Result<DeadLetter, ResolveOutcome>, StoreFault> {
        Ok(match self.letters.find(id).await? {
            None => Err(ResolveOutcome::Unknown),
            Some(letter) if letter.resolution.is_some() => Err(ResolveOutcome::AlreadyResolved),
            Some(letter) => Ok(letter),
        })
    }

    async fn resolve(
        &self,
        id: &str,
        kind: ResolutionKind,
        by: &str,
    ) -> Result<ResolveOutcome, DeadLetterFault> {
        self.standing.check("resolving a dead letter")?;
        let resolution = Resolution { kind, by: by.to_owned(), at: self.world.now() };
        let resolved = self.letters.resolve(id, &resolution).await?;
        if !resolved {
            return Ok(ResolveOutcome::AlreadyResolved);
        }
        tracing::info!(dead_letter = id, by, "An operator {} dead letter {id}", kind.code());
        Ok(ResolveOutcome::Done)
    }

    /// Sends open work again, each key once, as in its row, or unchanged while there is no row: it may be written later.
    async fn send_again(&self, items: &[Work]) -> Result<(), StoreFault> {
        let mut open: BTreeMap<&TransactionKey, Work> = BTreeMap::new();
        for item in items {
            self.standing.check("replaying a dead letter")?;
            match self.mark(&item.submission.key, false).await? {
                Marked::Open(work) => drop(open.insert(&item.submission.key, *work)),
                Marked::Unknown => drop(open.insert(&item.submission.key, item.clone())),
                Marked::Final => {}
            }
        }
        self.send_each(open.into_values()).await
    }

    /// Sends each transaction in its own message, so that one that fails does not affect the others.
    async fn send_each(&self, work: impl Iterator<Item = Work>) -> Result<(), StoreFault> {
        for work in work {
            let queue = envelope::queue_of(work.submission.key.account, self.queue_count);
            for envelope in envelope::pack(std::slice::from_ref(&work)) {
                self.send(&queue, &envelope.encode(&self.seal)).await?;
            }
        }
        Ok(())
    }

    /// Sends the work of an unsealed dead letter again: known transactions as in their rows, other items unchanged and
    /// without a seal.
    async fn send_named_again(&self, names: &Names, queue: &QueueName) -> Result<(), StoreFault> {
        let mut known: BTreeMap<&TransactionKey, Work> = BTreeMap::new();
        let mut rest: Vec<&Name> = Vec::new();
        for name in names.items() {
            self.standing.check("replaying a dead letter")?;
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
        self.send_each(known.into_values()).await?;
        if rest.is_empty() {
            return Ok(());
        }
        for part in envelope::pack_raw(&Names::body_of(rest)) {
            self.send(queue, &part).await?;
        }
        Ok(())
    }

    async fn send(&self, queue: &QueueName, body: &[u8]) -> Result<(), StoreFault> {
        let sent = self.queue.send(queue, body, Duration::ZERO).await;
        // Ring after a fault, too: the message may have arrived.
        self.doorbell.ring(queue);
        sent
    }

    /// Sets or clears the dead-letter mark of a transaction that is not final.
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
                return Ok(Marked::Open(Box::new(Work { row: revision, ..found })));
            }
        }
        let source = format!("transaction {key} changed {MARK_ATTEMPTS_MAX} times").into();
        Err(StoreFault::Unavailable { doing: "marking a transaction", source })
    }
}

/// The keys of the transactions in a dead letter; empty if it cannot be decoded.
enum LetterKeys {
    /// The dead letter is sealed and contains their work.
    Sealed(BTreeSet<TransactionKey>),
    /// The dead letter has no valid seal and only names them.
    Unsealed(BTreeSet<TransactionKey>),
}

/// Returns `None` for a damaged row. It cannot be marked, but its dead letter is written and an operator handles it.
fn skip_damaged<T>(key: &TransactionKey, result: Result<T, StoreFault>) -> Result<Option<T>, StoreFault> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(fault) if fault.is_transient() => Err(fault),
        Err(fault) => {
            tracing::warn!(transaction = %key, "Mark of a dead letter not changed: {fault}");
            Ok(None)
        }
    }
}

fn keys_of(body: Result<Body, Unreadable>) -> LetterKeys {
    let keys =
        |items: Vec<Work>| LetterKeys::Sealed(items.into_iter().map(|work| work.submission.key).collect());
    match body {
        Ok(Body::Content(Content::Work(envelope))) => keys(envelope.items),
        Ok(Body::Content(Content::Names(names))) => {
            LetterKeys::Unsealed(names.keys().into_iter().cloned().collect())
        }
        Err(Unreadable::Items { readable, .. }) => keys(readable),
        Ok(Body::Claim(_))
        | Err(
            Unreadable::Newer(_)
            | Unreadable::Unsealed(_)
            | Unreadable::Malformed(_)
            | Unreadable::Damaged { .. }
            | Unreadable::Empty,
        ) => LetterKeys::Unsealed(BTreeSet::new()),
    }
}

enum Marked {
    /// The transaction is not final. Contains its work with the current content of the row.
    Open(Box<Work>),
    /// The transaction is final, so marks have no effect.
    Final,
    /// The log does not contain the transaction.
    Unknown,
}
