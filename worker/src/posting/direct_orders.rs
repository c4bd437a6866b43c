//! Orders of producers that write to a work queue directly. An order is accepted if the terms of its partner allow it. The
//! checks have the same order as for an HTTP request: the partner exists and is active, its rate, its scopes, its reach. The
//! order is then accepted like a request.
//!
//! Only an order above the rate is handled differently. Over HTTP, the response is 429, and the client repeats the request.
//! Here the message is hidden until the rate allows it. Postponed orders become visible one by one, at the rate. If all became
//! visible in the next second, a long queue would cost two store operations per order and second.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use postonce_process::meter::Meter;
use postonce_shared::access::partner_grants::{GrantError, PartnerGrants};
use postonce_shared::access::token_bucket::{Bucket, RateStatus};
use postonce_shared::bank::Bank;
use postonce_shared::domain::ids::PartnerId;
use postonce_shared::domain::partner::{Partner, RequestRate};
use postonce_shared::messaging::direct_producers::DirectOrder;
use postonce_shared::ports::fault::{Cause, chain};
use postonce_shared::ports::world::World;
use postonce_shared::protocol::accept::{Acceptor, Admission};
use tracing::warn;

use crate::listening::delivery::DeliveryError;

/// Maximum delay of a postponed order. It bounds the time until a raised rate or another worker takes effect.
const POSTPONED_MAX: Duration = Duration::from_secs(60);
/// Minimum time between two log lines about postponed orders.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

/// Accepts orders of direct producers.
pub struct DirectOrders {
    acceptor: Arc<Acceptor>,
    grants: Arc<PartnerGrants>,
    world: Arc<dyn World>,
    meter: Arc<Meter>,
    /// Rate of a partner without a rate of its own.
    rate: RequestRate,
    schedule: Mutex<OrderSchedule>,
}

impl DirectOrders {
    /// Creates the acceptance for a bank. `rate` applies to partners without a rate of their own.
    pub fn new(bank: &Bank, meter: Arc<Meter>, rate: RequestRate) -> Self {
        Self {
            acceptor: Arc::clone(&bank.acceptor),
            grants: Arc::clone(&bank.partner_grants),
            world: Arc::clone(&bank.world),
            meter,
            rate,
            schedule: Mutex::default(),
        }
    }

    /// Accepts an order if the terms of the partner allow it. Otherwise the order is refused, even if it was accepted before;
    /// the transaction then stays unchanged.
    ///
    /// # Errors
    /// [`DeliveryError::Refused`] with the action that an operator can take, [`DeliveryError::Postponed`] above the rate, and
    /// [`DeliveryError::LedgerUnavailable`] while the terms or the ledger are unavailable.
    pub async fn admit(&self, order: &DirectOrder, partner: &PartnerId) -> Result<Admission, DeliveryError> {
        let found = self.grants.find(partner).await;
        let found = found.map_err(|fault| no_work(fault.is_transient(), fault.into()))?;
        let (grant, standing) = found.map_err(refused)?;
        if let Some(delay) = self.postponed(&grant.partner) {
            return Err(DeliveryError::Postponed { delay });
        }
        let until = grant.check(order.kind, order.account, self.world.now()).map_err(refused)?;
        let admitted = self.acceptor.admit(order, partner, standing.until(until)).await;
        admitted.map_err(|fault| no_work(fault.is_transient(), fault.into()))
    }

    /// Counts an order against the rate. Returns the delay of an order that exceeds it.
    fn postponed(&self, partner: &Partner) -> Option<Duration> {
        let rate = partner.rate.unwrap_or(self.rate);
        let mut schedule = self.schedule.lock();
        let now = self.world.uptime();
        let delay = schedule.delay(rate, now)?;
        self.meter.postponed.add(1);
        if let Some(count) = schedule.log_due(now) {
            let (id, RequestRate { per_second, burst }) = (&partner.id, rate);
            warn!(
                "Postponed {count} orders: partner {id} may send {per_second} a second and {burst} at once"
            );
        }
        Some(delay)
    }
}

fn refused(denial: GrantError) -> DeliveryError {
    DeliveryError::Refused(denial.to_string())
}

fn no_work(is_transient: bool, fault: Cause) -> DeliveryError {
    if is_transient {
        return DeliveryError::LedgerUnavailable(fault);
    }
    // An operator must repair an unreadable row.
    DeliveryError::Refused(chain(&*fault))
}

/// Schedules the orders of a partner at its rate.
#[derive(Debug, Default)]
struct OrderSchedule {
    bucket: Option<Bucket>,
    /// Time at which the last postponed order becomes visible.
    last_slot: Duration,
    logged_at: Option<Duration>,
    /// Number of orders postponed since the last log line.
    unlogged: u64,
}

impl OrderSchedule {
    /// Returns the delay of an order, or `None` if it may be accepted now.
    fn delay(&mut self, rate: RequestRate, now: Duration) -> Option<Duration> {
        let status = self.bucket.get_or_insert_with(|| Bucket::full(rate, now)).take(rate, now);
        let RateStatus { retry_in_s, .. } = status;
        let earliest = now.saturating_add(Duration::from_secs(retry_in_s?));
        let interval = Duration::from_secs(1).checked_div(rate.per_second).unwrap_or_default();
        let slot = self.last_slot.saturating_add(interval).max(earliest);
        self.last_slot = slot.min(now.saturating_add(POSTPONED_MAX));
        Some(self.last_slot.saturating_sub(now))
    }

    /// Counts a postponed order. Returns the number since the last log line if a new line is due.
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
    fn orders_above_the_rate_become_visible_one_after_the_other() {
        let rate = RequestRate { per_second: 2, burst: 2 };
        let mut schedule = OrderSchedule::default();
        let mut check = |at: u64, expected: Option<u64>| {
            assert_eq!(schedule.delay(rate, ms(at)), expected.map(ms), "at {at} ms");
        };
        check(0, None);
        check(0, None);
        check(0, Some(1000));
        check(0, Some(1500));
        check(100, Some(1900));
        // The first two orders are received again.
        check(1000, None);
        check(1500, None);
        // Another order uses the token for the third one, which is postponed again.
        check(2000, None);
        check(2000, None);
        check(2000, Some(1000));
        // A pause fills the bucket, but not above its capacity.
        check(60_000, None);
        check(60_000, None);
        check(60_000, Some(1000));
    }

    #[test]
    fn no_order_is_postponed_by_more_than_a_minute_at_once() {
        let rate = RequestRate { per_second: 1, burst: 1 };
        let mut schedule = OrderSchedule::default();
        let delays: Vec<_> = (0..100).filter_map(|_| schedule.delay(rate, ms(0))).collect();
        assert_eq!((delays.first(), delays.last()), (Some(&ms(1000)), Some(&POSTPONED_MAX)));
    }

    #[test]
    fn many_postponed_orders_share_one_log_line() {
        let mut schedule = OrderSchedule::default();
        assert_eq!(schedule.log_due(ms(5)), Some(1));
        assert_eq!([schedule.log_due(ms(6)), schedule.log_due(ms(1004))], [None, None]);
        assert_eq!(schedule.log_due(ms(1005)), Some(3));
    }
}
