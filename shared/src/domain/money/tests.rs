use super::*;

fn currency(code: &str) -> Currency {
    Currency::parse(code).unwrap()
}

fn check(text: &str, code: &str, expected: Result<i64, AmountError>) {
    let parsed = Amount::parse(text, currency(code)).map(Amount::minor_units);
    assert_eq!(parsed, expected, "{text:?} {code}");
}

#[test]
fn amounts_are_parsed_with_the_decimals_of_the_currency() {
    check("12.34", "EUR", Ok(1234));
    check("0.1", "EUR", Ok(10));
    check("0.01", "EUR", Ok(1));
    check("12", "EUR", Ok(1200));
    check("12", "JPY", Ok(12));
    check("1.005", "BHD", Ok(1005));
    check("1.0005", "CLF", Ok(10005));
    check("999999999999999999", "JPY", Ok(AMOUNT_MINOR_UNITS_MAX));
    check("9999999999999999.99", "EUR", Ok(AMOUNT_MINOR_UNITS_MAX));
}

#[test]
fn each_invalid_amount_has_its_own_error() {
    let eur = currency("EUR");
    check("", "EUR", Err(AmountError::Empty));
    check("-5", "EUR", Err(AmountError::Signed));
    check("+5", "EUR", Err(AmountError::Signed));
    check("1e3", "EUR", Err(AmountError::Exponent));
    check("1,50", "EUR", Err(AmountError::Comma));
    check("１２", "EUR", Err(AmountError::ForeignDigits));
    check("٣", "EUR", Err(AmountError::ForeignDigits));
    check(" 5", "EUR", Err(AmountError::Malformed));
    check("5 EUR", "EUR", Err(AmountError::Malformed));
    check("0x10", "EUR", Err(AmountError::Malformed));
    check("NaN", "EUR", Err(AmountError::Malformed));
    check(".5", "EUR", Err(AmountError::Point));
    check("5.", "EUR", Err(AmountError::Point));
    check("1.2.3", "EUR", Err(AmountError::Point));
    check("00012.50", "EUR", Err(AmountError::LeadingZeros));
    check("12.505", "EUR", Err(AmountError::TooManyDecimals(eur)));
    check("1.0", "JPY", Err(AmountError::TooManyDecimals(currency("JPY"))));
    check("0", "EUR", Err(AmountError::Zero));
    check("0.00", "EUR", Err(AmountError::Zero));
    check("10000000000000000.00", "EUR", Err(AmountError::TooLarge));
    check(&"9".repeat(40), "EUR", Err(AmountError::TooLarge));
}

#[test]
fn the_whole_table_of_currencies_round_trips() {
    let mut seen = 0;
    for code in <iso_currency::Currency as iso_currency::IntoEnumIterator>::iter().map(|c| c.code()) {
        let Ok(currency) = Currency::parse(code) else { continue };
        let amount = Amount::try_new(1_234_567, currency).unwrap();
        assert_eq!(Amount::parse(&amount.to_string(), currency), Ok(amount), "{code}");
        seen += 1;
    }
    assert!(seen > 150, "only {seen} currencies");
    assert_eq!(currency("JPY").decimals(), 0);
    assert_eq!(currency("EUR").decimals(), 2);
    assert_eq!(currency("BHD").decimals(), 3);
}

#[test]
fn unknown_currency_codes_are_refused() {
    for code in ["", "eur", "EURO", "XXX", "XAU", "ZZZ", "12"] {
        assert_eq!(Currency::parse(code), Err(CurrencyError), "{code}");
    }
}

#[test]
fn balances_are_written_with_a_sign_and_never_wrap() {
    let eur = currency("EUR");
    let cents = |minor_units| Balance::try_new(minor_units, eur).unwrap();
    assert_eq!(cents(-5).to_string(), "-0.05");
    assert_eq!(cents(-1_234_567).to_string(), "-12345.67");
    assert_eq!(Balance::zero(currency("JPY")).to_string(), "0");
    let most = Amount::try_new(AMOUNT_MINOR_UNITS_MAX, eur).unwrap();
    assert_eq!(cents(BALANCE_MINOR_UNITS_MAX).credited(most), None);
    assert_eq!(cents(-BALANCE_MINOR_UNITS_MAX).debited(most), None);
    assert_eq!(Balance::try_new(i64::MIN, eur), None);
}

#[test]
fn available_is_balance_plus_overdraft() {
    let eur = currency("EUR");
    let limit = OverdraftLimit::parse("10.00", eur).unwrap();
    let cents = |minor_units| Balance::try_new(minor_units, eur).unwrap();
    assert_eq!(cents(250).available(limit), cents(1250));
    assert_eq!(cents(-1000).available(limit), cents(0));
    // The limit was lowered after the money was spent.
    assert_eq!(cents(-5000).available(limit), cents(0));
}
