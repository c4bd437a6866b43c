//! Second half of the protocol: load → decide → commit. The first half is [`crate::protocol::accept`].
//!
//! **A waiting request, a queued message and a batch item are the same value
//! ([`Pending`](crate::domain::decision::Pending)), posted by the same code ([`writer`]).** The writer makes one attempt:
//!
//! 1. **Load** the account: from the cache, or else from the ledger.
//! 2. **Decide** with a pure function and reserved order numbers.
//! 3. **Commit** account, transactions and journal page in one atomic step under their guards.
//!
//! Who calls it owns the scope, and decides what follows a refusal: [`waiting`] for requests that wait for their outcome,
//! [`queued`] for messages and [`batch`] for items. They differ on purpose:
//!
//! | | waiting | queued | batch |
//! |---|---|---|---|
//! | lock on the account | from the permit to the last retry | over all chunks, retries and pauses | for each attempt, after the permit beside single requests |
//! | permit of the gate | from the lock to the last retry | for each attempt | for each attempt |
//! | account changed | once more, then the queue | once more, from the second time on the rows are read | with accepted rows as a taken key, else again after pauses |
//! | key taken | that request takes the queue | as account changed | its row is read |
//! | accepted work comes first | all take the queue | as account changed | waits, not for ever |
//! | rows changed | as account changed | they are read | they are read |
//! | account unknown | the queue | dead letter | rows with the rejection |
//! | rejection that depends on the balance | takes the queue where the ledger cannot check the order | decided | decided |
//! | panic | the queue | dead letter | dead letter |
//!
//! The other modules reduce the cost: one write for many requests ([`group_commit`]), order numbers from ranges
//! ([`order_numbers`]), and at most one posting at a time for each account in a process ([`account_locks`], [`account_cache`]).
//! [`singles`] counts the requests in progress, which batches make way for, [`posting_latency`] measures how long transactions took
//! and counts them, [`posted_numbers`] records order numbers for finding transactions, and [`traced`] records the writes to the
//! ledger in traces.

pub mod account_cache;
pub mod account_locks;
pub mod batch;
mod fault;
pub mod group_commit;
pub mod order_numbers;
pub mod posted_numbers;
pub mod posting_latency;
pub mod queued;
pub mod singles;
pub mod traced;
pub mod waiting;
pub mod writer;

pub use self::fault::PostFault;
