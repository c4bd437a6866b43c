//! Rights that change while a request waits for the store, or for other requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use postonce_shared::access::partner_cache::{Answer, OfPartner, PartnerCache, Rights, Standing};
use postonce_shared::domain::origin::RequestId;
use postonce_shared::posting::waiting::QueueReason;
use postonce_shared::protocol::accept::AcceptFault;
use postonce_shared::testing::prelude::*;
use tokio::sync::Semaphore;

use crate::protocol::fixture::{Fixture, account, deposit, key, replayed};
use crate::protocol::immediate::{LONG, SHORT, ask, posted_at_once, process};

/// A grant in a cache, which a test changes.
struct Shop(PartnerId);

impl OfPartner for Shop {
    fn partner(&self) -> &PartnerId {
        &self.0
    }
}

type Grants = PartnerCache<u8, Shop, ()>;

/// The standing of a grant that is looked up now.
fn standing(grants: &Grants) -> Standing {
    let load = async { Ok(Answer::Granted(Shop(PartnerId::parse("shop").unwrap()))) };
    grants.get_or_load(&1, load).now_or_never().unwrap().unwrap().unwrap().1
}

/// The rights of a caller. `look_up` returns whether they last.
struct Caller<'a, F> {
    grants: &'a Grants,
    standing: Standing,
    look_up: F,
}

impl<F: AsyncFnMut() -> bool> Rights for Caller<'_, F> {
    fn standing(&self) -> &Standing {
        &self.standing
    }

    async fn confirm(&mut self) -> bool {
        self.standing = standing(self.grants);
        (self.look_up)().await
    }
}

/// Calls of one kind, each of which waits until the test lets it pass.
struct Held {
    begun: Arc<AtomicUsize>,
    passing: Arc<Semaphore>,
}

impl Held {
    /// A process whose calls with that name are held, after the first ones.
    fn process(fixture: &Fixture, name: &'static str, first: usize) -> (Bank, Self) {
        let held = Self { begun: Arc::default(), passing: Arc::new(Semaphore::new(first)) };
        let (begun, passing) = (Arc::clone(&held.begun), Arc::clone(&held.passing));
        let bank = fixture.registered_over(|store| {
            faults::apply(store, move |call| {
                if call != name {
                    return Effect::Passes;
                }
                begun.fetch_add(1, Ordering::SeqCst);
                let passing = Arc::clone(&passing);
                Effect::Waits(async move { passing.acquire().await.unwrap().forget() }.boxed())
            });
        });
        (bank, held)
    }

    async fn until_begun(&self, count: usize) {
        while self.begun.load(Ordering::SeqCst) < count {
            tokio::task::yield_now().await;
        }
    }

    fn pass(&self) {
        self.passing.add_permits(100);
    }
}

async fn submit_on<F: AsyncFnMut() -> bool>(
    bank: &Bank,
    message: u128,
    mut rights: Caller<'_, F>,
    wait: Option<Duration>,
) -> Result<Acceptance, AcceptFault> {
    let new = (key(message), deposit("1.00"), Origin::default());
    bank.acceptor.submit_while(&mut rights, new.0, new.1, new.2, wait).await
}

fn rights<F>(grants: &Grants, look_up: F) -> Caller<'_, F> {
    Caller { grants, standing: standing(grants), look_up }
}

fn refused(answer: &Result<Acceptance, AcceptFault>) -> Option<bool> {
    match answer {
        Err(AcceptFault::RightsChanged { is_in_doubt }) => Some(*is_in_doubt),
        _ => None,
    }
}

async fn rights_change_during_the_first_call(held: &Held, grants: &Grants) {
    held.until_begun(1).await;
    grants.forget(None);
}

async fn until_posted(fixture: &Fixture, message: u128) {
    while fixture.store.ports().ledger.transaction(&key(message)).await.unwrap().is_none() {
        tokio::task::yield_now().await;
    }
}

/// Checks that a request is refused, and nothing is stored for it, if its rights end while the call with that name is held, which is
/// made by this request or by another one.
async fn nothing_is_stored_if_rights_end(name: &'static str, by_other: bool, wait: Option<Duration>) {
    let fixture = Fixture::new().await;
    let grants = Grants::new(Arc::clone(&fixture.world));
    let (bank, held) = Held::process(&fixture, name, 1);
    let _ = bank.acceptor.submit(key(1), deposit("1.00"), Origin::default(), wait).await.unwrap();
    assert_eq!(held.begun.load(Ordering::SeqCst), 1);
    let other = async {
        if by_other {
            let _ = bank.acceptor.submit(key(3), deposit("1.00"), Origin::default(), wait).await;
        }
    };
    let refused_request = async {
        if by_other {
            held.until_begun(2).await;
        } else {
            // The row that this process knows is outdated then, so it is read again.
            posted_at_once(&process(&fixture), 4, deposit("1.00")).await;
        }
        let mut waits = Box::pin(submit_on(&bank, 2, rights(&grants, async || false), wait));
        assert!((&mut waits).now_or_never().is_none(), "{name} is held");
        held.until_begun(2).await;
        grants.forget(None);
        held.pass();
        waits.await
    };
    let (_, answer) = futures::join!(other, refused_request);
    assert_eq!(refused(&answer), Some(false), "{name}: {answer:?}");
    assert_eq!(fixture.store.ports().ledger.transaction(&key(2)).await.unwrap(), None, "{name}");
    if wait.is_none() {
        assert!(!bank.acceptor.has_unsent_work(), "there is nothing to send");
        let _ = bank.poster.post(account(), fixture.receive().await).await;
        for accepted in [1, 3] {
            let again = bank.acceptor.submit(key(accepted), deposit("1.00"), Origin::default(), None);
            assert_eq!(replayed(&again.await), Some(true));
        }
        assert!(!bank.open_work.is_open(account()), "what was accepted is final");
    }
}

#[tokio::test]
async fn nothing_is_stored_for_a_request_whose_rights_end_while_it_waits() {
    nothing_is_stored_if_rights_end("Ledger::commit", true, Some(LONG)).await;
    nothing_is_stored_if_rights_end("Ledger::account", false, Some(LONG)).await;
    nothing_is_stored_if_rights_end("Ledger::accept", true, None).await;
}

#[tokio::test]
async fn a_request_that_may_be_posted_is_not_answered_as_if_nothing_were_stored() {
    let fixture = Fixture::new().await;
    let grants = Grants::new(Arc::clone(&fixture.world));
    let (bank, held) = Held::process(&fixture, "Ledger::commit", 0);
    let submitted = submit_on(&bank, 1, rights(&grants, async || false), Some(SHORT));
    let (answer, ()) = futures::join!(submitted, rights_change_during_the_first_call(&held, &grants));
    assert_eq!(refused(&answer), Some(true), "{answer:?}");
    held.pass();
    until_posted(&fixture, 1).await;
    let again = ask(&bank, 1, deposit("1.00"), LONG).await;
    assert!(again.replayed && again.outcome.is_some(), "{again:?}");
}

/// The result of the attempt at once is late, and its rights had to be confirmed.
#[tokio::test]
async fn a_late_result_is_that_of_the_same_request() {
    let fixture = Fixture::new().await;
    let grants = Grants::new(Arc::clone(&fixture.world));
    let (bank, held) = Held::process(&fixture, "Ledger::commit", 0);
    let look_up = async || {
        held.pass();
        until_posted(&fixture, 1).await;
        true
    };
    let submitted = submit_on(&bank, 1, rights(&grants, look_up), Some(SHORT));
    match futures::join!(submitted, rights_change_during_the_first_call(&held, &grants)).0 {
        Ok(Acceptance::Accepted(Accepted { replayed: false, outcome: Some(_), .. })) => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(bank.acceptor.served().accepted(), 1);
}

/// A store that takes longer than rights are current without a look-up does not end the wait of the client.
#[tokio::test]
async fn a_request_on_a_slow_store_waits_for_its_outcome_in_the_queue() {
    let world = Arc::new(TestWorld::new(1));
    let fixture = Fixture::in_world(world.clone()).await;
    let grants = Grants::new(Arc::clone(&fixture.world));
    let (bank, held) = Held::process(&fixture, "Ledger::commit", 1);
    posted_at_once(&bank, 1, deposit("1.00")).await;
    let slow = async {
        let other = ask(&bank, 2, deposit("1.00"), LONG);
        let mut waits = Box::pin(submit_on(&bank, 3, rights(&grants, async || true), Some(LONG)));
        let passes = async {
            held.until_begun(2).await;
            world.advance(Duration::from_secs(2));
            held.pass();
        };
        let ((), other) = futures::join!(passes, other);
        assert!(other.outcome.is_some(), "{other:?}");
        while (&mut waits).now_or_never().is_none() && fixture.queued().await == 0 {
            tokio::task::yield_now().await;
        }
        let _ = bank.poster.post(account(), fixture.receive().await).await;
        waits.await
    };
    match slow.await {
        Ok(Acceptance::Accepted(Accepted { replayed: false, outcome: Some(_), .. })) => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(bank.acceptor.served().queued(QueueReason::RightsChanged), 1);
    assert_eq!(fixture.account().await.balance.to_string(), "3.00");
}

#[tokio::test]
async fn a_slow_insert_of_another_request_is_no_change_of_rights() {
    let world = Arc::new(TestWorld::new(1));
    let fixture = Fixture::in_world(world.clone()).await;
    let grants = Grants::new(Arc::clone(&fixture.world));
    let (bank, held) = Held::process(&fixture, "Ledger::accept", 0);
    let other = bank.acceptor.submit(key(1), deposit("1.00"), Origin::default(), None);
    let waits = async {
        held.until_begun(1).await;
        let unneeded = async || -> bool { panic!("the rights did not change") };
        let mut waits = Box::pin(submit_on(&bank, 2, rights(&grants, unneeded), None));
        assert!((&mut waits).now_or_never().is_none(), "the insert of the other request has begun");
        world.advance(Duration::from_secs(2));
        held.pass();
        waits.await
    };
    let (_, answer) = futures::join!(other, waits);
    assert!(matches!(answer, Ok(Acceptance::Accepted(_))), "{answer:?}");
}

/// A client sends a request twice at once. Both attempts are too late, and one of the two inserts.
#[tokio::test]
async fn of_two_equal_requests_of_the_same_time_one_is_a_repetition() {
    let world = Arc::new(TestWorld::new(1));
    let fixture = Fixture::in_world(world.clone()).await;
    let (one, held) = Held::process(&fixture, "Ledger::commit", 0);
    let (two, held_too) = Held::process(&fixture, "Ledger::commit", 0);
    let submit = |bank: &Bank, id: &str| {
        let (bank, request_id) = (bank.clone(), Some(RequestId::parse(id).unwrap()));
        let origin = Origin { request_id, ..Origin::default() };
        async move { bank.acceptor.submit(key(1), deposit("1.00"), origin, Some(LONG)).await }
    };
    let late = async {
        held.until_begun(1).await;
        held_too.until_begun(1).await;
        world.advance(LONG);
    };
    let (first, second, ()) = futures::join!(submit(&one, "one"), submit(&two, "two"), late);
    let answers = [replayed(&first), replayed(&second)];
    assert!(answers.contains(&Some(true)) && answers.contains(&Some(false)), "{first:?} {second:?}");
}
