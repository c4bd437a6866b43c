//! The copy of one account as of the version in its row. Performs no I/O.
//!
//! The row is read first, so all rows of its version are visible afterwards. Later decisions are not copied: later pages
//! are skipped, and later outcomes are removed from transactions, which are copied as accepted, so that acknowledged work
//! is not lost. Transactions of a batch were inserted with their outcome; if it is later, they are skipped, and the batch
//! posts them again.

use crate::domain::account::Account;
use crate::domain::ids::AccountKey;
use crate::domain::journal::{JournalPage, PageHash};
use crate::domain::transaction::Outcome;
use crate::ports::import::AccountRows;
use crate::ports::ledger::{Marks, StoredTransaction};

/// The position of a page in the chain.
#[derive(Debug, Clone, Copy)]
struct Link {
    version: u64,
    previous: PageHash,
    hash: PageHash,
}

#[derive(Debug, Clone, Copy, Default)]
struct End {
    version: u64,
    sequence: u64,
}

impl End {
    fn of(account: Option<&Account>) -> Self {
        account
            .map_or(Self::default(), |account| Self { version: account.version, sequence: account.sequence })
    }

    const fn contains_page(self, page: &JournalPage) -> bool {
        page.version <= self.version
    }

    fn contains_outcome(self, outcome: &Outcome) -> bool {
        match outcome {
            Outcome::Posted { sequence, .. } => *sequence <= self.sequence,
            Outcome::Rejected { version, .. } => version.is_none_or(|version| version <= self.version),
        }
    }
}

#[derive(Debug)]
pub(super) struct AccountCopy {
    /// The account row, if it is among the rows that are read.
    row: Option<Account>,
    /// The end of the journal as it is copied.
    end: End,
    /// The end and the head of the journal that the target already has. Its pages are skipped.
    known: (End, PageHash),
    links: Vec<Link>,
    rows: AccountRows,
    /// Number of pages and transactions added.
    counted: (u64, u64),
}

impl AccountCopy {
    /// Starts the copy of an account. `in_target` is the row in the target if only changes are read.
    pub(super) fn begin(key: AccountKey, row: Option<Account>, in_target: Option<&Account>) -> Self {
        let known_head = in_target.map_or(PageHash::GENESIS, |account| account.head);
        Self {
            end: End::of(row.as_ref().or(in_target)),
            known: (End::of(in_target), known_head),
            row,
            links: Vec::new(),
            rows: AccountRows::of(key),
            counted: (0, 0),
        }
    }

    pub(super) const fn key(&self) -> AccountKey {
        self.rows.key
    }

    /// Adds a page, unless it is after the end or already in the target.
    pub(super) fn add_page(&mut self, page: &JournalPage) {
        if !self.end.contains_page(page) || self.known.0.contains_page(page) {
            return;
        }
        let JournalPage { version, previous_hash: previous, hash, .. } = *page;
        self.links.push(Link { version, previous, hash });
        self.rows.pages.push(page.clone());
        self.counted.0 = self.counted.0.saturating_add(1);
    }

    /// Adds a transaction as of the end of the journal.
    pub(super) fn add_transaction(&mut self, stored: &StoredTransaction) {
        let Some(stored) = self.as_of_end(stored) else { return };
        self.rows.transactions.push(stored);
        self.counted.1 = self.counted.1.saturating_add(1);
    }

    /// Returns a transaction as it was at the end of the journal; `None` if it did not exist then.
    fn as_of_end(&self, stored: &StoredTransaction) -> Option<StoredTransaction> {
        let is_later = stored.outcome.as_ref().is_some_and(|outcome| !self.end.contains_outcome(outcome));
        if !is_later {
            return Some(stored.clone());
        }
        let accepted = || StoredTransaction {
            outcome: None,
            marks: Marks::default(),
            delivered: None,
            ..stored.clone()
        };
        stored.submission.batch_line.is_none().then(accepted)
    }

    /// Takes the rows added so far, without the account row.
    pub(super) fn take_rows(&mut self) -> AccountRows {
        let none = AccountRows::of(self.rows.key);
        std::mem::replace(&mut self.rows, none)
    }

    pub(super) const fn counts(&self) -> (u64, u64) {
        self.counted
    }

    /// Returns the remaining rows with the account row, and whether the pages lead to its head.
    pub(super) fn end(mut self) -> (AccountRows, bool) {
        let is_sound = self.leads_to_head();
        self.rows.account = self.row;
        (self.rows, is_sound)
    }

    fn leads_to_head(&mut self) -> bool {
        let Some(row) = &self.row else { return true };
        self.links.sort_by_key(|link| link.version);
        let mut head = self.known.1;
        for link in &self.links {
            if link.previous != head {
                return false;
            }
            head = link.hash;
        }
        head == row.head
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::domain::account::{Revision, Versioned};
    use crate::domain::decision::{
        AccountCommit, Decided, DecisionContext, Submission, TermsContext, decide, open,
    };
    use crate::domain::ids::{
        AccountId, BatchId, MessageId, Nonce, OrderNumber, PartnerId, TransactionKey, UserId,
    };
    use crate::domain::instruction::{Details, Instruction, TransactionKind};
    use crate::domain::money::{Amount, Currency, OverdraftLimit};
    use crate::domain::origin::Origin;
    use crate::domain::time::Timestamp;
    use crate::domain::transaction::{BatchLine, TransactionStatus};

    fn now() -> Timestamp {
        Timestamp::from_unix_ms(1_700_000_000_000)
    }

    /// An account with its journal and transactions, decided one after the other.
    struct History {
        account: Account,
        pages: Vec<JournalPage>,
        transactions: Vec<StoredTransaction>,
    }

    impl History {
        fn begin() -> Self {
            let key = AccountKey {
                user: UserId::from_uuid(Uuid::from_u128(1)),
                account: AccountId::from_uuid(Uuid::from_u128(2)),
            };
            let currency = Currency::parse("EUR").unwrap();
            let limit = OverdraftLimit::try_new(0, currency).unwrap();
            let context = TermsContext { nonce: Nonce::from_uuid(Uuid::nil()), now: now() };
            let opened = open(Account::open(key, currency, limit, None, now()), &context);
            Self { account: opened.after, pages: vec![opened.page], transactions: Vec::new() }
        }

        /// Decides one transaction, which is inserted with its outcome.
        fn decide(&mut self, message: u128, cents: i64, batch_line: Option<BatchLine>) {
            let kind = if cents < 0 { TransactionKind::Withdrawal } else { TransactionKind::Deposit };
            let amount = Amount::try_new(cents.abs(), self.account.currency).unwrap();
            let partner = PartnerId::parse("shop").unwrap();
            let message = MessageId::from_uuid(Uuid::from_u128(message));
            let work = Submission {
                key: TransactionKey { account: self.account.key, partner, message },
                instruction: Instruction { kind, amount, details: Details::default() },
                accepted_at: now(),
                batch_line,
                origin: Origin::default(),
            };
            let before = Versioned { value: self.account.clone(), revision: Revision::new("r") };
            let numbers = [OrderNumber::from_counter(self.account.sequence.saturating_add(1_000_000))];
            let nonce = Nonce::from_uuid(Uuid::from_u128(self.account.version.into()));
            let context = DecisionContext { nonce, now: now(), numbers: &numbers };
            let commit = decide(&before, vec![work.into()], &context);
            let AccountCommit { after, decided, page, .. } = commit;
            self.account = after;
            self.pages.push(page);
            self.transactions.extend(decided.into_iter().map(|Decided { pending, outcome }| {
                StoredTransaction::inserted(pending.submission, Revision::new("r"), Some(outcome))
            }));
        }

        fn add_to(&self, copy: &mut AccountCopy) {
            self.pages.iter().for_each(|page| copy.add_page(page));
            self.transactions.iter().for_each(|stored| copy.add_transaction(stored));
        }
    }

    #[test]
    fn what_was_decided_after_the_row_is_left_out_or_still_accepted() {
        let mut history = History::begin();
        history.decide(1, 500, None);
        history.decide(2, -900, None);
        let row = history.account.clone();
        let line = BatchLine { batch: BatchId::from_uuid(Uuid::nil()), line: 1 };
        history.decide(3, 100, None);
        history.decide(4, -10_000, None);
        history.decide(5, 100, Some(line));
        let mut copy = AccountCopy::begin(row.key, Some(row.clone()), None);
        history.add_to(&mut copy);
        let (rows, is_sound) = copy.end();
        assert!(is_sound, "the pages lead to the head of the row");
        assert_eq!((rows.pages.len(), rows.account.as_ref()), (3, Some(&row)));
        let statuses: Vec<TransactionStatus> =
            rows.transactions.iter().map(|stored| stored.status()).collect();
        use TransactionStatus::{Accepted, Posted, Rejected};
        assert_eq!(statuses, [Posted, Rejected, Accepted, Accepted], "an item of a batch is left out");
    }

    #[test]
    fn an_update_contains_what_is_new_and_a_missing_page_is_noticed() {
        let mut history = History::begin();
        history.decide(1, 500, None);
        let known = history.account.clone();
        history.decide(2, 100, None);
        history.decide(3, 100, None);
        let begin = || AccountCopy::begin(known.key, Some(history.account.clone()), Some(&known));
        let mut copy = begin();
        history.add_to(&mut copy);
        assert_eq!(copy.counts().0, 2, "pages that the target has are not copied again");
        assert!(copy.end().1);
        for missing in [2, 3] {
            let mut copy = begin();
            let pages = history.pages.iter().enumerate().filter(|(index, _)| *index != missing);
            pages.for_each(|(_, page)| copy.add_page(page));
            assert!(!copy.end().1, "page {missing} is missing");
        }
        // Only marks changed, so the account row is not among the changes.
        let mut copy = AccountCopy::begin(known.key, None, Some(&known));
        history.add_to(&mut copy);
        let (rows, is_sound) = copy.end();
        assert!(is_sound && rows.account.is_none() && rows.pages.is_empty());
    }
}
