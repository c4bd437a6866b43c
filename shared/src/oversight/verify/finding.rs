//! Results of an audit, as a sentence for operators and as fields for programs.

use std::fmt;

use crate::domain::batch::BatchKey;
use crate::domain::ids::{AccountKey, MessageId, PartnerId, TransactionKey};

/// Declares the kinds with their severities, stable codes and sentences.
macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $severity:ident, $code:literal, $sentence:literal;)*) => {
        /// Kind of an inconsistency or a notice.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum FindingKind {
            $($(#[$doc])* $name,)*
        }

        impl FindingKind {
            /// Every kind.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Returns the stable code.
            pub const fn code(self) -> &'static str {
                match self { $(Self::$name => $code,)* }
            }

            /// Returns the severity.
            pub const fn severity(self) -> Severity {
                match self { $(Self::$name => Severity::$severity,)* }
            }

            const fn sentence(self) -> &'static str {
                match self { $(Self::$name => $sentence,)* }
            }
        }
    };
}

/// Severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The ledger differs from what the bank wrote.
    Finding,
    /// The ledger is consistent, but operators may want to know.
    Notice,
}

impl Severity {
    /// Returns the stable code.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Finding => "finding",
            Self::Notice => "notice",
        }
    }
}

kinds! {
    /// An account name, or the key of a row, cannot be decoded.
    NameUnreadable = Finding, "name_unreadable", "the name of an account cannot be read";
    /// The account row cannot be decoded.
    AccountUnreadable = Finding, "account_unreadable", "the row of the account cannot be read";
    /// Pages or transactions exist without an account.
    AccountMissing = Finding, "account_missing", "the account does not exist, but has pages or transactions";
    /// The account is not in the list of its user.
    AccountUnlisted = Finding, "account_unlisted", "the account is missing in the list of its user";
    /// The balance of the account row is wrong.
    AccountBalance = Finding, "account_balance", "the balance of the account is not the sum of its entries";
    /// The sequence of the account row is wrong.
    AccountSequence = Finding, "account_sequence", "the sequence of the account is not the last one of its journal";
    /// The terms of the account differ from the decided terms.
    AccountTerms = Finding, "account_terms", "the terms of the account are not those of its journal";
    /// The row of a page cannot be decoded.
    PageUnreadable = Finding, "page_unreadable", "the page cannot be read";
    /// A page has no entries, or too many.
    PageSize = Finding, "page_size", "the number of entries of the page is outside the allowed range";
    /// A page was changed.
    PageHash = Finding, "page_hash", "the content of the page does not match its hash";
    /// A page does not follow the previous one.
    ChainBroken = Finding, "chain_broken", "the page does not have the hash of the previous page";
    /// Pages of decisions were removed or added.
    DecisionsMissing = Finding, "decisions_missing", "the journal does not contain each decision once";
    /// Pages of decisions do not form one chain.
    DecisionsBroken = Finding, "decisions_broken", "the pages of the journal are not one chain up to the head of the account";
    /// The rejections in the log differ from the journal.
    RejectionsDiffer = Finding, "rejections_differ", "the rejected transactions are not those of the journal";
    /// The log contains rejections that the journal does not.
    RejectionUnchained = Finding, "rejection_unchained", "transactions are rejected that are not in the journal";
    /// A page was removed.
    EntriesMissing = Finding, "entries_missing", "entries are missing in the journal";
    /// Two pages contain the same sequences.
    PagesOverlap = Finding, "pages_overlap", "the page overlaps the previous page";
    /// The sequence of an entry does not match its position.
    EntrySequence = Finding, "entry_sequence", "the sequence of the entry does not match its position in the journal";
    /// The balance of an entry is wrong.
    EntryBalance = Finding, "entry_balance", "the balance after the entry does not follow from the previous balance";
    /// The currency of an entry differs from its account.
    EntryCurrency = Finding, "entry_currency", "the entry is in another currency than the account";
    /// A withdrawal exceeds a limit that was never changed.
    Overdrawn = Finding, "overdrawn", "the withdrawal goes below the overdraft limit";
    /// An order number is outside all reserved ranges.
    OrderNumberUnreserved = Finding, "order_number_unreserved", "the order number was never reserved";
    /// An order number was issued twice.
    OrderNumberRepeated = Finding, "order_number_repeated", "the order number is used in more than one entry";
    /// The register of order numbers is damaged or inconsistent.
    RegisterUnsound = Finding, "register_unsound", "the register of order numbers must not be used";
    /// The row of a transaction cannot be decoded.
    TransactionUnreadable = Finding, "transaction_unreadable", "the transaction cannot be read";
    /// The content of a transaction was changed.
    Fingerprint = Finding, "fingerprint", "the content of the transaction differs from what was accepted";
    /// The transaction of an entry does not exist.
    TransactionMissing = Finding, "transaction_missing", "the transaction of the entry is not in the log";
    /// The transaction of an entry is not posted.
    TransactionNotPosted = Finding, "transaction_not_posted", "the journal has an entry for a transaction that is not posted";
    /// A posted transaction has no entry.
    EntryMissing = Finding, "entry_missing", "the transaction is posted, but the journal has no entry for it";
    /// A transaction was posted twice.
    PostedTwice = Finding, "posted_twice", "the transaction has more than one entry";
    /// An entry and its transaction differ.
    ContentDiffers = Finding, "content_differs", "the content of the transaction differs from its entry";
    /// Rows exist after the last sequence of the account.
    BeyondTheEnd = Finding, "beyond_the_end", "the ledger has rows after the last sequence of the account";
    /// A transaction is marked as a dead letter, but no open letter contains it.
    DeadLetterMissing = Finding, "dead_letter_missing", "the transaction is marked as a dead letter, but no open letter contains it";
    /// The record of a batch cannot be decoded.
    BatchUnreadable = Finding, "batch_unreadable", "the record of the batch cannot be read";
    /// Rows refer to a batch without a record.
    BatchMissing = Finding, "batch_missing", "the ledger has rows of the batch, but the batch has no record";
    /// A completed batch has too few rows.
    BatchIncomplete = Finding, "batch_incomplete", "the batch is completed, but rows of it are missing or not final";
    /// The totals of a completed batch are wrong.
    BatchTotals = Finding, "batch_totals", "the totals of the batch are not those of its rows and its document";
    /// An audit row cannot be decoded.
    AuditUnreadable = Finding, "audit_unreadable", "the row of the audit trail cannot be read";
    /// A row of the audit trail was changed.
    AuditHash = Finding, "audit_hash", "the content of the audit row does not match its hash";
    /// An audit row does not contain the hash of the previous row.
    AuditChain = Finding, "audit_chain", "the audit row does not have the hash of the row before it";
    /// Rows of the audit trail were removed.
    AuditMissing = Finding, "audit_missing", "rows of the audit trail are missing";
    /// The announced last row differs from the trail, or the announcement cannot be decoded.
    AuditHead = Finding, "audit_head", "the audit row is not the one that was announced as the last one";
    /// An anchor cannot be decoded, or is not signed with an accepted key.
    AnchorSignature = Finding, "anchor_signature", "the anchor is not signed with an accepted key";
    /// An anchor does not contain the hash of the previous anchor.
    AnchorChain = Finding, "anchor_chain", "the anchor does not have the hash of the anchor before it";
    /// An anchor was removed.
    AnchorMissing = Finding, "anchor_missing", "the anchor is not in the store";
    /// The store has a different anchor with the sequence of a copy.
    AnchorDiffers = Finding, "anchor_differs", "the store has another anchor in the place of this one";
    /// The list of leaves of an anchor is missing or was changed.
    AnchorUnprovable = Finding, "anchor_unprovable", "the leaves of the anchor cannot be read, so nothing is proven by it";
    /// The audit trail does not contain the row that an anchor names.
    AnchoredAudit = Finding, "anchored_audit", "the audit trail does not have the row that the anchor names";
    /// The account of a leaf does not exist, or is in an earlier state.
    AnchoredAccount = Finding, "anchored_account", "the account is not in the state of the anchor, or a later one";
    /// The page that a leaf names is missing, which means that earlier decisions were changed.
    AnchoredDecisions = Finding, "anchored_decisions", "the journal does not have the page that the anchor names";
    /// Further findings were omitted.
    More = Finding, "more", "further findings of this kind are not listed";
    /// A restore discarded an anchor.
    AnchorGivenUp = Notice, "anchor_given_up", "a restore has given up the anchor, and the decisions after the one to which it returned";
    /// Accepted transactions are not final after a long time.
    Overdue = Notice, "overdue", "accepted transactions are not final after a long time";
    /// A fingerprint uses a rule of a newer program.
    FingerprintUnknown = Notice, "fingerprint_unknown", "fingerprints with a rule that this program does not know were not checked";
    /// The opening of an account was interrupted by a crash.
    NeverOpened = Notice, "never_opened", "the list of the user contains an account that was never opened";
    /// A newer program wrote the register.
    RegisterUnknown = Notice, "register_unknown", "the register of order numbers was written by a newer program and was not checked";
    /// Unreadable letters may contain the transaction.
    DeadLetterUnknown = Notice, "dead_letter_unknown", "the transaction is marked as a dead letter, but some open letters cannot be read and may contain it";
}

impl fmt::Display for FindingKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.sentence())
    }
}

/// A finding of an audit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The kind.
    pub kind: FindingKind,
    /// The account; `None` if the finding concerns no single account.
    pub account: Option<AccountKey>,
    /// The sequence of the entry, or of the first entry of the page.
    pub sequence: Option<u64>,
    /// Partner and message id of the transaction.
    pub transaction: Option<(PartnerId, MessageId)>,
    /// The batch.
    pub batch: Option<BatchKey>,
    /// The sequence of the audit row.
    pub audit_row: Option<u64>,
    /// The expected value.
    pub expected: Option<String>,
    /// The actual value.
    pub found: Option<String>,
}

impl Finding {
    /// Creates a finding without optional fields.
    pub const fn of(kind: FindingKind, account: Option<AccountKey>) -> Self {
        Self {
            kind,
            account,
            sequence: None,
            transaction: None,
            batch: None,
            audit_row: None,
            expected: None,
            found: None,
        }
    }

    /// Returns the partner of the transaction or batch.
    pub fn partner(&self) -> Option<&PartnerId> {
        let of_transaction = self.transaction.as_ref().map(|(partner, _)| partner);
        of_transaction.or(self.batch.as_ref().map(|key| &key.partner))
    }

    /// Sets the entry.
    #[must_use]
    pub const fn at(mut self, sequence: u64) -> Self {
        self.sequence = Some(sequence);
        self
    }

    /// Sets the transaction.
    #[must_use]
    pub fn about(mut self, key: &TransactionKey) -> Self {
        self.transaction = Some((key.partner.clone(), key.message));
        self
    }

    /// Sets the batch.
    #[must_use]
    pub fn of_batch(mut self, key: &BatchKey) -> Self {
        self.batch = Some(key.clone());
        self
    }

    /// Sets the row of the audit trail.
    #[must_use]
    pub const fn of_audit_row(mut self, sequence: u64) -> Self {
        self.audit_row = Some(sequence);
        self
    }

    /// Sets the expected value.
    #[must_use]
    pub fn expecting(mut self, expected: impl fmt::Display) -> Self {
        self.expected = Some(expected.to_string());
        self
    }

    /// Sets the actual value.
    #[must_use]
    pub fn finding(mut self, found: impl fmt::Display) -> Self {
        self.found = Some(found.to_string());
        self
    }
}

impl fmt::Display for Finding {
    /// Writes one line: position, sentence, expected and actual value.
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
        if let Some(batch) = &self.batch {
            write!(f, "batch {batch}: ")?;
        }
        if let Some(sequence) = self.audit_row {
            write!(f, "audit row {sequence}: ")?;
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

/// The findings of one account, limited in number.
#[derive(Debug, Default)]
pub(super) struct Findings {
    kept: Vec<Finding>,
    more: u64,
}

/// Maximum number of listed findings per account. Further findings are counted.
const KEPT_MAX: usize = 1000;

impl Findings {
    pub(super) fn push(&mut self, finding: Finding) {
        if self.kept.len() < KEPT_MAX {
            self.kept.push(finding);
        } else {
            self.more = self.more.saturating_add(1);
        }
    }

    pub(super) fn into_listed(self, account: AccountKey) -> Vec<Finding> {
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
    fn a_finding_is_one_sentence_with_its_position() {
        let user = UserId::from_uuid(Uuid::from_u128(1));
        let account = AccountKey { user, account: AccountId::from_uuid(Uuid::from_u128(2)) };
        let finding = Finding::of(FindingKind::EntryBalance, Some(account)).at(17);
        assert_eq!(
            finding.expecting("1.00 EUR").finding("2.00 EUR").to_string(),
            "account 00000000-0000-0000-0000-000000000001/00000000-0000-0000-0000-000000000002: entry 17: \
             the balance after the entry does not follow from the previous balance; expected 1.00 EUR, found 2.00 EUR"
        );
    }

    #[test]
    fn every_kind_has_a_unique_code() {
        let codes: BTreeSet<&str> = FindingKind::ALL.iter().map(|kind| kind.code()).collect();
        assert_eq!(codes.len(), FindingKind::ALL.len());
    }

    #[test]
    fn a_thousand_findings_are_listed_and_the_rest_is_counted() {
        let user = UserId::from_uuid(Uuid::from_u128(1));
        let account = AccountKey { user, account: AccountId::from_uuid(Uuid::from_u128(2)) };
        let mut findings = Findings::default();
        (0..1005).for_each(|_| findings.push(Finding::of(FindingKind::PageHash, Some(account))));
        let listed = findings.into_listed(account);
        assert_eq!(listed.len(), 1001);
        let last = listed.last().unwrap();
        assert_eq!((last.kind, last.found.as_deref()), (FindingKind::More, Some("5 more findings")));
    }
}
