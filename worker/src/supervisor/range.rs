//! The range of the number of worker processes under a supervisor.

use std::str::FromStr;

/// Maximum number of worker processes under one supervisor.
pub const SCALE_MAX: u32 = 64;

/// Minimum and maximum number of workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScaleRange {
    /// Minimum, at least 1: without a worker, no process would be woken by new work.
    pub min: u32,
    /// Maximum, at least `min` and at most [`SCALE_MAX`].
    pub max: u32,
}

/// The text is not a valid range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// The text is neither a number nor a range.
    #[error("it must be a number of workers such as 3, or a range such as 1..8")]
    Syntax,
    /// A number is too small or too large.
    #[error("it must stay within 1 and {SCALE_MAX} workers")]
    Limit,
    /// The first number is larger than the second.
    #[error("the first number must not be above the second")]
    Order,
}

impl FromStr for ScaleRange {
    type Err = RangeError;

    fn from_str(text: &str) -> Result<Self, RangeError> {
        let (min, max) = text.split_once("..").unwrap_or((text, text));
        let number = |text: &str| {
            let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            // A number that overflows is reported as too large.
            if is_number { Ok(text.parse().unwrap_or(u32::MAX)) } else { Err(RangeError::Syntax) }
        };
        let (min, max) = (number(min)?, number(max)?);
        let limits = 1..=SCALE_MAX;
        match limits.contains(&min) && limits.contains(&max) {
            false => Err(RangeError::Limit),
            true if min > max => Err(RangeError::Order),
            true => Ok(Self { min, max }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_and_numbers_are_parsed() {
        assert_eq!("1..8".parse(), Ok(ScaleRange { min: 1, max: 8 }));
        assert_eq!("3".parse(), Ok(ScaleRange { min: 3, max: 3 }));
        assert_eq!("64..64".parse(), Ok(ScaleRange { min: 64, max: 64 }));
        let check = |text: &str, expected| assert_eq!(text.parse::<ScaleRange>(), Err(expected), "{text:?}");
        for text in
            ["", "..", "1..", "..8", "1...8", "1..=8", "1-8", "a", "1..b", "-1..2", "+1", " 1", "1..2..3"]
        {
            check(text, RangeError::Syntax);
        }
        for text in ["0", "0..4", "1..65", "65", "1..99999999999999999999"] {
            check(text, RangeError::Limit);
        }
        check("4..1", RangeError::Order);
    }
}
