//! The books on PostgreSQL. A posting is one statement, sent once: one round trip, and one database
//! transaction, which PostgreSQL commits before it says that it is ready for the next.

use std::sync::Arc;

use deadpool_postgres::Pool;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::accounts::{Account, Accounts, Name};
use crate::counts::Counts;
use crate::fault::Fault;
use crate::transaction::{Balance, Instruction, Outcome, Posting, Transaction};
use crate::turns::Turns;

/// Posts, or does nothing: no row comes back when the account can't pay, or when the message id is known.
///
/// The balance comes first, because the rows that are inserted say the sequence and the balance after. The
/// unique key of `transactions` decides what posts: of two requests with the same new id at once, the second
/// waits for the account's row, its insert then meets the key of the first, and the whole statement is undone,
/// with its change of the balance ([`Fault::is_duplicate`]). That an id is looked for before is only cheaper:
/// an ordinary repetition then undoes nothing.
const POST: &str = "
    WITH posting AS (
        UPDATE accounts SET balance = balance + $3, version = version + 1
        WHERE id = $1 AND balance + $3 >= 0
            AND NOT EXISTS (SELECT FROM transactions WHERE account = $1 AND message_id = $2)
        RETURNING version AS sequence, balance AS balance_after
    ), stored AS (
        INSERT INTO transactions (account, message_id, amount, sequence, accepted_at, reference)
        SELECT $1, $2, $3, sequence, $4, $5 FROM posting
    )
    INSERT INTO journal (account, sequence, amount, balance_after, message_id, posted_at)
    SELECT $1, sequence, $3, balance_after, $2, now() FROM posting
    RETURNING sequence, balance_after, posted_at";

/// Records that the account could not pay. No row is written when the message id is known.
const REJECT: &str = "
    INSERT INTO transactions (account, message_id, amount, accepted_at, reference)
    VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING";

/// A transaction as it is stored; without a sequence it was rejected.
const FIND_TRANSACTION: &str = "
    SELECT sequence, balance_after, posted_at, transactions.amount, accepted_at, reference
    FROM transactions LEFT JOIN journal USING (account, sequence)
    WHERE account = $1 AND transactions.message_id = $2";

const FIND_ACCOUNT: &str = "
    SELECT id, currency, balance, version, opened_at FROM accounts WHERE user_id = $1 AND account_id = $2";

const OPEN_ACCOUNT: &str = "
    INSERT INTO accounts (user_id, account_id, currency) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";

/// A value in a statement.
type Parameter<'a> = &'a (dyn ToSql + Sync);

/// The books, for the requests of one thread.
#[derive(Debug)]
pub struct Ledger {
    pool: Pool,
    accounts: Arc<Accounts>,
    turns: Arc<Turns>,
    counts: Arc<Counts>,
}

impl Ledger {
    /// Books in the database of the pool.
    pub fn new(pool: Pool, accounts: Arc<Accounts>, turns: Arc<Turns>, counts: Arc<Counts>) -> Self {
        Self { pool, accounts, turns, counts }
    }

    /// Opens an account; false when it is there.
    pub async fn open(&self, (user, account): Name, currency: &str) -> Result<bool, Fault> {
        Ok(self.write(OPEN_ACCOUNT, &[&user, &account, &currency]).await? == 1)
    }

    /// What an account holds now.
    pub async fn balance(&self, (user, account): Name) -> Result<Option<Balance>, Fault> {
        let Some(row) = self.read(FIND_ACCOUNT, &[&user, &account]).await? else { return Ok(None) };
        Ok(Some(Balance {
            currency: row.try_get("currency")?,
            minor_units: row.try_get("balance")?,
            version: row.try_get("version")?,
            opened_at: row.try_get("opened_at")?,
        }))
    }

    /// What never changes about an account.
    pub async fn account(&self, name: Name) -> Result<Option<Account>, Fault> {
        if let Some(account) = self.accounts.get(name) {
            return Ok(Some(account));
        }
        let (user, account) = name;
        let Some(row) = self.read(FIND_ACCOUNT, &[&user, &account]).await? else { return Ok(None) };
        let account = Account { id: row.try_get("id")?, currency: row.try_get("currency")? };
        self.accounts.insert(name, account.clone());
        Ok(Some(account))
    }

    /// Posts an instruction, unless its id is known.
    pub async fn post(&self, account: &Account, instruction: Instruction) -> Result<Outcome, Fault> {
        let Instruction { message_id, amount, reference, accepted_at } = &instruction;
        let posted = {
            let _turn = self.turns.take(account.id).await;
            self.read(POST, &[&account.id, message_id, amount, accepted_at, reference]).await
        };
        match posted {
            Ok(Some(row)) => {
                self.counts.posted();
                let posting = Some(Posting {
                    sequence: row.try_get(0)?,
                    balance_after: row.try_get(1)?,
                    posted_at: row.try_get(2)?,
                });
                Ok(Outcome::Final(Transaction { instruction, posting }))
            }
            // Rare, so it may cost more round trips.
            Ok(None) => self.replay_or_reject(account, instruction).await,
            Err(fault) if fault.is_duplicate() => self.replay_or_reject(account, instruction).await,
            Err(fault) if fault.is_out_of_range() => Ok(Outcome::OutOfRange),
            Err(fault) => Err(fault),
        }
    }

    /// The stored transaction of this id; where there is none, the account could not pay, and that is
    /// recorded.
    async fn replay_or_reject(&self, account: &Account, asked: Instruction) -> Result<Outcome, Fault> {
        let (id, message_id) = (account.id, asked.message_id);
        let mut found = self.read(FIND_TRANSACTION, &[&id, &message_id]).await?;
        if found.is_none() {
            let Instruction { amount, reference, accepted_at, .. } = &asked;
            if self.write(REJECT, &[&id, &message_id, amount, accepted_at, reference]).await? == 1 {
                return Ok(Outcome::Final(Transaction { instruction: asked, posting: None }));
            }
            // Another request with this id came in between.
            found = self.read(FIND_TRANSACTION, &[&id, &message_id]).await?;
        }
        let row = found.ok_or(Fault::Corrupt("a transaction is neither there nor can be inserted"))?;
        let stored = stored(message_id, &row)?;
        let Instruction { amount, reference, .. } = &stored.instruction;
        let is_same = *amount == asked.amount && *reference == asked.reference;
        Ok(if is_same { Outcome::Replayed(stored) } else { Outcome::Reused })
    }

    /// At most one row. Returns when the database has committed.
    async fn read(&self, sql: &str, parameters: &[Parameter<'_>]) -> Result<Option<Row>, Fault> {
        let client = self.pool.get().await?;
        let statement = client.prepare_cached(sql).await?;
        self.counts.round_trip();
        Ok(client.query_opt(&statement, parameters).await?)
    }

    /// How many rows were written. Returns when the database has committed.
    async fn write(&self, sql: &str, parameters: &[Parameter<'_>]) -> Result<u64, Fault> {
        let client = self.pool.get().await?;
        let statement = client.prepare_cached(sql).await?;
        self.counts.round_trip();
        Ok(client.execute(&statement, parameters).await?)
    }
}

fn stored(message_id: Uuid, row: &Row) -> Result<Transaction, Fault> {
    let sequence: Option<i64> = row.try_get("sequence")?;
    let posting = match sequence {
        Some(sequence) => Some(Posting {
            sequence,
            balance_after: row.try_get("balance_after")?,
            posted_at: row.try_get("posted_at")?,
        }),
        None => None,
    };
    let instruction = Instruction {
        message_id,
        amount: row.try_get("amount")?,
        reference: row.try_get("reference")?,
        accepted_at: row.try_get("accepted_at")?,
    };
    Ok(Transaction { instruction, posting })
}
