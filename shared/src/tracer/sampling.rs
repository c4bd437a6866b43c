//! Decides which traces are recorded.

use rust_decimal::Decimal;
use rust_decimal::prelude::ToPrimitive as _;

use crate::domain::money::check_decimal;

/// The part of the traces that is recorded. The same trace has the same result in all processes with the same part: the last
/// 56 bits of its id, which are random, are compared with a limit ("Consistent Probability Sampling" of OpenTelemetry).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sampling {
    /// Traces with a lower number are not recorded.
    limit: u64,
}

/// Number of 56-bit values.
const VALUES: u64 = 1 << 56;

impl Sampling {
    /// Parses a fraction from 0 to 1 with at most 6 decimals.
    pub fn parse(text: &str) -> Option<Self> {
        // `Decimal` also reads signs, underscores, and a point without digits before or after it.
        check_decimal(text).ok()?;
        let part = Decimal::from_str_exact(text).ok()?;
        let is_valid = (Decimal::ZERO..=Decimal::ONE).contains(&part) && part.scale() <= 6;
        let left_out = Decimal::ONE.checked_sub(part).filter(|_| is_valid)?;
        let limit = left_out.checked_mul(Decimal::from(VALUES))?.to_u64()?;
        Some(Self { limit })
    }

    /// Returns whether a trace is recorded.
    pub fn includes(self, trace_id: &str) -> bool {
        let random = trace_id.get(18..).and_then(|digits| u64::from_str_radix(digits, 16).ok());
        random.is_some_and(|random| random >= self.limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_the_traces_is_recorded() {
        let ids = || {
            (0..1000_u128)
                .map(|n| format!("{:032x}", n.wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835)))
        };
        let count = |part| ids().filter(|id| Sampling::parse(part).unwrap().includes(id)).count();
        assert_eq!((count("0"), count("1"), count("1.000")), (0, 1000, 1000));
        assert!((50..150).contains(&count("0.1")), "{}", count("0.1"));
        assert!(Sampling::parse("0.000001").unwrap().includes(&"f".repeat(32)));
        assert!(!Sampling::parse("0.999999").unwrap().includes(&"0".repeat(32)));
    }

    #[test]
    fn only_parts_of_one_are_taken() {
        for wrong in
            ["", "-0.1", "1.1", "10%", "0.0000001", "1e-7", "NaN", "+0.1", ".5", "1.", "0_1", "0.1_0", "00.1"]
        {
            assert_eq!(Sampling::parse(wrong), None, "{wrong}");
        }
    }
}
