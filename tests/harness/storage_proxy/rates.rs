//! The rate limits of Azure Storage ("Scalability and performance targets"). Azurite has none.
//!
//! Each limit counts within a second of the clock, so a burst across the end of a second may have twice the rate.

use std::collections::HashMap;

use super::rules::Cost;

/// Maximum number of requests to a storage account.
const REQUESTS_PER_SECOND: u32 = 20_000;
/// Maximum number of rows of a partition. A request that reads or writes one row counts as one row; a query counts as none.
const ENTITIES_PER_SECOND: u32 = 2_000;
/// Maximum number of requests for messages of a queue.
const MESSAGES_PER_SECOND: u32 = 2_000;

/// Counts within the current second.
#[derive(Debug, Default)]
pub(super) struct Rates {
    second: u64,
    requests: u32,
    entities: HashMap<String, u32>,
    messages: HashMap<String, u32>,
}

impl Rates {
    /// Counts a request that arrives in this second. Returns false, without counting it, if it exceeds a limit.
    pub(super) fn admit(&mut self, cost: Cost, second: u64) -> bool {
        if self.second != second {
            *self = Self { second, ..Self::default() };
        }
        if self.requests >= REQUESTS_PER_SECOND {
            return false;
        }
        let (count, added, max) = match cost {
            Cost::Request => {
                self.requests = self.requests.saturating_add(1);
                return true;
            }
            Cost::Entities { partition, count } => {
                (self.entities.entry(partition).or_default(), count, ENTITIES_PER_SECOND)
            }
            Cost::Message { queue } => (self.messages.entry(queue).or_default(), 1, MESSAGES_PER_SECOND),
        };
        let total = count.saturating_add(added);
        if total > max {
            return false;
        }
        *count = total;
        self.requests = self.requests.saturating_add(1);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of requests of this cost that are admitted in one second.
    fn admitted(rates: &mut Rates, second: u64, cost: impl Fn(u32) -> Cost) -> usize {
        (0..30_000).filter(|number| rates.admit(cost(*number), second)).count()
    }

    #[test]
    fn each_partition_queue_and_account_has_its_limit() {
        let batch = |partition: u32| Cost::Entities { partition: format!("ledger/{partition}"), count: 100 };
        let message = |queue: u32| Cost::Message { queue: format!("work-{queue}") };
        let mut rates = Rates::default();
        assert_eq!(admitted(&mut rates, 1, |_| batch(0)), 20);
        assert_eq!(admitted(&mut rates, 1, |_| message(0)), 2_000);
        assert_eq!(admitted(&mut rates, 2, |_| batch(0)), 20, "a new second");
        assert_eq!(admitted(&mut rates, 3, batch), 20_000, "partitions of their own share the account");
        assert_eq!(admitted(&mut rates, 4, message), 20_000);
        assert_eq!(admitted(&mut rates, 5, |_| Cost::Request), 20_000);
        assert!(!rates.admit(message(1), 5), "all services share the account");
        assert!(rates.admit(message(1), 6));
    }
}
