//! The records of the auditor: requests of clients, acknowledgements, and outcomes.

use std::collections::{BTreeMap, BTreeSet};

use postonce_shared::testing::prelude::*;

use super::network::now;
use super::work_in_flight::WorkInFlight;

/// Maximum number of journal entries read at once, more than any run writes.
pub(super) const ENTRIES_MAX: usize = 1_000_000;

/// The parts of a request that matter for the money.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    pub(super) deposit: bool,
    pub(super) cents: i64,
    pub(super) reference: Option<String>,
}

impl Content {
    /// Returns the content of an instruction.
    pub fn of(instruction: &Instruction) -> Self {
        Self {
            deposit: instruction.kind == TransactionKind::Deposit,
            cents: instruction.amount.minor_units(),
            reference: instruction.details.reference().map(str::to_owned),
        }
    }

    pub(super) const fn signed(&self) -> i64 {
        if self.deposit { self.cents } else { self.cents.saturating_neg() }
    }
}

#[derive(Debug)]
pub(super) struct TransactionRecord {
    pub(super) content: Content,
    acknowledged: bool,
    pub(super) outcome: Option<Outcome>,
    /// Sequence, balance and order number of its journal entry, if there is one.
    pub(super) entry: Option<(u64, i64, u64)>,
    /// Version and reason of its rejection in the journal, if there is one.
    pub(super) rejection: Option<(u64, RejectReason)>,
}

#[derive(Debug)]
pub(super) struct AccountRecord {
    pub(super) balance: i64,
    pub(super) version: u64,
    pub(super) sequence: u64,
    pub(super) head: PageHash,
    pub(super) overdraft: i64,
    status: AccountStatus,
    /// Every balance during the last change of the account, starting with the balance before it.
    pub(super) balances: Vec<i64>,
}

/// All records of the auditor.
#[derive(Debug, Default)]
pub struct AuditRecords {
    pub(super) requested: BTreeMap<TransactionKey, Vec<Content>>,
    pub(super) transactions: BTreeMap<TransactionKey, TransactionRecord>,
    pub(super) accounts: BTreeMap<AccountKey, AccountRecord>,
    numbers: BTreeSet<u64>,
    /// Transactions in messages that the adversary had access to.
    tampered: BTreeSet<TransactionKey>,
    /// Accounts that a process found not to exist.
    pub missing: BTreeSet<AccountKey>,
    /// The messages and dead letters that contain work.
    pub work: WorkInFlight,
    /// Order numbers of commits that were reported as not written.
    pub refused: BTreeSet<u64>,
    /// The limit in the register below which order numbers are reserved.
    pub reserved_below: u64,
}

pub(super) type Checked = Result<(), String>;

pub(super) fn check(holds: bool, finding: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(finding()) }
}

impl AuditRecords {
    /// Records that a client may send this content under this key.
    pub fn requested(&mut self, key: &TransactionKey, content: Content) {
        let contents = self.requested.entry(key.clone()).or_default();
        if !contents.contains(&content) {
            contents.push(content);
        }
    }

    /// Checks an acknowledgement to a client.
    pub fn acknowledged(&mut self, key: &TransactionKey, requested: &Content, shown: &Accepted) -> Checked {
        let Some(record) = self.transactions.get_mut(key) else {
            return Err(format!("{key} was acknowledged, and the log has no row"));
        };
        record.acknowledged = true;
        check(record.content == *requested, || {
            format!("{key} was acknowledged with {requested:?}, and the log has {:?}", record.content)
        })?;
        if shown.outcome.is_none() && record.outcome.is_none() {
            check(self.tampered.contains(key) || self.work.exists(key), || {
                format!("{key} was acknowledged, and is on no queue and in no dead letter")
            })?;
        }
        self.shown(key, shown.outcome.as_ref())
    }

    /// Checks the refusal of a key that was used with other content.
    pub fn refused_as_reused(&self, key: &TransactionKey, requested: &Content) -> Checked {
        let record = self.transactions.get(key);
        check(record.is_some_and(|record| record.content != *requested), || {
            format!("{key} was refused as reused with {requested:?}, and the log has {record:?}")
        })
    }

    /// Checks a transaction that was shown to a client.
    pub fn shown(&self, key: &TransactionKey, shown: Option<&Outcome>) -> Checked {
        let record = self.transactions.get(key);
        let same = match shown {
            // The row may have been read before it became final.
            None => record.is_some(),
            Some(outcome) => record.is_some_and(|record| record.outcome.as_ref() == Some(outcome)),
        };
        check(same, || format!("{key} was shown as {shown:?}, and the log has {record:?}"))
    }

    /// Records that the adversary had access to these transactions, so their work may be missing.
    pub fn tampered(&mut self, keys: Vec<TransactionKey>) {
        self.tampered.extend(keys);
    }

    /// Checks that the work of these transactions still exists after a message or a dead letter was removed.
    pub fn check_work_exists(&self, keys: &[TransactionKey], why: &str) -> Checked {
        for key in keys {
            let open = self
                .transactions
                .get(key)
                .is_some_and(|record| record.acknowledged && record.outcome.is_none());
            let exists = self.tampered.contains(key) || self.work.exists(key);
            check(!open || exists, || format!("the work of {key} is lost: {why}"))?;
        }
        Ok(())
    }

    /// Records an issued order number.
    pub fn number(&mut self, counter: u64) -> Checked {
        check(self.numbers.insert(counter), || format!("the order number {counter} was issued twice"))?;
        check(counter < self.reserved_below, || {
            format!(
                "the order number {counter} was issued, and only those below {} are reserved",
                self.reserved_below
            )
        })
    }

    /// Checks the row of a transaction.
    pub fn row(&mut self, key: &TransactionKey, row: Option<StoredTransaction>) -> Checked {
        let Some(StoredTransaction { submission, outcome, .. }) = row else {
            return check(!self.transactions.contains_key(key), || format!("the row of {key} is gone"));
        };
        let content = Content::of(&submission.instruction);
        let Some(record) = self.transactions.get_mut(key) else {
            let requested = self.requested.get(key).is_some_and(|contents| contents.contains(&content));
            check(requested, || format!("{key} was accepted with {content:?}, which no client requested"))?;
            check(outcome.is_none(), || format!("{key} was final when it was accepted"))?;
            self.transactions.insert(key.clone(), TransactionRecord::of(content));
            return Ok(());
        };
        check(record.content == content, || {
            format!("the content of {key} changed from {:?} to {content:?}", record.content)
        })?;
        if record.outcome == outcome {
            return Ok(());
        }
        check(record.outcome.is_none(), || {
            format!("{key} was final as {:?} and is now {:?}", record.outcome, outcome)
        })?;
        match &outcome {
            Some(Outcome::Posted { order_number, sequence, balance_after, .. }) => {
                let row = (*sequence, balance_after.minor_units(), order_number.counter());
                check(record.entry == Some(row), || {
                    format!("the row of {key} is posted as {row:?}; its entry is {:?}", record.entry)
                })?;
            }
            Some(Outcome::Rejected { reason, version, .. }) => {
                let account = self.accounts.get(&key.account);
                check(record.rejection == version.map(|version| (version, *reason)), || {
                    format!(
                        "the row of {key} is rejected as {reason} in version {version:?}; the journal has {:?}",
                        record.rejection
                    )
                })?;
                check(record.entry.is_none(), || format!("{key} was posted and then rejected"))?;
                let is_missing =
                    *reason == RejectReason::AccountUnknown && self.missing.contains(&key.account);
                let due = is_missing
                    || account.is_some_and(|account| rejection_is_due(account, &record.content, *reason));
                check(due, || {
                    format!("{key} ({:?}) was rejected as {reason}, with {account:?}", record.content)
                })?;
            }
            None => {}
        }
        record.outcome = outcome;
        Ok(())
    }

    /// Checks an account, and the journal entries that are not recorded yet.
    pub fn account(&mut self, raw: &Store, key: AccountKey) -> Checked {
        let row = now(raw.ledger.account(key)).map_err(|fault| fault.to_string())?;
        let Some(row) = row.map(|row| row.value) else {
            return check(!self.accounts.contains_key(&key), || format!("the account {key} is gone"));
        };
        let known = self.accounts.remove(&key);
        let is_new = known.is_none();
        let mut record = known.unwrap_or_else(|| AccountRecord::opened(&row));
        let is_later = row.version == record.version.saturating_add(1);
        check(is_later || row.version == record.version, || {
            format!("the account {key} went from version {} to {}", record.version, row.version)
        })?;
        if is_later {
            record.balances = vec![record.balance];
        }
        self.new_pages(raw, &row, &mut record, is_later || is_new)?;
        record.version = row.version;
        record.overdraft = row.overdraft_limit.minor_units();
        record.status = row.status;
        let stored = (row.balance.minor_units(), row.sequence, row.head);
        let computed = (record.balance, record.sequence, record.head);
        self.accounts.insert(key, record);
        check(stored == computed, || {
            format!("the account {key} has {stored:?}; its entries give {computed:?}")
        })
    }

    /// Returns the acknowledged transactions that are not final.
    pub fn unfinished(&self) -> impl Iterator<Item = &TransactionKey> {
        let open = |record: &TransactionRecord| record.acknowledged && record.outcome.is_none();
        self.transactions.iter().filter(move |(_, record)| open(record)).map(|(key, _)| key)
    }

    /// Returns the keys of all accounts.
    pub fn accounts(&self) -> Vec<AccountKey> {
        self.accounts.keys().copied().collect()
    }

    /// Returns the keys of all transactions.
    pub fn transactions(&self) -> Vec<TransactionKey> {
        self.transactions.keys().cloned().collect()
    }

    /// Returns the numbers of posted and of rejected transactions.
    pub fn outcomes(&self) -> (u64, u64) {
        let count = |posted: bool| {
            let of_kind =
                |record: &&TransactionRecord| record.outcome.is_some() && record.entry.is_some() == posted;
            u64::try_from(self.transactions.values().filter(of_kind).count()).unwrap_or(u64::MAX)
        };
        (count(true), count(false))
    }
}

impl TransactionRecord {
    /// Creates the record of a transaction with this content that is not acknowledged yet.
    pub(super) const fn of(content: Content) -> Self {
        Self { content, acknowledged: false, outcome: None, entry: None, rejection: None }
    }
}

impl AccountRecord {
    fn opened(row: &Account) -> Self {
        Self {
            balance: 0,
            version: row.version,
            sequence: 0,
            head: PageHash::GENESIS,
            overdraft: row.overdraft_limit.minor_units(),
            status: row.status,
            balances: vec![0],
        }
    }
}

pub(super) fn key_of(account: AccountKey, partner: &PartnerId, message: MessageId) -> TransactionKey {
    TransactionKey { account, partner: partner.clone(), message }
}

/// Returns whether the rejection is right for one of the balances during the last change of the account.
fn rejection_is_due(account: &AccountRecord, content: &Content, reason: RejectReason) -> bool {
    match reason {
        RejectReason::InsufficientFunds => {
            let short = |balance: &i64| {
                balance.checked_sub(content.cents).and_then(|left| left.checked_add(account.overdraft))
                    < Some(0)
            };
            !content.deposit && account.balances.iter().any(short)
        }
        RejectReason::AccountClosed | RejectReason::AccountFrozen => account.status.rejects() == Some(reason),
        RejectReason::AccountUnknown
        | RejectReason::CurrencyMismatch
        | RejectReason::AmountOutOfRange
        | RejectReason::Discarded => false,
    }
}
