//! Formats numbers, amounts, times and sizes. Numbers and amounts are never rounded.

/// Separator between groups of three digits: a narrow no-break space. `console.js` uses the same character.
pub const THIN_SPACE: char = '\u{202f}';

/// Units of [`bytes`] above the byte; each is 1024 times the previous one.
const BINARY_UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/// Units of [`duration_s`] with their lengths in seconds, longest first.
const TIME_UNITS: [(u64, &str); 4] = [(86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")];

/// Formats a number with its digits in groups of three.
pub fn count(number: u64) -> String {
    grouped(&number.to_string())
}

/// Formats an amount of US dollars, such as `$1 234.50`. Keeps all decimals, and texts that are not decimal numbers.
pub fn usd(amount: &str) -> String {
    with_unit(amount, "$")
}

/// Formats a decimal number, such as `1 234.50`. Keeps all decimals, and texts that are not decimal numbers.
pub fn decimal(number: &str) -> String {
    with_unit(number, "")
}

/// Formats a decimal number with digits in groups of three, and with a unit between the sign and the digits.
fn with_unit(number: &str, unit: &str) -> String {
    let (sign, digits) = number.strip_prefix('-').map_or(("", number), |digits| ("\u{2212}", digits));
    let (whole, decimals) =
        digits.split_once('.').map_or((digits, None), |(whole, decimals)| (whole, Some(decimals)));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || decimals.is_some_and(|decimals| !is_number(decimals)) {
        return number.to_owned();
    }
    let point = decimals.map(|decimals| format!(".{decimals}")).unwrap_or_default();
    format!("{sign}{unit}{}{point}", grouped(whole))
}

/// Formats a duration in its two largest units, such as `4 min 12 s`. Smaller units are cut off.
pub fn duration_s(seconds: u64) -> String {
    let largest = TIME_UNITS.iter().position(|(length, _)| seconds >= *length);
    let Some(units) = largest.and_then(|largest| TIME_UNITS.get(largest..)) else {
        return "0 s".to_owned();
    };
    let mut rest = seconds;
    let mut parts = Vec::new();
    for (length, unit) in units.iter().take(2) {
        let number = rest.checked_div(*length).unwrap_or_default();
        rest = rest.checked_rem(*length).unwrap_or_default();
        if number > 0 {
            parts.push(format!("{} {unit}", count(number)));
        }
    }
    parts.join(" ")
}

/// Formats a time in RFC 3339 and UTC as `2026-11-23 06:00:00 UTC`, without fractions. Keeps texts in another form.
pub fn instant(rfc3339: &str) -> String {
    let parts = rfc3339.strip_suffix('Z').and_then(|text| text.split_once('T'));
    let Some((date, time)) = parts else {
        return rfc3339.to_owned();
    };
    let seconds = time.split_once('.').map_or(time, |(seconds, _)| seconds);
    if !has_form(date, "dddd-dd-dd") || !has_form(seconds, "dd:dd:dd") {
        return rfc3339.to_owned();
    }
    format!("{date} {seconds} UTC")
}

/// Formats the time of day of a Unix time in seconds, such as `06:00:00 UTC`.
pub fn time_of_day(unix_seconds: u64) -> String {
    let part =
        |length: u64, of: u64| unix_seconds.checked_div(length).and_then(|number| number.checked_rem(of));
    let part = |length: u64, of: u64| part(length, of).unwrap_or_default();
    format!("{:02}:{:02}:{:02} UTC", part(3_600, 24), part(60, 60), part(1, 60))
}

/// Formats a size in the largest binary unit that it reaches, rounded down to one decimal, such as `1.5 MiB`.
pub fn bytes(size: u64) -> String {
    let mut reached = None;
    let mut unit_size = 1_u64;
    for unit in BINARY_UNITS {
        let next = unit_size.saturating_mul(1024);
        if size < next {
            break;
        }
        unit_size = next;
        reached = Some(unit);
    }
    let Some(unit) = reached else {
        return format!("{size} B");
    };
    let whole = size.checked_div(unit_size).unwrap_or_default();
    let rest = u128::from(size.checked_rem(unit_size).unwrap_or_default());
    let tenth = rest.saturating_mul(10).checked_div(u128::from(unit_size)).unwrap_or_default();
    format!("{}.{tenth} {unit}", count(whole))
}

/// Formats a number with its noun, such as `1 process` or `3 processes`.
pub fn counted(number: impl TryInto<u64>, one: &str, several: &str) -> String {
    let number = number.try_into().unwrap_or(u64::MAX);
    format!("{} {}", count(number), plural(number, one, several))
}

/// Returns the singular or plural form of a noun for a number.
pub const fn plural<'a>(number: u64, one: &'a str, several: &'a str) -> &'a str {
    if number == 1 { one } else { several }
}

/// Returns a part of a whole in thousandths, rounded down.
pub fn permille(part: impl Into<u128>, whole: impl Into<u128>) -> u16 {
    let thousandths = part.into().saturating_mul(1_000).checked_div(whole.into()).unwrap_or_default();
    u16::try_from(thousandths).unwrap_or(u16::MAX).min(1_000)
}

/// Formats a part of a whole in percent, rounded down to one decimal.
pub fn percent(part: impl Into<u128>, whole: impl Into<u128>) -> String {
    let part = part.into();
    let thousandths = permille(part, whole);
    if thousandths == 0 && part > 0 {
        return "less than 0.1 %".to_owned();
    }
    format!("{}.{} %", thousandths.div_euclid(10), thousandths.rem_euclid(10))
}

/// Separates digits into groups of three.
fn grouped(digits: &str) -> String {
    let mut text = String::with_capacity(digits.len().saturating_mul(2));
    for (index, digit) in digits.chars().enumerate() {
        let left = digits.len().saturating_sub(index);
        if index > 0 && left.is_multiple_of(3) {
            text.push(THIN_SPACE);
        }
        text.push(digit);
    }
    text
}

/// Returns whether a text matches a form, in which `d` stands for any digit.
fn has_form(text: &str, form: &str) -> bool {
    let fits = |(byte, wanted): (u8, u8)| byte == wanted || (wanted == b'd' && byte.is_ascii_digit());
    text.len() == form.len() && text.bytes().zip(form.bytes()).all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_in_groups_of_three() {
        let numbers = [(0, "0"), (999, "999"), (1_000, "1 000"), (12_345_678, "12 345 678")];
        for (number, text) in numbers {
            assert_eq!(count(number).replace(THIN_SPACE, " "), text);
        }
        assert_eq!(count(u64::MAX).replace(THIN_SPACE, ""), u64::MAX.to_string());
    }

    #[test]
    fn amounts_keep_their_decimals() {
        let amounts = [("0.4", "$0.4"), ("1234.50", "$1 234.50"), ("12", "$12"), ("-3.00", "\u{2212}$3.00")];
        for (amount, text) in amounts {
            assert_eq!(usd(amount).replace(THIN_SPACE, " "), text);
        }
        for other in ["", "-", "1.", ".5", "1e3", "unknown"] {
            assert_eq!(usd(other), other);
        }
    }

    #[test]
    fn decimal_numbers_keep_their_decimals_and_signs() {
        let numbers = [
            ("0.00", "0.00"),
            ("1234567.80", "1 234 567.80"),
            ("-12.5", "\u{2212}12.5"),
            ("700", "700"),
            ("100000000000000000", "100 000 000 000 000 000"),
            ("many", "many"),
            ("?", "?"),
        ];
        for (text, shown) in numbers {
            assert_eq!(decimal(text).replace(THIN_SPACE, " "), shown);
        }
    }

    #[test]
    fn one_is_singular() {
        let counts = [(0, "0 processes"), (1, "1 process"), (1_200, "1\u{202f}200 processes")];
        for (number, text) in counts {
            let number: u64 = number;
            assert_eq!(counted(number, "process", "processes"), text);
        }
    }

    #[test]
    fn parts_are_in_percent() {
        for (part, whole, text) in [
            (0_u64, 0_u64, "0.0 %"),
            (0, 5, "0.0 %"),
            (1, 5_000, "less than 0.1 %"),
            (982, 1_000, "98.2 %"),
            (9_999, 10_000, "99.9 %"),
            (5, 5, "100.0 %"),
            (u64::MAX, 1, "100.0 %"),
        ] {
            assert_eq!(percent(part, whole), text);
        }
    }

    #[test]
    fn durations_have_at_most_two_units() {
        let durations = [
            (0, "0 s"),
            (59, "59 s"),
            (60, "1 min"),
            (252, "4 min 12 s"),
            (3_600, "1 h"),
            (3_601, "1 h"),
            (7_500, "2 h 5 min"),
            (273_600, "3 d 4 h"),
        ];
        for (seconds, text) in durations {
            assert_eq!(duration_s(seconds), text);
        }
    }

    #[test]
    fn instants_are_in_utc_without_fractions() {
        assert_eq!(instant("2026-11-23T06:00:00.250Z"), "2026-11-23 06:00:00 UTC");
        assert_eq!(instant("2026-11-23T06:00:00Z"), "2026-11-23 06:00:00 UTC");
        for other in ["", "T", "soon", "2026-11-23T06:00:00+01:00", "2026-11-23T06:00Z"] {
            assert_eq!(instant(other), other);
        }
        assert_eq!(time_of_day(1_795_413_723), "06:02:03 UTC");
    }

    #[test]
    fn sizes_are_in_binary_units() {
        let sizes = [
            (0, "0 B"),
            (1_023, "1023 B"),
            (1_024, "1.0 KiB"),
            (1_536, "1.5 KiB"),
            (1_048_575, "1 023.9 KiB"),
            (1_048_576, "1.0 MiB"),
            (u64::MAX, "15.9 EiB"),
        ];
        for (size, text) in sizes {
            assert_eq!(bytes(size).replace(THIN_SPACE, " "), text);
        }
    }
}
