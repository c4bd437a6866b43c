//! Chooses the queue for accepted work.

use crate::domain::ids::AccountKey;
use crate::ports::queue::QueueName;

/// The kind of work, which is the prefix of its queue names: `work-0`, `work-1`, …
pub const WORK: &str = "work";

/// Returns the queue for the work of an account, which is fixed for a given `queue_count`. Usually one worker thus
/// keeps the account's row in its cache, although any worker may read any queue.
pub fn queue_of(account: AccountKey, queue_count: u16) -> QueueName {
    QueueName::of_partition(WORK, partition_of(account, queue_count))
}

/// Returns the number of an account's group among `count` groups, which is fixed for a given `count`.
pub fn partition_of(account: AccountKey, count: u16) -> u16 {
    let hash = account.stable_hash();
    let folded = hash ^ (hash >> 32);
    let partition = folded.checked_rem(u64::from(count)).unwrap_or(0);
    u16::try_from(partition).expect("a remainder of a u16 is a u16")
}

/// Returns all queues of accepted work.
pub fn queues(queue_count: u16) -> Vec<QueueName> {
    (0..queue_count).map(|partition| QueueName::of_partition(WORK, partition)).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use uuid::Uuid;

    use super::*;
    use crate::domain::ids::{AccountId, UserId};

    #[test]
    fn accounts_are_spread_over_all_queues_and_keep_theirs() {
        let mut counts = BTreeMap::new();
        for id in 0..4000 {
            let user = UserId::from_uuid(Uuid::from_u128(id));
            let account = AccountKey { user, account: AccountId::from_uuid(Uuid::from_u128(7)) };
            assert_eq!(queue_of(account, 4), queue_of(account, 4));
            let count: &mut u32 = counts.entry(queue_of(account, 4)).or_default();
            *count += 1;
        }
        assert_eq!(counts.keys().cloned().collect::<Vec<_>>(), queues(4));
        assert!(counts.values().all(|count| (700..1300).contains(count)), "{counts:?}");
    }
}
