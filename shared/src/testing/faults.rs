//! Faults of ports: a rule decides by the name of each call what happens to it, such as that of `Ledger::commit`.
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

/// What happens to a call.
pub enum Effect {
    /// It is carried out.
    Passes,
    /// It fails, and nothing is carried out.
    Fails(StoreFault),
    /// It is carried out, and its answer is replaced by this fault.
    AnswerIsLost(StoreFault),
    /// It has no answer, and nothing is carried out.
    Hangs,
    /// It is carried out after this.
    Waits(BoxFuture<'static, ()>),
}

impl Effect {
    /// The call fails, because the store is unavailable.
    pub fn unavailable() -> Self {
        Self::Fails(unavailable())
    }

    /// The call fails if the store is unavailable at this moment.
    pub fn unavailable_if(is_unavailable: bool) -> Self {
        if is_unavailable { Self::unavailable() } else { Self::Passes }
    }
}

/// The fault of a store that does not answer.
pub fn unavailable() -> StoreFault {
    StoreFault::Unavailable { doing: "talking to the store", source: "timeout".into() }
}

type Rule = Arc<dyn Fn(&'static str) -> Effect + Send + Sync>;

/// A port whose calls are subject to a rule.
pub struct Faulty<P: ?Sized> {
    /// The port.
    pub(super) port: Arc<P>,
    rule: Rule,
}

impl<P: ?Sized + Send + Sync> Faulty<P> {
    fn of(port: &Arc<P>, rule: &Rule) -> Arc<Self> {
        Arc::new(Self { port: Arc::clone(port), rule: Arc::clone(rule) })
    }

    /// Carries out a call, as far as the rule allows.
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

/// Lets a rule decide about all calls to the ports of a store.
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

/// Panics if no port has a call with that name: a rule about it would never apply.
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

/// The next calls with that name are not carried out.
pub fn lose(store: &mut Store, name: &'static str, times: u32) {
    limited(store, name, times, || Effect::Fails(unavailable()));
}

/// The next calls with that name are carried out, and their answers are lost.
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

/// What happens to the calls with a name, and whether only to the next one.
type Set = (fn() -> Effect, bool);

/// Effects that a test changes while a store is in use, and the calls so far.
#[derive(Default)]
pub struct Control {
    effects: Mutex<BTreeMap<&'static str, Set>>,
    calls: Mutex<Vec<&'static str>>,
}

impl Control {
    /// Subjects the calls to the ports of a store to this control.
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

    /// Sets what happens to the calls with that name from now on.
    pub fn set(&self, call: &'static str, effect: fn() -> Effect) {
        assert_exists(call);
        self.effects.lock().insert(call, (effect, false));
    }

    /// Sets what happens to the next call with that name.
    pub fn set_once(&self, call: &'static str, effect: fn() -> Effect) {
        assert_exists(call);
        self.effects.lock().insert(call, (effect, true));
    }

    /// From now on the calls with these names fail, because the store is unavailable.
    pub fn fail(&self, calls: &[&'static str]) {
        calls.iter().for_each(|call| self.set(call, Effect::unavailable));
    }

    /// From now on every call is carried out.
    pub fn heal(&self) {
        self.effects.lock().clear();
    }

    /// The calls with these names so far, in their order.
    pub fn calls(&self, names: &[&str]) -> Vec<&'static str> {
        names.iter().copied().for_each(assert_exists);
        self.calls.lock().iter().copied().filter(|call| names.contains(call)).collect()
    }

    /// The number of calls with that name so far.
    pub fn count(&self, name: &str) -> usize {
        self.calls(&[name]).len()
    }
}
