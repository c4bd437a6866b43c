//! What an audit tells: one sentence for a person, and the same in parts for a program.

use std::fmt;

use crate::domain::ids::{AccountKey, MessageId, PartnerId, TransactionKey};

/// Declares the kinds with their stable codes and their sentences, each in one place.
macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $weight:ident, $code:literal, $sentence:literal;)*) => {
        /// What is wrong, or worth a look.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum FindingKind {
            $($(#[$doc])* $name,)*
        }

        impl FindingKind {
            /// Every kind.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The stable code.
            pub const fn code(self) -> &'static str {
                match self { $(Self::$name => $code,)* }
            }

            /// How much it weighs.
            pub const fn weight(self) -> Weight {
                match self { $(Self::$name => Weight::$weight,)* }
            }

            const fn sentence(self) -> &'static str {
                match self { $(Self::$name => $sentence,)* }
            }
        }
    };
}

/// How much a finding weighs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    /// The ledger is not what the bank wrote.
    Finding,
    /// The ledger is sound, and a person may want to look all the same.
    Notice,
}

impl Weight {
    /// The stable code.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Finding => "finding",
            Self::Notice => "notice",
        }
    }
}

kinds! {
    /// A row that names an account, or the key of its rows.
    NameUnreadable = Finding, "name_unreadable", "the name of an account cannot be read";
    /// The row of the account.
    AccountUnreadable = Finding, "account_unreadable", "the row of the account cannot be read";
    /// Pages or transactions without an account.
    AccountMissing = Finding, "account_missing", "the account does not exist, but has pages or transactions";
    /// An account that its user cannot find.
    AccountUnlisted = Finding, "account_unlisted", "the account is missing in the list of its user";
    /// The balance of the account row.
    AccountBalance = Finding, "account_balance", "the balance of the account is not the sum of its entries";
    /// The sequence of the account row.
    AccountSequence = Finding, "account_sequence", "the account does not end where its journal ends";
    /// The head of the account row.
    AccountHead = Finding, "account_head", "the account does not name the hash of its last page";
    /// Each commit raises the version.
    AccountVersion = Finding, "account_version", "the version of the account is lower than its pages make it";
    /// A page whose row cannot be read.
    PageUnreadable = Finding, "page_unreadable", "the page cannot be read";
    /// A page without entries, or with too many.
    PageSize = Finding, "page_size", "the page has a number of entries that no commit makes";
    /// A page that was changed.
    PageHash = Finding, "page_hash", "the content of the page is not what was hashed when it was written";
    /// A page that does not go on from the one before.
    ChainBroken = Finding, "chain_broken", "the page does not name the hash of the page before it";
    /// A removed page.
    EntriesMissing = Finding, "entries_missing", "entries are missing in the journal";
    /// Two pages over the same sequences.
    PagesOverlap = Finding, "pages_overlap", "the page starts where another page already stands";
    /// An entry at another place than its own.
    EntrySequence = Finding, "entry_sequence", "another entry stands where this one should";
    /// An entry that does not add up.
    EntryBalance = Finding, "entry_balance", "the balance after the entry does not follow from the one before it";
    /// Money in another currency.
    EntryCurrency = Finding, "entry_currency", "the entry is in another currency than the account";
    /// A withdrawal that went too far, under a limit that was never another.
    Overdrawn = Finding, "overdrawn", "the withdrawal goes below the overdraft limit";
    /// A number from outside of all reserved ranges.
    OrderNumberUnreserved = Finding, "order_number_unreserved", "the order number was never reserved";
    /// A number that was issued twice.
    OrderNumberRepeated = Finding, "order_number_repeated", "the order number stands in more than one entry";
    /// The register of the ranges.
    RegisterUnsound = Finding, "register_unsound", "the register of order numbers must not be used";
    /// A transaction whose row cannot be read.
    TransactionUnreadable = Finding, "transaction_unreadable", "the transaction cannot be read";
    /// A changed transaction.
    Fingerprint = Finding, "fingerprint", "the content of the transaction is not what was accepted";
    /// An entry whose transaction is gone.
    TransactionMissing = Finding, "transaction_missing", "the entry is of a transaction that is not in the log";
    /// An entry of a transaction that did not move money.
    TransactionNotPosted = Finding, "transaction_not_posted", "the journal has an entry of a transaction that is not posted";
    /// A posted transaction that moved no money.
    EntryMissing = Finding, "entry_missing", "the transaction is posted, but the journal has no entry of it";
    /// A transaction that moved money twice.
    PostedTwice = Finding, "posted_twice", "the transaction has more than one entry";
    /// Entry and transaction tell different stories.
    ContentDiffers = Finding, "content_differs", "the transaction tells another story than its entry";
    /// Rows beyond the end of the account.
    BeyondTheEnd = Finding, "beyond_the_end", "the ledger goes on where the account says that it ends";
    /// Set aside, and not among what was set aside.
    DeadLetterMissing = Finding, "dead_letter_missing", "the transaction is marked as a dead letter, but no open letter holds it";
    /// Findings that were left out.
    More = Finding, "more", "there is more of this kind than is listed";
    /// Work that waits for long.
    Overdue = Notice, "overdue", "transactions have been accepted for long and are not final";
    /// A fingerprint by a rule of a newer program.
    FingerprintUnknown = Notice, "fingerprint_unknown", "fingerprints by a rule that this program does not know were not checked";
    /// An opening that a crash cut short.
    NeverOpened = Notice, "never_opened", "the list of the user names an account that was never opened";
    /// A register of a newer program.
    RegisterUnknown = Notice, "register_unknown", "the register of order numbers is of a newer program and was not compared";
    /// Letters that may hold what is missed.
    DeadLetterUnknown = Notice, "dead_letter_unknown", "the transaction is marked as a dead letter; whether one of the open letters that cannot be read holds it is not known";
}

impl fmt::Display for FindingKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.sentence())
    }
}

/// One thing that an audit found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What.
    pub kind: FindingKind,
    /// On which account; `None` when it is nobody's.
    pub account: Option<AccountKey>,
    /// At which entry; the first one where it is about a page.
    pub sequence: Option<u64>,
    /// About which transaction of the account.
    pub transaction: Option<(PartnerId, MessageId)>,
    /// What should be there.
    pub expected: Option<String>,
    /// What is there.
    pub found: Option<String>,
}

impl Finding {
    /// A finding without anything besides.
    pub const fn of(kind: FindingKind, account: Option<AccountKey>) -> Self {
        Self { kind, account, sequence: None, transaction: None, expected: None, found: None }
    }

    /// At that entry.
    #[must_use]
    pub const fn at(mut self, sequence: u64) -> Self {
        self.sequence = Some(sequence);
        self
    }

    /// About that transaction.
    #[must_use]
    pub fn about(mut self, key: &TransactionKey) -> Self {
        self.transaction = Some((key.partner.clone(), key.message));
        self
    }

    /// With what should be there.
    #[must_use]
    pub fn expecting(mut self, expected: impl fmt::Display) -> Self {
        self.expected = Some(expected.to_string());
        self
    }

    /// With what is there.
    #[must_use]
    pub fn finding(mut self, found: impl fmt::Display) -> Self {
        self.found = Some(found.to_string());
        self
    }
}

impl fmt::Display for Finding {
    /// One line: where, what, and what should be there instead.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(account) = self.account {
            write!(f, "account {account}: ")?;
        }
        if let Some(sequence) = self.sequence {
            write!(f, "entry {sequence}: ")?;
        }
        if let Some((partner, message)) = &self.transaction {
            write!(f, "transaction {partner}/{message}: ")?;
        }
        write!(f, "{}", self.kind)?;
        match (&self.expected, &self.found) {
            (Some(expected), Some(found)) => write!(f, "; expected {expected}, found {found}"),
            (Some(expected), None) => write!(f, "; expected {expected}"),
            (None, Some(found)) => write!(f, ": {found}"),
            (None, None) => Ok(()),
        }
    }
}

/// The findings of one account, of which so many are kept that a person can read them.
#[derive(Debug, Default)]
pub(super) struct Findings {
    kept: Vec<Finding>,
    more: u64,
}

/// Findings of one account that are told; the rest is counted.
const KEPT_MAX: usize = 1000;

impl Findings {
    pub(super) fn push(&mut self, finding: Finding) {
        if self.kept.len() < KEPT_MAX {
            self.kept.push(finding);
        } else {
            self.more = self.more.saturating_add(1);
        }
    }

    pub(super) fn into_told(self, account: AccountKey) -> Vec<Finding> {
        let Self { mut kept, more } = self;
        if more > 0 {
            kept.push(Finding::of(FindingKind::More, Some(account)).finding(format!("{more} more findings")));
        }
        kept
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use uuid::Uuid;

    use super::*;
    use crate::domain::ids::{AccountId, UserId};

    #[test]
    fn a_finding_is_one_sentence_with_its_place() {
        let user = UserId::from_uuid(Uuid::from_u128(1));
        let account = AccountKey { user, account: AccountId::from_uuid(Uuid::from_u128(2)) };
        let finding = Finding::of(FindingKind::EntryBalance, Some(account)).at(17);
        assert_eq!(
            finding.expecting("1.00 EUR").finding("2.00 EUR").to_string(),
            "account 00000000-0000-0000-0000-000000000001/00000000-0000-0000-0000-000000000002: entry 17: \
             the balance after the entry does not follow from the one before it; expected 1.00 EUR, found 2.00 EUR"
        );
    }

    #[test]
    fn every_kind_has_a_code_of_its_own() {
        let codes: BTreeSet<&str> = FindingKind::ALL.iter().map(|kind| kind.code()).collect();
        assert_eq!(codes.len(), FindingKind::ALL.len());
    }

    #[test]
    fn a_thousand_findings_are_told_and_the_rest_is_counted() {
        let user = UserId::from_uuid(Uuid::from_u128(1));
        let account = AccountKey { user, account: AccountId::from_uuid(Uuid::from_u128(2)) };
        let mut findings = Findings::default();
        (0..1005).for_each(|_| findings.push(Finding::of(FindingKind::PageHash, Some(account))));
        let told = findings.into_told(account);
        assert_eq!(told.len(), 1001);
        let last = told.last().unwrap();
        assert_eq!((last.kind, last.found.as_deref()), (FindingKind::More, Some("5 more findings")));
    }
}
