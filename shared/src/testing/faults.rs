//! Fault injection for ports: a rule decides the effect of each call by its name, such as `Ledger::commit`.
//!
//! ```
//! # use std::sync::Arc;
//! # use postonce_shared::adapters::{memory::MemoryStore, system::SystemWorld};
//! # use postonce_shared::testing::faults::{Effect, apply, lose};
//! let mut store = MemoryStore::new(Arc::new(SystemWorld::new()));
//! // The first two sends never arrive, and no payload can be read.
//! lose(&mut store, "WorkQueue::send", 2);
//! apply(&mut store, |call| if call == "PayloadStore::get" { Effect::unavailable() } else { Effect::Passes });
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use futures::future::{BoxFuture, pending};
use parking_lot::Mutex;

use crate::ports::Store;
use crate::ports::api_keys::ApiKeys;
use crate::ports::archive::Archive;
use crate::ports::dead_letters::DeadLetters;
use crate::ports::fault::StoreFault;
use crate::ports::ledger::{Accounts, Ledger, TransactionLog};
use crate::ports::order_number_index::OrderNumberIndex;
use crate::ports::payload_store::PayloadStore;
use crate::ports::process_registry::ProcessRegistry;
use crate::ports::queue::WorkQueue;
use crate::ports::records::Records;
use crate::ports::sync_store::SyncStore;

/// The effect on a call.
pub enum Effect {
    /// The call is carried out.
    Passes,
    /// The call fails without being carried out.
    Fails(StoreFault),
    /// The call is carried out, and its result is replaced by this fault.
    AnswerIsLost(StoreFault),
    /// The call never returns and is not carried out.
    Hangs,
    /// The call is carried out after this future completes.
    Waits(BoxFuture<'static, ()>),
}

impl Effect {
    /// Returns the failure of a call because the store is unavailable.
    pub fn unavailable() -> Self {
        Self::Fails(unavailable())
    }

    /// Returns a failure if the store is unavailable, and [`Self::Passes`] otherwise.
    pub fn unavailable_if(is_unavailable: bool) -> Self {
        if is_unavailable { Self::unavailable() } else { Self::Passes }
    }
}

/// Returns the fault of a store that does not respond.
pub fn unavailable() -> StoreFault {
    StoreFault::Unavailable { doing: "talking to the store", source: "timeout".into() }
}

type Rule = Arc<dyn Fn(&'static str) -> Effect + Send + Sync>;

/// A port whose calls follow a rule.
pub struct Faulty<P: ?Sized> {
    pub(super) port: Arc<P>,
    rule: Rule,
}

impl<P: ?Sized + Send + Sync> Faulty<P> {
    fn of(port: &Arc<P>, rule: &Rule) -> Arc<Self> {
        Arc::new(Self { port: Arc::clone(port), rule: Arc::clone(rule) })
    }

    /// Performs a call according to the rule.
    pub(super) async fn call<T>(
        &self,
        name: &'static str,
        operation: impl Future<Output = Result<T, StoreFault>> + Send,
    ) -> Result<T, StoreFault> {
        match (self.rule)(name) {
            Effect::Passes => operation.await,
            Effect::Fails(fault) => Err(fault),
            Effect::AnswerIsLost(fault) => operation.await.and(Err(fault)),
            Effect::Hangs => pending().await,
            Effect::Waits(until) => {
                until.await;
                operation.await
            }
        }
    }
}

/// Applies a rule to all calls of the ports of a store.
pub fn apply(store: &mut Store, rule: impl Fn(&'static str) -> Effect + Send + Sync + 'static) {
    let rule: Rule = Arc::new(rule);
    store.ledger = Faulty::of(&store.ledger, &rule);
    store.accounts = Faulty::of(&store.accounts, &rule);
    store.log = Faulty::of(&store.log, &rule);
    store.queue = Faulty::of(&store.queue, &rule);
    store.dead_letters = Faulty::of(&store.dead_letters, &rule);
    store.sync = Faulty::of(&store.sync, &rule);
    store.payloads = Faulty::of(&store.payloads, &rule);
    store.records = Faulty::of(&store.records, &rule);
    store.order_numbers = Faulty::of(&store.order_numbers, &rule);
    store.archive = Faulty::of(&store.archive, &rule);
    store.api_keys = Faulty::of(&store.api_keys, &rule);
    store.process_registry = Faulty::of(&store.process_registry, &rule);
}

/// Panics if no port has a call with this name, because a rule for it would never apply.
fn assert_exists(call: &str) {
    let calls = [
        Faulty::<dyn ApiKeys>::CALLS,
        Faulty::<dyn Archive>::CALLS,
        Faulty::<dyn Ledger>::CALLS,
        Faulty::<dyn Accounts>::CALLS,
        Faulty::<dyn TransactionLog>::CALLS,
        Faulty::<dyn WorkQueue>::CALLS,
        Faulty::<dyn DeadLetters>::CALLS,
        Faulty::<dyn SyncStore>::CALLS,
        Faulty::<dyn PayloadStore>::CALLS,
        Faulty::<dyn Records>::CALLS,
        Faulty::<dyn OrderNumberIndex>::CALLS,
        Faulty::<dyn ProcessRegistry>::CALLS,
    ];
    assert!(calls.iter().any(|calls| calls.contains(&call)), "no port has a call {call:?}");
}

/// Makes the next `times` calls with this name fail without being carried out.
pub fn lose(store: &mut Store, name: &'static str, times: u32) {
    limited(store, name, times, || Effect::Fails(unavailable()));
}

/// Makes the next `times` calls with this name lose their results after being carried out.
pub fn lose_answers(store: &mut Store, name: &'static str, times: u32) {
    limited(store, name, times, || Effect::AnswerIsLost(unavailable()));
}

fn limited(store: &mut Store, name: &'static str, times: u32, effect: fn() -> Effect) {
    assert_exists(name);
    let left = AtomicU32::new(times);
    apply(store, move |call| {
        let count = |left: u32| left.checked_sub(1);
        let happens = call == name && left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, count).is_ok();
        if happens { effect() } else { Effect::Passes }
    });
}

/// The effect on the calls with a name, and whether it only applies to the next one.
type Set = (fn() -> Effect, bool);

/// Effects that a test can change while a store is in use, and a record of the calls.
#[derive(Default)]
pub struct Control {
    effects: Mutex<BTreeMap<&'static str, Set>>,
    calls: Mutex<Vec<&'static str>>,
}

impl Control {
    /// Applies this control to the ports of a store.
    pub fn apply(self: &Arc<Self>, store: &mut Store) {
        let control = Arc::clone(self);
        apply(store, move |call| control.effect(call));
    }

    fn effect(&self, call: &'static str) -> Effect {
        self.calls.lock().push(call);
        let mut effects = self.effects.lock();
        let Some((effect, is_once)) = effects.get(call).copied() else { return Effect::Passes };
        if is_once {
            effects.remove(call);
        }
        effect()
    }

    /// Sets the effect on all later calls with this name.
    pub fn set(&self, call: &'static str, effect: fn() -> Effect) {
        assert_exists(call);
        self.effects.lock().insert(call, (effect, false));
    }

    /// Sets the effect on the next call with this name.
    pub fn set_once(&self, call: &'static str, effect: fn() -> Effect) {
        assert_exists(call);
        self.effects.lock().insert(call, (effect, true));
    }

    /// Makes all later calls with these names fail, because the store is unavailable.
    pub fn fail(&self, calls: &[&'static str]) {
        calls.iter().for_each(|call| self.set(call, Effect::unavailable));
    }

    /// Removes all effects.
    pub fn heal(&self) {
        self.effects.lock().clear();
    }

    /// Returns the calls with these names so far, in order.
    pub fn calls(&self, names: &[&str]) -> Vec<&'static str> {
        names.iter().copied().for_each(assert_exists);
        self.calls.lock().iter().copied().filter(|call| names.contains(call)).collect()
    }

    /// Returns the number of calls with this name so far.
    pub fn count(&self, name: &str) -> usize {
        self.calls(&[name]).len()
    }
}
