//! The work queue, with the semantics of an Azure queue. A received message is hidden for its visibility timeout. Each
//! receive issues a random pop receipt, and only the newest one is valid.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension as _};

use super::columns;
use super::database::Database;
use super::fault::SqlFault;
use super::meter;
use super::writer::Verdict;
use crate::domain::time::Timestamp;
use crate::ports::fault::StoreFault;
use crate::ports::queue::{BODY_BYTES_MAX, Backlog, Held, Lease, Message, QueueName, RECEIVE_MAX, WorkQueue};
use crate::ports::world::World;

pub(super) struct SqliteQueue {
    database: Arc<Database>,
}

impl SqliteQueue {
    pub(super) fn new(database: Arc<Database>) -> Self {
        Self { database }
    }
}

#[async_trait]
impl WorkQueue for SqliteQueue {
    async fn send(&self, queue: &QueueName, body: &[u8], delay: Duration) -> Result<(), StoreFault> {
        let doing = "sending a queue message";
        check_size(body).map_err(|fault| fault.doing(doing))?;
        let (queue, body, world) = (queue.clone(), body.to_vec(), self.database.world());
        let job = move |connection: &_| {
            let now = world.now();
            insert(connection, &queue, &body, now, now.after(delay))?;
            Ok(Verdict::Keep(()))
        };
        self.database.write(meter::QUEUE_SEND, doing, job).await?;
        if delay.is_zero() {
            self.database.note_queued();
        }
        Ok(())
    }

    async fn receive(
        &self,
        queue: &QueueName,
        max: usize,
        visibility: Duration,
    ) -> Result<Vec<Message>, StoreFault> {
        let doing = "receiving queue messages";
        // A reader first checks for visible messages, so that an idle listener does not take the write lock. The check
        // is skipped if this process has just enqueued a message.
        if self.database.take_queued() {
            self.database.count(meter::QUEUE_RECEIVE);
        } else {
            let (name, world) = (queue.clone(), self.database.world());
            let check = move |connection: &_| any_visible(connection, &name, world.now());
            if !self.database.read(meter::QUEUE_RECEIVE, doing, check).await? {
                return Ok(Vec::new());
            }
        }
        let (queue, world) = (queue.clone(), self.database.world());
        let job = move |connection: &_| receive(connection, &queue, max, visibility, &*world);
        self.database.write_uncounted(doing, job).await
    }

    async fn extend(
        &self,
        queue: &QueueName,
        lease: &Lease,
        body: &[u8],
        visibility: Duration,
    ) -> Result<Held<Lease>, StoreFault> {
        let doing = "extending the lease on a queue message";
        let Some((id, receipt)) = numbers(lease) else { return Ok(Held::Lost) };
        let (queue, body, world) = (queue.clone(), body.to_vec(), self.database.world());
        let job = move |connection: &Connection| {
            let sql = "UPDATE queue_messages SET visible_at = ?1, pop_receipt = ?2
                       WHERE id = ?3 AND queue = ?4 AND pop_receipt = ?5";
            let (visible_at, renewed) = (world.now().after(visibility), world.random());
            let changes = (visible_at.unix_ms(), renewed.cast_signed(), id, queue.as_str(), receipt);
            if connection.prepare_cached(sql)?.execute(changes)? != 1 {
                return Ok(Verdict::Undo(Held::Lost));
            }
            // A renewal usually passes the same body, and the large row is then not rewritten.
            let sql = "UPDATE queue_bodies SET body = ?1 WHERE id = ?2 AND body <> ?1";
            // A message of another program may exceed the limit. It may keep its body, but no new body may exceed the limit.
            if connection.prepare_cached(sql)?.execute((&body, id))? > 0 {
                check_size(&body)?;
            }
            Ok(Verdict::Keep(Held::Ours(lease_of(id, renewed))))
        };
        self.database.write(meter::QUEUE_UPDATE, doing, job).await
    }

    async fn delete(&self, queue: &QueueName, lease: &Lease) -> Result<Held<()>, StoreFault> {
        let Some((id, receipt)) = numbers(lease) else { return Ok(Held::Lost) };
        let queue = queue.clone();
        let job = move |connection: &Connection| {
            // The foreign key (ON DELETE CASCADE) deletes the body too.
            let sql = "DELETE FROM queue_messages WHERE id = ?1 AND queue = ?2 AND pop_receipt = ?3";
            if connection.prepare_cached(sql)?.execute((id, queue.as_str(), receipt))? != 1 {
                return Ok(Verdict::Undo(Held::Lost));
            }
            Ok(Verdict::Keep(Held::Ours(())))
        };
        self.database.write(meter::QUEUE_DELETE, "deleting a queue message", job).await
    }

    async fn backlog(&self, queue: &QueueName) -> Result<Backlog, StoreFault> {
        let (queue, world) = (queue.clone(), self.database.world());
        let job = move |connection: &_| backlog(connection, &queue, world.now());
        self.database.read(meter::QUEUE_METADATA, "reading the backlog of a queue", job).await
    }
}

fn check_size(body: &[u8]) -> Result<(), SqlFault> {
    if body.len() <= BODY_BYTES_MAX {
        return Ok(());
    }
    let size = body.len();
    Err(SqlFault::Refused(format!("a body of {size} bytes is larger than {BODY_BYTES_MAX}")))
}

/// Enqueues a message within a job.
pub(super) fn insert(
    connection: &Connection,
    queue: &QueueName,
    body: &[u8],
    now: Timestamp,
    visible_at: Timestamp,
) -> Result<(), SqlFault> {
    check_size(body)?;
    connection
        .prepare_cached("INSERT INTO queue_messages (queue, visible_at, inserted_at) VALUES (?1, ?2, ?3)")?
        .execute((queue.as_str(), visible_at.unix_ms(), now.unix_ms()))?;
    connection
        .prepare_cached("INSERT INTO queue_bodies (id, body) VALUES (?1, ?2)")?
        .execute((connection.last_insert_rowid(), body))?;
    Ok(())
}

/// Condition for visible messages, in the table `m`.
const VISIBLE: &str = "m.queue = ?1 AND m.visible_at <= ?2";

/// Condition for messages with an insertion time in the future: the clock was set back, so they would stay hidden for
/// too long. Used only if no message is visible, and only for messages that are hidden longer than a usual lease.
const FROM_THE_FUTURE: &str = "m.queue = ?1 AND m.visible_at > ?2 + 60000 AND m.inserted_at > ?2 + 60000";

fn any_visible(connection: &Connection, queue: &QueueName, now: Timestamp) -> Result<bool, SqlFault> {
    for condition in [VISIBLE, FROM_THE_FUTURE] {
        let sql = format!("SELECT EXISTS (SELECT 1 FROM queue_messages m WHERE {condition})");
        let mut statement = connection.prepare_cached(&sql)?;
        if statement.query_row((queue.as_str(), now.unix_ms()), |row| row.get(0))? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn receive(
    connection: &Connection,
    queue: &QueueName,
    max: usize,
    visibility: Duration,
    world: &dyn World,
) -> Result<Verdict<Vec<Message>>, SqlFault> {
    let now = world.now();
    let mut found = find(connection, VISIBLE, queue, now, max, world)?;
    if found.is_empty() {
        found = find(connection, FROM_THE_FUTURE, queue, now, max, world)?;
    }
    let mut messages = Vec::with_capacity(found.len());
    for (id, receipt, message) in found {
        let sql =
            "UPDATE queue_messages SET visible_at = ?1, dequeue_count = ?2, pop_receipt = ?3 WHERE id = ?4";
        let hidden_until = now.after(visibility).unix_ms();
        let changes = (hidden_until, message.dequeue_count, receipt.cast_signed(), id);
        connection.prepare_cached(sql)?.execute(changes)?;
        messages.push(message);
    }
    Ok(Verdict::Keep(messages))
}

/// Returns the matching messages, each with its id and a new receipt.
fn find(
    connection: &Connection,
    condition: &str,
    queue: &QueueName,
    now: Timestamp,
    max: usize,
    world: &dyn World,
) -> Result<Vec<(i64, u64, Message)>, SqlFault> {
    // Ordered by the time at which messages become visible, which has an index. In the order of ids, each receive would scan
    // all leased and delayed messages. A join or a bound limit would make SQLite prepare the statement again for each call.
    let limit = max.min(RECEIVE_MAX);
    let sql = format!(
        "SELECT m.id, m.dequeue_count, m.inserted_at, (SELECT b.body FROM queue_bodies b WHERE b.id = m.id)
         FROM queue_messages m WHERE {condition} ORDER BY m.visible_at, m.id LIMIT {limit}"
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let rows = statement.query_and_then((queue.as_str(), now.unix_ms()), |row| {
        let (id, receipt): (i64, u64) = (row.get(0)?, world.random());
        let count: u32 = row.get(1)?;
        let message = Message {
            lease: lease_of(id, receipt),
            // A message whose body is missing in a damaged file must not block other messages.
            body: row.get::<_, Option<_>>(3)?.unwrap_or_default(),
            dequeue_count: count.saturating_add(1),
            inserted_at: columns::timestamp(row, 2)?,
        };
        Ok::<_, SqlFault>((id, receipt, message))
    })?;
    // The rows are collected first, because the index must not change while the statement reads it.
    rows.collect()
}

fn backlog(connection: &Connection, queue: &QueueName, now: Timestamp) -> Result<Backlog, SqlFault> {
    let depth = connection
        .prepare_cached("SELECT count(*) FROM queue_messages WHERE queue = ?1")?
        .query_row([queue.as_str()], |row| row.get(0))?;
    let sql = "SELECT inserted_at FROM queue_messages WHERE queue = ?1 AND visible_at <= ?2
               ORDER BY visible_at, id LIMIT 1";
    let head = connection
        .prepare_cached(sql)?
        .query_row((queue.as_str(), now.unix_ms()), |row| row.get(0))
        .optional()?;
    // Older messages have smaller ids. In an empty queue, this query would scan the messages of all other queues.
    let oldest = match depth {
        0 => None,
        _ => connection
            .prepare_cached("SELECT inserted_at FROM queue_messages WHERE queue = ?1 ORDER BY id LIMIT 1")?
            .query_row([queue.as_str()], |row| row.get(0))
            .optional()?,
    };
    Ok(Backlog {
        depth: columns::unsigned(depth, "count")?,
        head_inserted_at: head.map(Timestamp::from_unix_ms),
        oldest_inserted_at: oldest.map(Timestamp::from_unix_ms),
    })
}

fn lease_of(id: i64, receipt: u64) -> Lease {
    Lease { message_id: id.to_string(), pop_receipt: format!("{receipt:016x}") }
}

/// Returns the id and the receipt of a lease, or `None` if this store cannot have issued the lease.
fn numbers(lease: &Lease) -> Option<(i64, i64)> {
    let id = lease.message_id.parse().ok()?;
    let receipt = u64::from_str_radix(&lease.pop_receipt, 16).ok()?;
    (lease_of(id, receipt) == *lease).then_some((id, receipt.cast_signed()))
}
