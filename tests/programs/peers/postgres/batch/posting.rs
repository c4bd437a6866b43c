//! Posts the received items in one database transaction.

use std::time::SystemTime;

use deadpool_postgres::Object;
use uuid::Uuid;

use super::document::Document;
use crate::peers::postgres::fault::Fault;

/// Memory for sorting and hashing a million items; other statements keep the default. One batch is posted at a time,
/// so two batches never wait for each other's accounts.
const BEGIN: &str = "
    SET LOCAL work_mem = '512MB';
    SET LOCAL jit = off;
    SELECT pg_advisory_xact_lock(1)";

const INSERT_BATCH: &str = "
    INSERT INTO batches (id, content, items, invalid) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING";

/// The items that may be posted: of known accounts, and with new ids. The rows of the accounts stay locked, so each
/// item has its sequence and the balance after it, if all items before it are posted. If a single request posts one of
/// the ids before its account is locked, the unique key of `transactions` undoes the attempt.
const SELECT_FRESH: &str = "
    CREATE TEMPORARY TABLE fresh ON COMMIT DROP AS
    WITH locked AS MATERIALIZED (
        SELECT id, user_id, account_id, currency, balance, version FROM accounts
        WHERE (user_id, account_id) IN (SELECT user_id, account_id FROM items) FOR UPDATE
    )
    SELECT locked.id AS account, line, message_id, amount, reference, repeated,
        version + row_number() OVER earlier AS sequence,
        (balance + sum(amount) OVER earlier)::bigint AS balance_after
    FROM items JOIN locked USING (user_id, account_id, currency)
    WHERE NOT EXISTS (SELECT FROM transactions known
        WHERE known.account = locked.id AND known.message_id = items.message_id)
    WINDOW earlier AS (PARTITION BY locked.id ORDER BY line ROWS UNBOUNDED PRECEDING)";

/// Posts all items of each account whose balance is never below zero, and without a repeated id. The items are in the
/// order of their accounts, so the indexes grow at their ends. Returns the other accounts, with the number of their
/// items.
const POST: &str = "
    WITH totals AS (
        SELECT account, count(*) AS items, sum(amount)::bigint AS amount,
            min(balance_after) < 0 OR bool_or(repeated) AS in_turn
        FROM fresh GROUP BY account
    ), others AS (
        SELECT account, items FROM totals WHERE in_turn
    ), posting AS (
        UPDATE accounts SET balance = balance + totals.amount, version = version + totals.items
        FROM totals WHERE id = account AND NOT in_turn
    ), stored AS (
        INSERT INTO transactions (account, message_id, amount, sequence, accepted_at, reference)
        SELECT account, message_id, amount, sequence, $1, reference
        FROM fresh WHERE account NOT IN (SELECT account FROM others)
    ), written AS (
        INSERT INTO journal (account, sequence, amount, balance_after, message_id, posted_at)
        SELECT account, sequence, amount, balance_after, message_id, now()
        FROM fresh WHERE account NOT IN (SELECT account FROM others)
    )
    SELECT account, items FROM others";

/// Posts the items of some accounts in turn, each as a single request is posted.
pub const CREATE_POST_IN_TURN: &str = "
    CREATE OR REPLACE FUNCTION post_in_turn(
        others bigint[], at timestamptz,
        OUT posted bigint, OUT rejected bigint, OUT refused bigint, OUT replayed bigint
    ) AS $$
    DECLARE
        item record;
        is_same boolean;
        now_version bigint;
        now_balance bigint;
    BEGIN
        posted = 0; rejected = 0; refused = 0; replayed = 0;
        FOR item IN SELECT * FROM fresh WHERE account = ANY (others) ORDER BY account, line LOOP
            SELECT amount = item.amount AND reference IS NOT DISTINCT FROM item.reference INTO is_same
            FROM transactions WHERE account = item.account AND message_id = item.message_id;
            IF is_same THEN
                replayed = replayed + 1;
                CONTINUE;
            ELSIF NOT is_same THEN
                refused = refused + 1;
                CONTINUE;
            END IF;
            UPDATE accounts SET balance = balance + item.amount, version = version + 1
            WHERE id = item.account AND balance + item.amount >= 0
            RETURNING version, balance INTO now_version, now_balance;
            IF FOUND THEN
                posted = posted + 1;
                INSERT INTO journal (account, sequence, amount, balance_after, message_id, posted_at)
                VALUES (item.account, now_version, item.amount, now_balance, item.message_id, now());
            ELSE
                rejected = rejected + 1;
            END IF;
            INSERT INTO transactions (account, message_id, amount, sequence, accepted_at, reference)
            VALUES (item.account, item.message_id, item.amount, now_version, at, item.reference);
        END LOOP;
    END $$ LANGUAGE plpgsql";
const POST_IN_TURN: &str = "SELECT * FROM post_in_turn($1, $2)";

/// Counts the items that are stored with the same content since before the batch.
const COUNT_REPLAYED: &str = "
    SELECT count(*) FROM items JOIN accounts USING (user_id, account_id, currency)
    JOIN transactions known ON known.account = accounts.id AND known.message_id = items.message_id
    WHERE known.amount = items.amount AND known.reference IS NOT DISTINCT FROM items.reference
        AND NOT EXISTS (SELECT FROM fresh WHERE fresh.line = items.line)";

const COMPLETE: &str = "
    UPDATE batches SET posted = $2, rejected = $3, refused = $4, replayed = $5 WHERE id = $1";

/// What became of a batch.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Its items are posted.
    Posted,
    /// Its id is known, and nothing was posted.
    Known,
}

/// Posts the received items. On an error nothing is posted.
pub async fn post(
    client: &mut Object,
    id: Uuid,
    document: &Document,
    at: SystemTime,
) -> Result<Outcome, Fault> {
    let Document { content, items, invalid } = document;
    let transaction = client.transaction().await?;
    transaction.batch_execute(BEGIN).await?;
    if transaction.execute(INSERT_BATCH, &[&id, content, items, invalid]).await? == 0 {
        return Ok(Outcome::Known);
    }
    let fresh = count(transaction.execute(SELECT_FRESH, &[]).await?);
    transaction.batch_execute("ANALYZE fresh").await?;
    let rows = transaction.query(POST, &[&at]).await?;
    let mut others = Vec::<i64>::new();
    let mut posted = fresh;
    for row in rows {
        others.push(row.try_get(0)?);
        posted = posted.saturating_sub(row.try_get(1)?);
    }
    let [mut rejected, mut refused, mut replayed] = [0_i64; 3];
    if !others.is_empty() {
        let row = transaction.query_one(POST_IN_TURN, &[&others, &at]).await?;
        posted = posted.saturating_add(row.try_get("posted")?);
        (rejected, refused, replayed) =
            (row.try_get("rejected")?, row.try_get("refused")?, row.try_get("replayed")?);
    }
    let others = items.saturating_sub(*invalid).saturating_sub(fresh);
    if others > 0 {
        let known: i64 = transaction.query_one(COUNT_REPLAYED, &[]).await?.try_get(0)?;
        replayed = replayed.saturating_add(known);
        refused = refused.saturating_add(others.saturating_sub(known));
    }
    transaction.execute(COMPLETE, &[&id, &posted, &rejected, &refused, &replayed]).await?;
    transaction.commit().await?;
    Ok(Outcome::Posted)
}

fn count(rows: u64) -> i64 {
    i64::try_from(rows).unwrap_or(i64::MAX)
}
