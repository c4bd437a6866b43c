//! Numbers from partners: amounts, limits and order numbers. Each result is compared with a second, simpler implementation of
//! the rules.

use postonce_shared::domain::money::{AmountError, check_decimal};
use postonce_shared::oversight::prices::Price;
use postonce_shared::testing::prelude::*;

/// Currencies with 2, 0, 3 and 4 decimals.
const CURRENCIES: [&str; 4] = ["EUR", "JPY", "BHD", "CLF"];

/// Parses any bytes as a number.
pub fn check(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    for code in CURRENCIES {
        let currency = Currency::parse(code).expect("a currency of ISO 4217");
        check_money(text, currency);
    }
    if let Ok(number) = OrderNumber::parse(text) {
        let again = OrderNumber::parse(&number.to_string());
        assert_eq!(again, Ok(number), "{text:?} is read back as another order number");
    }
    if let Ok(currency) = Currency::parse(text) {
        assert_eq!(currency.code(), text);
    }
    let _price_or_none = Price::parse(text);
}

fn check_money(text: &str, currency: Currency) {
    let expected = minor_units(text, usize::from(currency.decimals()));
    let limit = OverdraftLimit::parse(text, currency);
    assert_eq!(limit.ok().map(OverdraftLimit::minor_units), expected, "{text:?} as a limit in {currency}");
    let amount = Amount::parse(text, currency);
    let above_zero = expected.filter(|minor_units| *minor_units > 0);
    assert_eq!(amount.ok().map(Amount::minor_units), above_zero, "{text:?} in {currency}");
    match amount {
        Ok(amount) => {
            assert_eq!(check_decimal(text), Ok(()), "{text:?} is an amount, but no decimal number");
            assert_eq!(Amount::parse(&amount.to_string(), currency), Ok(amount), "{text:?} printed");
        }
        Err(error) => check_refusal(text, error),
    }
}

/// Checks that an amount refused without its currency is refused for the same reason with it.
fn check_refusal(text: &str, error: AmountError) {
    let in_any_currency = check_decimal(text);
    match error {
        AmountError::TooManyDecimals(_) | AmountError::TooLarge | AmountError::Zero => {
            assert_eq!(in_any_currency, Ok(()), "{text:?}");
        }
        AmountError::Empty
        | AmountError::Signed
        | AmountError::Exponent
        | AmountError::Comma
        | AmountError::ForeignDigits
        | AmountError::Malformed
        | AmountError::Point
        | AmountError::LeadingZeros => assert_eq!(in_any_currency, Err(error), "{text:?}"),
    }
    let sentence = error.to_string();
    assert!(sentence.starts_with("must ") || sentence.starts_with("has "), "{sentence}");
}

/// Second implementation of the rules: digits, optionally a point with digits on both sides, no leading zeros, at most the
/// decimals of the currency, at most the maximum.
fn minor_units(text: &str, decimals: usize) -> Option<i64> {
    let (major, minor) = match text.find('.') {
        None => (text, ""),
        Some(point) => {
            let (major, rest) = text.split_at(point);
            let minor = rest.strip_prefix('.').filter(|minor| !minor.is_empty())?;
            (major, minor)
        }
    };
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let valid = !major.is_empty()
        && digits(major)
        && digits(minor)
        && (major == "0" || !major.starts_with('0'))
        && minor.len() <= decimals;
    if !valid || major.len() > 20 {
        return None;
    }
    let missing = decimals.checked_sub(minor.len())?;
    let all = format!("{major}{minor}{}", "0".repeat(missing));
    let value: u128 = all.parse().ok()?;
    i64::try_from(value).ok().filter(|value| *value <= AMOUNT_MINOR_UNITS_MAX)
}
