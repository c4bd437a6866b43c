//! The shared value from which all processes reserve ranges, with its operations as pure functions.

use serde::{Deserialize, Serialize};

use crate::domain::ids::OrderNumber;
use crate::domain::time::Timestamp;

/// The first counter of a new bank, chosen so that all order numbers have a readable length.
pub const FIRST_COUNTER: u64 = 1_000_000;

/// Largest number of ranges in the register. The oldest are removed first; their processes usually ended long ago.
const HOLDINGS_MAX: usize = 64;

/// A half-open range of counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The first counter.
    pub from: u64,
    /// The first counter after the range.
    pub until: u64,
}

impl Span {
    /// Returns the number of counters.
    pub const fn len(self) -> u64 {
        self.until.saturating_sub(self.from)
    }

    /// Returns whether the range is empty.
    pub const fn is_empty(self) -> bool {
        self.len() == 0
    }
}

/// A range that a process has reserved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holding {
    /// The id of the process, random at each start.
    pub holder: String,
    /// The reserved range.
    pub span: Span,
    /// The time of the reservation.
    pub at: Timestamp,
}

/// The register of all ranges.
///
/// Invariant: every counter from [`FIRST_COUNTER`] to below `next` belongs to exactly one reservation, and no higher one does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Register {
    /// The lowest counter that is not reserved.
    pub next: u64,
    /// Number of counters ever reserved, including returned ones.
    pub reserved: u64,
    /// Number of issued counters, according to the reports of processes.
    pub issued: u64,
    /// Number of counters returned on a clean shutdown, which are reserved again later.
    pub returned: u64,
    /// Number of counters that are known to be never issued.
    pub lost: u64,
    /// The latest reserved ranges, until their process reports their end.
    pub holdings: Vec<Holding>,
}

/// The changes that a process reports with its next write to the register.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Report {
    /// Counters issued since the last report; negative if more were given back than taken.
    pub issued: i64,
    /// Counters lost since the last report; can be negative for the same reason.
    pub lost: i64,
}

/// The reason why the stored value must not be used: issuing from it could repeat a number.
#[derive(Debug, thiserror::Error)]
pub enum RegisterError {
    /// The value cannot be decoded.
    #[error("the register of order numbers cannot be decoded")]
    Unreadable(#[source] serde_json::Error),
    /// A newer version wrote it.
    #[error("the register of order numbers has version {0}, which this program does not know")]
    Newer(u32),
    /// The value contradicts itself or has an invalid number.
    #[error("the register of order numbers has an impossible value in {0}")]
    Impossible(&'static str),
    /// The value is behind numbers that were reserved: an old state was restored.
    #[error(
        "the register of order numbers went back to {next}, but {confirmed} was confirmed before: stop all processes, \
         and move it ahead with `postonce-web order-numbers advance`"
    )]
    WentBack {
        /// The next counter according to the register.
        next: u64,
        /// The end of a range that was confirmed to this process.
        confirmed: u64,
    },
    /// There is no register, but the ledger has postings: the register was lost, or an old state of the store was restored.
    #[error(
        "the register of order numbers is missing, although the ledger has postings: stop all processes, and write it \
         with `postonce-web order-numbers advance`"
    )]
    Missing,
    /// The largest order number has been reserved.
    #[error("all order numbers are used up")]
    UsedUp,
}

#[derive(Serialize, Deserialize)]
struct RegisterRow {
    v: u32,
    next: String,
    reserved: String,
    issued: String,
    returned: String,
    lost: String,
    holdings: Vec<HoldingRow>,
}

#[derive(Serialize, Deserialize)]
struct HoldingRow {
    holder: String,
    from: String,
    until: String,
    at: i64,
}

const VERSION: u32 = 1;

impl Register {
    /// Returns the register of a new bank.
    pub const fn fresh() -> Self {
        Self { next: FIRST_COUNTER, reserved: 0, issued: 0, returned: 0, lost: 0, holdings: Vec::new() }
    }

    /// Decodes the stored value and checks it.
    ///
    /// # Errors
    /// [`RegisterError`] when it must not be used.
    pub fn decode(text: &str) -> Result<Self, RegisterError> {
        let row: RegisterRow = serde_json::from_str(text).map_err(RegisterError::Unreadable)?;
        if row.v > VERSION {
            return Err(RegisterError::Newer(row.v));
        }
        let number = |text: &str, name| text.parse::<u64>().map_err(|_| RegisterError::Impossible(name));
        let holding = |row: HoldingRow| {
            let span = Span { from: number(&row.from, "from")?, until: number(&row.until, "until")? };
            Ok(Holding { holder: row.holder, span, at: Timestamp::from_unix_ms(row.at) })
        };
        let register = Self {
            next: number(&row.next, "next")?,
            reserved: number(&row.reserved, "reserved")?,
            issued: number(&row.issued, "issued")?,
            returned: number(&row.returned, "returned")?,
            lost: number(&row.lost, "lost")?,
            holdings: row.holdings.into_iter().map(holding).collect::<Result<_, _>>()?,
        };
        register.check()?;
        Ok(register)
    }

    fn check(&self) -> Result<(), RegisterError> {
        // The counters from the first one to `next` are those reserved and not returned.
        let taken = self.reserved.checked_sub(self.returned).ok_or(RegisterError::Impossible("returned"))?;
        if FIRST_COUNTER.checked_add(taken) != Some(self.next) {
            return Err(RegisterError::Impossible("next"));
        }
        let is_valid =
            |holding: &Holding| holding.span.from < holding.span.until && holding.span.until <= self.next;
        if self.holdings.iter().all(is_valid) { Ok(()) } else { Err(RegisterError::Impossible("holdings")) }
    }

    /// Encodes the value to store.
    pub fn encode(&self) -> String {
        let Self { next, reserved, issued, returned, lost, holdings } = self;
        let row = RegisterRow {
            v: VERSION,
            next: next.to_string(),
            reserved: reserved.to_string(),
            issued: issued.to_string(),
            returned: returned.to_string(),
            lost: lost.to_string(),
            holdings: holdings
                .iter()
                .map(|Holding { holder, span, at }| HoldingRow {
                    holder: holder.clone(),
                    from: span.from.to_string(),
                    until: span.until.to_string(),
                    at: at.unix_ms(),
                })
                .collect(),
        };
        serde_json::to_string(&row).expect("texts can always be written as JSON")
    }

    /// Returns the register with a new reservation of `size` counters. Ranges of the holder that are not `live` are removed.
    ///
    /// # Errors
    /// [`RegisterError::UsedUp`] when the numbers are exhausted.
    pub fn reserve(
        &self,
        holder: &str,
        size: u64,
        live: &[Span],
        report: Report,
        now: Timestamp,
    ) -> Result<(Self, Span), RegisterError> {
        let until = self.next.checked_add(size).filter(|until| *until <= OrderNumber::COUNTER_MAX);
        let span = Span { from: self.next, until: until.ok_or(RegisterError::UsedUp)? };
        let mut after = self.reported(report);
        after.next = span.until;
        after.reserved = after.reserved.saturating_add(size);
        after.holdings.retain(|holding| holding.holder != holder || live.contains(&holding.span));
        after.holdings.push(Holding { holder: holder.to_owned(), span, at: now });
        let surplus = after.holdings.len().saturating_sub(HOLDINGS_MAX);
        after.holdings.drain(..surplus);
        Ok((after, span))
    }

    /// Returns the register after a process has ended. Its unused tails are returned if they are the last counters, else lost.
    #[must_use]
    pub fn release(&self, holder: &str, tails: &[Span], report: Report) -> Self {
        let mut after = self.reported(report);
        after.holdings.retain(|holding| holding.holder != holder);
        let mut tails: Vec<Span> = tails.iter().copied().filter(|tail| !tail.is_empty()).collect();
        tails.sort_by_key(|tail| std::cmp::Reverse(tail.until));
        for tail in tails {
            if tail.until == after.next {
                after.next = tail.from;
                after.returned = after.returned.saturating_add(tail.len());
            } else {
                after.lost = after.lost.saturating_add(tail.len());
            }
        }
        after
    }

    /// Returns the register to use after an old state of the store was restored, which lacks the numbers issued since. The next
    /// counter is `gap` after the larger of `next` and `floor`. The skipped counters are lost, and all ranges are removed.
    ///
    /// # Errors
    /// [`RegisterError::UsedUp`] if it exceeds the largest number.
    pub fn moved_ahead(&self, floor: u64, gap: u64) -> Result<Self, RegisterError> {
        let next = self.next.max(floor).checked_add(gap).filter(|next| *next <= OrderNumber::COUNTER_MAX);
        let next = next.ok_or(RegisterError::UsedUp)?;
        let skipped = next.saturating_sub(self.next);
        let reserved = self.reserved.saturating_add(skipped);
        let lost = self.lost.saturating_add(skipped);
        Ok(Self { next, reserved, lost, holdings: Vec::new(), ..self.clone() })
    }

    /// Returns the register with the report of a process applied.
    #[must_use]
    pub fn reported(&self, report: Report) -> Self {
        let mut after = self.clone();
        after.issued = after.issued.saturating_add_signed(report.issued);
        after.lost = after.lost.saturating_add_signed(report.lost);
        after
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_795_248_000_000;

    fn reserve(register: &Register, holder: &str, size: u64) -> (Register, Span) {
        let now = Timestamp::from_unix_ms(NOW);
        register.reserve(holder, size, &[], Report::default(), now).unwrap()
    }

    #[test]
    fn ranges_follow_one_another_and_the_value_round_trips() {
        let (one, first) = reserve(&Register::fresh(), "a", 100);
        let (two, second) = reserve(&one, "b", 10);
        assert_eq!((first.from, first.until), (FIRST_COUNTER, FIRST_COUNTER + 100));
        assert_eq!((second.from, second.until), (first.until, first.until + 10));
        assert_eq!(Register::decode(&two.encode()).unwrap(), two);
        assert_eq!(two.holdings.len(), 2);
    }

    #[test]
    fn only_the_last_tail_can_be_returned() {
        let (one, first) = reserve(&Register::fresh(), "a", 100);
        let (two, second) = reserve(&one, "a", 100);
        let tail = Span { from: first.from + 60, until: first.until };
        // The second range is unused and the last one: once it is returned, the first one's tail is the last.
        let all_back = two.release("a", &[tail, second], Report { issued: 60, lost: 0 });
        assert_eq!((all_back.next, all_back.returned, all_back.lost), (FIRST_COUNTER + 60, 140, 0));
        let (three, _) = reserve(&two, "b", 100);
        let none_back = three.release("a", &[tail, second], Report { issued: 60, lost: 0 });
        assert_eq!((none_back.next, none_back.returned, none_back.lost), (three.next, 0, 140));
        assert_eq!(Register::decode(&all_back.encode()).unwrap(), all_back);
        assert_eq!(Register::decode(&none_back.encode()).unwrap(), none_back);
    }

    #[test]
    fn a_restored_register_continues_after_all_known_numbers() {
        let (one, _) = reserve(&Register::fresh(), "a", 100);
        let check = |floor, gap, next| {
            let ahead = one.moved_ahead(floor, gap).unwrap();
            assert_eq!((ahead.next, ahead.lost), (next, next - one.next));
            assert!(ahead.holdings.is_empty());
            assert_eq!(Register::decode(&ahead.encode()).unwrap(), ahead);
        };
        check(0, 1000, one.next + 1000);
        check(one.next - 1, 1000, one.next + 1000);
        check(one.next + 500, 1000, one.next + 1500);
        assert!(matches!(one.moved_ahead(0, u64::MAX), Err(RegisterError::UsedUp)));
        assert!(matches!(one.moved_ahead(OrderNumber::COUNTER_MAX, 1), Err(RegisterError::UsedUp)));
    }

    #[test]
    fn values_that_could_repeat_a_number_are_refused() {
        let valid = reserve(&Register::fresh(), "a", 100).0.encode();
        for damage in [
            ("\"next\":\"1000100\"", "\"next\":\"1000000\""),
            ("\"next\":\"1000100\"", "\"next\":\"x\""),
            ("\"next\":\"1000100\"", "\"next\":\"-1\""),
            ("\"reserved\":\"100\"", "\"reserved\":\"10\""),
            ("\"until\":\"1000100\"", "\"until\":\"1000101\""),
            ("\"v\":1", "\"v\":2"),
            ("{", ""),
        ] {
            let damaged = valid.replacen(damage.0, damage.1, 1);
            assert!(damaged != valid && Register::decode(&damaged).is_err(), "{damage:?}");
        }
        let mut last = Register::fresh();
        last.next = OrderNumber::COUNTER_MAX;
        let full = last.reserve("a", 1, &[], Report::default(), Timestamp::from_unix_ms(NOW));
        assert!(matches!(full, Err(RegisterError::UsedUp)));
    }

    #[test]
    fn the_list_of_ranges_stays_bounded() {
        let mut register = Register::fresh();
        for process in 0..200 {
            register = reserve(&register, &format!("process-{process}"), 1).0;
        }
        assert_eq!(register.holdings.len(), HOLDINGS_MAX);
        assert!(register.encode().len() < crate::ports::sync_store::VALUE_BYTES_MAX);
    }
}
