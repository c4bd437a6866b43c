//! Second half of the protocol: load → decide → commit. The first half is [`crate::protocol::accept`].
//!
//! **A waiting request, a queued message and a batch item are the same value
//! ([`Pending`](crate::domain::decision::Pending)), posted by the same code ([`writer`]).** The writer makes one attempt:
//!
//! 1. **Load** the account: from the cache, or else from the ledger.
//! 2. **Decide** with a pure function and reserved order numbers.
//! 3. **Commit** account, transactions and journal page in one atomic step under their guards.
//!
//! The callers own the scope of a commit and decide what follows a refusal: [`waiting`] for requests that wait for
//! their outcome, [`queued`] for messages, and [`batch`] for items. They differ on purpose:
//!
//! | | waiting | queued | batch |
//! |---|---|---|---|
//! | lock on the account | from before the permit to the last retry | over all chunks, retries and pauses | for each attempt, after the permit beside single requests |
//! | permit of the gate | under the lock, to the last retry | for each attempt | for each attempt |
//! | account changed | once more, then the queue | once more, then the rows are read each time | as a taken key with accepted rows, else again after pauses |
//! | key taken | that request takes the queue | as account changed | its row is read |
//! | accepted work comes first | all take the queue | as account changed | waits for a limited time |
//! | rows changed | as account changed | they are read | they are read |
//! | account unknown | the queue | dead letter | rows with the rejection |
//! | rejection that depends on the balance | takes the queue where the ledger cannot check the order | decided | decided |
//! | panic | the queue | dead letter | dead letter |
//!
//! The other modules reduce costs: [`group_commit`] makes one write of many requests, [`order_numbers`] reserves ranges
//! of numbers, and [`account_locks`] and [`account_cache`] avoid conflicts and reads by serializing the postings of an
//! account in a process. [`commit_permits`] counts the requests in progress, to which batches give priority.
//! [`posting_latency`] counts transactions and measures their latency, [`posted_numbers`] makes transactions findable
//! by order number, and [`spans`] records writes to the ledger in traces.

pub mod account_cache;
pub mod account_locks;
pub mod batch;
pub mod commit_permits;
mod fault;
pub mod group_commit;
pub mod order_numbers;
pub mod posted_numbers;
pub mod posting_latency;
pub mod queued;
pub mod spans;
pub mod waiting;
pub mod writer;

pub use self::fault::PostFault;
