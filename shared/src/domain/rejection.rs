//! Reasons of business rejections. A rejection is recorded and final; a retry of the request gets the same rejection.

use std::fmt;

/// The reason of a final rejection. The names are part of the HTTP API and of stored rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RejectReason {
    /// The withdrawal is more than the balance plus the overdraft limit.
    InsufficientFunds,
    /// The account was closed before the transaction was posted.
    AccountClosed,
    /// The account was frozen before the transaction was posted.
    AccountFrozen,
    /// The account does not exist.
    AccountUnknown,
    /// The amount is in another currency than the account.
    CurrencyMismatch,
    /// The balance would leave the supported range.
    AmountOutOfRange,
    /// An operator discarded the dead letter that held the transaction.
    Discarded,
}

impl RejectReason {
    /// Every reason, for tables and tests.
    pub const ALL: [Self; 7] = [
        Self::InsufficientFunds,
        Self::AccountClosed,
        Self::AccountFrozen,
        Self::AccountUnknown,
        Self::CurrencyMismatch,
        Self::AmountOutOfRange,
        Self::Discarded,
    ];

    /// Returns the stable code, such as `insufficient_funds`.
    pub const fn code(self) -> &'static str {
        match self {
            Self::InsufficientFunds => "insufficient_funds",
            Self::AccountClosed => "account_closed",
            Self::AccountFrozen => "account_frozen",
            Self::AccountUnknown => "account_unknown",
            Self::CurrencyMismatch => "currency_mismatch",
            Self::AmountOutOfRange => "amount_out_of_range",
            Self::Discarded => "discarded",
        }
    }

    /// Returns whether another balance could have prevented the rejection.
    pub const fn depends_on_balance(self) -> bool {
        match self {
            Self::InsufficientFunds | Self::AmountOutOfRange => true,
            Self::AccountClosed
            | Self::AccountFrozen
            | Self::AccountUnknown
            | Self::CurrencyMismatch
            | Self::Discarded => false,
        }
    }

    /// Returns the reason with this code.
    pub fn from_code(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.code() == code)
    }
}

impl fmt::Display for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}
