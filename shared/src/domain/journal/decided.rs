//! Decisions that move no money: rejections, openings, and changes of the terms of an account.

use super::decision_fields::DecisionFields;
use crate::domain::account::{AccountStatus, Holder};
use crate::domain::ids::{MessageId, Nonce, PartnerId};
use crate::domain::instruction::{Fields, Fingerprint};
use crate::domain::money::{Currency, OverdraftLimit};
use crate::domain::page_hash::first_half;
use crate::domain::rejection::RejectReason;
use crate::domain::time::Timestamp;

/// The name of the rule by which a rejection is hashed.
pub(in crate::domain) const REJECTION_RULE: &str = "postonce rejection 1";

/// A decision that is not a posting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decided {
    /// A transaction was rejected.
    Rejected(Rejection),
    /// The account was opened.
    Opened {
        /// The currency of the account.
        currency: Currency,
        /// The initial overdraft limit.
        overdraft_limit: OverdraftLimit,
        /// The holder, if the request named one.
        holder: Option<Holder>,
        /// The time of the opening.
        opened_at: Timestamp,
    },
    /// The terms of the account were changed.
    TermsChanged {
        /// The status after the change.
        status: AccountStatus,
        /// The overdraft limit after the change.
        overdraft_limit: OverdraftLimit,
        /// The new holder; `None` if the change kept the holder.
        holder: Option<Holder>,
        /// The time of the change.
        changed_at: Timestamp,
    },
}

/// A rejected transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// The partner that sent the instruction.
    pub partner: PartnerId,
    /// The id that the partner gave the request.
    pub message: MessageId,
    /// The fingerprint of the instruction.
    pub fingerprint: Fingerprint,
    /// The time when the transaction was accepted.
    pub accepted_at: Timestamp,
    /// The reason.
    pub reason: RejectReason,
    /// The time of the decision.
    pub rejected_at: Timestamp,
}

impl Decided {
    /// Returns the hash of the decision by the rule of its kind.
    pub fn digest(&self) -> [u8; 32] {
        match self {
            Self::Rejected(rejection) => {
                let mut fields = Fields::new(REJECTION_RULE);
                rejection.list_fields(&mut fields);
                fields.finish()
            }
            Self::Opened { currency, overdraft_limit, holder, opened_at } => {
                let mut fields = Fields::new("postonce opening 1");
                fields.text(currency.code());
                fields.number(overdraft_limit.minor_units());
                list_holder(holder.as_ref(), &mut fields);
                fields.number(opened_at.unix_ms());
                fields.finish()
            }
            Self::TermsChanged { status, overdraft_limit, holder, changed_at } => {
                // The name of the rule determines whether a holder follows.
                let rule = if holder.is_some() { "postonce terms 2" } else { "postonce terms 1" };
                let mut fields = Fields::new(rule);
                fields.text(status.code());
                fields.number(overdraft_limit.minor_units());
                if holder.is_some() {
                    list_holder(holder.as_ref(), &mut fields);
                }
                fields.number(changed_at.unix_ms());
                fields.finish()
            }
        }
    }
}

fn list_holder(holder: Option<&Holder>, fields: &mut Fields) {
    fields.number(i64::from(holder.is_some()));
    fields.text(holder.map_or("", |holder| &holder.given_name));
    fields.text(holder.map_or("", |holder| &holder.family_name));
}

impl Rejection {
    /// Returns the first 128 bits of a hash over the rejection, the version of its page and a salt; see
    /// [`Entry::salted`](super::Entry::salted).
    pub fn salted(&self, version: u64, salt: Nonce) -> u128 {
        let mut fields = Fields::new("postonce salted rejection 1");
        fields.bytes(salt.as_uuid().as_bytes());
        fields.bytes(&version.to_be_bytes());
        self.list_fields(&mut fields);
        first_half(fields.finish())
    }

    /// Adds all fields to `fields`, in the order of the hash.
    pub(in crate::domain) fn list_fields(&self, fields: &mut impl DecisionFields) {
        let Self { partner, message, fingerprint, accepted_at, reason, rejected_at } = self;
        fields.text("partner", partner.as_str());
        fields.bytes("message_id", message.as_uuid().as_bytes());
        fields.text("fingerprint", &fingerprint.to_string());
        fields.number("accepted_at_ms", accepted_at.unix_ms());
        fields.text("reason", reason.code());
        fields.number("rejected_at_ms", rejected_at.unix_ms());
    }
}
