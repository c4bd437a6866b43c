//! Protection against formulas in CSV cells.

use std::borrow::Cow;

/// Escapes a cell so that no spreadsheet evaluates it as a formula: a text that begins like a formula gets an apostrophe in
/// front (OWASP, CSV Injection). Numbers such as `-5.00` are unchanged.
pub fn cell(text: &str) -> Cow<'_, str> {
    let begins_a_formula = text.starts_with(['=', '+', '-', '@', '\t', '\r', '\n', '＝', '＋', '－', '＠']);
    if begins_a_formula && !is_number(text) { Cow::Owned(format!("'{text}")) } else { Cow::Borrowed(text) }
}

fn is_number(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, decimals) = digits.split_once('.').unwrap_or((digits, "0"));
    is_digits(whole) && is_digits(decimals)
}

#[cfg(test)]
mod tests {
    use super::cell;

    #[test]
    fn a_formula_becomes_a_text_and_a_number_stays_a_number() {
        for formula in [
            "=1+1", "+1", "-1+1", "-", "@SUM(A1)", "\tx", "\r=1", "\n=1", "-5.", "-.5", "-5.00.1", "＝1",
            "-5e3",
        ] {
            assert_eq!(cell(formula), format!("'{formula}"));
        }
        for plain in ["", "-5.00", "-5", "5.00", "10000422", "amount must be -1", "4f9d0c9e-5d3e", "'=1"] {
            assert_eq!(cell(plain), plain);
        }
    }
}
