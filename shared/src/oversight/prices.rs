//! The cost of storage operations, in exact decimals. Prices never pass through floats.

use std::time::Duration;

use rust_decimal::{Decimal, RoundingStrategy};

use crate::domain::money::check_decimal;
use crate::ports::operations::PriceKind;

/// Estimated list prices of Azure Storage (LRS) in 2026, in US dollars per 10,000 operations.
pub mod defaults {
    /// One table row read or written.
    pub const TABLE: &str = "0.00036";
    /// A table batch, or a scan.
    pub const TABLE_BATCH: &str = "0.00108";
    /// Any queue operation.
    pub const QUEUE: &str = "0.004";
    /// A blob written.
    pub const BLOB_WRITE: &str = "0.055";
    /// A blob read, or anything else on blobs.
    pub const BLOB_READ: &str = "0.0044";
}

/// Maximum number of decimals of a price: billionths of a dollar per 10,000 operations.
pub const PRICE_DECIMALS_MAX: u32 = 9;
/// Highest price, in whole dollars per 10,000 operations.
pub const PRICE_USD_MAX: u64 = 1_000;

/// Converts the price of 10,000 operations to the price of one.
const OF_ONE: Decimal = Decimal::from_parts(1, 0, 0, false, 4);

/// The price of 10,000 operations, in US dollars.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Price(Decimal);

/// The price of each kind of operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prices {
    /// One table row read or written.
    pub table: Price,
    /// A table batch, or a scan.
    pub table_batch: Price,
    /// Any queue operation.
    pub queue: Price,
    /// A blob written.
    pub blob_write: Price,
    /// A blob read, or anything else on blobs.
    pub blob_read: Price,
}

/// The total cost of operations in US dollars. It is exact until it is formatted, so rounding errors do not add up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cost(Decimal);

impl Price {
    /// Parses dollars as a decimal number such as `0.00036`, with at most [`PRICE_DECIMALS_MAX`] decimals and at most
    /// [`PRICE_USD_MAX`] dollars; `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        // `Decimal` also reads signs, underscores, and a point without digits before or after it.
        check_decimal(text).ok()?;
        let usd = Decimal::from_str_exact(text).ok()?;
        (usd.scale() <= PRICE_DECIMALS_MAX && usd <= Decimal::from(PRICE_USD_MAX)).then_some(Self(usd))
    }

    /// Returns the cost of `count` operations.
    pub fn of(self, count: u64) -> Cost {
        Cost(self.0.saturating_mul(OF_ONE).saturating_mul(Decimal::from(count)))
    }
}

impl Default for Prices {
    fn default() -> Self {
        let price = |text| Price::parse(text).expect("a default can be read");
        Self {
            table: price(defaults::TABLE),
            table_batch: price(defaults::TABLE_BATCH),
            queue: price(defaults::QUEUE),
            blob_write: price(defaults::BLOB_WRITE),
            blob_read: price(defaults::BLOB_READ),
        }
    }
}

impl Prices {
    /// Returns the cost of `count` operations of a kind.
    pub fn of(&self, kind: PriceKind, count: u64) -> Cost {
        let price = match kind {
            PriceKind::Table => self.table,
            PriceKind::TableBatch => self.table_batch,
            PriceKind::Queue => self.queue,
            PriceKind::BlobWrite => self.blob_write,
            PriceKind::BlobRead => self.blob_read,
        };
        price.of(count)
    }
}

impl Cost {
    /// Returns the sum of both costs.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// Returns the cost in nano-dollars, rounded.
    pub fn nano_usd(self) -> u64 {
        let nano_usd = self.0.saturating_mul(Decimal::from(1_000_000_000));
        rounded(nano_usd, 0).try_into().unwrap_or(u64::MAX)
    }

    /// Returns the cost in dollars as a decimal number with nine decimals, rounded.
    pub fn usd(self) -> String {
        format!("{:.9}", rounded(self.0, 9))
    }

    /// Returns the cost in dollars with two decimals, rounded.
    pub fn dollars(self) -> String {
        format!("{:.2}", rounded(self.0, 2))
    }

    /// Returns the cost of `wanted` at the same rate, if this is the cost of `counted`; `None` if that is zero.
    pub fn at_the_rate_of(self, counted: Duration, wanted: Duration) -> Option<Self> {
        let [counted, wanted] = [counted, wanted].map(|time| Decimal::from(time.as_millis()));
        self.0.saturating_mul(wanted).checked_div(counted).map(Self)
    }

    /// Returns the cost of a million postings, if this is the cost of `postings`; `None` if that is 0.
    pub fn of_a_million(self, postings: u64) -> Option<Self> {
        self.0.saturating_mul(Decimal::from(1_000_000)).checked_div(Decimal::from(postings)).map(Self)
    }
}

impl std::iter::Sum for Cost {
    fn sum<I: Iterator<Item = Self>>(costs: I) -> Self {
        costs.fold(Self::default(), Self::plus)
    }
}

/// Returns the operations per posting with two decimals; `None` if nothing was posted.
pub fn operations_per_posting(operations: u64, postings: u64) -> Option<String> {
    let ratio = Decimal::from(operations).checked_div(Decimal::from(postings))?;
    Some(format!("{:.2}", rounded(ratio, 2)))
}

/// Returns the operations per batch item with three decimals.
pub fn operations_per_item(operations: u64, items: u64) -> String {
    let ratio = Decimal::from(operations).checked_div(Decimal::from(items)).unwrap_or_default();
    format!("{:.3}", rounded(ratio, 3))
}

/// Rounds half up.
fn rounded(number: Decimal, decimals: u32) -> Decimal {
    number.round_dp_with_strategy(decimals, RoundingStrategy::MidpointAwayFromZero)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_prices_are_whole_billionths() {
        let prices = Prices::default();
        let check = |kind, count, expected: &str| assert_eq!(prices.of(kind, count).usd(), expected);
        check(PriceKind::Table, 10_000, "0.000360000");
        check(PriceKind::TableBatch, 10_000, "0.001080000");
        check(PriceKind::Queue, 10_000, "0.004000000");
        check(PriceKind::BlobWrite, 10_000, "0.055000000");
        check(PriceKind::BlobRead, 10_000, "0.004400000");
        check(PriceKind::Queue, 1, "0.000000400");
        check(PriceKind::Queue, 3_000_000_000, "1200.000000000");
        check(PriceKind::BlobWrite, u64::MAX, "101457092405402.533882500");
    }

    #[test]
    fn prices_are_read_exactly_or_not_at_all() {
        let nano = |text: &str| Price::parse(text).map(|Price(usd)| Cost(usd).nano_usd());
        assert_eq!(nano("0.00036"), Some(360_000));
        assert_eq!(nano("0.000000001"), Some(1));
        assert_eq!(nano("4"), Some(4_000_000_000));
        assert_eq!(nano("0"), Some(0));
        assert_eq!(nano("1000.000000000"), Some(1_000_000_000_000));
        let wrong = [
            "",
            ".",
            "1.",
            ".5",
            "-1",
            "+1",
            "1e3",
            "1,5",
            " 1",
            "0x1",
            "0.0000000001",
            "1000.000000001",
            "99999999999999999999",
            "1.2.3",
            "00.5",
            "٣",
        ];
        for text in wrong {
            assert_eq!(nano(text), None, "{text:?}");
        }
    }

    #[test]
    fn sums_are_rounded_once() {
        let prices = Prices { table: Price::parse("0.000003").unwrap(), ..Prices::default() };
        // 0.3 nano-dollars each.
        let one = prices.of(PriceKind::Table, 1);
        assert_eq!((one.nano_usd(), [one, one].into_iter().sum::<Cost>().nano_usd()), (0, 1));
        assert_eq!(prices.of(PriceKind::Table, 5).nano_usd(), 2, "half is rounded up");
    }

    #[test]
    fn ratios_are_told_where_something_was_posted() {
        assert_eq!(operations_per_posting(212, 100).as_deref(), Some("2.12"));
        assert_eq!(operations_per_posting(1, 3).as_deref(), Some("0.33"));
        assert_eq!(operations_per_posting(2, 3).as_deref(), Some("0.67"));
        assert_eq!(operations_per_posting(1, 200).as_deref(), Some("0.01"));
        assert_eq!(operations_per_posting(0, 5).as_deref(), Some("0.00"));
        assert_eq!(operations_per_posting(7, 0), None);
        let cost = Prices::default().of(PriceKind::Queue, 3);
        assert_eq!(cost.of_a_million(4).unwrap().usd(), "0.300000000");
        assert_eq!(cost.of_a_million(7).unwrap().usd(), "0.171428571");
        assert_eq!(cost.of_a_million(0), None);
        let [minute, hour] = [60, 3600].map(Duration::from_secs);
        assert_eq!(cost.at_the_rate_of(minute, hour).unwrap().usd(), "0.000072000");
        assert_eq!(cost.at_the_rate_of(Duration::ZERO, hour), None);
    }
}
