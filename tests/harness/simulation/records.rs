//! The auditor's books: what was asked for, what was promised, and what became of it.

use std::collections::{BTreeMap, BTreeSet};

use postonce_shared::domain::account::{Account, AccountStatus};
use postonce_shared::domain::ids::{AccountKey, MessageId, PartnerId, TransactionKey};
use postonce_shared::domain::instruction::{Instruction, TransactionKind};
use postonce_shared::domain::journal::{Entry, JournalPage, PageHash};
use postonce_shared::domain::rejection::RejectReason;
use postonce_shared::domain::transaction::{Outcome, Transaction};
use postonce_shared::ports::Store;
use postonce_shared::ports::ledger::StoredTransaction;

use super::network::now;
use super::work_in_flight::WorkInFlight;

/// Entries that are read of a journal at once: more than any run has.
const ENTRIES_MAX: usize = 1_000_000;

/// What a client asked for, as far as the money goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    deposit: bool,
    cents: i64,
    reference: Option<String>,
}

impl Content {
    /// The content of an instruction.
    pub fn of(instruction: &Instruction) -> Self {
        Self {
            deposit: instruction.kind == TransactionKind::Deposit,
            cents: instruction.amount.minor_units(),
            reference: instruction.details.reference().map(str::to_owned),
        }
    }

    const fn signed(&self) -> i64 {
        if self.deposit { self.cents } else { self.cents.saturating_neg() }
    }
}

#[derive(Debug)]
struct Noted {
    content: Content,
    promised: bool,
    outcome: Option<Outcome>,
    /// An entry of the journal is of it, at that place.
    entry: Option<(u64, i64, u64)>,
}

#[derive(Debug)]
struct Tally {
    balance: i64,
    version: u64,
    sequence: u64,
    head: PageHash,
    overdraft: i64,
    closed: bool,
    /// The balances that there were during the last change, the first one before it.
    during: Vec<i64>,
}

/// The books.
#[derive(Debug, Default)]
pub struct Books {
    asked: BTreeMap<TransactionKey, Vec<Content>>,
    noted: BTreeMap<TransactionKey, Noted>,
    tallies: BTreeMap<AccountKey, Tally>,
    numbers: BTreeSet<u64>,
    /// What an adversary had in its hands.
    touched: BTreeSet<TransactionKey>,
    /// Where the work is.
    pub work: WorkInFlight,
    /// What the register says is reserved.
    pub reserved_below: u64,
}

type Checked = Result<(), String>;

fn check(holds: bool, finding: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(finding()) }
}

impl Books {
    /// A client may send this under that key.
    pub fn asked(&mut self, key: &TransactionKey, content: Content) {
        let contents = self.asked.entry(key.clone()).or_default();
        if !contents.contains(&content) {
            contents.push(content);
        }
    }

    /// A client is promised this.
    pub fn promised(&mut self, key: &TransactionKey, asked: &Content, told: &Transaction) -> Checked {
        let Some(noted) = self.noted.get_mut(key) else {
            return Err(format!("{key} was promised, and the log has no row"));
        };
        noted.promised = true;
        check(noted.content == *asked, || {
            format!("{key} was promised with {asked:?}, and the log has {:?}", noted.content)
        })?;
        if told.outcome.is_none() && noted.outcome.is_none() {
            check(self.touched.contains(key) || self.work.is_somewhere(key), || {
                format!("{key} was promised, and is on no queue and in no dead letter")
            })?;
        }
        self.shown(told)
    }

    /// A client is told that its key has other content.
    pub fn refused_as_reused(&self, key: &TransactionKey, asked: &Content) -> Checked {
        let noted = self.noted.get(key);
        check(noted.is_some_and(|noted| noted.content != *asked), || {
            format!("{key} was refused as reused with {asked:?}, and the log has {noted:?}")
        })
    }

    /// A client is shown this.
    pub fn shown(&self, told: &Transaction) -> Checked {
        let noted = self.noted.get(&told.key);
        let same = match &told.outcome {
            // It may have been read a moment ago.
            None => noted.is_some(),
            Some(outcome) => noted.is_some_and(|noted| noted.outcome.as_ref() == Some(outcome)),
        };
        check(same, || format!("{} was told to be {:?}, and the log has {noted:?}", told.key, told.outcome))
    }

    /// An adversary had these in its hands: their work may be nowhere.
    pub fn touched(&mut self, keys: Vec<TransactionKey>) {
        self.touched.extend(keys);
    }

    /// Work left a queue, or the dead letters.
    pub fn still_somewhere(&self, keys: &[TransactionKey], why: &str) -> Checked {
        for key in keys {
            let open = self.noted.get(key).is_some_and(|noted| noted.promised && noted.outcome.is_none());
            let held = self.touched.contains(key) || self.work.is_somewhere(key);
            check(!open || held, || format!("the work of {key} is lost: {why}"))?;
        }
        Ok(())
    }

    /// An order number is used.
    pub fn number(&mut self, counter: u64) -> Checked {
        check(self.numbers.insert(counter), || format!("the order number {counter} was issued twice"))?;
        check(counter < self.reserved_below, || {
            format!(
                "the order number {counter} was issued, and only those below {} are reserved",
                self.reserved_below
            )
        })
    }

    /// Looks at the row of a transaction.
    pub fn row(&mut self, key: &TransactionKey, row: Option<StoredTransaction>) -> Checked {
        let Some(StoredTransaction { transaction, .. }) = row else {
            return check(!self.noted.contains_key(key), || format!("the row of {key} is gone"));
        };
        let content = Content::of(&transaction.instruction);
        let Some(noted) = self.noted.get_mut(key) else {
            let asked = self.asked.get(key).is_some_and(|contents| contents.contains(&content));
            check(asked, || format!("{key} was accepted with {content:?}, which nobody asked for"))?;
            check(transaction.outcome.is_none(), || format!("{key} was final when it was accepted"))?;
            let noted = Noted { content, promised: false, outcome: None, entry: None };
            self.noted.insert(key.clone(), noted);
            return Ok(());
        };
        check(noted.content == content, || {
            format!("the content of {key} changed from {:?} to {content:?}", noted.content)
        })?;
        if noted.outcome == transaction.outcome {
            return Ok(());
        }
        check(noted.outcome.is_none(), || {
            format!("{key} was final as {:?} and is now {:?}", noted.outcome, transaction.outcome)
        })?;
        match &transaction.outcome {
            Some(Outcome::Posted { order_number, sequence, balance_after, .. }) => {
                let row = (*sequence, balance_after.minor_units(), order_number.counter());
                check(noted.entry == Some(row), || {
                    format!("{key} says that it was posted as {row:?}; its entry is {:?}", noted.entry)
                })?;
            }
            Some(Outcome::Rejected { reason, .. }) => {
                let tally = self.tallies.get(&key.account);
                check(noted.entry.is_none(), || format!("{key} was posted and then rejected"))?;
                let due = tally.is_some_and(|tally| rejection_is_due(tally, &noted.content, *reason));
                check(due, || {
                    format!("{key} ({:?}) was rejected as {reason}, with {tally:?}", noted.content)
                })?;
            }
            None => {}
        }
        noted.outcome = transaction.outcome;
        Ok(())
    }

    /// Looks at an account, and at what its journal has that the books do not.
    pub fn account(&mut self, raw: &Store, key: AccountKey) -> Checked {
        let row = now(raw.ledger.account(key)).map_err(|fault| fault.to_string())?;
        let Some(row) = row.map(|row| row.value) else {
            return check(!self.tallies.contains_key(&key), || format!("the account {key} is gone"));
        };
        let mut tally = self.tallies.remove(&key).unwrap_or_else(|| Tally::opened(&row));
        let next = tally.sequence.saturating_add(1);
        let pages = now(raw.log.pages(key, next, ENTRIES_MAX)).map_err(|fault| fault.to_string())?;
        let is_later = row.version == tally.version.saturating_add(1);
        check(is_later || row.version == tally.version, || {
            format!("the account {key} went from version {} to {}", tally.version, row.version)
        })?;
        if is_later {
            tally.during = vec![tally.balance];
        }
        for page in &pages {
            check(is_later, || format!("the account {key} has a new page without a new version"))?;
            self.page(page, key, &mut tally)?;
        }
        tally.version = row.version;
        tally.overdraft = row.overdraft_limit.minor_units();
        tally.closed = row.status == AccountStatus::Closed;
        let told = (row.balance.minor_units(), row.sequence, row.head);
        let counted = (tally.balance, tally.sequence, tally.head);
        self.tallies.insert(key, tally);
        check(told == counted, || format!("the account {key} says {told:?}; its entries make {counted:?}"))
    }

    fn page(&mut self, page: &JournalPage, key: AccountKey, tally: &mut Tally) -> Checked {
        check(page.account == key && page.previous_hash == tally.head, || {
            format!("the page from {} does not continue the journal of {key}", page.first_sequence)
        })?;
        for entry in &page.entries {
            self.entry(entry, key, tally)?;
        }
        tally.head = page.hash;
        Ok(())
    }

    fn entry(&mut self, entry: &Entry, account: AccountKey, tally: &mut Tally) -> Checked {
        let key = key_of(account, &entry.partner, entry.message);
        let next = tally.sequence.saturating_add(1);
        check(entry.sequence == next, || format!("entry {} of {account} stands at {next}", entry.sequence))?;
        let Some(noted) = self.noted.get_mut(&key) else {
            return Err(format!("{key} was posted, and was never accepted"));
        };
        check(noted.entry.is_none(), || format!("{key} was posted twice"))?;
        check(noted.outcome.is_none(), || format!("{key} was rejected and then posted"))?;
        let same = noted.content.cents == entry.amount.minor_units()
            && noted.content.deposit == (entry.kind == TransactionKind::Deposit)
            && noted.content.reference.as_deref() == entry.details.reference();
        check(same, || format!("{key} was accepted with {:?} and posted as {entry:?}", noted.content))?;
        let balance = tally.balance.checked_add(noted.content.signed()).expect("small sums");
        let after = entry.balance_after.minor_units();
        check(after == balance, || format!("{key} leaves {balance}, and its entry says {after}"))?;
        let floor = tally.overdraft.saturating_neg();
        check(noted.content.deposit || balance >= floor, || {
            format!("{key} was posted, and leaves {balance} where {floor} is the limit")
        })?;
        let counter = entry.order_number.counter();
        noted.entry = Some((entry.sequence, balance, counter));
        self.number(counter)?;
        tally.balance = balance;
        tally.sequence = next;
        tally.during.push(balance);
        Ok(())
    }

    /// Reads a journal from its start.
    pub fn whole_journal(&self, raw: &Store, account: AccountKey) -> Checked {
        let pages = now(raw.log.pages(account, 1, ENTRIES_MAX)).map_err(|fault| fault.to_string())?;
        let (mut head, mut count) = (PageHash::GENESIS, 0_u64);
        for page in &pages {
            check(page.previous_hash == head, || format!("the journal of {account} is not one chain"))?;
            head = page.hash;
            for entry in &page.entries {
                count = count.saturating_add(1);
                let noted = self.noted.get(&key_of(account, &entry.partner, entry.message));
                let place = noted.and_then(|noted| noted.entry).map(|(sequence, _, _)| sequence);
                check(place == Some(entry.sequence) && entry.sequence == count, || {
                    format!("entry {} of {account} is not where it was", entry.sequence)
                })?;
            }
        }
        let tally = self.tallies.get(&account);
        check(tally.is_some_and(|tally| tally.head == head && tally.sequence == count), || {
            format!("the journal of {account} ends elsewhere than it did")
        })
    }

    /// What was promised and is not final.
    pub fn owed(&self) -> impl Iterator<Item = &TransactionKey> {
        let open = |noted: &Noted| noted.promised && noted.outcome.is_none();
        self.noted.iter().filter(move |(_, noted)| open(noted)).map(|(key, _)| key)
    }

    /// The accounts.
    pub fn accounts(&self) -> Vec<AccountKey> {
        self.tallies.keys().copied().collect()
    }

    /// The transactions.
    pub fn transactions(&self) -> Vec<TransactionKey> {
        self.noted.keys().cloned().collect()
    }

    /// How many were posted and rejected.
    pub fn outcomes(&self) -> (u64, u64) {
        let count = |posted: bool| {
            let of_kind = |noted: &&Noted| noted.outcome.is_some() && noted.entry.is_some() == posted;
            u64::try_from(self.noted.values().filter(of_kind).count()).unwrap_or(u64::MAX)
        };
        (count(true), count(false))
    }
}

impl Tally {
    fn opened(row: &Account) -> Self {
        Self {
            balance: 0,
            version: row.version,
            sequence: 0,
            head: PageHash::GENESIS,
            overdraft: row.overdraft_limit.minor_units(),
            closed: row.status == AccountStatus::Closed,
            during: vec![0],
        }
    }
}

fn key_of(account: AccountKey, partner: &PartnerId, message: MessageId) -> TransactionKey {
    TransactionKey { account, partner: partner.clone(), message }
}

/// Whether the account could not do it, at one of the balances that there were during its last change.
fn rejection_is_due(tally: &Tally, content: &Content, reason: RejectReason) -> bool {
    match reason {
        RejectReason::InsufficientFunds => {
            let short = |balance: &i64| {
                balance.checked_sub(content.cents).and_then(|left| left.checked_add(tally.overdraft))
                    < Some(0)
            };
            !content.deposit && tally.during.iter().any(short)
        }
        RejectReason::AccountClosed => tally.closed,
        RejectReason::AccountUnknown
        | RejectReason::CurrencyMismatch
        | RejectReason::AmountOutOfRange
        | RejectReason::Discarded => false,
    }
}
