//! Imports rows of another store. All accounts of a call are written in one database transaction.

use std::sync::Arc;

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension as _, params};

use super::columns;
use super::database::Database;
use super::fault::SqlFault;
use super::meter;
use super::names::{self, Partners};
use super::transaction_row::{FIRST_REVISION, OutcomeColumns};
use super::writer::Verdict;
use crate::adapters::page_body;
use crate::domain::account::Account;
use crate::domain::decision::Submission;
use crate::domain::ids::Nonce;
use crate::domain::instruction::Instruction;
use crate::domain::journal::JournalPage;
use crate::ports::fault::StoreFault;
use crate::ports::import::{AccountRows, Import};
use crate::ports::ledger::{Marks, StoredTransaction};
use crate::ports::world::WorldExt as _;

pub(super) struct SqliteImport {
    database: Arc<Database>,
}

impl SqliteImport {
    pub(super) fn new(database: Arc<Database>) -> Self {
        Self { database }
    }
}

#[async_trait]
impl Import for SqliteImport {
    async fn import(&self, accounts: &[AccountRows]) -> Result<(), StoreFault> {
        let (accounts, nonce) = (accounts.to_vec(), self.database.world().nonce());
        let job = move |connection: &Connection| {
            let mut partners = Partners::default();
            for rows in &accounts {
                import(connection, rows, &mut partners, nonce)?;
            }
            Ok(Verdict::Keep(()))
        };
        self.database.write(meter::TABLE_BATCH, "importing rows", job).await
    }
}

fn import<'a>(
    connection: &Connection,
    AccountRows { key, pages, transactions, account }: &'a AccountRows,
    partners: &mut Partners<'a>,
    nonce: Nonce,
) -> Result<(), SqlFault> {
    let number = names::account_or_new(connection, *key)?;
    for page in pages {
        import_page(connection, number, page)?;
    }
    for stored in transactions {
        let partner = partners.number_or_new(connection, &stored.submission.key.partner)?;
        import_transaction(connection, (number, partner), stored, nonce)?;
    }
    account.as_ref().map_or(Ok(()), |account| import_account(connection, number, account))
}

/// Inserts a page if it does not exist.
fn import_page(connection: &Connection, account: i64, page: &JournalPage) -> Result<(), SqlFault> {
    let content = page_body::encode(page);
    let first_sequence = columns::signed(page.first_sequence)?;
    let (previous, hash, nonce) =
        (page.previous_hash.as_bytes(), page.hash.as_bytes(), page.nonce.as_uuid().into_bytes());
    let (inserted, stored) = if page.entries.is_empty() {
        let version = columns::signed(page.version)?;
        let sql = "INSERT INTO decision_pages
                       (account, version, first_sequence, content, previous_hash, hash, nonce)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (account, version) DO NOTHING";
        let row = params![account, version, first_sequence, content, previous, hash, nonce];
        let stored = "SELECT hash FROM decision_pages WHERE account = ?1 AND version = ?2";
        (connection.prepare_cached(sql)?.execute(row)?, (stored, version))
    } else {
        let sql = "INSERT INTO journal_pages (account, first_sequence, entries, previous_hash, hash, nonce)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (account, first_sequence) DO NOTHING";
        let row = params![account, first_sequence, content, previous, hash, nonce];
        let stored = "SELECT hash FROM journal_pages WHERE account = ?1 AND first_sequence = ?2";
        (connection.prepare_cached(sql)?.execute(row)?, (stored, first_sequence))
    };
    if inserted == 1 {
        return Ok(());
    }
    let (sql, position) = stored;
    let mut statement = connection.prepare_cached(sql)?;
    let found = statement.query_row((account, position), |row| row.get::<_, [u8; 32]>(0)).optional()?;
    if found.as_ref() == Some(page.hash.as_bytes()) {
        return Ok(());
    }
    Err(SqlFault::Refused(format!("another page has the place of page {} of {}", page.hash, page.account)))
}

/// Inserts a transaction, or replaces it while it is not final.
fn import_transaction(
    connection: &Connection,
    (account, partner): (i64, i64),
    stored: &StoredTransaction,
    nonce: Nonce,
) -> Result<(), SqlFault> {
    let StoredTransaction { submission, outcome, fingerprint, revision: _, marks, delivered } = stored;
    let Submission { key, instruction, accepted_at, origin, batch_line } = submission;
    let Instruction { kind, amount, details } = instruction;
    let Marks { dead_letter, repairs, repaired_at } = marks;
    let metadata = details.metadata();
    let json = || serde_json::to_string(metadata).expect("a map of texts can be written as JSON");
    let metadata = (!metadata.is_empty()).then(json);
    let unknown_members = details.unknown_members();
    let fingerprint = columns::fingerprint_columns(fingerprint);
    let decided = outcome.as_ref().map(OutcomeColumns::of).transpose()?;
    let decided = decided.as_ref();
    let nonce = nonce.as_uuid().into_bytes();
    let sql = "INSERT INTO transactions (account, partner, message, status, revision, kind, amount, currency,
                   reference, metadata, unknown_members, fingerprint_version, fingerprint, accepted_at,
                   accept_nonce, dead_letter, repairs, repaired_at, commit_nonce, decided_at, order_number,
                   sequence, balance_after, reason, batch, batch_line, version, request_id, sent_at, received_at)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19,
                   ?20, ?21, ?22, ?23, ?24, ?25, ?26, ?27, ?28, ?29, ?30)
               ON CONFLICT (account, partner, message) DO UPDATE SET
                   status = excluded.status, revision = revision + 1, kind = excluded.kind,
                   amount = excluded.amount, currency = excluded.currency, reference = excluded.reference,
                   metadata = excluded.metadata, unknown_members = excluded.unknown_members,
                   fingerprint_version = excluded.fingerprint_version, fingerprint = excluded.fingerprint,
                   accepted_at = excluded.accepted_at, dead_letter = excluded.dead_letter,
                   repairs = excluded.repairs, repaired_at = excluded.repaired_at,
                   commit_nonce = excluded.commit_nonce, decided_at = excluded.decided_at,
                   order_number = excluded.order_number, sequence = excluded.sequence,
                   balance_after = excluded.balance_after, reason = excluded.reason, batch = excluded.batch,
                   batch_line = excluded.batch_line, version = excluded.version,
                   request_id = excluded.request_id, sent_at = excluded.sent_at,
                   received_at = excluded.received_at
               WHERE status = 'accepted'";
    connection.prepare_cached(sql)?.execute(params![
        account,
        partner,
        key.message.as_uuid().into_bytes(),
        stored.status().code(),
        FIRST_REVISION,
        kind.code(),
        amount.minor_units(),
        amount.currency().code(),
        details.reference(),
        metadata.as_deref(),
        (!unknown_members.is_empty()).then_some(unknown_members),
        fingerprint.0,
        fingerprint.1,
        accepted_at.unix_ms(),
        nonce,
        dead_letter,
        repairs,
        repaired_at.map(crate::domain::time::Timestamp::unix_ms),
        decided.map(|_| nonce),
        decided.map(|it| it.decided_at),
        decided.and_then(|it| it.order_number),
        decided.and_then(|it| it.sequence),
        decided.and_then(|it| it.balance_after),
        decided.and_then(|it| it.reason),
        batch_line.map(|it| it.batch.as_uuid().into_bytes()),
        batch_line.map(|it| it.line),
        decided.and_then(|it| it.version),
        origin.request_id(),
        delivered.map(|it| it.sent_at.unix_ms()),
        delivered.map(|it| it.received_at.unix_ms()),
    ])?;
    Ok(())
}

/// Inserts or replaces the row of an account.
fn import_account(connection: &Connection, number: i64, account: &Account) -> Result<(), SqlFault> {
    let sql =
        "INSERT INTO accounts (id, currency, status, overdraft_limit, given_name, family_name, opened_at,
                   balance, version, sequence, head)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
               ON CONFLICT (id) DO UPDATE SET
                   currency = excluded.currency, status = excluded.status,
                   overdraft_limit = excluded.overdraft_limit, given_name = excluded.given_name,
                   family_name = excluded.family_name, opened_at = excluded.opened_at,
                   balance = excluded.balance, version = excluded.version, sequence = excluded.sequence,
                   head = excluded.head";
    connection.prepare_cached(sql)?.execute((
        number,
        account.currency.code(),
        account.status.code(),
        account.overdraft_limit.minor_units(),
        account.holder.as_ref().map(|holder| holder.given_name.as_str()),
        account.holder.as_ref().map(|holder| holder.family_name.as_str()),
        account.opened_at.unix_ms(),
        account.balance.minor_units(),
        columns::signed(account.version)?,
        columns::signed(account.sequence)?,
        account.head.as_bytes(),
    ))?;
    Ok(())
}
