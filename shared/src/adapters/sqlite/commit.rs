//! Second half of the protocol. The account, the transactions and the journal page change atomically.
//!
//! Every guarded statement must change exactly one row. The first statement that does not ends the job, and its
//! savepoint is rolled back. The reason is then read from the rows. They contain the nonce of this commit if an earlier
//! attempt was committed and only its response was lost.

use rusqlite::{CachedStatement, Connection, OptionalExtension as _, named_params};

use super::columns;
use super::fault::SqlFault;
use super::names::{self, Partners, number_of_account};
use super::transaction_row::{NewRow, OutcomeColumns};
use super::writer::Verdict;
use crate::adapters::page_body;
use crate::domain::decision::{AccountCommit, Decided, UnknownAccountCommit};
use crate::domain::ids::{AccountKey, OrderNumber, TransactionKey};
use crate::domain::journal::{JournalPage, PAGE_ENTRIES_MAX, PageHash};
use crate::domain::money::Balance;
use crate::domain::transaction::Outcome;
use crate::ports::ledger::Committed;

/// A commit with everything that can be computed before it is passed to the writer.
pub(super) struct PreparedCommit {
    commit: AccountCommit,
    /// The rows of the inserted transactions, in the order of the commit.
    rows: Vec<NewRow>,
    /// The encoded content of the page.
    content: String,
}

impl PreparedCommit {
    /// Checks the invariants of the commit again, so that no inconsistent commit reaches the file.
    pub(super) fn of(commit: &AccountCommit) -> Result<Self, SqlFault> {
        if let Err(flaw) = check(commit) {
            return Err(SqlFault::Refused(format!(
                "the commit on {} is inconsistent: {flaw}",
                commit.account()
            )));
        }
        let content = page_body::encode(&commit.page);
        let rows = commit.inserted().iter().map(|decided| NewRow::decided(decided, commit.nonce));
        Ok(Self { rows: rows.collect(), commit: commit.clone(), content })
    }
}

/// Checks the invariants of [`AccountCommit`] that need no stored state.
fn check(commit: &AccountCommit) -> Result<(), String> {
    let AccountCommit { after, page, nonce, .. } = commit;
    let require = |holds: bool, rule: &str| if holds { Ok(()) } else { Err(rule.to_owned()) };
    let count = commit.outcomes().count();
    require((1..=PAGE_ENTRIES_MAX).contains(&count), "it has too few or too many transactions")?;
    let foreign = commit.outcomes().any(|(key, _)| key.account != after.key);
    require(!foreign, "it has a transaction of another account")?;
    let posted: Vec<_> = commit.outcomes().filter_map(|(_, outcome)| posted(outcome)).collect();
    require(commit.lists_rejections(), "its page does not list its decisions")?;
    page.check().map_err(|flaw| flaw.to_string())?;
    require(page.account == after.key && page.nonce == *nonce, "its page belongs to another commit")?;
    let listed = page.entries.iter().map(|entry| (entry.sequence, entry.order_number, entry.balance_after));
    require(listed.eq(posted), "its page does not list the posted transactions")?;
    let ends_with = page.entries.last().map_or(after.balance, |entry| entry.balance_after);
    let ends =
        after.sequence == page.last_sequence() && after.head == page.hash && ends_with == after.balance;
    require(ends, "the account does not match the last entry of its page")
}

fn posted(outcome: &Outcome) -> Option<(u64, OrderNumber, Balance)> {
    match *outcome {
        Outcome::Posted { order_number, sequence, balance_after, posted_at: _ } => {
            Some((sequence, order_number, balance_after))
        }
        Outcome::Rejected { .. } => None,
    }
}

/// The account row before the commit.
struct Before {
    id: i64,
    version: i64,
    balance: i64,
    sequence: i64,
    head: PageHash,
}

/// Writes the commit, or returns why it was not written.
pub(super) fn commit(
    connection: &Connection,
    prepared: &PreparedCommit,
) -> Result<Verdict<Committed>, SqlFault> {
    Statements::prepare(connection)?.commit(prepared, &mut Partners::default())
}

/// The statements of every commit, prepared once for all commits of a job.
struct Statements<'c> {
    connection: &'c Connection,
    read_account: CachedStatement<'c>,
    write_account: CachedStatement<'c>,
    insert_transaction: CachedStatement<'c>,
    insert_page: CachedStatement<'c>,
}

impl<'c> Statements<'c> {
    fn prepare(connection: &'c Connection) -> Result<Self, SqlFault> {
        Ok(Self {
            connection,
            // A join would make SQLite prepare the statement again for every new pair of bound ids.
            read_account: connection.prepare_cached(concat!(
                "SELECT id, version, balance, sequence, head FROM accounts WHERE id = ",
                number_of_account!()
            ))?,
            write_account: connection.prepare_cached(
                "UPDATE accounts SET balance = ?1, version = ?2, sequence = ?3, head = ?4
                 WHERE id = ?5 AND version = ?6",
            )?,
            insert_transaction: NewRow::prepare(connection)?,
            insert_page: connection.prepare_cached(
                "INSERT INTO journal_pages (account, first_sequence, entries, previous_hash, hash, nonce)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            )?,
        })
    }

    /// Writes one commit, or returns why it was not written.
    fn commit<'p>(
        &mut self,
        prepared: &'p PreparedCommit,
        partners: &mut Partners<'p>,
    ) -> Result<Verdict<Committed>, SqlFault> {
        let (connection, PreparedCommit { commit, rows, content }) = (self.connection, prepared);
        let Some(before) = self.before(commit.account())? else {
            return Ok(Verdict::Undo(Committed::Stale));
        };
        let undo = |written| Ok(Verdict::Undo(reason_not_written(connection, commit, written, &before)?));
        let guarded = columns::version(&commit.guard) == Some(before.version) && follows(commit, &before)?;
        if !guarded || !self.write_account(&before, commit)? {
            return undo(0);
        }
        if commit.after_accepted && has_accepted(connection, before.id)? {
            return Ok(Verdict::Undo(Committed::Early));
        }
        for (index, item) in commit.stored().iter().enumerate() {
            if !write_transaction(connection, before.id, commit, item)? {
                return undo(index);
            }
        }
        for (index, row) in rows.iter().enumerate() {
            let partner = partners.number_or_new(connection, &row.key.partner)?;
            if !row.insert(&mut self.insert_transaction, before.id, partner)? {
                return undo(commit.stored().len().saturating_add(index));
            }
        }
        self.write_page(before.id, &commit.page, content)?;
        let revision = columns::revision(columns::signed(commit.after.version)?);
        Ok(Verdict::Keep(Committed::Done { revision: Some(revision) }))
    }

    /// Reads the account row before the commit.
    fn before(&mut self, key: AccountKey) -> Result<Option<Before>, SqlFault> {
        let mut rows = self.read_account.query(names::parameters(key)?)?;
        let Some(row) = rows.next()? else { return Ok(None) };
        let (id, version, balance, sequence) = (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
        Ok(Some(Before { id, version, balance, sequence, head: columns::page_hash(row, 4)? }))
    }

    fn write_account(&mut self, before: &Before, commit: &AccountCommit) -> Result<bool, SqlFault> {
        let after = &commit.after;
        if columns::signed(after.version)? <= before.version {
            return Err(SqlFault::Refused("a commit moves the version of its account forward".to_owned()));
        }
        let changed = self.write_account.execute((
            after.balance.minor_units(),
            columns::signed(after.version)?,
            columns::signed(after.sequence)?,
            after.head.as_bytes(),
            before.id,
            before.version,
        ))?;
        Ok(changed == 1)
    }

    fn write_page(&mut self, account: i64, page: &JournalPage, content: &str) -> Result<(), SqlFault> {
        if page.entries.is_empty() {
            return insert_decision_page(self.connection, account, page, content);
        }
        self.insert_page.execute((
            account,
            columns::signed(page.first_sequence)?,
            content,
            page.previous_hash.as_bytes(),
            page.hash.as_bytes(),
            page.nonce.as_uuid().into_bytes(),
        ))?;
        Ok(())
    }
}

/// Inserts a page without entries.
pub(super) fn insert_decision_page(
    connection: &Connection,
    account: i64,
    page: &JournalPage,
    content: &str,
) -> Result<(), SqlFault> {
    let sql =
        "INSERT INTO decision_pages (account, version, first_sequence, content, previous_hash, hash, nonce)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    connection.prepare_cached(sql)?.execute((
        account,
        columns::signed(page.version)?,
        columns::signed(page.first_sequence)?,
        content,
        page.previous_hash.as_bytes(),
        page.hash.as_bytes(),
        page.nonce.as_uuid().into_bytes(),
    ))?;
    Ok(())
}

/// Writes commits on different accounts, except those whose guards do not hold.
///
/// All guards usually hold, so the commits are first written without individual savepoints, for which SQLite copies each page
/// before its first change. If a guard does not hold, all commits are rolled back and written again, each in its own savepoint.
pub(super) fn commit_all(
    connection: &Connection,
    prepared: &[PreparedCommit],
) -> Result<Verdict<Vec<Committed>>, SqlFault> {
    let savepoint = |sql: &str| connection.prepare_cached(sql)?.execute([]).map(drop);
    let (mut statements, mut partners) = (Statements::prepare(connection)?, Partners::default());
    savepoint("SAVEPOINT commits")?;
    let mut done = Vec::with_capacity(prepared.len());
    for one in prepared {
        match statements.commit(one, &mut partners)? {
            Verdict::Keep(committed) => done.push(committed),
            Verdict::Undo(_) => break,
        }
    }
    if done.len() < prepared.len() {
        savepoint("ROLLBACK TO commits")?;
        done.clear();
        for one in prepared {
            savepoint("SAVEPOINT one_commit")?;
            let committed = match statements.commit(one, &mut Partners::default())? {
                Verdict::Keep(committed) => committed,
                Verdict::Undo(committed) => {
                    savepoint("ROLLBACK TO one_commit")?;
                    committed
                }
            };
            savepoint("RELEASE one_commit")?;
            done.push(committed);
        }
    }
    savepoint("RELEASE commits")?;
    Ok(Verdict::Keep(done))
}

/// Rejections for an unknown account, with everything that can be computed before they are passed to the writer.
pub(super) struct PreparedRejection {
    account: AccountKey,
    rows: Vec<NewRow>,
}

impl PreparedRejection {
    /// Checks the invariants of the commit again.
    pub(super) fn of(commit: &UnknownAccountCommit) -> Result<Self, SqlFault> {
        let UnknownAccountCommit { account, decided, nonce } = commit;
        if !commit.is_consistent() {
            return Err(SqlFault::Refused(format!("the rejections on {account} are inconsistent")));
        }
        let rows = decided.iter().map(|decided| NewRow::decided(decided, *nonce)).collect();
        Ok(Self { account: *account, rows })
    }
}

/// Writes the rejections, or returns why they were not written.
pub(super) fn reject_unknown(
    connection: &Connection,
    PreparedRejection { account, rows }: &PreparedRejection,
) -> Result<Verdict<Committed>, SqlFault> {
    let number = names::account_or_new(connection, *account)?;
    let (mut taken, mut own) = (Vec::new(), 0_usize);
    let (mut insert, mut partners) = (NewRow::prepare(connection)?, Partners::default());
    for row in rows {
        let partner = partners.number_or_new(connection, &row.key.partner)?;
        if !row.insert(&mut insert, number, partner)? {
            let decided_by = decided_by(connection, number, &row.key)?;
            own =
                own.saturating_add(usize::from(decided_by == Some(Some(row.nonce().as_uuid().into_bytes()))));
            taken.push(row.key.clone());
        }
    }
    if taken.is_empty() {
        return Ok(Verdict::Keep(Committed::Done { revision: None }));
    }
    // The rows may have been inserted by an earlier attempt of this commit.
    let is_own = own == rows.len();
    Ok(Verdict::Undo(if is_own { Committed::Done { revision: None } } else { Committed::Taken(taken) }))
}

/// Returns whether the commit continues from the stored state. If the version is unchanged but the state differs, the
/// file was replaced by a restored backup. The caller has to read the account again, as after a change of the version.
fn follows(commit: &AccountCommit, before: &Before) -> Result<bool, SqlFault> {
    let AccountCommit { after, page, .. } = commit;
    let balance = Balance::try_new(before.balance, after.currency).ok_or(SqlFault::Column("balance"))?;
    let adds_up = page
        .entries
        .first()
        .map_or(after.balance == balance, |entry| entry.apply_to(balance) == Some(entry.balance_after));
    let next = before.sequence.checked_add(1);
    let is_next = before.version.checked_add(1) == Some(columns::signed(page.version)?);
    Ok(adds_up
        && is_next
        && Some(columns::signed(page.first_sequence)?) == next
        && page.previous_hash == before.head)
}

/// Returns whether the account has an accepted transaction that is not a dead letter.
fn has_accepted(connection: &Connection, account: i64) -> Result<bool, SqlFault> {
    let sql = "SELECT EXISTS (SELECT 1 FROM transactions
                              WHERE account = ?1 AND status = 'accepted' AND dead_letter = 0)";
    Ok(connection.prepare_cached(sql)?.query_row([account], |row| row.get(0))?)
}

fn write_transaction(
    connection: &Connection,
    account: i64,
    commit: &AccountCommit,
    item: &Decided,
) -> Result<bool, SqlFault> {
    let Some(revision) = item.revision().and_then(columns::version) else { return Ok(false) };
    let (key, delivered) = (item.key(), item.pending.delivered);
    let OutcomeColumns { decided_at, order_number, sequence, balance_after, reason, version } =
        OutcomeColumns::of(&item.outcome)?;
    let sql = "UPDATE transactions SET status = :status, revision = revision + 1, commit_nonce = :nonce,
                   decided_at = :decided_at, order_number = :order_number, sequence = :sequence,
                   balance_after = :balance_after, reason = :reason, version = :version, sent_at = :sent_at,
                   received_at = :received_at
               WHERE account = :account AND partner = (SELECT id FROM partners WHERE name = :partner)
                   AND message = :message AND status = 'accepted' AND revision = :revision";
    let changed = connection.prepare_cached(sql)?.execute(named_params! {
        ":status": item.outcome.status().code(),
        ":nonce": commit.nonce.as_uuid().into_bytes(),
        ":decided_at": decided_at,
        ":order_number": order_number,
        ":sequence": sequence,
        ":balance_after": balance_after,
        ":reason": reason,
        ":version": version,
        ":sent_at": delivered.map(|delivered| delivered.sent_at.unix_ms()),
        ":received_at": delivered.map(|delivered| delivered.received_at.unix_ms()),
        ":account": account,
        ":partner": key.partner.as_str(),
        ":message": key.message.as_uuid().into_bytes(),
        ":revision": revision,
    })?;
    Ok(changed == 1)
}

/// Returns why the commit was not written. Called before the rollback: this commit has already changed or inserted the
/// first `written` transactions, and the others are unchanged.
fn reason_not_written(
    connection: &Connection,
    commit: &AccountCommit,
    written: usize,
    before: &Before,
) -> Result<Committed, SqlFault> {
    let nonce = commit.nonce.as_uuid().into_bytes();
    let (mut already_final, mut taken) = (Vec::new(), Vec::new());
    let mut own: usize = 0;
    for (index, (key, _)) in commit.outcomes().enumerate().skip(written) {
        let Some(decided_by) = decided_by(connection, before.id, key)? else { continue };
        own = own.saturating_add(usize::from(decided_by == Some(nonce)));
        if index >= commit.stored().len() {
            taken.push(key.clone());
        } else if decided_by.is_some() {
            already_final.push(key.clone());
        }
    }
    if own == commit.outcomes().count() {
        // An earlier attempt was committed. Later commits may have changed the account row since then.
        let version = columns::signed(commit.after.version)?;
        let revision = (version == before.version).then(|| columns::revision(version));
        return Ok(Committed::Done { revision });
    }
    Ok(if !already_final.is_empty() {
        Committed::RowsChanged(already_final)
    } else if !taken.is_empty() {
        Committed::Taken(taken)
    } else {
        Committed::Stale
    })
}

/// Returns the nonce of the commit that made a transaction final: `Some(None)` if the transaction is accepted only, and
/// `None` if the row does not exist.
fn decided_by(
    connection: &Connection,
    account: i64,
    key: &TransactionKey,
) -> Result<Option<Option<[u8; 16]>>, SqlFault> {
    let sql = "SELECT commit_nonce FROM transactions
               WHERE account = ?1 AND partner = (SELECT id FROM partners WHERE name = ?2) AND message = ?3";
    let (partner, message) = (key.partner.as_str(), key.message.as_uuid().into_bytes());
    let mut statement = connection.prepare_cached(sql)?;
    Ok(statement.query_row((account, partner, message), |row| row.get(0)).optional()?)
}
