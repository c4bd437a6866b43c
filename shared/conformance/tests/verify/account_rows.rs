//! The rows of one account as values, made by the decisions of the domain, for tests to change.

use postonce_shared::domain::decision::{Submission, open};
use postonce_shared::oversight::verify::{
    AccountAudit, AccountRow, DifferingGroups, FindingKind, PassOptions, Report, Subject,
};
use postonce_shared::testing::prelude::*;
use uuid::Uuid;

/// The current time in these tests.
pub const NOW: i64 = 1_795_248_000_000;

/// All rows of one account.
#[derive(Debug, Clone)]
pub struct AccountRows {
    pub account: Account,
    pub pages: Vec<JournalPage>,
    pub transactions: Vec<StoredTransaction>,
    /// The account after its opening and after each commit.
    pub history: Vec<Account>,
    pub next_id: u128,
    /// The leaf of the account in an anchor.
    pub leaf: Option<Leaf>,
}

pub fn euro() -> Currency {
    Currency::parse("EUR").unwrap()
}

fn terms_context(before: &Account) -> TermsContext {
    let nonce = Nonce::from_uuid(Uuid::from_u128(u128::from(before.version)));
    TermsContext { nonce, now: Timestamp::from_unix_ms(NOW) }
}

impl AccountRows {
    /// A new account with an overdraft limit of 5.00.
    pub fn open() -> Self {
        let key = AccountKey {
            user: UserId::from_uuid(Uuid::from_u128(1)),
            account: AccountId::from_uuid(Uuid::from_u128(2)),
        };
        let limit = OverdraftLimit::try_new(500, euro()).unwrap();
        let account = Account::open(key, euro(), limit, None, Timestamp::from_unix_ms(NOW));
        let AccountDecision { after, page } = open(account.clone(), &terms_context(&account));
        Self {
            history: vec![after.clone()],
            account: after,
            pages: vec![page],
            transactions: Vec::new(),
            next_id: 0,
            leaf: None,
        }
    }

    fn apply(&mut self, decision: AccountDecision) {
        self.pages.push(decision.page);
        self.account = decision.after;
        self.history.push(self.account.clone());
    }

    pub fn change(&mut self, limit_cents: i64, status: AccountStatus) {
        self.change_with_holder(limit_cents, status, None);
    }

    pub fn change_with_holder(&mut self, limit_cents: i64, status: AccountStatus, holder: Option<Holder>) {
        let overdraft_limit = OverdraftLimit::try_new(limit_cents, euro()).unwrap();
        let terms = NewTerms { overdraft_limit, status, holder };
        self.apply(change_terms(&self.account, terms, &terms_context(&self.account)).unwrap());
    }

    /// An account with one commit for each list of deposits (positive) and withdrawals (negative), in cents.
    pub fn with(commits: &[&[i64]]) -> Self {
        let mut rows = Self::open();
        commits.iter().for_each(|cents| rows.commit(cents));
        rows
    }

    pub fn accept(&mut self, cents: i64) -> usize {
        self.next_id += 1;
        let kind = if cents > 0 { TransactionKind::Deposit } else { TransactionKind::Withdrawal };
        let amount = Amount::try_new(cents.abs(), euro()).unwrap();
        let details = Details::from_stored(Some(format!("{cents}")), [].into(), String::new());
        let instruction = Instruction { kind, amount, details };
        let key = TransactionKey {
            account: self.account.key,
            partner: PartnerId::parse(["shop", "shop_2"][usize::try_from(self.next_id % 2).unwrap()])
                .unwrap(),
            message: MessageId::from_uuid(Uuid::from_u128(self.next_id * 7)),
        };
        let accepted_at = Timestamp::from_unix_ms(NOW - 1000 + i64::try_from(self.next_id).unwrap());
        let submission =
            Submission { key, instruction, accepted_at, origin: Origin::default(), batch_line: None };
        self.transactions.push(StoredTransaction::inserted(submission, Revision::new("1"), None));
        self.transactions.len() - 1
    }

    pub fn commit(&mut self, cents: &[i64]) {
        let first = self.transactions.len();
        for cents in cents {
            self.accept(*cents);
        }
        let work: Vec<Work> =
            self.transactions[first..].iter().map(|stored| stored.work().unwrap()).collect();
        // Order numbers are not used in sequence.
        let counter = |index: usize| FIRST_COUNTER + u64::try_from(first + work.len() - index).unwrap();
        let numbers: Vec<OrderNumber> =
            (0..work.len()).map(|index| OrderNumber::from_counter(counter(index))).collect();
        let before = Versioned { value: self.account.clone(), revision: Revision::new("1") };
        let nonce = Nonce::from_uuid(Uuid::from_u128(u128::from(self.account.version)));
        let context = DecisionContext { nonce, now: Timestamp::from_unix_ms(NOW), numbers: &numbers };
        let commit = decide(&before, pending(&work, &[]), &context);
        for (stored, item) in self.transactions[first..].iter_mut().zip(commit.decided) {
            stored.outcome = Some(item.outcome);
        }
        self.pages.push(commit.page);
        self.account = commit.after;
        self.history.push(self.account.clone());
    }

    /// The places of the pages with entries.
    pub fn postings(&self) -> Vec<usize> {
        let has_entries = |place: &usize| !self.pages[*place].entries.is_empty();
        (0..self.pages.len()).filter(has_entries).collect()
    }

    /// Recomputes all hashes, as an attacker who knows how they are made would.
    pub fn rehash(&mut self) {
        let mut previous = PageHash::GENESIS;
        for page in &mut self.pages {
            page.previous_hash = previous;
            page.hash = page.content_hash();
            previous = page.hash;
        }
        self.account.head = previous;
    }

    /// Audits the account once.
    pub fn audit_once(&self, differing_groups: DifferingGroups) -> Report {
        let row = AccountRow::Read(Box::new(self.account.clone()));
        self.audit_row(row, differing_groups)
    }

    pub fn audit_row(&self, row: AccountRow, differing_groups: DifferingGroups) -> Report {
        let look = PassOptions {
            salt: Nonce::from_uuid(Uuid::from_u128(99)),
            now: Timestamp::from_unix_ms(NOW),
            unreserved_from: Some(FIRST_COUNTER + 10_000),
            differing_groups,
        };
        let mut audit =
            AccountAudit::new(Subject { key: self.account.key, row, listed: true, leaf: self.leaf }, look);
        for page in self.pages.iter().filter(|page| page.entries.is_empty()) {
            audit.decision_page(&StoredDecisionPage { version: Some(page.version), page: Ok(page.clone()) });
        }
        for page in self.pages.iter().filter(|page| !page.entries.is_empty()) {
            audit.page(&StoredPage { first_sequence: Some(page.first_sequence), page: Ok(page.clone()) });
        }
        audit.end_of_pages();
        self.transactions.iter().for_each(|stored| audit.transaction(&Ok(stored.clone())));
        audit.end()
    }

    /// Audits the account twice: the second audit compares the rows that the first one could not match.
    pub fn audit(&self) -> Report {
        let first = self.audit_once(DifferingGroups::default());
        self.audit_once(first.differing_groups)
    }

    pub fn kinds(&self) -> Vec<FindingKind> {
        self.audit().findings.iter().map(|finding| finding.kind).collect()
    }
}
