//! Orders of producers that write to a work queue directly. An order is accepted when the terms of its
//! partner allow it, which are checked in the order of a request over HTTP: the partner exists and is active,
//! its rate, its scopes, its reach. After that the order is accepted as a request is.
//!
//! Only the answer to an order above the rate differs. Over HTTP it is 429, and the client repeats the request;
//! here the message is hidden until there is room for it. Each postponed order gets a time of its own, one
//! after the other at the rate: if all came back with the next second, a long queue would cost two operations
//! of the store for each order in it, every second.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use postonce_shared::access::partner_grants::{Denial, PartnerGrants};
use postonce_shared::access::token_bucket::{Bucket, RateStatus};
use postonce_shared::bank::Bank;
use postonce_shared::domain::ids::PartnerId;
use postonce_shared::domain::partner::{Partner, RequestRate};
use postonce_shared::messaging::direct_producers::DirectOrder;
use postonce_shared::ports::fault::{Cause, chain};
use postonce_shared::ports::world::World;
use postonce_shared::protocol::accept::{Acceptor, Admission};
use tracing::warn;

use crate::listening::delivery::Unopened;
use crate::meter::Meter;

/// Longest time for which an order is postponed at once: a higher rate, or another worker, helps after it.
const POSTPONED_MAX: Duration = Duration::from_secs(60);
/// Least time between two log lines about postponed orders.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

/// Accepts orders of direct producers.
pub struct DirectOrders {
    acceptor: Arc<Acceptor>,
    grants: Arc<PartnerGrants>,
    world: Arc<dyn World>,
    meter: Arc<Meter>,
    /// The rate of a partner without one of its own.
    rate: RequestRate,
    pace: Mutex<Pace>,
}

impl DirectOrders {
    /// Orders at a bank. `rate` is that of a partner without a rate of its own.
    pub fn new(bank: &Bank, meter: Arc<Meter>, rate: RequestRate) -> Self {
        Self {
            acceptor: Arc::clone(&bank.acceptor),
            grants: Arc::clone(&bank.partner_grants),
            world: Arc::clone(&bank.world),
            meter,
            rate,
            pace: Mutex::default(),
        }
    }

    /// Accepts an order for a partner, if its terms allow that. An order that was accepted before is refused as
    /// well when they do not; the transaction stays as it is.
    ///
    /// # Errors
    /// [`Unopened::Refused`] with what an operator can do, [`Unopened::Postponed`] above the rate, and
    /// [`Unopened::LedgerAway`] while terms or ledger cannot be used.
    pub async fn admit(&self, order: &DirectOrder, partner: &PartnerId) -> Result<Admission, Unopened> {
        let found = self.grants.find(partner).await;
        let found = found.map_err(|fault| unopened(fault.is_transient(), fault.into()))?;
        let grant = found.map_err(refused)?;
        if let Some(delay) = self.postponed(&grant.partner) {
            return Err(Unopened::Postponed { delay });
        }
        grant.check(order.kind, order.account).map_err(refused)?;
        let admitted = self.acceptor.admit(order, partner).await;
        admitted.map_err(|fault| unopened(fault.is_transient(), fault.into()))
    }

    /// Counts an order against the rate; above it, how long the order has to wait.
    fn postponed(&self, partner: &Partner) -> Option<Duration> {
        let rate = partner.rate.unwrap_or(self.rate);
        let mut pace = self.pace.lock();
        let now = self.world.uptime();
        let delay = pace.delay(rate, now)?;
        self.meter.postponed.add(1);
        if let Some(count) = pace.log_due(now) {
            let (id, RequestRate { per_second, burst }) = (&partner.id, rate);
            warn!(
                "Postponed {count} orders: partner {id} may send {per_second} a second and {burst} at once"
            );
        }
        Some(delay)
    }
}

fn refused(denial: Denial) -> Unopened {
    Unopened::Refused(denial.to_string())
}

fn unopened(is_transient: bool, fault: Cause) -> Unopened {
    if is_transient {
        return Unopened::LedgerAway(fault);
    }
    // Nobody can read such a row: an operator has to look at it.
    Unopened::Refused(chain(&*fault))
}

/// When the orders of the partner may be accepted.
#[derive(Debug, Default)]
struct Pace {
    bucket: Option<Bucket>,
    /// The time that was given to a postponed order last.
    last_turn: Duration,
    logged_at: Option<Duration>,
    /// Orders that were postponed since.
    unlogged: u64,
}

impl Pace {
    /// `None` when an order may be accepted now; otherwise how long it has to wait.
    fn delay(&mut self, rate: RequestRate, now: Duration) -> Option<Duration> {
        let standing = self.bucket.get_or_insert_with(|| Bucket::full(rate, now)).take(rate, now);
        let RateStatus { retry_in_s, .. } = standing;
        let earliest = now.saturating_add(Duration::from_secs(retry_in_s?));
        let interval = Duration::from_secs(1).checked_div(rate.per_second).unwrap_or_default();
        let turn = self.last_turn.saturating_add(interval).max(earliest);
        self.last_turn = turn.min(now.saturating_add(POSTPONED_MAX));
        Some(self.last_turn.saturating_sub(now))
    }

    /// Counts a postponed order; how many there were, when it is time for a log line.
    fn log_due(&mut self, now: Duration) -> Option<u64> {
        self.unlogged = self.unlogged.saturating_add(1);
        if self.logged_at.is_some_and(|at| now.saturating_sub(at) < LOG_INTERVAL) {
            return None;
        }
        self.logged_at = Some(now);
        Some(std::mem::take(&mut self.unlogged))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn orders_above_the_rate_come_again_one_after_the_other() {
        let rate = RequestRate { per_second: 2, burst: 2 };
        let mut pace = Pace::default();
        let mut check = |at: u64, expected: Option<u64>| {
            assert_eq!(pace.delay(rate, ms(at)), expected.map(ms), "at {at} ms");
        };
        check(0, None);
        check(0, None);
        check(0, Some(1000));
        check(0, Some(1500));
        check(100, Some(1900));
        // The first two come again.
        check(1000, None);
        check(1500, None);
        // Another one takes the place of the third, which is postponed again.
        check(2000, None);
        check(2000, None);
        check(2000, Some(1000));
        // A rest fills the bucket, and no more than that.
        check(60_000, None);
        check(60_000, None);
        check(60_000, Some(1000));
    }

    #[test]
    fn no_order_waits_longer_than_a_minute_at_once() {
        let rate = RequestRate { per_second: 1, burst: 1 };
        let mut pace = Pace::default();
        let delays: Vec<_> = (0..100).filter_map(|_| pace.delay(rate, ms(0))).collect();
        assert_eq!((delays.first(), delays.last()), (Some(&ms(1000)), Some(&POSTPONED_MAX)));
    }

    #[test]
    fn many_postponed_orders_are_one_line_of_the_log() {
        let mut pace = Pace::default();
        assert_eq!(pace.log_due(ms(5)), Some(1));
        assert_eq!([pace.log_due(ms(6)), pace.log_due(ms(1004))], [None, None]);
        assert_eq!(pace.log_due(ms(1005)), Some(3));
    }
}
