//! The row of a transaction. It is written in up to three steps: [`AcceptedRow`] on accept, [`MarksRow`] between accept
//! and commit, and [`FinalRow`] on commit. Apart from the status, no step writes a property of another. A commit that
//! inserts the row writes the properties of accept and commit together ([`InsertedRow`]).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::invalid_property::InvalidProperty;
use super::rows::{corrupt, number, parse, time};
use super::table::Found;
use crate::domain::account::Revision;
use crate::domain::decision::{Decided, Submission};
use crate::domain::ids::{BatchId, Nonce, OrderNumber};
use crate::domain::instruction::{Details, Fingerprint, Instruction, TransactionKind};
use crate::domain::money::{Amount, Balance, Currency};
use crate::domain::origin::{Delivered, Origin, RequestId};
use crate::domain::rejection::RejectReason;
use crate::domain::time::Timestamp;
use crate::domain::transaction::{BatchLine, Outcome, TransactionStatus};
use crate::ports::fault::StoreFault;
use crate::ports::ledger::{Marks, StoredTransaction};

/// The revision of all final rows. It is not an ETag, so no write can use it as a guard. A merge checks only the ETag,
/// so a commit with the ETag of a final row would post the transaction twice.
const FINAL: &str = "final";

/// Properties that an accept inserts.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct AcceptedRow {
    kind: String,
    amount: String,
    currency: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reference: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    metadata: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unknown_members: Option<String>,
    fingerprint: String,
    accepted_at: String,
    accept_nonce: String,
    status: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    batch: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    batch_line: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    request_id: Option<String>,
}

impl AcceptedRow {
    pub(super) fn of(new: &Submission, nonce: Nonce) -> Self {
        let Submission { key: _, instruction, accepted_at, origin, batch_line } = new;
        let Instruction { kind, amount, details } = instruction;
        let metadata = (!details.metadata().is_empty())
            .then(|| serde_json::to_string(details.metadata()).expect("texts can always be written as JSON"));
        let unknown_members =
            (!details.unknown_members().is_empty()).then(|| details.unknown_members().to_owned());
        Self {
            kind: kind.code().to_owned(),
            amount: amount.minor_units().to_string(),
            currency: amount.currency().code().to_owned(),
            reference: details.reference().map(str::to_owned),
            metadata,
            unknown_members,
            fingerprint: instruction.fingerprint().to_string(),
            accepted_at: accepted_at.unix_ms().to_string(),
            accept_nonce: nonce.simple(),
            status: TransactionStatus::Accepted.code().to_owned(),
            batch: batch_line.map(|it| it.batch.simple()),
            batch_line: batch_line.map(|it| it.line.to_string()),
            request_id: origin.request_id().map(str::to_owned),
        }
    }

    fn to_instruction(&self) -> Result<Instruction, InvalidProperty> {
        let currency = Currency::parse(&self.currency).map_err(|_| InvalidProperty("Currency"))?;
        let minor_units = number(&self.amount, "Amount")?;
        let metadata: BTreeMap<String, String> = match &self.metadata {
            Some(text) => serde_json::from_str(text).map_err(|_| InvalidProperty("Metadata"))?,
            None => BTreeMap::new(),
        };
        let unknown_members = self.unknown_members.clone().unwrap_or_default();
        Ok(Instruction {
            kind: TransactionKind::from_code(&self.kind).ok_or(InvalidProperty("Kind"))?,
            amount: Amount::try_new(minor_units, currency).map_err(|_| InvalidProperty("Amount"))?,
            details: Details::from_stored(self.reference.clone(), metadata, unknown_members),
        })
    }

    fn to_batch_line(&self) -> Result<Option<BatchLine>, InvalidProperty> {
        let Some(batch) = &self.batch else { return Ok(None) };
        let batch: BatchId = batch.parse().map_err(|_| InvalidProperty("Batch"))?;
        let line = self.batch_line.as_deref().unwrap_or_default();
        Ok(Some(BatchLine { batch, line: number(line, "BatchLine")? }))
    }
}

/// Properties that a commit merges into the row.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct FinalRow {
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    order_number: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sequence: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    balance_after: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    decided_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    commit_nonce: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    sent_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    received_at: Option<String>,
}

impl FinalRow {
    pub(super) fn of(outcome: &Outcome, delivered: Option<Delivered>, nonce: Nonce) -> Self {
        let status = outcome.status().code();
        let commit_nonce = nonce.simple();
        let text = |time: Timestamp| time.unix_ms().to_string();
        let sent_at = delivered.map(|delivered| text(delivered.sent_at));
        let received_at = delivered.map(|delivered| text(delivered.received_at));
        match outcome {
            Outcome::Posted { order_number, sequence, balance_after, posted_at } => Self {
                status,
                order_number: Some(order_number.to_string()),
                sequence: Some(sequence.to_string()),
                balance_after: Some(balance_after.minor_units().to_string()),
                reason: None,
                decided_at: text(*posted_at),
                version: None,
                commit_nonce,
                sent_at,
                received_at,
            },
            Outcome::Rejected { reason, rejected_at, version } => Self {
                status,
                order_number: None,
                sequence: None,
                balance_after: None,
                reason: Some(reason.code()),
                decided_at: text(*rejected_at),
                version: version.map(|version| version.to_string()),
                commit_nonce,
                sent_at,
                received_at,
            },
        }
    }
}

/// Properties of a row that a commit inserts: the properties of accept and of the outcome.
#[derive(Debug, Serialize)]
pub(super) struct InsertedRow {
    #[serde(flatten)]
    accepted: AcceptedRow,
    #[serde(flatten)]
    last: FinalRow,
}

impl InsertedRow {
    pub(super) fn of(decided: &Decided, nonce: Nonce) -> Self {
        let outcome = &decided.outcome;
        let mut accepted = AcceptedRow::of(decided.submission(), nonce);
        // Both parts contain the status, so they must agree.
        accepted.status = outcome.status().code().to_owned();
        Self { accepted, last: FinalRow::of(outcome, None, nonce) }
    }
}

/// Properties of a row that is imported from another store.
#[derive(Debug, Serialize)]
pub(super) struct ImportedRow {
    #[serde(flatten)]
    accepted: AcceptedRow,
    #[serde(flatten)]
    last: Option<FinalRow>,
    #[serde(flatten)]
    marks: Option<MarksRow>,
}

impl ImportedRow {
    pub(super) fn of(stored: &StoredTransaction, nonce: Nonce) -> Self {
        let StoredTransaction { submission, outcome, fingerprint, revision: _, marks, delivered } = stored;
        let mut accepted = AcceptedRow::of(submission, nonce);
        // The fingerprint keeps the version of its rule at the time of acceptance.
        accepted.fingerprint = fingerprint.to_string();
        accepted.status = stored.status().code().to_owned();
        let last = outcome.as_ref().map(|outcome| FinalRow::of(outcome, *delivered, nonce));
        let marks = (*marks != Marks::default()).then(|| MarksRow::of(*marks, nonce));
        Self { accepted, last, marks }
    }
}

/// Properties that marking merges into the row of an accepted transaction. All of them are always written, because a
/// merge cannot remove a property.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct MarksRow {
    dead_letter: bool,
    repairs: String,
    /// Empty if the transaction was never enqueued again.
    repaired_at: String,
    /// Identifies the call that wrote the marks.
    marks_nonce: String,
}

impl MarksRow {
    pub(super) fn of(marks: Marks, nonce: Nonce) -> Self {
        let Marks { dead_letter, repairs, repaired_at } = marks;
        let repaired_at = repaired_at.map(|at| at.unix_ms().to_string()).unwrap_or_default();
        Self { dead_letter, repairs: repairs.to_string(), repaired_at, marks_nonce: nonce.simple() }
    }
}

/// Properties that are written after accept, for reading.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct LaterRow {
    #[serde(default)]
    order_number: Option<String>,
    #[serde(default)]
    sequence: Option<String>,
    #[serde(default)]
    balance_after: Option<String>,
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    decided_at: Option<String>,
    #[serde(default)]
    version: Option<String>,
    #[serde(default)]
    commit_nonce: Option<String>,
    #[serde(default)]
    dead_letter: bool,
    #[serde(default)]
    repairs: Option<String>,
    #[serde(default)]
    repaired_at: Option<String>,
    #[serde(default)]
    marks_nonce: Option<String>,
    #[serde(default)]
    sent_at: Option<String>,
    #[serde(default)]
    received_at: Option<String>,
}

/// A row with all its properties.
#[derive(Debug)]
pub(super) struct TransactionRow {
    accepted: AcceptedRow,
    later: LaterRow,
}

impl TransactionRow {
    pub(super) fn parse(found: &Found, doing: &'static str) -> Result<Self, StoreFault> {
        Ok(Self { accepted: parse(found, doing)?, later: parse(found, doing)? })
    }

    /// Returns the stored kind, minor units and currency.
    pub(super) fn money(&self) -> (&str, &str, &str) {
        (&self.accepted.kind, &self.accepted.amount, &self.accepted.currency)
    }

    /// Returns whether the accept with this nonce inserted the row.
    pub(super) fn was_accepted_by(&self, nonce: Nonce) -> bool {
        self.accepted.accept_nonce == nonce.simple()
    }

    /// Returns whether the commit with this nonce made the transaction final.
    pub(super) fn was_decided_by(&self, nonce: Nonce) -> bool {
        self.later.commit_nonce.as_deref() == Some(nonce.simple().as_str())
    }

    /// Returns whether the call with this nonce wrote the current marks.
    pub(super) fn was_marked_by(&self, nonce: Nonce) -> bool {
        self.later.marks_nonce.as_deref() == Some(nonce.simple().as_str())
    }

    /// Decodes the transaction of the row.
    pub(super) fn to_stored(
        &self,
        found: &Found,
        doing: &'static str,
    ) -> Result<StoredTransaction, StoreFault> {
        self.assemble(found).map_err(|invalid| corrupt(found, doing, invalid))
    }

    fn assemble(&self, found: &Found) -> Result<StoredTransaction, InvalidProperty> {
        let instruction = self.accepted.to_instruction()?;
        let outcome = self.to_outcome(instruction.amount.currency())?;
        let fingerprint =
            Fingerprint::parse(&self.accepted.fingerprint).ok_or(InvalidProperty("Fingerprint"))?;
        let accepted_at = time(&self.accepted.accepted_at, "AcceptedAt")?;
        let key = found.key.to_transaction()?;
        let revision = match outcome {
            None => found.revision.clone(),
            Some(_) => Revision::new(FINAL),
        };
        let batch_line = self.accepted.to_batch_line()?;
        let origin = Origin { request_id: self.to_request_id(), traceparent: None };
        Ok(StoredTransaction {
            submission: Submission { key, instruction, accepted_at, origin, batch_line },
            outcome,
            fingerprint,
            revision,
            marks: self.to_marks()?,
            delivered: self.to_delivered(),
        })
    }

    // Request id and delivery times are only for operators. They are omitted if they cannot be parsed, so that they do
    // not make a payment unreadable.

    fn to_request_id(&self) -> Option<RequestId> {
        self.accepted.request_id.as_deref().and_then(|id| RequestId::parse(id).ok())
    }

    fn to_delivered(&self) -> Option<Delivered> {
        let time_of = |text: &Option<String>| text.as_deref().and_then(|text| time(text, "delivery").ok());
        let times = time_of(&self.later.sent_at).zip(time_of(&self.later.received_at));
        times.map(|(sent_at, received_at)| Delivered { sent_at, received_at })
    }

    fn to_outcome(&self, currency: Currency) -> Result<Option<Outcome>, InvalidProperty> {
        let status = TransactionStatus::from_code(&self.accepted.status).ok_or(InvalidProperty("Status"))?;
        let text = |text: &'_ Option<String>, property| text.clone().ok_or(InvalidProperty(property));
        match status {
            TransactionStatus::Accepted => Ok(None),
            TransactionStatus::Posted => {
                let order_number = text(&self.later.order_number, "OrderNumber")?;
                let balance = number(&text(&self.later.balance_after, "BalanceAfter")?, "BalanceAfter")?;
                Ok(Some(Outcome::Posted {
                    order_number: OrderNumber::parse(&order_number)
                        .map_err(|_| InvalidProperty("OrderNumber"))?,
                    sequence: number(&text(&self.later.sequence, "Sequence")?, "Sequence")?,
                    balance_after: Balance::try_new(balance, currency)
                        .ok_or(InvalidProperty("BalanceAfter"))?,
                    posted_at: time(&text(&self.later.decided_at, "DecidedAt")?, "DecidedAt")?,
                }))
            }
            TransactionStatus::Rejected => {
                let reason = text(&self.later.reason, "Reason")?;
                Ok(Some(Outcome::Rejected {
                    reason: RejectReason::from_code(&reason).ok_or(InvalidProperty("Reason"))?,
                    rejected_at: time(&text(&self.later.decided_at, "DecidedAt")?, "DecidedAt")?,
                    version: self.later.version.as_deref().map(|it| number(it, "Version")).transpose()?,
                }))
            }
        }
    }

    fn to_marks(&self) -> Result<Marks, InvalidProperty> {
        let repaired_at = self.later.repaired_at.as_deref().filter(|text| !text.is_empty());
        Ok(Marks {
            dead_letter: self.later.dead_letter,
            repairs: number(self.later.repairs.as_deref().unwrap_or("0"), "Repairs")?,
            repaired_at: repaired_at.map(|text| time(text, "RepairedAt")).transpose()?,
        })
    }
}

/// Decodes a transaction from its row.
pub(super) fn read(found: &Found, doing: &'static str) -> Result<StoredTransaction, StoreFault> {
    TransactionRow::parse(found, doing)?.to_stored(found, doing)
}
