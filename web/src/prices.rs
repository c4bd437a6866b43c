//! What storage operations cost, in whole billionths of a US dollar: prices never pass through
//! floats either.

use postonce_shared::ports::operations::PriceKind;

/// Nano-dollars of one operation: list prices of Azure Storage (LRS) as estimated for 2026. For
/// 10,000 operations that is 0.00036 USD on tables, three times that for batches and scans, 0.004 on
/// queues, 0.055 for blob writes and 0.0044 for blob reads.
const fn nano_usd_of_one(kind: PriceKind) -> u64 {
    match kind {
        PriceKind::Table => 36,
        PriceKind::TableBatch => 108,
        PriceKind::Queue => 400,
        PriceKind::BlobWrite => 5_500,
        PriceKind::BlobRead => 440,
    }
}

/// Nano-dollars of so many operations.
pub const fn nano_usd(kind: PriceKind, count: u64) -> u64 {
    nano_usd_of_one(kind).saturating_mul(count)
}

/// Nano-dollars as a decimal number of dollars.
pub fn usd(nano_usd: u64) -> String {
    const NANO: u64 = 1_000_000_000;
    format!("{}.{:09}", nano_usd.div_euclid(NANO), nano_usd.rem_euclid(NANO))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_whole_billionths() {
        let check = |kind, count, expected: &str| assert_eq!(usd(nano_usd(kind, count)), expected);
        check(PriceKind::Table, 10_000, "0.000360000");
        check(PriceKind::TableBatch, 10_000, "0.001080000");
        check(PriceKind::Queue, 10_000, "0.004000000");
        check(PriceKind::BlobWrite, 10_000, "0.055000000");
        check(PriceKind::BlobRead, 10_000, "0.004400000");
        check(PriceKind::Queue, 3_000_000_000, "1200.000000000");
        check(PriceKind::Queue, u64::MAX, "18446744073.709551615");
    }
}
