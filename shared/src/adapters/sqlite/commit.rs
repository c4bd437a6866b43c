//! Second half of the protocol: account, transactions and journal page change in one step, or not at all.
//!
//! Every guarded statement has to change exactly one row; the first that does not ends the job, and its savepoint is
//! rolled back. Then the rows show the reason: they may have the nonce of this commit, if an earlier attempt was
//! committed and only its response was lost.

use rusqlite::{Connection, OptionalExtension as _, named_params};

use super::columns;
use super::fault::SqlFault;
use super::writer::Verdict;
use crate::adapters::page_body;
use crate::domain::decision::{AccountCommit, Finalization};
use crate::domain::ids::{AccountKey, OrderNumber};
use crate::domain::journal::{JournalPage, PAGE_ENTRIES_MAX, PageHash};
use crate::domain::money::Balance;
use crate::domain::transaction::{Outcome, TransactionStatus};
use crate::ports::ledger::Committed;

/// A commit with everything that can be computed before the writer starts on it.
pub(super) struct PreparedCommit {
    commit: AccountCommit,
    /// The entries of its page as text.
    entries: Option<String>,
}

impl PreparedCommit {
    /// Checks the invariants of the commit again: no inconsistent commit reaches the file.
    pub(super) fn of(commit: &AccountCommit) -> Result<Self, SqlFault> {
        if let Err(flaw) = check(commit) {
            return Err(SqlFault::Refused(format!(
                "the commit on {} is inconsistent: {flaw}",
                commit.account()
            )));
        }
        let entries = commit.page.as_ref().map(|page| page_body::encode(&page.entries));
        Ok(Self { commit: commit.clone(), entries })
    }
}

/// Checks the invariants of [`AccountCommit`] that need no stored state.
fn check(commit: &AccountCommit) -> Result<(), String> {
    let AccountCommit { guard: _, after, finalizations, page, nonce } = commit;
    let require = |holds: bool, rule: &str| if holds { Ok(()) } else { Err(rule.to_owned()) };
    require(
        (1..=PAGE_ENTRIES_MAX).contains(&finalizations.len()),
        "it has too few or too many transactions",
    )?;
    let foreign = finalizations.iter().any(|item| item.key.account != after.key);
    require(!foreign, "it has a transaction of another account")?;
    let posted: Vec<_> = finalizations.iter().filter_map(posted).collect();
    let Some(page) = page else { return require(posted.is_empty(), "it posts transactions without a page") };
    page.check().map_err(|flaw| flaw.to_string())?;
    require(page.account == after.key && page.nonce == *nonce, "its page belongs to another commit")?;
    let listed = page.entries.iter().map(|entry| (entry.sequence, entry.order_number, entry.balance_after));
    require(listed.eq(posted), "its page does not list the posted transactions")?;
    let ends_with = page.entries.last().map(|entry| entry.balance_after);
    let ends =
        after.sequence == page.last_sequence() && after.head == page.hash && ends_with == Some(after.balance);
    require(ends, "the account does not match the last entry of its page")
}

fn posted(item: &Finalization) -> Option<(u64, OrderNumber, Balance)> {
    match item.outcome {
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

/// Writes the commit, or returns why not.
pub(super) fn commit(
    connection: &Connection,
    prepared: &PreparedCommit,
) -> Result<Verdict<Committed>, SqlFault> {
    let PreparedCommit { commit, entries } = prepared;
    let Some(before) = before(connection, commit.account())? else {
        return Ok(Verdict::Undo(Committed::Stale));
    };
    let guarded = columns::version(&commit.guard) == Some(before.version) && follows(commit, &before)?;
    if !guarded || !write_account(connection, &before, commit)? {
        return Ok(Verdict::Undo(reason_not_written(connection, commit, 0, &before)?));
    }
    for (index, item) in commit.finalizations.iter().enumerate() {
        if !write_transaction(connection, before.id, commit, item)? {
            return Ok(Verdict::Undo(reason_not_written(connection, commit, index, &before)?));
        }
    }
    if let (Some(page), Some(entries)) = (&commit.page, entries) {
        write_page(connection, before.id, page, entries)?;
    }
    let revision = columns::revision(columns::signed(commit.after.version)?);
    Ok(Verdict::Keep(Committed::Done { revision: Some(revision) }))
}

/// Reads the row of an opened account.
fn before(connection: &Connection, key: AccountKey) -> Result<Option<Before>, SqlFault> {
    // No join: SQLite would plan it again for every pair of bound ids.
    let sql = "SELECT id, version, balance, sequence, head FROM accounts
               WHERE id = (SELECT id FROM account_names WHERE user_id = ?1 AND account_id = ?2)";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query((key.user.as_uuid().into_bytes(), key.account.as_uuid().into_bytes()))?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let (id, version, balance, sequence) = (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
    Ok(Some(Before { id, version, balance, sequence, head: columns::page_hash(row, 4)? }))
}

/// Returns whether the commit continues from the state of the row. If the version is the one that was read but the
/// state is not, the file was replaced (by a restored copy). Reading again helps, so the result is the same as for
/// an old version.
fn follows(commit: &AccountCommit, before: &Before) -> Result<bool, SqlFault> {
    let after = &commit.after;
    let Some(page) = &commit.page else {
        return Ok(after.balance.minor_units() == before.balance
            && columns::signed(after.sequence)? == before.sequence
            && after.head == before.head);
    };
    let balance = Balance::try_new(before.balance, after.currency).ok_or(SqlFault::Column("balance"))?;
    let adds_up =
        page.entries.first().is_some_and(|entry| entry.apply_to(balance) == Some(entry.balance_after));
    let next = before.sequence.checked_add(1);
    Ok(adds_up && Some(columns::signed(page.first_sequence)?) == next && page.previous_hash == before.head)
}

fn write_account(connection: &Connection, before: &Before, commit: &AccountCommit) -> Result<bool, SqlFault> {
    let after = &commit.after;
    if columns::signed(after.version)? <= before.version {
        return Err(SqlFault::Refused("a commit moves the version of its account forward".to_owned()));
    }
    let sql = "UPDATE accounts SET balance = ?1, version = ?2, sequence = ?3, head = ?4
               WHERE id = ?5 AND version = ?6";
    let changed = connection.prepare_cached(sql)?.execute((
        after.balance.minor_units(),
        columns::signed(after.version)?,
        columns::signed(after.sequence)?,
        after.head.as_bytes(),
        before.id,
        before.version,
    ))?;
    Ok(changed == 1)
}

fn write_transaction(
    connection: &Connection,
    account: i64,
    commit: &AccountCommit,
    item: &Finalization,
) -> Result<bool, SqlFault> {
    let Some(revision) = columns::version(&item.revision) else { return Ok(false) };
    let (decided_at, posted, reason) = match &item.outcome {
        Outcome::Posted { order_number, sequence, balance_after, posted_at } => (
            posted_at,
            Some((columns::signed(order_number.counter())?, columns::signed(*sequence)?, *balance_after)),
            None,
        ),
        Outcome::Rejected { reason, rejected_at } => (rejected_at, None, Some(reason.code())),
    };
    let sql = "UPDATE transactions SET status = :status, revision = revision + 1, commit_nonce = :nonce,
                   decided_at = :decided_at, order_number = :order_number, sequence = :sequence,
                   balance_after = :balance_after, reason = :reason
               WHERE account = :account AND partner = (SELECT id FROM partners WHERE name = :partner)
                   AND message = :message AND status = 'accepted' AND revision = :revision";
    let changed = connection.prepare_cached(sql)?.execute(named_params! {
        ":status": item.outcome.status().code(),
        ":nonce": commit.nonce.as_uuid().into_bytes(),
        ":decided_at": decided_at.unix_ms(),
        ":order_number": posted.map(|(order_number, _, _)| order_number),
        ":sequence": posted.map(|(_, sequence, _)| sequence),
        ":balance_after": posted.map(|(_, _, balance)| balance.minor_units()),
        ":reason": reason,
        ":account": account,
        ":partner": item.key.partner.as_str(),
        ":message": item.key.message.as_uuid().into_bytes(),
        ":revision": revision,
    })?;
    Ok(changed == 1)
}

fn write_page(
    connection: &Connection,
    account: i64,
    page: &JournalPage,
    entries: &str,
) -> Result<(), SqlFault> {
    let sql = "INSERT INTO journal_pages (account, first_sequence, entries, previous_hash, hash, nonce)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    connection.prepare_cached(sql)?.execute((
        account,
        columns::signed(page.first_sequence)?,
        entries,
        page.previous_hash.as_bytes(),
        page.hash.as_bytes(),
        page.nonce.as_uuid().into_bytes(),
    ))?;
    Ok(())
}

/// Returns why nothing was written. Called before the savepoint is rolled back: the transactions before `written` were
/// accepted until this commit changed them; the others are unchanged.
fn reason_not_written(
    connection: &Connection,
    commit: &AccountCommit,
    written: usize,
    before: &Before,
) -> Result<Committed, SqlFault> {
    let mut already_final = Vec::new();
    let mut own: usize = 0;
    for item in commit.finalizations.iter().skip(written) {
        if let Some(nonce) = decided_by(connection, before.id, item)? {
            own = own.saturating_add(usize::from(nonce == commit.nonce.as_uuid().into_bytes()));
            already_final.push(item.key.clone());
        }
    }
    if own == commit.finalizations.len() {
        // An earlier attempt was committed. Later commits may have changed the account row.
        let version = columns::signed(commit.after.version)?;
        let revision = (version == before.version).then(|| columns::revision(version));
        return Ok(Committed::Done { revision });
    }
    if already_final.is_empty() { Ok(Committed::Stale) } else { Ok(Committed::AlreadyFinal(already_final)) }
}

/// Returns the nonce of the commit that made a transaction final; `None` if it is not final.
fn decided_by(
    connection: &Connection,
    account: i64,
    item: &Finalization,
) -> Result<Option<[u8; 16]>, SqlFault> {
    let sql = "SELECT commit_nonce FROM transactions
               WHERE account = ?1 AND partner = (SELECT id FROM partners WHERE name = ?2)
                   AND message = ?3 AND status <> ?4";
    let (partner, message) = (item.key.partner.as_str(), item.key.message.as_uuid().into_bytes());
    let nonce = connection
        .prepare_cached(sql)?
        .query_row((account, partner, message, TransactionStatus::Accepted.code()), |row| row.get(0))
        .optional()?;
    Ok(nonce)
}
