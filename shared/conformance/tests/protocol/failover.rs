//! Stores that went back in time: the register of order numbers and the gate are older than what was told.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use postonce_shared::oversight::failover::{FailoverFault, LossBound, StoreState};
use postonce_shared::posting::PostFault;
use postonce_shared::posting::order_numbers::{OrderNumberFault, REGISTER, Register, RegisterError};
use postonce_shared::testing::decorators::MissingValue;
use postonce_shared::testing::prelude::*;

use crate::protocol::fixture::{Fixture, account, deposit, key, submit};

/// Posts a deposit, and returns its order number.
async fn post(fixture: &Fixture, bank: &Bank, message: u128) -> Result<OrderNumber, PostFault> {
    let _ = submit(bank, message, deposit("1.00")).await.unwrap();
    let work = fixture.receive().await;
    let work = work.into_iter().filter(|work| work.submission.key == key(message)).collect();
    for (_, result) in bank.poster.post(account(), work).await {
        result?;
    }
    let Some(Outcome::Posted { order_number, .. }) = fixture.outcome(message).await else { panic!("posted") };
    Ok(order_number)
}

fn is_missing(fault: &PostFault) -> bool {
    let PostFault::OrderNumbers(OrderNumberFault::Unsound(why)) = fault else { return false };
    matches!(**why, RegisterError::Missing)
}

async fn read(store: &Store, fixture: &Fixture) -> StoreState {
    StoreState::read(store, &fixture.world, None).await.unwrap()
}

#[tokio::test]
async fn a_missing_register_beside_postings_stops_posting() {
    let fixture = Fixture::new().await;
    let without_register = |store: &mut Store| {
        store.sync = Arc::new(MissingValue { inner: Arc::clone(&store.sync), name: REGISTER })
    };
    // Accounts alone are a new bank.
    assert!(fixture.process_over(without_register).order_numbers.register().await.is_ok());
    post(&fixture, &fixture.process(), 1).await.unwrap();
    let fault = post(&fixture, &fixture.process_over(without_register), 2).await.unwrap_err();
    assert!(is_missing(&fault), "{fault:?}");
    assert!(fault.is_transient(), "the work waits until an operator has written the register");
    assert_eq!(fixture.outcome(2).await, None);
}

#[tokio::test]
async fn numbers_of_the_lost_window_are_not_issued_again() {
    let fixture = Fixture::new().await;
    let store = fixture.store.ports();
    let mut issued = BTreeSet::new();
    issued.insert(post(&fixture, &fixture.process(), 1).await.unwrap());
    let old = store.sync.get(REGISTER).await.unwrap().unwrap();
    let gate = Gate::new(&store, &fixture.world);
    for message in 2..20 {
        issued.insert(post(&fixture, &fixture.process(), message).await.unwrap());
    }
    // The register goes back; the ledger keeps its postings.
    let newer = store.sync.get(REGISTER).await.unwrap().unwrap();
    let _ = store.sync.swap(REGISTER, Some(&newer.revision), &old.value).await.unwrap();
    let bound = LossBound { window: Duration::from_secs(60), numbers_per_second: 100, processes: 2 };
    let state = read(&store, &fixture).await;
    assert_eq!(state.highest.as_ref(), issued.last(), "the ledger is read to its end");
    let advanced = state.advanced(None, bound.numbers()).unwrap();
    let written = state.write(&store, &fixture.world, &advanced, &GateAct::by("a test")).await.unwrap();
    assert_eq!((written.state, written.epoch), (GateState::Held { release_at: None }, 1_000_000));
    assert!(matches!(
        state.write(&store, &fixture.world, &advanced, &GateAct::by("a test")).await,
        Err(FailoverFault::Changed)
    ));
    gate.set(GateState::Released, &GateAct::by("a test")).await.unwrap();
    let next = post(&fixture, &fixture.process(), 20).await.unwrap();
    let highest = issued.last().unwrap().counter();
    assert!(next.counter() > highest + bound.numbers(), "{next} after {highest}");
    assert!(issued.insert(next));
}

#[tokio::test]
async fn a_register_continues_after_the_highest_known_number() {
    let fixture = Fixture::new().await;
    let store = fixture.store.ports();
    let posted = post(&fixture, &fixture.process(), 1).await.unwrap();
    let stored = store.sync.get(REGISTER).await.unwrap().unwrap();
    let next = |register: &Register| register.next;
    let state = read(&store, &fixture).await;
    let reserved = state.register.clone().unwrap();
    assert!(reserved.next > posted.counter() + 1);
    assert_eq!(next(&state.advanced(None, 10).unwrap()), reserved.next + 10, "after the register");
    let told = OrderNumber::from_counter(reserved.next + 500);
    assert_eq!(next(&state.advanced(Some(told), 10).unwrap()), reserved.next + 511, "after what is told");
    let without = Store {
        sync: Arc::new(MissingValue { inner: Arc::clone(&store.sync), name: REGISTER }),
        ..store.clone()
    };
    let state = read(&without, &fixture).await;
    assert_eq!(next(&state.advanced(None, 10).unwrap()), posted.counter() + 11, "after the ledger");
    let last = OrderNumber::from_counter(OrderNumber::COUNTER_MAX);
    assert!(matches!(state.advanced(Some(last), 10), Err(FailoverFault::TooFar(_))));
    // A register that cannot be read is replaced only if a number is known from elsewhere.
    let _ = store.sync.swap(REGISTER, Some(&stored.revision), "{}").await.unwrap();
    let refused = StoreState::read(&store, &fixture.world, None).await;
    assert!(matches!(refused, Err(FailoverFault::Register(_))));
    let state = StoreState::read(&store, &fixture.world, Some(told)).await.unwrap();
    let advanced = state.advanced(Some(told), 10).unwrap();
    state.write(&store, &fixture.world, &advanced, &GateAct::by("a test")).await.unwrap();
    assert_eq!(read(&store, &fixture).await.register, Some(advanced));
}
