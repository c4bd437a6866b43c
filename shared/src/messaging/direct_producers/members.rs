//! The members of one order, and the check of their values.
//!
//! An order names its account and its id by `UserId`, `AccountId` and `TransactionId`, or by the keys of the table row of the
//! classic design: `PartitionKey` is `userid|accountid`, and `RowKey` is the id of the transaction. If it does both, the ids must be
//! equal. Other members are kept as unknown members of the transaction, except those that the table service itself sets.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use super::{DirectOrder, Form, LegacyAmountError, Violation, of_body};
use crate::domain::ids::{AccountId, AccountKey, IdError, MessageId, UserId, parse_bare};
use crate::domain::instruction::{Details, TransactionKind, UNKNOWN_MEMBERS_BYTES_MAX, UnknownMembers};
use crate::domain::money::{Currency, check_decimal};
use crate::messaging::xml::shown;
use crate::text::looks_like;

/// Number of violations after which an order is not read further.
const VIOLATIONS_MAX: usize = 16;
/// Largest number of characters of a member. Valid members are shorter.
const MEMBER_CHARS_MAX: usize = 128;
/// Members of a table row that the table service sets, not the producer.
const OF_THE_TABLE_SERVICE: [&str; 3] = ["Timestamp", "ETag", "odata.etag"];

/// Members of transactions in JSON answers. An order that had one of them would be answered with two members of this name.
const ANSWERED: [&str; 12] = [
    "message_id",
    "type",
    "status",
    "reference",
    "metadata",
    "accepted_at",
    "order_number",
    "sequence",
    "balance_after",
    "posted_at",
    "reason",
    "rejected_at",
];

/// A member that decides about the transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Member {
    UserId,
    AccountId,
    TransactionId,
    PartitionKey,
    RowKey,
    Amount,
    Currency,
}

impl Member {
    const ALL: [Self; 7] = [
        Self::UserId,
        Self::AccountId,
        Self::TransactionId,
        Self::PartitionKey,
        Self::RowKey,
        Self::Amount,
        Self::Currency,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::UserId => "UserId",
            Self::AccountId => "AccountId",
            Self::TransactionId => "TransactionId",
            Self::PartitionKey => "PartitionKey",
            Self::RowKey => "RowKey",
            Self::Amount => "Amount",
            Self::Currency => "Currency",
        }
    }
}

/// What to do with a member of a document.
pub(super) enum Role {
    /// It decides about the transaction.
    Known(Member),
    /// Kept as an unknown member.
    Unknown,
    /// Not content of the order, or refused.
    Ignored,
}

/// The members of one order that were read, and the violations found so far.
#[derive(Debug, Default)]
pub(super) struct Members {
    /// `None` for a member that was refused.
    texts: Vec<(Member, Option<String>)>,
    pub(super) unknown: UnknownMembers,
    violations: Vec<Violation>,
    /// Whether the members were not read completely.
    is_incomplete: bool,
}

impl Members {
    /// Returns the role of a member by its name. A name that is similar to a known one is a violation.
    pub(super) fn role(&mut self, name: &str) -> Role {
        if let Some(member) = Member::ALL.into_iter().find(|member| member.name() == name) {
            return Role::Known(member);
        }
        if OF_THE_TABLE_SERVICE.contains(&name) {
            return Role::Ignored;
        }
        if ANSWERED.contains(&name) {
            self.refuse(name, "is a member of answers; it cannot be sent");
            return Role::Ignored;
        }
        match Member::ALL.into_iter().find(|member| looks_like(name, member.name())) {
            Some(member) => {
                self.refuse(&shown(name), format!("is not a known member; did you mean {}?", member.name()));
                Role::Ignored
            }
            None => Role::Unknown,
        }
    }

    /// Sets a known member.
    pub(super) fn set(&mut self, member: Member, text: String) {
        if self.contains(member) {
            return self.refuse(member.name(), "must not occur more than once");
        }
        if text.chars().count() > MEMBER_CHARS_MAX {
            let rule = format!("must not have more than {MEMBER_CHARS_MAX} characters");
            return self.refuse_member(member, rule);
        }
        self.texts.push((member, Some(text)));
    }

    /// Adds a violation of a known member that cannot be read.
    pub(super) fn refuse_member(&mut self, member: Member, rule: impl Into<String>) {
        self.refuse(member.name(), rule);
        self.texts.push((member, None));
    }

    /// Adds a violation.
    pub(super) fn refuse(&mut self, field: &str, rule: impl Into<String>) {
        self.violations.push(Violation { field: field.to_owned(), rule: rule.into() });
    }

    /// Adds a violation of the order as a whole. Its members are not checked then.
    pub(super) fn refuse_whole(&mut self, rule: impl Into<String>) {
        self.violations.push(of_body(rule));
        self.is_incomplete = true;
    }

    /// Returns whether more members should be read; adds a violation if there are too many violations.
    pub(super) fn continues(&mut self) -> bool {
        let continues = self.violations.len() < VIOLATIONS_MAX;
        if !continues {
            self.refuse_whole("has too many violations and was not read further");
        }
        continues
    }

    fn contains(&self, member: Member) -> bool {
        self.texts.iter().any(|(other, _)| *other == member)
    }

    fn text(&self, member: Member) -> Option<&str> {
        self.texts.iter().find(|(other, _)| *other == member)?.1.as_deref()
    }

    /// Checks the values.
    ///
    /// # Errors
    /// All violations.
    pub(super) fn check(mut self, form: Form) -> Result<DirectOrder, Vec<Violation>> {
        if self.is_incomplete {
            return Err(self.violations);
        }
        let is_row = [Member::PartitionKey, Member::RowKey].iter().any(|key| self.contains(*key));
        let details = Details::new(None, BTreeMap::new(), &self.unknown);
        let violations = std::mem::take(&mut self.violations);
        let mut check = Check { form, members: &self, violations };
        let keys = if is_row { check.keys_of_row() } else { check.keys() };
        let amount = check.required(Member::Amount, parse_amount);
        let currency = check.optional(Member::Currency, Currency::parse);
        if details.unknown_members().len() > UNKNOWN_MEMBERS_BYTES_MAX {
            let rule = format!(
                "must not have unknown members of more than {UNKNOWN_MEMBERS_BYTES_MAX} bytes together"
            );
            check.violations.push(of_body(rule));
        }
        match (keys, amount) {
            (Some((account, message)), Some((kind, magnitude))) if check.violations.is_empty() => {
                Ok(DirectOrder { account, message, kind, magnitude, currency, details })
            }
            _ => Err(check.violations),
        }
    }
}

/// The check of one order.
struct Check<'a> {
    form: Form,
    members: &'a Members,
    violations: Vec<Violation>,
}

impl Check<'_> {
    /// Returns account and id of an order that names them by its own members.
    fn keys(&mut self) -> Option<(AccountKey, MessageId)> {
        let user = self.required(Member::UserId, parse_bare::<UserId>);
        let account = self.required(Member::AccountId, parse_bare::<AccountId>);
        let message = self.required(Member::TransactionId, parse_bare::<MessageId>);
        Some((AccountKey { user: user?, account: account? }, message?))
    }

    /// Returns account and id of an order that names them by the keys of its row.
    fn keys_of_row(&mut self) -> Option<(AccountKey, MessageId)> {
        let account = self.required(Member::PartitionKey, parse_partition_key);
        let message = self.required(Member::RowKey, parse_bare::<MessageId>);
        let (account, message) = (account?, message?);
        self.same(Member::UserId, account.user, Member::PartitionKey);
        self.same(Member::AccountId, account.account, Member::PartitionKey);
        self.same(Member::TransactionId, message, Member::RowKey);
        Some((account, message))
    }

    /// Adds a violation if a member exists and is not the id in a key of the row.
    fn same<T: PartialEq + FromStr<Err = IdError>>(&mut self, member: Member, id: T, key: Member) {
        let other = self.optional(member, parse_bare::<T>);
        if other.is_some_and(|other| other != id) {
            self.refuse(member, format!("must be equal to the id in {}", key.name()));
        }
    }

    fn required<T, E: fmt::Display>(
        &mut self,
        member: Member,
        read: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        if !self.members.contains(member) {
            self.refuse(member, "is missing".to_owned());
        }
        self.optional(member, read)
    }

    fn optional<T, E: fmt::Display>(
        &mut self,
        member: Member,
        read: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        match read(self.members.text(member)?) {
            Ok(value) => Some(value),
            Err(error) => {
                self.refuse(member, error.to_string());
                None
            }
        }
    }

    fn refuse(&mut self, member: Member, rule: String) {
        let field = match self.form {
            Form::Xml | Form::Json => member.name().to_owned(),
            Form::Delimited => member.name().to_ascii_lowercase(),
        };
        self.violations.push(Violation { field, rule });
    }
}

fn parse_partition_key(text: &str) -> Result<AccountKey, String> {
    let wanted = || "must be userid|accountid".to_owned();
    let (user, account) = text.split_once('|').ok_or_else(wanted)?;
    let user = parse_bare(user).map_err(|error| format!("{}, but its user id {error}", wanted()))?;
    let account = parse_bare(account).map_err(|error| format!("{}, but its account id {error}", wanted()))?;
    Ok(AccountKey { user, account })
}

fn parse_amount(text: &str) -> Result<(TransactionKind, String), LegacyAmountError> {
    let (kind, magnitude) = match text.strip_prefix('-') {
        Some(magnitude) => (TransactionKind::Withdrawal, magnitude),
        None => (TransactionKind::Deposit, text),
    };
    check_decimal(magnitude)?;
    if magnitude.bytes().all(|byte| matches!(byte, b'0' | b'.')) {
        return Err(LegacyAmountError::Zero);
    }
    Ok((kind, magnitude.to_owned()))
}
