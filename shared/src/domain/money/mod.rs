//! Amounts of money in minor units, with their currency. The types have no floats, arithmetic operators or defaults:
//! every operation is checked. There is no conversion between currencies.

use std::fmt;
use std::str::FromStr;

/// A currency of ISO 4217 with a defined number of minor-unit digits (zero for the yen).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Currency {
    code: iso_currency::Currency,
    decimals: u8,
}

impl Currency {
    /// Parses an upper-case alphabetic code. Refuses codes without a defined number of decimals: accounts cannot hold
    /// precious metals, funds or test codes.
    pub fn parse(code: &str) -> Result<Self, CurrencyError> {
        let known = iso_currency::Currency::from_code(code).ok_or(CurrencyError)?;
        let decimals = known.exponent().and_then(|exponent| u8::try_from(exponent).ok());
        decimals.map(|decimals| Self { code: known, decimals }).ok_or(CurrencyError)
    }

    /// Returns the alphabetic code, such as `EUR`.
    pub fn code(self) -> &'static str {
        self.code.code()
    }

    /// Returns the number of decimals (ISO 4217): 0 for the yen, 2 for the euro, 3 for the Bahraini dinar.
    pub const fn decimals(self) -> u8 {
        self.decimals
    }

    /// Returns the number of minor units in one major unit, such as 100 for the euro.
    fn scale(self) -> u64 {
        10_u64.pow(u32::from(self.decimals))
    }

    /// Writes signed minor units as a decimal number with all of the currency's decimals.
    fn write(self, f: &mut fmt::Formatter<'_>, minor_units: i64) -> fmt::Result {
        let sign = if minor_units < 0 { "-" } else { "" };
        let magnitude = minor_units.unsigned_abs();
        let (major, minor) = (magnitude.div_euclid(self.scale()), magnitude.rem_euclid(self.scale()));
        if self.decimals == 0 {
            return write!(f, "{sign}{major}");
        }
        write!(f, "{sign}{major}.{minor:0width$}", width = usize::from(self.decimals))
    }
}

impl fmt::Display for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

impl fmt::Debug for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

impl FromStr for Currency {
    type Err = CurrencyError;

    fn from_str(code: &str) -> Result<Self, CurrencyError> {
        Self::parse(code)
    }
}

/// Error: the text is not the code of a currency with minor units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is not a currency code of ISO 4217 that money can be kept in, such as EUR")]
pub struct CurrencyError;

/// The reason why a text is not an amount in a currency. Each message says what is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AmountError {
    /// The text is empty.
    #[error("must not be empty; write a decimal number such as 12.50")]
    Empty,
    /// The text starts with a minus or plus sign.
    #[error("must not have a sign; the type of the transaction gives the direction")]
    Signed,
    /// The text has an exponent, such as `1e3`.
    #[error("must not have an exponent; write all digits, such as 1000")]
    Exponent,
    /// A comma separates decimals or thousands.
    #[error("must use a point before the decimals and nothing between the thousands, such as 1234.50")]
    Comma,
    /// The digits are of another script, such as full-width digits.
    #[error("must be written with the digits 0 to 9")]
    ForeignDigits,
    /// Another character that is neither a digit nor a point.
    #[error("must be a decimal number such as 12.50")]
    Malformed,
    /// The decimal point is misplaced, as in `.5`, `5.` or `1.2.3`.
    #[error("must have digits on both sides of a single decimal point, such as 0.50")]
    Point,
    /// The number starts with extra zeros, as in `00012.50`.
    #[error("must not have leading zeros")]
    LeadingZeros,
    /// More decimals than the currency has.
    #[error("has more decimals than {0} has ({decimals})", decimals = .0.decimals())]
    TooManyDecimals(Currency),
    /// The amount is zero.
    #[error("must be greater than zero")]
    Zero,
    /// The amount is above the maximum.
    #[error("must be at most {max} minor units", max = AMOUNT_MINOR_UNITS_MAX)]
    TooLarge,
}

/// Largest amount of one transaction, in minor units: 18 digits, the maximum of ISO 20022.
pub const AMOUNT_MINOR_UNITS_MAX: i64 = 999_999_999_999_999_999;

/// Largest absolute value of a balance, in minor units.
pub const BALANCE_MINOR_UNITS_MAX: i64 = 9_000_000_000_000_000_000;

/// Runs all checks on a decimal number that do not need its currency.
///
/// # Errors
/// [`AmountError`] when no currency allows this number.
pub fn check_decimal(text: &str) -> Result<(), AmountError> {
    split_decimal(text).map(drop)
}

/// Checks a decimal number and returns the digits before and after its point.
fn split_decimal(text: &str) -> Result<(&str, &str), AmountError> {
    if text.is_empty() {
        return Err(AmountError::Empty);
    }
    if let Some(invalid) = text.chars().find(|c| !c.is_ascii_digit() && *c != '.') {
        return Err(match invalid {
            '-' | '+' | '\u{2212}' | '\u{ff0d}' | '\u{ff0b}' if text.starts_with(invalid) => {
                AmountError::Signed
            }
            'e' | 'E' if text.starts_with(|c: char| c.is_ascii_digit()) => AmountError::Exponent,
            ',' => AmountError::Comma,
            other if other.is_numeric() => AmountError::ForeignDigits,
            _ => AmountError::Malformed,
        });
    }
    let parts @ (major, _) = match text.split_once('.') {
        Some((major, minor)) if major.is_empty() || minor.is_empty() || minor.contains('.') => {
            return Err(AmountError::Point);
        }
        Some(parts) => parts,
        None => (text, ""),
    };
    if major.len() > 1 && major.starts_with('0') {
        return Err(AmountError::LeadingZeros);
    }
    Ok(parts)
}

/// Parses a plain decimal number into minor units, from 0 to [`AMOUNT_MINOR_UNITS_MAX`].
fn parse_minor_units(text: &str, currency: Currency) -> Result<i64, AmountError> {
    let (major, minor) = split_decimal(text)?;
    let decimals = usize::from(currency.decimals());
    if minor.len() > decimals {
        return Err(AmountError::TooManyDecimals(currency));
    }
    // Only ASCII digits are left, so that parsing fails only if there are too many of them.
    let digits = format!("{major}{minor:0<decimals$}");
    digits
        .parse::<i64>()
        .ok()
        .filter(|minor_units| *minor_units <= AMOUNT_MINOR_UNITS_MAX)
        .ok_or(AmountError::TooLarge)
}

/// The amount of a transaction. Invariant: greater than zero, at most [`AMOUNT_MINOR_UNITS_MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Amount {
    minor_units: i64,
    currency: Currency,
}

impl Amount {
    /// Parses a decimal number with at most the currency's decimals.
    pub fn parse(text: &str, currency: Currency) -> Result<Self, AmountError> {
        Self::try_new(parse_minor_units(text, currency)?, currency)
    }

    /// Creates an amount from minor units; fails when the invariant does not hold.
    pub fn try_new(minor_units: i64, currency: Currency) -> Result<Self, AmountError> {
        match minor_units {
            1..=AMOUNT_MINOR_UNITS_MAX => Ok(Self { minor_units, currency }),
            0 => Err(AmountError::Zero),
            i64::MIN..=-1 => Err(AmountError::Signed),
            _ => Err(AmountError::TooLarge),
        }
    }

    /// Returns the amount in minor units.
    pub const fn minor_units(self) -> i64 {
        self.minor_units
    }

    /// Returns the currency of the amount.
    pub const fn currency(self) -> Currency {
        self.currency
    }
}

impl fmt::Display for Amount {
    /// Writes the number without the currency, with all decimals, such as `12.50`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.currency.write(f, self.minor_units)
    }
}

/// The amount by which an account may be overdrawn. Invariant: from 0 to [`AMOUNT_MINOR_UNITS_MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct OverdraftLimit {
    minor_units: i64,
    currency: Currency,
}

impl OverdraftLimit {
    /// Returns a limit of zero: no overdraft.
    pub const fn none(currency: Currency) -> Self {
        Self { minor_units: 0, currency }
    }

    /// Parses a decimal number with at most the currency's decimals; zero is allowed.
    pub fn parse(text: &str, currency: Currency) -> Result<Self, AmountError> {
        Ok(Self { minor_units: parse_minor_units(text, currency)?, currency })
    }

    /// Creates a limit from minor units; fails when the invariant does not hold.
    pub fn try_new(minor_units: i64, currency: Currency) -> Result<Self, AmountError> {
        match minor_units {
            0..=AMOUNT_MINOR_UNITS_MAX => Ok(Self { minor_units, currency }),
            i64::MIN..=-1 => Err(AmountError::Signed),
            _ => Err(AmountError::TooLarge),
        }
    }

    /// Returns the limit in minor units.
    pub const fn minor_units(self) -> i64 {
        self.minor_units
    }

    /// Returns the currency of the limit.
    pub const fn currency(self) -> Currency {
        self.currency
    }
}

impl fmt::Display for OverdraftLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.currency.write(f, self.minor_units)
    }
}

/// The sum of the entries of an account. Invariant: its absolute value is at most [`BALANCE_MINOR_UNITS_MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Balance {
    minor_units: i64,
    currency: Currency,
}

impl Balance {
    /// Returns the balance of an account without entries.
    pub const fn zero(currency: Currency) -> Self {
        Self { minor_units: 0, currency }
    }

    /// Creates a balance from minor units; `None` outside the supported range.
    pub fn try_new(minor_units: i64, currency: Currency) -> Option<Self> {
        let within = (-BALANCE_MINOR_UNITS_MAX..=BALANCE_MINOR_UNITS_MAX).contains(&minor_units);
        within.then_some(Self { minor_units, currency })
    }

    /// Returns the balance in minor units; negative when overdrawn.
    pub const fn minor_units(self) -> i64 {
        self.minor_units
    }

    /// Returns the currency of the account.
    pub const fn currency(self) -> Currency {
        self.currency
    }

    /// Returns whether the balance is zero.
    pub const fn is_zero(self) -> bool {
        self.minor_units == 0
    }

    /// Returns the balance after a credit of `amount`; `None` if the result is out of range. Panics if the currencies
    /// differ, which the decision has already refused.
    #[must_use]
    pub fn credited(self, amount: Amount) -> Option<Self> {
        assert!(self.currency == amount.currency, "{} credited to {}", amount.currency, self.currency);
        Self::try_new(self.minor_units.checked_add(amount.minor_units)?, self.currency)
    }

    /// Returns the balance after a debit of `amount`. Fails and panics like [`Self::credited`].
    #[must_use]
    pub fn debited(self, amount: Amount) -> Option<Self> {
        assert!(self.currency == amount.currency, "{} debited from {}", amount.currency, self.currency);
        Self::try_new(self.minor_units.checked_sub(amount.minor_units)?, self.currency)
    }

    /// Returns the amount that can be withdrawn: balance plus overdraft limit, never below zero.
    #[must_use]
    pub fn available(self, limit: OverdraftLimit) -> Self {
        let available = self.minor_units.saturating_add(limit.minor_units).max(0);
        Self { minor_units: available.min(BALANCE_MINOR_UNITS_MAX), currency: self.currency }
    }
}

impl fmt::Display for Balance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.currency.write(f, self.minor_units)
    }
}

#[cfg(test)]
mod tests;
