//! The tables: balances, transactions, journal, and the batches. Each has one index and compact keys (a posting refers
//! to its account by 8 bytes; the API uses two UUIDs).

use tokio_postgres::{Config, NoTls};

use crate::peers::postgres::batch::CREATE_POST_IN_TURN;

/// Created once, at the first start.
///
/// - The pages of `accounts` have free space, so that a new balance stays on the page of the old one and no
///   index changes (a heap-only tuple).
/// - The primary key of `transactions` guarantees that a message id posts once.
/// - There is no foreign key to `accounts`: the same database transaction updates the account row, which proves
///   that it exists, and saves two locks on it.
/// - `sequence` is null for rejected transactions.
const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS accounts (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        user_id uuid NOT NULL,
        account_id uuid NOT NULL,
        currency text NOT NULL,
        balance bigint NOT NULL DEFAULT 0,
        version bigint NOT NULL DEFAULT 0,
        opened_at timestamptz NOT NULL DEFAULT now(),
        UNIQUE (user_id, account_id)
    ) WITH (fillfactor = 50);
    CREATE TABLE IF NOT EXISTS transactions (
        account bigint NOT NULL,
        message_id uuid NOT NULL,
        amount bigint NOT NULL,
        sequence bigint,
        accepted_at timestamptz NOT NULL,
        reference text,
        PRIMARY KEY (account, message_id)
    );
    CREATE TABLE IF NOT EXISTS journal (
        account bigint NOT NULL,
        sequence bigint NOT NULL,
        amount bigint NOT NULL,
        balance_after bigint NOT NULL,
        message_id uuid NOT NULL,
        posted_at timestamptz NOT NULL,
        PRIMARY KEY (account, sequence)
    );
    CREATE TABLE IF NOT EXISTS batches (
        id uuid PRIMARY KEY,
        content bytea NOT NULL,
        items bigint NOT NULL,
        posted bigint NOT NULL DEFAULT 0,
        rejected bigint NOT NULL DEFAULT 0,
        refused bigint NOT NULL DEFAULT 0,
        replayed bigint NOT NULL DEFAULT 0,
        invalid bigint NOT NULL
    );
";

/// Creates the missing tables and the function, over a separate connection.
pub async fn create(database: &Config) -> Result<(), tokio_postgres::Error> {
    let (client, connection) = database.connect(NoTls).await?;
    let create = async move {
        // The connection task ends with its client.
        client.batch_execute(TABLES).await?;
        client.batch_execute(CREATE_POST_IN_TURN).await
    };
    let (created, ended) = futures::join!(create, connection);
    created.and(ended)
}
