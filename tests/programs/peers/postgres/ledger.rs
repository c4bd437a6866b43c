//! The ledger on PostgreSQL. A posting is one statement: one round trip, and one database transaction, which
//! PostgreSQL commits before it is ready for the next statement.

use std::sync::Arc;

use deadpool_postgres::Pool;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::peers::postgres::account_locks::AccountLocks;
use crate::peers::postgres::accounts::{Account, Accounts, Name};
use crate::peers::postgres::counts::Counts;
use crate::peers::postgres::fault::Fault;
use crate::peers::postgres::transaction::{Balance, Instruction, Outcome, Posting, Transaction};

/// Posts, or does nothing: returns no row if the balance is insufficient, or if the message id is known.
///
/// The balance is updated first, because the inserted rows contain the sequence and the balance after it. The
/// unique key of `transactions` decides what is posted: of two concurrent requests with the same new id, the
/// second waits for the account row; its insert then conflicts with the key of the first, and the whole statement
/// is undone, including its change of the balance ([`Fault::is_duplicate`]). The check for the id before is only
/// cheaper: an ordinary repetition then undoes nothing.
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

/// Records a rejection for insufficient funds. Writes no row if the message id is known.
const REJECT: &str = "
    INSERT INTO transactions (account, message_id, amount, accepted_at, reference)
    VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING";

/// A stored transaction; one without a sequence was rejected.
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

/// The ledger, for the requests of one thread.
#[derive(Debug)]
pub struct Ledger {
    pool: Pool,
    accounts: Arc<Accounts>,
    account_locks: Arc<AccountLocks>,
    counts: Arc<Counts>,
}

impl Ledger {
    /// A ledger over the database of the pool.
    pub fn new(
        pool: Pool,
        accounts: Arc<Accounts>,
        account_locks: Arc<AccountLocks>,
        counts: Arc<Counts>,
    ) -> Self {
        Self { pool, accounts, account_locks, counts }
    }

    /// Opens an account; false if it exists.
    pub async fn open(&self, (user, account): Name, currency: &str) -> Result<bool, Fault> {
        Ok(self.write(OPEN_ACCOUNT, &[&user, &account, &currency]).await? == 1)
    }

    /// The current balance of an account.
    pub async fn balance(&self, (user, account): Name) -> Result<Option<Balance>, Fault> {
        let Some(row) = self.read(FIND_ACCOUNT, &[&user, &account]).await? else { return Ok(None) };
        Ok(Some(Balance {
            currency: row.try_get("currency")?,
            minor_units: row.try_get("balance")?,
            version: row.try_get("version")?,
            opened_at: row.try_get("opened_at")?,
        }))
    }

    /// The immutable data of an account.
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
            let _guard = self.account_locks.lock(account.id).await;
            self.read(POST, &[&account.id, message_id, amount, accepted_at, reference]).await
        };
        match posted {
            Ok(Some(row)) => {
                self.counts.posted(1);
                let posting = Some(Posting {
                    sequence: row.try_get(0)?,
                    balance_after: row.try_get(1)?,
                    posted_at: row.try_get(2)?,
                });
                Ok(Outcome::Final(Transaction { instruction, posting }))
            }
            // Rare, so additional round trips are acceptable.
            Ok(None) => self.replay_or_reject(account, instruction).await,
            Err(fault) if fault.is_duplicate() => self.replay_or_reject(account, instruction).await,
            Err(fault) if fault.is_out_of_range() => Ok(Outcome::OutOfRange),
            Err(fault) => Err(fault),
        }
    }

    /// The stored transaction with this id. If there is none, the balance was insufficient, and the rejection is
    /// recorded.
    async fn replay_or_reject(&self, account: &Account, asked: Instruction) -> Result<Outcome, Fault> {
        let (id, message_id) = (account.id, asked.message_id);
        let mut found = self.read(FIND_TRANSACTION, &[&id, &message_id]).await?;
        if found.is_none() {
            let Instruction { amount, reference, accepted_at, .. } = &asked;
            if self.write(REJECT, &[&id, &message_id, amount, accepted_at, reference]).await? == 1 {
                return Ok(Outcome::Final(Transaction { instruction: asked, posting: None }));
            }
            // A concurrent request with this id was faster.
            found = self.read(FIND_TRANSACTION, &[&id, &message_id]).await?;
        }
        let row = found.ok_or(Fault::Corrupt("a transaction neither exists nor can be inserted"))?;
        let stored = stored(message_id, &row)?;
        let Instruction { amount, reference, .. } = &stored.instruction;
        let is_same = *amount == asked.amount && *reference == asked.reference;
        Ok(if is_same { Outcome::Replayed(stored) } else { Outcome::Reused })
    }

    /// Reads at most one row. Returns after the commit of the database.
    async fn read(&self, sql: &str, parameters: &[Parameter<'_>]) -> Result<Option<Row>, Fault> {
        let client = self.pool.get().await?;
        let statement = client.prepare_cached(sql).await?;
        self.counts.round_trip();
        Ok(client.query_opt(&statement, parameters).await?)
    }

    /// Returns the number of written rows, after the commit of the database.
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
