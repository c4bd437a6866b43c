//! Orders of direct producers: which of them the terms of their partner let in, and what becomes of the others.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use postonce_shared::access::partner_cache::{ABSENT_TTL, GRANT_FRESH, GRANT_TTL};
use postonce_shared::adapters::memory::world::TestWorld;
use postonce_shared::bank::Bank;
use postonce_shared::domain::account::Versioned;
use postonce_shared::domain::ids::PartnerId;
use postonce_shared::domain::partner::{ActiveKey, Partner, PartnerStatus, Reach, RequestRate};
use postonce_shared::domain::scope::Scope;
use postonce_shared::ports::api_keys::ApiKeyRecord;
use postonce_shared::ports::fault::StoreFault;
use postonce_shared::ports::partners::Partners;
use postonce_shared::ports::queue::Message;
use postonce_shared::ports::world::World as _;
use postonce_shared::testing::decorators::PartnersDecorator;
use postonce_worker::config::WorkerConfig;
use postonce_worker::listening::handler::Health;
use postonce_worker::meter::Meter;
use postonce_worker::posting::posting_handler::PostingHandler;
use uuid::Uuid;

use crate::stage::{DEQUEUE_COUNT_MAX, Stage, account, config, outage, read_and_handle};

const VISIBILITY: Duration = Duration::from_secs(20);
/// No retry waits longer.
const A_WHILE: Duration = Duration::from_secs(11);

fn shop() -> PartnerId {
    PartnerId::parse("shop").unwrap()
}

/// Switches the partners off and on, and counts the reads.
#[derive(Default)]
struct Switch {
    is_away: AtomicBool,
    reads: AtomicU32,
}

struct SwitchedPartners(Arc<dyn Partners>, Arc<Switch>);

#[async_trait]
impl PartnersDecorator for SwitchedPartners {
    fn inner(&self) -> &dyn Partners {
        &*self.0
    }

    async fn find(&self, id: &PartnerId) -> Result<Option<Versioned<Partner>>, StoreFault> {
        self.1.reads.fetch_add(1, Ordering::SeqCst);
        if self.1.is_away.load(Ordering::SeqCst) { Err(outage()) } else { self.0.find(id).await }
    }
}

/// A worker that accepts orders for partner `shop`, and handles what is there when it is told to.
struct Desk {
    stage: Stage<TestWorld>,
    bank: Bank,
    meter: Arc<Meter>,
    posting: PostingHandler,
    switch: Arc<Switch>,
}

impl Desk {
    async fn new() -> Self {
        let (stage, meter, switch) = (Stage::still().await, Arc::new(Meter::default()), Arc::default());
        let bank = stage.bank_over(|store| {
            store.partners = Arc::new(SwitchedPartners(Arc::clone(&store.partners), Arc::clone(&switch)));
        });
        let config = WorkerConfig { legacy_partner: Some(shop()), ..config(VISIBILITY) };
        let posting = PostingHandler::new(&bank, Arc::clone(&meter), &config);
        Self { stage, bank, meter, posting, switch }
    }

    /// The same, where partner `shop` may do everything that orders ask for.
    async fn with_partner() -> Self {
        let desk = Self::new().await;
        let partner = Partner::active(shop(), Reach::Everything, desk.stage.world.now());
        let _ = desk.stage.store.partners.save(&partner, None).await.unwrap();
        desk.add_key(1, &["deposit", "withdraw"]).await;
        desk
    }

    async fn change(&self, change: impl FnOnce(&mut Partner)) {
        let mut stored = self.stage.store.partners.find(&shop()).await.unwrap().unwrap();
        change(&mut stored.value);
        let _ = self.stage.store.partners.save(&stored.value, Some(&stored.revision)).await.unwrap();
    }

    async fn add_key(&self, number: u8, scopes: &[&str]) {
        let (id, created_at) = (format!("{number:016}"), self.stage.world.now());
        let scopes = scopes.iter().map(|scope| (*scope).to_owned()).collect();
        let hash = [number; 32];
        let record =
            ApiKeyRecord { id: id.clone(), hash, partner: shop(), scopes, created_at, revoked_at: None };
        self.stage.store.api_keys.add(&record).await.unwrap();
        self.change(|partner| partner.keys.push(ActiveKey { id, created_at })).await;
    }

    async fn order(&self, number: u128, message: u128, amount: &str) {
        let key = account(number);
        let order = format!("{}|{}|{}|{amount}", key.user, key.account, Uuid::from_u128(message));
        self.stage.send_body(order.as_bytes()).await;
    }

    /// Receives what is there and handles it.
    async fn handle_next(&self) -> Health {
        self.handle(self.stage.receive(VISIBILITY).await).await
    }

    async fn handle(&self, messages: Vec<Message>) -> Health {
        read_and_handle(&self.posting, messages).await
    }

    /// Handles an order; the only letter that comes of it, which is taken away.
    async fn refused(&self, number: u128, message: u128, amount: &str) -> String {
        self.order(number, message, amount).await;
        let _ = self.handle_next().await;
        let mut letters = self.stage.letters().await;
        assert_eq!((letters.len(), self.stage.depth().await), (1, 0));
        let letter = letters.remove(0);
        let _ = self.bank.dead_letters.discard(&letter.id, "test").await.unwrap();
        letter.reason
    }

    async fn posts(&self, number: u128, message: u128, amount: &str, balance: &str) {
        self.order(number, message, amount).await;
        let _ = self.handle_next().await;
        assert_eq!((self.stage.letters().await.len(), self.stage.depth().await), (0, 0));
        assert_eq!(self.stage.balance(number).await, balance);
    }
}

#[tokio::test]
async fn an_order_posts_when_its_partner_exists() {
    let desk = Desk::new().await;
    let reason = desk.refused(1, 1, "2.00").await;
    assert!(reason.contains("partner shop does not exist"), "{reason}");
    assert_eq!(desk.stage.balance(1).await, "0.00");
    let partner = Partner::active(shop(), Reach::Everything, desk.stage.world.now());
    let _ = desk.stage.store.partners.save(&partner, None).await.unwrap();
    desk.add_key(1, &["deposit", "withdraw"]).await;
    desk.stage.world.advance(ABSENT_TTL);
    desk.posts(1, 1, "2.00", "2.00").await;
    desk.posts(1, 2, "-0.50", "1.50").await;
    assert_eq!(desk.meter.admitted.get(), 2);
}

#[tokio::test]
async fn a_suspended_partner_is_refused_at_once_where_the_worker_is_told_and_in_a_minute_where_not() {
    let desk = Desk::with_partner().await;
    desk.posts(1, 1, "2.00", "2.00").await;
    let suspend = |status| desk.change(move |partner| partner.status = status);
    suspend(PartnerStatus::Suspended).await;
    desk.bank.partner_grants.forget(Some(&shop()));
    let reason = desk.refused(1, 2, "2.00").await;
    assert!(reason.contains("partner shop is suspended; resume it, then replay"), "{reason}");
    // One that was accepted before is refused as well, and stays posted.
    assert!(desk.refused(1, 1, "2.00").await.contains("is suspended"));
    suspend(PartnerStatus::Active).await;
    desk.bank.partner_grants.forget(Some(&shop()));
    desk.posts(1, 2, "2.00", "4.00").await;
    suspend(PartnerStatus::Suspended).await;
    desk.stage.world.advance(GRANT_FRESH);
    assert!(desk.refused(1, 3, "2.00").await.contains("is suspended"));
    assert_eq!(desk.stage.balance(1).await, "4.00");
}

#[tokio::test]
async fn an_order_outside_of_the_reach_moves_no_money() {
    let desk = Desk::with_partner().await;
    let own = Reach::Named { users: BTreeSet::new(), accounts: BTreeSet::from([account(1)]) };
    desk.change(|partner| partner.reach = own).await;
    desk.posts(1, 1, "2.00", "2.00").await;
    let reason = desk.refused(2, 2, "2.00").await;
    let words = format!("the account {} is outside the reach of partner shop", account(2));
    assert!(reason.contains(&words), "{reason}");
    assert_eq!(desk.stage.balance(2).await, "0.00");
    // The same for an account that does not exist: the reach is checked first.
    assert!(desk.refused(9, 3, "2.00").await.contains("outside the reach"));
}

#[tokio::test]
async fn an_order_needs_a_working_key_with_its_scope() {
    let desk = Desk::with_partner().await;
    let told = || desk.bank.partner_grants.forget(None);
    desk.posts(1, 1, "2.00", "2.00").await;
    // Revoked in both ways in which a key can be: in its own row, or in the record of its partner.
    let now = desk.stage.world.now();
    assert!(desk.stage.store.api_keys.revoke(&format!("{:016}", 1), now).await.unwrap());
    told();
    let reason = desk.refused(1, 2, "2.00").await;
    assert!(reason.contains("no key of partner shop has the scope deposit"), "{reason}");
    desk.add_key(2, &["deposit", "read"]).await;
    told();
    desk.posts(1, 2, "2.00", "4.00").await;
    let reason = desk.refused(1, 3, "-1.00").await;
    assert!(reason.contains("no key of partner shop has the scope withdraw"), "{reason}");
    desk.change(|partner| partner.keys.clear()).await;
    told();
    assert!(desk.refused(1, 4, "2.00").await.contains("has the scope deposit"));
    // A key of a partner that may do everything else.
    let others = Scope::ALL.iter().filter(|scope| **scope != Scope::Deposit).map(|scope| scope.code());
    desk.add_key(3, &others.collect::<Vec<_>>()).await;
    told();
    assert!(desk.refused(1, 5, "2.00").await.contains("has the scope deposit"));
}

#[tokio::test]
async fn an_order_cannot_be_signed() {
    let desk = Desk::with_partner().await;
    desk.change(|partner| partner.signature_required = true).await;
    let reason = desk.refused(1, 1, "2.00").await;
    assert!(reason.contains("partner shop must sign its requests"), "{reason}");
}

#[tokio::test]
async fn orders_above_the_rate_are_postponed_and_post_later() {
    let desk = Desk::with_partner().await;
    desk.change(|partner| partner.rate = Some(RequestRate { per_second: 1, burst: 1 })).await;
    for message in 0..20 {
        desk.order(1, message, "1.00").await;
    }
    assert_eq!(desk.handle_next().await, Health::Well, "there is nothing to wait for");
    assert_eq!((desk.stage.balance(1).await.as_str(), desk.meter.postponed.get()), ("1.00", 19));
    assert_eq!(desk.stage.receive(VISIBILITY).await, [], "they are hidden");
    for second in 1..20_u32 {
        desk.stage.world.advance(Duration::from_secs(1));
        let _ = desk.handle_next().await;
        let least = second.saturating_sub(1);
        let balance = desk.stage.balance(1).await;
        assert!(balance >= format!("{least}.00") || balance.len() > 4, "{balance} after {second} s");
    }
    assert_eq!((desk.stage.balance(1).await.as_str(), desk.stage.depth().await), ("20.00", 0));
    assert_eq!(desk.meter.postponed.get(), 19, "each came back when there was room for it");
}

#[tokio::test]
async fn however_often_an_order_is_postponed_it_is_no_dead_letter() {
    let desk = Desk::with_partner().await;
    desk.change(|partner| partner.rate = Some(RequestRate { per_second: 1, burst: 1 })).await;
    desk.order(1, 1, "2.00").await;
    let body = desk.stage.receive(Duration::ZERO).await.remove(0).body;
    let times = 3 * u128::from(DEQUEUE_COUNT_MAX);
    for other in 1..=times {
        // Another order is first each time.
        desk.order(2, other, "1.00").await;
        let mut messages = desk.stage.receive(VISIBILITY).await;
        messages.sort_by_key(|message| message.body == body);
        assert_eq!(messages.iter().map(|message| message.body == body).collect::<Vec<_>>(), [false, true]);
        let _ = desk.handle(messages).await;
        assert_eq!((desk.stage.balance(1).await.as_str(), desk.stage.depth().await), ("0.00", 1));
        desk.stage.world.advance(A_WHILE);
    }
    let _ = desk.handle_next().await;
    assert_eq!((desk.stage.balance(1).await.as_str(), desk.stage.depth().await), ("2.00", 0));
    assert_eq!(desk.stage.letters().await, []);
    assert_eq!(u128::from(desk.meter.postponed.get()), times);
}

#[tokio::test]
async fn while_the_terms_cannot_be_read_an_order_waits() {
    let desk = Desk::with_partner().await;
    desk.switch.is_away.store(true, Ordering::SeqCst);
    desk.order(1, 1, "2.00").await;
    for _ in 0..3 * DEQUEUE_COUNT_MAX {
        assert_eq!(desk.handle_next().await, Health::Away);
        desk.stage.world.advance(A_WHILE);
    }
    assert_eq!((desk.stage.letters().await.len(), desk.stage.depth().await), (0, 1));
    desk.switch.is_away.store(false, Ordering::SeqCst);
    let _ = desk.handle_next().await;
    assert_eq!((desk.stage.balance(1).await.as_str(), desk.stage.depth().await), ("2.00", 0));
    // Terms that were read are used for a while, and no longer than over HTTP.
    desk.switch.is_away.store(true, Ordering::SeqCst);
    desk.stage.world.advance(GRANT_FRESH);
    desk.posts(1, 2, "2.00", "4.00").await;
    desk.stage.world.advance(GRANT_TTL);
    desk.order(1, 3, "2.00").await;
    assert_eq!(desk.handle_next().await, Health::Away);
    assert_eq!(desk.stage.balance(1).await, "4.00");
}

#[tokio::test]
async fn the_terms_are_read_once_for_many_orders() {
    let desk = Desk::with_partner().await;
    for message in 1..10_u128 {
        desk.order(1, message, "1.00").await;
        let _ = desk.handle_next().await;
    }
    assert_eq!(desk.stage.balance(1).await, "9.00");
    assert_eq!(desk.switch.reads.load(Ordering::SeqCst), 1);
}
