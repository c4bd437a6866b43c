//! JSON numbers, compared by value: `50`, `50.0` and `5e1` are one number, and `-0` is `0`. The notation that a client
//! chose is not part of the content of its request.

/// An exact decimal number of any size: its digits, and the power of ten of the last digit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonNumber {
    is_negative: bool,
    /// Without leading and trailing zeros; empty for zero.
    digits: String,
    power: i64,
}

/// Largest accepted number of digits before the decimal point. Whole numbers of this size stay exact in every
/// processing step, and a schema can express the limit.
pub const WHOLE_DIGITS_MAX: i64 = 18;
/// Largest number of digits before the decimal point that RFC 8785 writes without an exponent.
const PLAIN_DIGITS_MAX: i64 = 21;
/// Smallest number of zeros after the decimal point for which RFC 8785 writes an exponent.
const PLAIN_ZEROS_MAX: i64 = 6;

impl JsonNumber {
    /// Parses a number in the grammar of JSON (RFC 8259, section 6). The result for any other text is arbitrary.
    pub fn read(number: &str) -> Self {
        let (is_negative, magnitude) =
            number.strip_prefix('-').map_or((false, number), |magnitude| (true, magnitude));
        let (mantissa, exponent) = magnitude.split_once(['e', 'E']).unwrap_or((magnitude, "0"));
        let (major, minor) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all = format!("{major}{minor}");
        let short = all.trim_end_matches('0');
        let zeros = length(&all).saturating_sub(length(short));
        let beyond = if exponent.starts_with('-') { i64::MIN } else { i64::MAX };
        let exponent: i64 = exponent.parse().unwrap_or(beyond);
        let power = exponent.saturating_sub(length(minor)).saturating_add(zeros);
        let digits = short.trim_start_matches('0').to_owned();
        if digits.is_empty() {
            return Self { is_negative: false, digits, power: 0 };
        }
        Self { is_negative, digits, power }
    }

    /// Returns whether the number has at most [`WHOLE_DIGITS_MAX`] digits before the decimal point.
    pub fn fits(&self) -> bool {
        self.point() <= WHOLE_DIGITS_MAX
    }

    /// Returns whether the number is above zero.
    pub fn is_positive(&self) -> bool {
        !self.is_negative && !self.digits.is_empty()
    }

    /// Number of digits before the decimal point; zero or negative for numbers below 1: the number of zeros after the point.
    pub fn point(&self) -> i64 {
        length(&self.digits).saturating_add(self.power)
    }

    /// Writes the number as RFC 8785 (section 3.2.2.3) does, but whole numbers of up to [`WHOLE_DIGITS_MAX`] digits with all
    /// their digits, even if a double cannot represent them. The digits of any other number must be the shortest of its double.
    pub fn canonical(&self) -> String {
        let point = self.point();
        if point <= PLAIN_DIGITS_MAX && point > PLAIN_ZEROS_MAX.wrapping_neg() {
            return self.plain();
        }
        let exponent = point.saturating_sub(1);
        let (first, rest) = split(&self.digits, 1);
        let mark = if rest.is_empty() { "" } else { "." };
        let plus = if exponent < 0 { "" } else { "+" };
        format!("{}{first}{mark}{rest}e{plus}{exponent}", self.sign())
    }

    /// Writes the number without an exponent, and without zeros at the ends. The text is as long as [`Self::point`] is far from zero.
    pub fn plain(&self) -> String {
        let Self { digits, power, .. } = self;
        if digits.is_empty() {
            return "0".to_owned();
        }
        let (sign, point) = (self.sign(), self.point());
        let zeros = |count: i64| "0".repeat(usize::try_from(count).unwrap_or_default());
        if *power >= 0 {
            return format!("{sign}{digits}{}", zeros(*power));
        }
        if point <= 0 {
            return format!("{sign}0.{}{digits}", zeros(point.saturating_neg()));
        }
        let (major, minor) = split(digits, point);
        format!("{sign}{major}.{minor}")
    }

    const fn sign(&self) -> &'static str {
        if self.is_negative { "-" } else { "" }
    }
}

fn split(digits: &str, at: i64) -> (&str, &str) {
    usize::try_from(at).ok().and_then(|at| digits.split_at_checked(at)).unwrap_or((digits, ""))
}

fn length(text: &str) -> i64 {
    i64::try_from(text.len()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical(number: &str) -> String {
        JsonNumber::read(number).canonical()
    }

    #[test]
    fn one_number_has_one_form() {
        let check = |expected: &str, forms: &[&str]| {
            for form in forms {
                assert_eq!(canonical(form), expected, "{form}");
            }
        };
        check("0", &["0", "-0", "0.0", "-0.0", "0e5", "-0E-400", "0.000"]);
        check("50", &["50", "50.0", "5e1", "5E+1", "0.5e2", "500e-1", "50.00"]);
        check("-50", &["-50", "-5e1", "-50.0"]);
        check("1.5", &["1.5", "1.50", "15e-1", "0.15e1"]);
        check("100000000000000000", &["1e17", "100000000000000000", "1.0E17"]);
        check("123456789012345678", &["123456789012345678", "123456789012345678.0"]);
        check("999999999999999999", &["999999999999999999"]);
        assert_ne!(canonical("50"), canonical("50.1"));
        assert_ne!(canonical("50"), canonical("-50"));
        assert_ne!(canonical("100000000000000001"), canonical("1e17"));
    }

    #[test]
    fn doubles_are_written_as_in_rfc_8785() {
        // Appendix B, in the shortest digits of each double.
        for (number, expected) in [
            ("5e-324", "5e-324"),
            ("-5e-324", "-5e-324"),
            ("1.7976931348623157e308", "1.7976931348623157e+308"),
            ("9007199254740992", "9007199254740992"),
            ("-9007199254740992", "-9007199254740992"),
            ("295147905179352830000", "295147905179352830000"),
            ("9.999999999999997e22", "9.999999999999997e+22"),
            ("1e23", "1e+23"),
            ("1.0000000000000001e23", "1.0000000000000001e+23"),
            ("999999999999999700000", "999999999999999700000"),
            ("1e21", "1e+21"),
            ("9.999999999999997e-7", "9.999999999999997e-7"),
            ("0.000001", "0.000001"),
            ("333333333.3333332", "333333333.3333332"),
            ("-0.0000033333333333333333", "-0.0000033333333333333333"),
            ("1424953923781206.2", "1424953923781206.2"),
        ] {
            assert_eq!(canonical(number), expected, "{number}");
        }
    }

    #[test]
    fn numbers_of_more_than_18_digits_do_not_fit() {
        for fits in ["999999999999999999", "-1e17", "0.1234567890123456789", "1e-400", "123456789012345678.9"]
        {
            assert!(JsonNumber::read(fits).fits(), "{fits}");
        }
        for too_large in ["1000000000000000000", "1e18", "-1.5E300", "1e99999999999999999999"] {
            assert!(!JsonNumber::read(too_large).fits(), "{too_large}");
        }
    }
}
