//! Orders of direct producers. An order is accepted if the terms of its partner allow it. The checks have the same order as for an
//! HTTP request: the partner exists and is active, its rate, its scopes, its reach. The order is then accepted like a request.
//!
//! Only an order above the rate is handled differently. Over HTTP, the response is 429, and the client repeats the request.
//! Here the message is hidden until the rate allows it. Postponed messages become visible one by one, at the rate. If all became
//! visible in the next second, a long queue would cost two store operations per message and second.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use postonce_shared::access::partner_grants::{GrantError, PartnerGrants};
use postonce_shared::access::token_bucket::Bucket;
use postonce_shared::bank::Bank;
use postonce_shared::domain::ids::PartnerId;
use postonce_shared::domain::partner::RequestRate;
use postonce_shared::messaging::direct_producers::DirectOrder;
use postonce_shared::ports::fault::{Cause, chain};
use postonce_shared::ports::world::World;
use postonce_shared::protocol::accept::Acceptor;
use tracing::warn;

/// Maximum delay of a postponed message. It bounds the time until a raised rate or another worker takes effect.
const POSTPONED_MAX: Duration = Duration::from_secs(60);
/// Minimum time between two log lines about postponed orders of a partner.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

/// Why an order is not accepted.
#[derive(Debug)]
pub enum OrderFault {
    /// The order is refused, also if it was accepted before; the transaction then stays unchanged. Contains the reason for
    /// operators.
    Refused(String),
    /// The terms, the ledger or the queue are unavailable. The order may be accepted; a repetition is safe.
    Unavailable(Cause),
}

/// Accepts orders of direct producers.
pub struct DirectOrders {
    acceptor: Arc<Acceptor>,
    grants: Arc<PartnerGrants>,
    world: Arc<dyn World>,
    /// Rate of a partner without a rate of its own.
    rate: RequestRate,
    schedules: Mutex<BTreeMap<PartnerId, OrderSchedule>>,
}

impl DirectOrders {
    /// Creates the acceptance for a bank. `rate` applies to partners without a rate of their own.
    pub fn new(bank: &Bank, rate: RequestRate) -> Self {
        Self {
            acceptor: Arc::clone(&bank.acceptor),
            grants: Arc::clone(&bank.partner_grants),
            world: Arc::clone(&bank.world),
            rate,
            schedules: Mutex::default(),
        }
    }

    /// Counts the orders of one message against the rate of their partner. Returns the delay of a message that exceeds it. Several
    /// orders in one message are accepted or postponed together, and count like a batch.
    ///
    /// # Errors
    /// [`OrderFault`] when the partner may send nothing, or cannot be read.
    pub async fn postponed(
        &self,
        partner: &PartnerId,
        orders: usize,
    ) -> Result<Option<Duration>, OrderFault> {
        let Some(orders) = u64::try_from(orders).ok().filter(|orders| *orders > 0) else { return Ok(None) };
        let found = self.grants.find(partner).await;
        let found = found.map_err(|fault| fault_of(fault.is_transient(), fault.into()))?;
        let (grant, _) = found.map_err(refused)?;
        let rate = grant.partner.rate.unwrap_or(self.rate);
        let mut schedules = self.schedules.lock();
        let schedule = schedules.entry(partner.clone()).or_default();
        let now = self.world.uptime();
        let Some(delay) = schedule.delay(orders, rate, now) else { return Ok(None) };
        if let Some(count) = schedule.log_due(orders, now) {
            let RequestRate { per_second, burst } = rate;
            warn!(
                "Postponed {count} orders: partner {partner} may send {per_second} a second and {burst} at once"
            );
        }
        Ok(Some(delay))
    }

    /// Accepts an order if the terms of the partner allow it now.
    ///
    /// # Errors
    /// [`OrderFault`] when it is not accepted.
    pub async fn admit(&self, order: &DirectOrder, partner: &PartnerId) -> Result<(), OrderFault> {
        let found = self.grants.find(partner).await;
        let found = found.map_err(|fault| fault_of(fault.is_transient(), fault.into()))?;
        let (grant, standing) = found.map_err(refused)?;
        let until = grant.check(order.kind, order.account, self.world.now()).map_err(refused)?;
        match self.acceptor.admit(order, partner, standing.until(until)).await {
            Ok(Ok(_accepted)) => Ok(()),
            Ok(Err(error)) => Err(OrderFault::Refused(error.to_string())),
            Err(fault) => Err(fault_of(fault.is_transient(), fault.into())),
        }
    }
}

fn refused(denial: GrantError) -> OrderFault {
    OrderFault::Refused(denial.to_string())
}

fn fault_of(is_transient: bool, fault: Cause) -> OrderFault {
    if is_transient {
        return OrderFault::Unavailable(fault);
    }
    // An operator must repair an unreadable row.
    OrderFault::Refused(chain(&*fault))
}

/// Schedules the orders of a partner at its rate.
#[derive(Debug, Default)]
struct OrderSchedule {
    bucket: Option<Bucket>,
    /// Time at which the last postponed message becomes visible.
    last_slot: Duration,
    logged_at: Option<Duration>,
    /// Number of orders postponed since the last log line.
    unlogged: u64,
}

impl OrderSchedule {
    /// Returns the delay of a message with this many orders, or `None` if they may be accepted now.
    fn delay(&mut self, orders: u64, rate: RequestRate, now: Duration) -> Option<Duration> {
        let bucket = self.bucket.get_or_insert_with(|| Bucket::full(rate, now));
        let debt_s = bucket.in_debt_for_s(rate, now).filter(|_| orders > 1);
        let Some(retry_in_s) = debt_s.or_else(|| bucket.take(rate, now).retry_in_s) else {
            if orders > 1 {
                bucket.owe(orders, rate, now);
            }
            return None;
        };
        let earliest = now.saturating_add(Duration::from_secs(retry_in_s));
        let interval = Duration::from_secs(1).checked_div(rate.per_second).unwrap_or_default();
        let slot = self.last_slot.saturating_add(interval).max(earliest);
        self.last_slot = slot.min(now.saturating_add(POSTPONED_MAX));
        Some(self.last_slot.saturating_sub(now))
    }

    /// Counts postponed orders. Returns the number since the last log line if a new line is due.
    fn log_due(&mut self, orders: u64, now: Duration) -> Option<u64> {
        self.unlogged = self.unlogged.saturating_add(orders);
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
            assert_eq!(schedule.delay(1, rate, ms(at)), expected.map(ms), "at {at} ms");
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
        let delays: Vec<_> = (0..100).filter_map(|_| schedule.delay(1, rate, ms(0))).collect();
        assert_eq!((delays.first(), delays.last()), (Some(&ms(1000)), Some(&POSTPONED_MAX)));
    }

    #[test]
    fn several_orders_of_one_message_count_like_a_batch() {
        let rate = RequestRate { per_second: 2, burst: 4 };
        let mut schedule = OrderSchedule::default();
        let mut check = |at: u64, orders: u64, expected: Option<u64>| {
            assert_eq!(schedule.delay(orders, rate, ms(at)), expected.map(ms), "{orders} orders at {at} ms");
        };
        // More than the rate ever allows at once, so that it is not postponed for ever.
        check(0, 20, None);
        check(0, 2, Some(8000));
        check(0, 1, None);
        check(8000, 4, None);
        check(8000, 2, Some(2000));
    }

    #[test]
    fn many_postponed_orders_share_one_log_line() {
        let mut schedule = OrderSchedule::default();
        assert_eq!(schedule.log_due(1, ms(5)), Some(1));
        assert_eq!([schedule.log_due(1, ms(6)), schedule.log_due(1, ms(1004))], [None, None]);
        assert_eq!(schedule.log_due(1, ms(1005)), Some(3));
    }
}
