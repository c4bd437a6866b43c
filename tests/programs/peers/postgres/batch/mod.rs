//! Batches: many instructions in one NDJSON document, posted by one database transaction.
//!
//! 1. The document is read while it arrives; its items are copied in binary form to a temporary table ([`document`]).
//! 2. One database transaction posts them: [`posting`] describes its statements. It also inserts the row of the batch,
//!    whose unique key makes a repeated batch a replay.
//!
//! The answer is sent after the commit, as for single requests, so an accepted batch is completed and durable. An item
//! that does not parse is counted as invalid; one that a single request would refuse (unknown account, other currency,
//! known id with other content) is counted as refused.
//!
//! | choice | why |
//! |---|---|
//! | a temporary table | it is not logged; after a crash the client sends the document again |
//! | all accounts are locked first | what an item writes is then known without its update, and the rows are inserted in the order of the indexes: a fifth faster than to join the items with the updated balances |
//! | one update of an account | one new version of its row, instead of one for each item |
//! | accounts that would be overdrawn, and those with a repeated id, in turn | an item then depends on the outcome of the items before it, which a window function cannot express |

mod document;
mod posting;

use std::sync::Arc;
use std::time::SystemTime;

use actix_web::web::Payload;
use deadpool_postgres::Pool;
use serde::Serialize;
use tokio_postgres::Row;
use uuid::Uuid;

pub use self::posting::CREATE_POST_IN_TURN;
use crate::peers::postgres::answer::Refusal;
use crate::peers::postgres::counts::Counts;
use crate::peers::postgres::fault::Fault;

/// Attempts to post a batch. Another is necessary if a concurrent single request posts an id of the batch.
const ATTEMPTS_MAX: usize = 5;

/// A completed batch.
#[derive(Debug, Serialize)]
pub struct Batch {
    batch_id: Uuid,
    phase: &'static str,
    items: i64,
    posted: i64,
    rejected: i64,
    refused: i64,
    replayed: i64,
    invalid: i64,
}

/// The outcome of a batch that was sent.
#[derive(Debug)]
pub enum Submitted {
    /// Posted now.
    Posted(Batch),
    /// The id is known with the same content.
    Replayed(Batch),
}

/// The batches, for the requests of one thread.
#[derive(Debug)]
pub struct Batches {
    pool: Pool,
    counts: Arc<Counts>,
}

impl Batches {
    /// The batches in the database of the pool.
    pub const fn new(pool: Pool, counts: Arc<Counts>) -> Self {
        Self { pool, counts }
    }

    /// Receives a document and posts its items, unless the id is known.
    pub async fn submit(&self, id: Uuid, at: SystemTime, body: Payload) -> Result<Submitted, Refusal> {
        let mut client = self.pool.get().await.map_err(Fault::from)?;
        self.counts.round_trip();
        let received = document::receive(&client, body).await?;
        let mut attempts: usize = 1;
        let outcome = loop {
            match posting::post(&mut client, id, &received, at).await {
                Err(fault) if fault.is_duplicate() && attempts < ATTEMPTS_MAX => {
                    attempts = attempts.saturating_add(1);
                }
                Err(fault) if fault.is_out_of_range() => return Err(Refusal::AmountOutOfRange),
                outcome => break outcome?,
            }
        };
        document::discard(&client).await?;
        drop(client);
        let (batch, content) = self.stored(id).await?.ok_or(Refusal::BatchUnknown)?;
        match outcome {
            posting::Outcome::Posted => {
                self.counts.posted(u64::try_from(batch.posted).unwrap_or(0));
                Ok(Submitted::Posted(batch))
            }
            posting::Outcome::Known if content == received.content => Ok(Submitted::Replayed(batch)),
            posting::Outcome::Known => Err(Refusal::IdempotencyKeyReused),
        }
    }

    /// A completed batch.
    pub async fn find(&self, id: Uuid) -> Result<Option<Batch>, Fault> {
        Ok(self.stored(id).await?.map(|(batch, _)| batch))
    }

    /// A completed batch and the digest of its document.
    async fn stored(&self, id: Uuid) -> Result<Option<(Batch, Vec<u8>)>, Fault> {
        let client = self.pool.get().await?;
        let statement = client.prepare_cached("SELECT * FROM batches WHERE id = $1").await?;
        self.counts.round_trip();
        client.query_opt(&statement, &[&id]).await?.as_ref().map(read).transpose()
    }
}

fn read(row: &Row) -> Result<(Batch, Vec<u8>), Fault> {
    let batch = Batch {
        batch_id: row.try_get("id")?,
        phase: "completed",
        items: row.try_get("items")?,
        posted: row.try_get("posted")?,
        rejected: row.try_get("rejected")?,
        refused: row.try_get("refused")?,
        replayed: row.try_get("replayed")?,
        invalid: row.try_get("invalid")?,
    };
    Ok((batch, row.try_get("content")?))
}
