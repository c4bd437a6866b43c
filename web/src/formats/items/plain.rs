//! Fast path for items without metadata and unknown members, which most items are: it needs no map of their members. Other
//! items, and invalid ones, are parsed like single requests, which reports every violation.

use std::collections::BTreeMap;

use postonce_schemas::json::{CurrencyCode, DecimalText, TransactionRequest};
use postonce_shared::domain::ids::{AccountKey, MessageId, parse_hyphenated};
use postonce_shared::domain::instruction::{Details, Instruction, TransactionKind, UnknownMembers};
use postonce_shared::domain::money::{Amount, Currency};
use serde::Deserialize;
use validator::Validate as _;

/// A batch item whose members are all valid.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchItem {
    /// The addressed account.
    pub account: AccountKey,
    /// The partner's id of the transaction.
    pub message: MessageId,
    /// The deposit or withdrawal.
    pub instruction: Instruction,
}

/// The members of a plain item, borrowed from the document. JSON strings with escape sequences cannot be borrowed.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlainItem<'a> {
    /// The user who owns the account.
    pub user_id: &'a str,
    /// The account.
    pub account_id: &'a str,
    /// The partner's id of the transaction.
    pub message_id: &'a str,
    /// The code of the transaction type.
    pub r#type: &'a str,
    /// The amount, as decimal text.
    pub amount: &'a str,
    /// The ISO 4217 code of the currency.
    pub currency: &'a str,
    /// The text for the statement.
    #[serde(default, deserialize_with = "present")]
    pub reference: Option<&'a str>,
}

/// Refuses `null`, which differs from an absent member.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<&'de str>, D::Error> {
    <&str>::deserialize(deserializer).map(Some)
}

impl<'a> PlainItem<'a> {
    /// Sets a member. Returns `None` if its name is unknown, its text is empty, or it is already set.
    pub fn set(&mut self, name: &str, text: &'a str) -> Option<()> {
        let member = match name {
            "user_id" => &mut self.user_id,
            "account_id" => &mut self.account_id,
            "message_id" => &mut self.message_id,
            "type" => &mut self.r#type,
            "amount" => &mut self.amount,
            "currency" => &mut self.currency,
            "reference" => self.reference.get_or_insert_default(),
            _ => return None,
        };
        if text.is_empty() || !member.is_empty() {
            return None;
        }
        *member = text;
        Some(())
    }

    /// Validates the members. Returns `None` if any of them is invalid.
    pub fn parse(self) -> Option<BatchItem> {
        let Self { user_id, account_id, message_id, r#type, amount, currency, reference } = self;
        let user = parse_hyphenated(user_id).ok()?;
        let account = parse_hyphenated(account_id).ok()?;
        let message = parse_hyphenated(message_id).ok()?;
        let kind = TransactionKind::from_code(r#type)?;
        let (money, reference) =
            (Amount::parse(amount, Currency::parse(currency).ok()?).ok()?, reference.map(str::to_owned));
        let (amount, currency) = (DecimalText(amount.to_owned()), CurrencyCode(currency.to_owned()));
        let request = TransactionRequest { amount, currency, reference, metadata: None };
        request.validate().ok()?;
        let details = Details::new(request.reference, BTreeMap::new(), &UnknownMembers::default());
        let instruction = Instruction { kind, amount: money, details };
        Some(BatchItem { account: AccountKey { user, account }, message, instruction })
    }
}
