//! A deposit or withdrawal in the form of its queue message, `userid|accountid|transactionid|amount`, and its
//! amount.

use std::fmt;
use std::str::FromStr;

use uuid::Uuid;

/// An amount in hundredths, negative for withdrawals. Written with two decimals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Money(i64);

/// Most digits before the point, so that sums cannot overflow.
const DIGITS_MAX: usize = 12;

impl Money {
    /// Zero.
    pub const ZERO: Self = Self(0);

    /// The sum, unless it is out of range.
    pub fn checked_add(self, other: Self) -> Option<Self> {
        self.0.checked_add(other.0).map(Self)
    }

    /// The same amount with the opposite sign.
    pub const fn opposite(self) -> Self {
        Self(self.0.saturating_neg())
    }
}

/// A text in another format.
#[derive(Debug, PartialEq, Eq)]
pub struct Malformed;

impl FromStr for Money {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        let (unsigned, is_negative) = text.strip_prefix('-').map_or((text, false), |rest| (rest, true));
        let (whole, cents) = unsigned.split_once('.').unwrap_or((unsigned, "00"));
        let all_digits = [whole, cents].iter().all(|part| part.bytes().all(|byte| byte.is_ascii_digit()));
        if !all_digits || whole.is_empty() || whole.len() > DIGITS_MAX || !(1..=2).contains(&cents.len()) {
            return Err(Malformed);
        }
        let hundredths: i64 = format!("{whole}{cents:0<2}").parse().map_err(|_| Malformed)?;
        let money = Self(hundredths);
        Ok(if is_negative { money.opposite() } else { money })
    }
}

impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let hundredths = self.0.unsigned_abs();
        write!(f, "{sign}{}.{:02}", hundredths.div_euclid(100), hundredths.rem_euclid(100))
    }
}

/// The content of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The user of the account.
    pub user: Uuid,
    /// The account.
    pub account: Uuid,
    /// The caller's id for the transaction.
    pub transaction: Uuid,
    /// The change of the balance.
    pub amount: Money,
}

impl FromStr for Entry {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        let parts: Vec<&str> = text.split('|').collect();
        let [user, account, transaction, amount] = parts[..] else { return Err(Malformed) };
        let id = |text: &str| Uuid::parse_str(text).map_err(|_| Malformed);
        Ok(Self {
            user: id(user)?,
            account: id(account)?,
            transaction: id(transaction)?,
            amount: amount.parse()?,
        })
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { user, account, transaction, amount } = self;
        write!(f, "{user}|{account}|{transaction}|{amount}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parsed_money_is_written_unchanged() {
        for (text, hundredths) in [("12.30", 1230), ("-0.05", -5), ("0.00", 0), ("-1.00", -100)] {
            assert_eq!(text.parse(), Ok(Money(hundredths)));
            assert_eq!(Money(hundredths).to_string(), text);
        }
        assert_eq!("7".parse(), Ok(Money(700)));
        assert_eq!("7.5".parse(), Ok(Money(750)));
        for text in ["", ".", "1.", ".5", "1.234", "+1", "--1", "1e3", "1234567890123"] {
            assert_eq!(text.parse::<Money>(), Err(Malformed), "{text}");
        }
    }

    #[test]
    fn a_parsed_entry_is_written_unchanged() {
        let entry = Entry {
            user: Uuid::from_u128(1),
            account: Uuid::from_u128(2),
            transaction: Uuid::from_u128(3),
            amount: Money(-150),
        };
        assert_eq!(entry.to_string().parse(), Ok(entry.clone()));
        assert_eq!(format!("{entry}|").parse::<Entry>(), Err(Malformed));
    }
}
