//! Amounts of the classic contract: the text of an `xs:double`, which is read as a decimal number and never as a float.
//!
//! Toolkits write the same number in several forms: `100`, `100.0` and `1E+2`. Each is read as the decimal number that it
//! names, without zeros at the ends, so that only a number with more decimals than the currency has is refused.

use postonce_shared::domain::json_number::JsonNumber;
use postonce_shared::domain::money::AmountError;

/// Largest number of digits before the point, and of zeros after it, that is written out. No currency allows more.
const PLACES_MAX: i64 = 20;

/// Returns the decimal number that the text of an `xs:double` names, as digits with a point if it has decimals.
///
/// # Errors
/// [`AmountError`] when no currency allows the number: it is zero or below, far too large, not a number, or no `xs:double`.
pub fn decimal(text: &str) -> Result<String, AmountError> {
    // White space around a number is no part of it (XML Schema, facet `collapse`).
    let text = text.trim_matches([' ', '\t', '\r', '\n']);
    if text.is_empty() {
        return Err(AmountError::Empty);
    }
    check_form(text)?;
    // JSON has no plus sign.
    let number = JsonNumber::read(text.strip_prefix('+').unwrap_or(text));
    if !number.is_positive() {
        return Err(AmountError::Zero);
    }
    match number.point() {
        point if point > PLACES_MAX => Err(AmountError::TooLarge),
        // Like the number itself, it has more decimals than any currency.
        point if point < PLACES_MAX.saturating_neg() => Ok(format!("0.{}1", "0".repeat(20))),
        _ => Ok(number.plain()),
    }
}

/// Checks that a text is a number in the form of an `xs:double`: digits, with a point and with a power of ten if need be.
fn check_form(text: &str) -> Result<(), AmountError> {
    let (mantissa, power) = match unsigned(text).split_once(['e', 'E']) {
        Some((mantissa, power)) => (mantissa, unsigned(power)),
        None => (unsigned(text), "0"),
    };
    let are_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match (are_digits(power), are_digits(&mantissa.replacen('.', "", 1))) {
        (true, true) => Ok(()),
        (true, false) if mantissa.contains(',') => Err(AmountError::Comma),
        (true | false, true | false) => Err(AmountError::Malformed),
    }
}

fn unsigned(text: &str) -> &str {
    text.strip_prefix(['-', '+']).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use postonce_shared::domain::money::{AMOUNT_MINOR_UNITS_MAX, Amount, Currency};
    use proptest::prelude::*;

    use super::*;

    fn minor_units(text: &str, currency: &str) -> Result<i64, AmountError> {
        let currency = Currency::parse(currency).expect("a currency");
        Amount::parse(&decimal(text)?, currency).map(Amount::minor_units)
    }

    #[test]
    fn every_form_of_a_number_is_the_amount_that_it_names() {
        for (text, expected) in [
            ("12.5", 1250),
            ("12.50", 1250),
            ("12.500", 1250),
            ("100", 10_000),
            ("100.0", 10_000),
            ("1E+2", 10_000),
            ("1e2", 10_000),
            ("1.0E2", 10_000),
            ("0.1E3", 10_000),
            ("1000E-1", 10_000),
            ("1.5E-1", 15),
            ("1E-2", 1),
            ("0.01", 1),
            (".5", 50),
            ("5.", 500),
            ("+5", 500),
            ("007", 700),
            (" \r\n\t5 ", 500),
            ("1.2345678901234E13", 1_234_567_890_123_400),
            ("9999999999999999.99", AMOUNT_MINOR_UNITS_MAX),
            ("9.99999999999999999E15", AMOUNT_MINOR_UNITS_MAX),
            ("0.000000000000000000000000001E+26", 10),
        ] {
            assert_eq!(minor_units(text, "EUR"), Ok(expected), "{text}");
        }
        assert_eq!(minor_units("100.0", "JPY"), Ok(100));
        assert_eq!(minor_units("1.005", "BHD"), Ok(1005));
    }

    #[test]
    fn what_is_no_exact_amount_is_refused() {
        for (text, expected) in [
            ("", AmountError::Empty),
            ("  ", AmountError::Empty),
            ("0", AmountError::Zero),
            ("-0", AmountError::Zero),
            ("0E99", AmountError::Zero),
            ("0.00", AmountError::Zero),
            ("-5", AmountError::Zero),
            ("-1E-9", AmountError::Zero),
            ("NaN", AmountError::Malformed),
            ("INF", AmountError::Malformed),
            ("-INF", AmountError::Malformed),
            ("+INF", AmountError::Malformed),
            ("Infinity", AmountError::Malformed),
            ("1E", AmountError::Malformed),
            ("E5", AmountError::Malformed),
            (".", AmountError::Malformed),
            ("1e2e3", AmountError::Malformed),
            ("1E+-2", AmountError::Malformed),
            ("1E2.5", AmountError::Malformed),
            ("--5", AmountError::Malformed),
            ("1 000", AmountError::Malformed),
            ("1.2.3", AmountError::Malformed),
            ("0x10", AmountError::Malformed),
            ("\u{663}", AmountError::Malformed),
            ("1,50", AmountError::Comma),
            ("1E17", AmountError::TooLarge),
            ("1E400", AmountError::TooLarge),
            ("1E99999999999999999999999", AmountError::TooLarge),
        ] {
            assert_eq!(minor_units(text, "EUR"), Err(expected), "{text}");
        }
        let euro = Currency::parse("EUR").expect("a currency");
        for text in [
            "0.1000000001",
            "0.30000000000000004",
            "12.505",
            "1E-3",
            "1E-400",
            "1.5E-99999999999999999999999",
        ] {
            assert_eq!(minor_units(text, "EUR"), Err(AmountError::TooManyDecimals(euro)), "{text}");
        }
        let long = format!("0.{}1", "0".repeat(60_000));
        assert_eq!(minor_units(&long, "EUR"), Err(AmountError::TooManyDecimals(euro)));
        assert_eq!(decimal("1E-99999999999999999999999").map(|text| text.len()), Ok(23));
    }

    proptest! {
        #[test]
        fn a_number_with_a_power_is_the_number_without_it(
            minor in 1..AMOUNT_MINOR_UNITS_MAX,
            zeros in 0..20_usize,
        ) {
            let plain = format!("{}.{:02}", minor.div_euclid(100), minor.rem_euclid(100));
            let power = format!("{minor}{}E-{}", "0".repeat(zeros), zeros.saturating_add(2));
            let small = format!("0.{}{minor}e+{}", "0".repeat(zeros), minor.to_string().len().saturating_add(zeros));
            prop_assert_eq!(minor_units(&plain, "EUR"), Ok(minor));
            prop_assert_eq!(minor_units(&power, "EUR"), Ok(minor));
            prop_assert_eq!(decimal(&small), Ok(minor.to_string()));
        }
    }
}
