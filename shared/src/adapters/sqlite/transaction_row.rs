//! Reads and writes rows of `transactions`.

use std::collections::BTreeMap;

use rusqlite::{CachedStatement, Connection, Row, params};
use uuid::Uuid;

use super::columns;
use super::fault::SqlFault;
use super::names::{self, number_of_account};
use crate::domain::decision::{Decided, Submission};
use crate::domain::ids::{BatchId, Nonce, OrderNumber, TransactionKey};
use crate::domain::instruction::{Details, Instruction, TransactionKind};
use crate::domain::money::{Amount, Balance, Currency};
use crate::domain::origin::{Delivered, Origin, RequestId};
use crate::domain::rejection::RejectReason;
use crate::domain::time::Timestamp;
use crate::domain::transaction::{BatchLine, Outcome, TransactionStatus};
use crate::ports::ledger::{Marks, StoredTransaction};

/// The columns for [`read`]. The alias of the table is `t`.
pub(super) const COLUMNS: &str = "t.status, t.revision, t.kind, t.amount, t.currency, t.reference, t.metadata, \
     t.unknown_members, t.fingerprint_version, t.fingerprint, t.accepted_at, t.dead_letter, t.repairs, \
     t.repaired_at, t.decided_at, t.order_number, t.sequence, t.balance_after, t.reason, t.batch, t.batch_line, \
     t.version, t.request_id, t.sent_at, t.received_at";

/// Number of columns in [`COLUMNS`]. Further columns of a join follow them.
pub(super) const COLUMNS_COUNT: usize = 25;

pub(super) const FIRST_REVISION: i64 = 1;

/// Reads a transaction whose key is known.
pub(super) fn read(row: &Row<'_>, key: TransactionKey) -> Result<StoredTransaction, SqlFault> {
    let kind = columns::code(row, 2, "kind", TransactionKind::from_code)?;
    let currency = columns::currency(row, 4)?;
    let amount = Amount::try_new(row.get(3)?, currency).map_err(|_| SqlFault::Column("amount"))?;
    let metadata = match row.get::<_, Option<String>>(6)? {
        Some(json) => serde_json::from_str(&json).map_err(|_| SqlFault::Column("metadata"))?,
        None => BTreeMap::new(),
    };
    let unknown_members = row.get::<_, Option<String>>(7)?.unwrap_or_default();
    let details = Details::from_stored(row.get(5)?, metadata, unknown_members);
    Ok(StoredTransaction {
        submission: Submission {
            key,
            instruction: Instruction { kind, amount, details },
            accepted_at: columns::timestamp(row, 10)?,
            origin: Origin { request_id: request_id(row), traceparent: None },
            batch_line: batch_line(row)?,
        },
        outcome: outcome(row, currency)?,
        fingerprint: columns::fingerprint(row, 8)?,
        revision: columns::revision(row.get(1)?),
        marks: Marks {
            dead_letter: row.get(11)?,
            repairs: row.get(12)?,
            repaired_at: columns::optional_timestamp(row, 13)?,
        },
        delivered: delivered(row),
    })
}

// Request id and delivery times are only for operators. An invalid one is omitted, so that the payment stays readable.

fn request_id(row: &Row<'_>) -> Option<RequestId> {
    let id = row.get::<_, Option<String>>(22).ok().flatten();
    id.and_then(|id| RequestId::parse(&id).ok())
}

fn delivered(row: &Row<'_>) -> Option<Delivered> {
    let time = |column| columns::optional_timestamp(row, column).ok().flatten();
    time(23).zip(time(24)).map(|(sent_at, received_at)| Delivered { sent_at, received_at })
}

fn batch_line(row: &Row<'_>) -> Result<Option<BatchLine>, SqlFault> {
    let Some(batch) = row.get::<_, Option<[u8; 16]>>(19)? else { return Ok(None) };
    Ok(Some(BatchLine { batch: BatchId::from_uuid(Uuid::from_bytes(batch)), line: row.get(20)? }))
}

fn outcome(row: &Row<'_>, currency: Currency) -> Result<Option<Outcome>, SqlFault> {
    let decided_at = || columns::timestamp(row, 14);
    match columns::code(row, 0, "status", TransactionStatus::from_code)? {
        TransactionStatus::Accepted => Ok(None),
        TransactionStatus::Rejected => Ok(Some(Outcome::Rejected {
            reason: columns::code(row, 18, "reason", RejectReason::from_code)?,
            rejected_at: decided_at()?,
            version: row
                .get::<_, Option<i64>>(21)?
                .map(|version| columns::unsigned(version, "version"))
                .transpose()?,
        })),
        TransactionStatus::Posted => {
            let counter = columns::unsigned(row.get(15)?, "order_number")?;
            if counter > OrderNumber::COUNTER_MAX {
                return Err(SqlFault::Column("order_number"));
            }
            Ok(Some(Outcome::Posted {
                order_number: OrderNumber::from_counter(counter),
                sequence: columns::unsigned(row.get(16)?, "sequence")?,
                balance_after: Balance::try_new(row.get(17)?, currency)
                    .ok_or(SqlFault::Column("balance_after"))?,
                posted_at: decided_at()?,
            }))
        }
    }
}

/// A stored transaction, with the nonce of the call that accepted it.
pub(super) struct Found {
    pub(super) stored: StoredTransaction,
    pub(super) accept_nonce: Nonce,
}

pub(super) fn find(connection: &Connection, key: &TransactionKey) -> Result<Option<Found>, SqlFault> {
    let sql = format!(
        "SELECT {COLUMNS}, t.accept_nonce FROM transactions t
         WHERE t.account = {} AND t.partner = (SELECT id FROM partners WHERE name = ?4) AND t.message = ?5",
        number_of_account!(),
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let (user, account, position) = names::parameters(key.account)?;
    let mut rows = statement.query((
        user,
        account,
        position,
        key.partner.as_str(),
        key.message.as_uuid().into_bytes(),
    ))?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let accept_nonce = Nonce::from_uuid(Uuid::from_bytes(row.get(COLUMNS_COUNT)?));
    Ok(Some(Found { stored: read(row, key.clone())?, accept_nonce }))
}

/// The columns that store an outcome.
pub(super) struct OutcomeColumns {
    pub(super) decided_at: i64,
    pub(super) order_number: Option<i64>,
    pub(super) sequence: Option<i64>,
    pub(super) balance_after: Option<i64>,
    pub(super) reason: Option<&'static str>,
    pub(super) version: Option<i64>,
}

impl OutcomeColumns {
    pub(super) fn of(outcome: &Outcome) -> Result<Self, SqlFault> {
        Ok(match outcome {
            Outcome::Posted { order_number, sequence, balance_after, posted_at } => Self {
                decided_at: posted_at.unix_ms(),
                order_number: Some(columns::signed(order_number.counter())?),
                sequence: Some(columns::signed(*sequence)?),
                balance_after: Some(balance_after.minor_units()),
                reason: None,
                version: None,
            },
            Outcome::Rejected { reason, rejected_at, version } => Self {
                decided_at: rejected_at.unix_ms(),
                order_number: None,
                sequence: None,
                balance_after: None,
                reason: Some(reason.code()),
                version: version.map(columns::signed).transpose()?,
            },
        })
    }
}

/// A row to insert, with everything that can be computed before it is passed to the writer.
pub(super) struct NewRow {
    pub(super) key: TransactionKey,
    instruction: Instruction,
    accepted_at: Timestamp,
    nonce: Nonce,
    batch_line: Option<BatchLine>,
    request_id: Option<RequestId>,
    outcome: Option<Outcome>,
    metadata: Option<String>,
    fingerprint: (u8, [u8; 32]),
}

impl NewRow {
    /// Creates the row of an accepted transaction.
    pub(super) fn accepted(new: &Submission, nonce: Nonce) -> Self {
        Self::of(new, nonce, None)
    }

    /// Creates the row of a transaction that a commit inserts with its outcome. The nonce is the nonce of the commit.
    pub(super) fn decided(decided: &Decided, nonce: Nonce) -> Self {
        Self::of(decided.submission(), nonce, Some(decided.outcome.clone()))
    }

    fn of(submission: &Submission, nonce: Nonce, outcome: Option<Outcome>) -> Self {
        let Submission { key, instruction, accepted_at, origin, batch_line } = submission.clone();
        let metadata = instruction.details.metadata();
        let json = || serde_json::to_string(metadata).expect("a map of texts can be written as JSON");
        let metadata = (!metadata.is_empty()).then(json);
        let fingerprint = columns::fingerprint_columns(&instruction.fingerprint());
        let request_id = origin.request_id;
        Self { key, instruction, accepted_at, nonce, batch_line, request_id, outcome, metadata, fingerprint }
    }

    /// Returns the nonce of the accept or commit that inserts the row.
    pub(super) const fn nonce(&self) -> Nonce {
        self.nonce
    }

    /// Prepares the statement for [`Self::insert`].
    pub(super) fn prepare(connection: &Connection) -> Result<CachedStatement<'_>, SqlFault> {
        Ok(connection.prepare_cached(
            "INSERT INTO transactions (account, partner, message, status, revision, kind, amount, currency,
                 reference, metadata, unknown_members, fingerprint_version, fingerprint, accepted_at,
                 accept_nonce, commit_nonce, decided_at, order_number, sequence, balance_after, reason, batch,
                 batch_line, version, request_id)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20,
                 ?21, ?22, ?23, ?24, ?25)
             ON CONFLICT (account, partner, message) DO NOTHING",
        )?)
    }

    /// Inserts the row. Returns false if the key exists.
    pub(super) fn insert(
        &self,
        prepared: &mut CachedStatement<'_>,
        account: i64,
        partner: i64,
    ) -> Result<bool, SqlFault> {
        let Self {
            key,
            instruction,
            accepted_at,
            nonce,
            batch_line,
            request_id,
            outcome,
            metadata,
            fingerprint,
        } = self;
        let Instruction { kind, amount, details } = instruction;
        let unknown_members = details.unknown_members();
        let status = outcome.as_ref().map_or(TransactionStatus::Accepted, Outcome::status);
        let decided = outcome.as_ref().map(OutcomeColumns::of).transpose()?;
        let decided = decided.as_ref();
        let nonce = nonce.as_uuid().into_bytes();
        let inserted = prepared.execute(params![
            account,
            partner,
            key.message.as_uuid().into_bytes(),
            status.code(),
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
            decided.map(|_| nonce),
            decided.map(|it| it.decided_at),
            decided.and_then(|it| it.order_number),
            decided.and_then(|it| it.sequence),
            decided.and_then(|it| it.balance_after),
            decided.and_then(|it| it.reason),
            batch_line.map(|it| it.batch.as_uuid().into_bytes()),
            batch_line.map(|it| it.line),
            decided.and_then(|it| it.version),
            request_id.as_ref().map(RequestId::as_str),
        ])?;
        Ok(inserted == 1)
    }
}
