//! Notifies all processes of contended accounts, on which this process could not commit.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use serde::{Deserialize, Serialize};
use tracing::debug;

use super::CONTENTION_PATH;
use super::broadcast::{BroadcastRequest, PeerBroadcast};
use super::send_queues::{Pending, SendQueues};
use crate::backoff::BROADCAST;
use crate::cluster::contention::ContentionNotices;
use crate::domain::ids::{AccountKey, parse_hyphenated};
use crate::ports::fault::chain;
use crate::ports::world::World;

/// Maximum wait for a response.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Delay after a notice, which costs a read of the process registry. The processes avoid the accounts for as long.
const INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of accounts that wait for the next notice. Further accounts are dropped.
const ACCOUNTS_MAX: usize = 500;

#[derive(Serialize, Deserialize)]
struct Notice {
    /// Each account as user id and account id, joined by a slash.
    accounts: Vec<String>,
}

impl Pending for BTreeSet<AccountKey> {
    fn add(&mut self, more: Self) {
        let room = ACCOUNTS_MAX.saturating_sub(self.len());
        self.extend(more.into_iter().take(room));
    }

    fn is_empty(&self) -> bool {
        Self::is_empty(self)
    }
}

/// Sends notices of contended accounts over HTTP.
pub struct HttpContentionNotices(SendQueues<(), BTreeSet<AccountKey>>);

impl HttpContentionNotices {
    pub(super) fn new(broadcast: &Arc<PeerBroadcast>, world: &Arc<dyn World>) -> Self {
        let (broadcast, clock) = (Arc::clone(broadcast), Arc::clone(world));
        let send = move |(), accounts: BTreeSet<AccountKey>| {
            let (broadcast, clock) = (Arc::clone(&broadcast), Arc::clone(&clock));
            async move {
                let request = BroadcastRequest::put(CONTENTION_PATH, encode_contended(&accounts));
                if let Err(fault) = broadcast.send(&request, TIMEOUT).await {
                    debug!("A notice of contended accounts could not be sent: {}", chain(&fault));
                }
                clock.sleep(INTERVAL).await;
                true
            }
            .boxed()
        };
        Self(SendQueues::new(Arc::clone(world), BROADCAST, Arc::new(send)))
    }
}

impl ContentionNotices for HttpContentionNotices {
    fn send(&self, account: AccountKey) {
        self.0.add((), BTreeSet::from([account]));
    }
}

fn encode_contended(accounts: &BTreeSet<AccountKey>) -> Vec<u8> {
    let notice = Notice { accounts: accounts.iter().map(ToString::to_string).collect() };
    serde_json::to_vec(&notice).expect("texts can always be written as JSON")
}

/// Decodes a notice. Invalid accounts are skipped.
///
/// # Errors
/// Returns the JSON error when the body is not a notice.
pub fn decode_contended(body: &[u8]) -> Result<Vec<AccountKey>, serde_json::Error> {
    let notice: Notice = serde_json::from_slice(body)?;
    let account = |text: &String| {
        let (user, account) = text.split_once('/')?;
        Some(AccountKey { user: parse_hyphenated(user).ok()?, account: parse_hyphenated(account).ok()? })
    };
    Ok(notice.accounts.iter().filter_map(account).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::{AccountId, UserId};
    use uuid::Uuid;

    #[test]
    fn a_notice_is_read_as_it_was_written() {
        let account = |number| AccountKey {
            user: UserId::from_uuid(Uuid::from_u128(7)),
            account: AccountId::from_uuid(Uuid::from_u128(number)),
        };
        let accounts = BTreeSet::from([account(1), account(2)]);
        let read = decode_contended(&encode_contended(&accounts)).unwrap();
        assert_eq!(read.into_iter().collect::<BTreeSet<_>>(), accounts);
        assert_eq!(decode_contended(br#"{"accounts":["", "a/b"], "more": 1}"#).unwrap(), []);
        assert!(decode_contended(b"[]").is_err());
    }
}
