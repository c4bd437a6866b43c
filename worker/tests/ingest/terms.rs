//! The terms of their partner decide which orders of direct producers are posted, and what happens to the others.

use std::collections::BTreeSet;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use postonce_shared::access::partner_cache::{ABSENT_TTL, GRANT_FRESH, GRANT_TTL};
use postonce_shared::domain::partner::{Partner, Reach, RequestRate};
use postonce_shared::testing::prelude::*;
use postonce_worker::ingest::intake::Received;
use postonce_worker::listening::handler::Health;
use uuid::Uuid;

use crate::ingest::fixture::{RETRY_DELAY_MAX, TestWorker, shop};
use crate::posting::fixture::{DEQUEUE_COUNT_MAX, account};

#[tokio::test]
async fn an_order_posts_when_its_partner_exists() {
    let worker = TestWorker::new().await;
    let reason = worker.refused(1, 1, "2.00").await;
    assert!(reason.contains("partner shop does not exist"), "{reason}");
    assert_eq!(worker.fixture.balance(1).await, "0.00");
    let partner = Partner::active(shop(), Reach::Everything, worker.fixture.world.now());
    let _ = worker.partners().save(&partner, None).await.unwrap();
    worker.add_key(1, &["deposit", "withdraw"]).await;
    worker.fixture.world.advance(ABSENT_TTL);
    worker.posts(1, 1, "2.00", "2.00").await;
    worker.posts(1, 2, "-0.50", "1.50").await;
    assert_eq!(worker.meter.admitted.get(), 2);
}

#[tokio::test]
async fn an_order_in_base64_posts_as_the_same_order() {
    let worker = TestWorker::with_partner().await;
    let key = account(1);
    let delimited = |message| format!("{}|{}|{}|2.00", key.user, key.account, Uuid::from_u128(message));
    let xml = |message| {
        format!(
            "<UserAccountTransaction><UserId>{}</UserId><AccountId>{}</AccountId><TransactionId>{}</TransactionId>\
             <Amount>2.00</Amount></UserAccountTransaction>",
            key.user,
            key.account,
            Uuid::from_u128(message)
        )
    };
    let orders = [(delimited(1), "2.00"), (xml(2), "4.00"), (format!("\u{feff}{}\r\n", xml(3)), "6.00")];
    for (order, balance) in &orders {
        // As the classic client sends it, as it is, and again.
        for body in [BASE64_STANDARD.encode(order), order.clone(), BASE64_STANDARD.encode(order)] {
            worker.send(&body).await;
            let _ = worker.handle_next().await;
            assert_eq!((worker.fixture.dead_letters().await.len(), worker.depth().await), (0, 0), "{body}");
            assert_eq!(worker.fixture.balance(1).await, *balance, "{body}");
        }
    }
    // One that is refused is set aside as it was sent, with the violation.
    let sent = BASE64_STANDARD.encode(delimited(4).replace("2.00", "2,00"));
    worker.send(&sent).await;
    let _ = worker.handle_next().await;
    let letters = worker.fixture.dead_letters().await;
    assert!(letters[0].reason.contains("amount must use a point"), "{letters:?}");
    assert_eq!(worker.fixture.balance(1).await, "6.00");
}

#[tokio::test]
async fn orders_of_a_suspended_partner_are_refused_at_once_on_notice_and_within_a_minute_without() {
    let worker = TestWorker::with_partner().await;
    worker.posts(1, 1, "2.00", "2.00").await;
    let suspend = |with| worker.change(move |partner| partner.suspended_with = with);
    suspend(Some(Scope::Admin)).await;
    worker.bank.partner_grants.forget(Some(&shop()));
    let reason = worker.refused(1, 2, "2.00").await;
    assert!(reason.contains("partner shop is suspended; resume it, then replay"), "{reason}");
    // An order that was accepted before is refused as well, and stays posted.
    assert!(worker.refused(1, 1, "2.00").await.contains("is suspended"));
    suspend(None).await;
    worker.bank.partner_grants.forget(Some(&shop()));
    worker.posts(1, 2, "2.00", "4.00").await;
    suspend(Some(Scope::Admin)).await;
    worker.fixture.world.advance(GRANT_FRESH);
    assert!(worker.refused(1, 3, "2.00").await.contains("is suspended"));
    assert_eq!(worker.fixture.balance(1).await, "4.00");
}

#[tokio::test]
async fn an_order_outside_of_the_reach_of_its_partner_is_refused() {
    let worker = TestWorker::with_partner().await;
    let own = Reach::Named { users: BTreeSet::new(), accounts: BTreeSet::from([account(1)]) };
    worker.change(|partner| partner.reach = own).await;
    worker.posts(1, 1, "2.00", "2.00").await;
    let reason = worker.refused(2, 2, "2.00").await;
    let words = format!("the account {} is outside the reach of partner shop", account(2));
    assert!(reason.contains(&words), "{reason}");
    assert_eq!(worker.fixture.balance(2).await, "0.00");
    // The same for an account that does not exist: the reach is checked first.
    assert!(worker.refused(9, 3, "2.00").await.contains("outside the reach"));
}

#[tokio::test]
async fn an_order_needs_an_active_key_with_its_scope() {
    let worker = TestWorker::with_partner().await;
    let notify = || worker.bank.partner_grants.forget(None);
    worker.posts(1, 1, "2.00", "2.00").await;
    // A key can be revoked in two places: in its own row, or in the record of its partner.
    let now = worker.fixture.world.now();
    assert!(worker.fixture.store.api_keys.revoke(&format!("{:016}", 1), now).await.unwrap());
    notify();
    let reason = worker.refused(1, 2, "2.00").await;
    assert!(reason.contains("no key of partner shop has the scope deposit"), "{reason}");
    worker.add_key(2, &["deposit", "read"]).await;
    notify();
    worker.posts(1, 2, "2.00", "4.00").await;
    let reason = worker.refused(1, 3, "-1.00").await;
    assert!(reason.contains("no key of partner shop has the scope withdraw"), "{reason}");
    worker.change(|partner| partner.keys.clear()).await;
    notify();
    assert!(worker.refused(1, 4, "2.00").await.contains("has the scope deposit"));
    // The key of a partner that may do everything else.
    let others = Scope::ALL.iter().filter(|scope| **scope != Scope::Deposit).map(|scope| scope.code());
    worker.add_key(3, &others.collect::<Vec<_>>()).await;
    notify();
    assert!(worker.refused(1, 5, "2.00").await.contains("has the scope deposit"));
}

#[tokio::test]
async fn an_order_is_refused_as_soon_as_the_key_with_its_scope_expires() {
    let worker = TestWorker::with_partner().await;
    let second = Duration::from_secs(1);
    worker.change(|partner| partner.keys.clear()).await;
    worker.add_key_until(2, &["deposit"], Some(worker.fixture.world.now().after(second))).await;
    worker.posts(1, 1, "2.00", "2.00").await;
    worker.fixture.world.advance(second);
    let reason = worker.refused(1, 2, "2.00").await;
    assert!(reason.contains("no key of partner shop has the scope deposit"), "{reason}");
}

#[tokio::test]
async fn an_order_is_not_stored_if_its_key_expires_while_its_account_is_read() {
    let half_a_second = Duration::from_millis(500);
    let worker = TestWorker::over(|store, world| {
        faults::apply(store, move |call| {
            if call == "Ledger::account" {
                world.advance(half_a_second);
            }
            Effect::Passes
        });
    });
    let worker = worker.await.having_partner().await;
    worker.change(|partner| partner.keys.clear()).await;
    worker.add_key_until(2, &["deposit"], Some(worker.fixture.world.now().after(half_a_second))).await;
    worker.order(1, 1, "2.00").await;
    let _ = worker.handle_next().await;
    assert_eq!((worker.meter.admitted.get(), worker.depth().await), (0, 1), "it is tried again");
    assert_eq!(worker.fixture.balance(1).await, "0.00");
}

#[tokio::test]
async fn an_order_of_a_partner_that_must_sign_is_refused() {
    let worker = TestWorker::with_partner().await;
    worker.change(|partner| partner.signature_required = true).await;
    let reason = worker.refused(1, 1, "2.00").await;
    assert!(reason.contains("partner shop must sign its requests"), "{reason}");
}

#[tokio::test]
async fn orders_above_the_request_rate_are_postponed_and_post_later() {
    let worker = TestWorker::with_partner().await;
    worker.change(|partner| partner.rate = Some(RequestRate { per_second: 1, burst: 1 })).await;
    for message in 0..20 {
        worker.order(1, message, "1.00").await;
    }
    assert_eq!(worker.handle_next().await, Health::Healthy, "no outage slows the worker down");
    assert_eq!((worker.fixture.balance(1).await.as_str(), worker.meter.postponed.get()), ("1.00", 19));
    assert!(matches!(worker.receive().await, Received::Nothing), "the postponed orders are not visible");
    for second in 1..20_u32 {
        worker.fixture.world.advance(Duration::from_secs(1));
        let _ = worker.handle_next().await;
        let least = second.saturating_sub(1);
        let balance = worker.fixture.balance(1).await;
        assert!(balance >= format!("{least}.00") || balance.len() > 4, "{balance} after {second} s");
    }
    assert_eq!((worker.fixture.balance(1).await.as_str(), worker.depth().await), ("20.00", 0));
    assert_eq!(worker.meter.postponed.get(), 19, "each order came back when the rate allowed it");
}

#[tokio::test]
async fn an_order_never_becomes_a_dead_letter_by_being_postponed() {
    let worker = TestWorker::with_partner().await;
    worker.change(|partner| partner.rate = Some(RequestRate { per_second: 1, burst: 1 })).await;
    worker.order(1, 1, "2.00").await;
    // More often than a message is received that cannot be handled.
    let times = u64::from(6 * DEQUEUE_COUNT_MAX);
    for _ in 0..times {
        worker.use_rate().await;
        let _ = worker.handle_next().await;
        assert_eq!((worker.fixture.balance(1).await.as_str(), worker.depth().await), ("0.00", 1));
        worker.fixture.world.advance(RETRY_DELAY_MAX);
    }
    let _ = worker.handle_next().await;
    assert_eq!((worker.fixture.balance(1).await.as_str(), worker.depth().await), ("2.00", 0));
    assert_eq!(worker.fixture.dead_letters().await, []);
    assert_eq!(worker.meter.postponed.get(), times);
}

#[tokio::test]
async fn an_order_waits_while_the_terms_of_its_partner_cannot_be_read() {
    let worker = TestWorker::with_partner().await;
    worker.control.fail(&["Records::find"]);
    worker.order(1, 1, "2.00").await;
    for _ in 0..3 * DEQUEUE_COUNT_MAX {
        assert_eq!(worker.handle_next().await, Health::Unavailable);
        worker.fixture.world.advance(RETRY_DELAY_MAX);
    }
    assert_eq!((worker.fixture.dead_letters().await.len(), worker.depth().await), (0, 1));
    worker.control.heal();
    let _ = worker.handle_next().await;
    assert_eq!((worker.fixture.balance(1).await.as_str(), worker.depth().await), ("2.00", 0));
    // Terms that were read stay valid for a time, as over HTTP.
    worker.control.fail(&["Records::find"]);
    worker.fixture.world.advance(GRANT_FRESH);
    worker.posts(1, 2, "2.00", "4.00").await;
    worker.fixture.world.advance(GRANT_TTL);
    worker.order(1, 3, "2.00").await;
    assert_eq!(worker.handle_next().await, Health::Unavailable);
    assert_eq!(worker.fixture.balance(1).await, "4.00");
}

#[tokio::test]
async fn the_terms_of_a_partner_are_read_once_for_many_orders() {
    let worker = TestWorker::with_partner().await;
    for message in 1..10_u128 {
        worker.order(1, message, "1.00").await;
        let _ = worker.handle_next().await;
    }
    assert_eq!(worker.fixture.balance(1).await, "9.00");
    assert_eq!(worker.control.count("Records::find"), 1);
}
