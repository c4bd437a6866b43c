//! The ports of one process over the adapter for Azure. The auditor checks the store after every write request of a call, in
//! the same step, and then the response of the adapter.

use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use postonce_shared::adapters::azure::wire::Wire;
use postonce_shared::adapters::azure::{self, AzureConfig, AzureConnection};
use postonce_shared::domain::decision::Submission;
use postonce_shared::testing::decorators::{AccountsDecorator, DeadLettersDecorator};
use postonce_shared::testing::prelude::*;

use super::mistakes::MistakenWire;
use super::tables::Tables;
use super::wire::{DirectWire, SimulatedWire, checked};
use crate::simulation::batches::ports::{count_answer, is_of_chunk};
use crate::simulation::network::Network;
use crate::simulation::ports::StoreConnection;
use crate::simulation::process_world::store_time;
use crate::simulation::scheduler::{ProcessId, Scheduler};

/// Opens the store of a run for the auditor, with rows in these tables and with queues and payloads in memory.
pub fn raw(
    scheduler: &Scheduler,
    world: Arc<dyn World>,
    memory: &Store,
    tables: &Arc<Mutex<Tables>>,
) -> Store {
    let wire = DirectWire { scheduler: scheduler.clone(), tables: Arc::clone(tables) };
    let adapter = open(world, Arc::new(wire));
    let Store { queue, payloads, api_keys, .. } = memory.clone();
    Store { queue, payloads, api_keys, ..adapter }
}

fn open(world: Arc<dyn World>, wire: Arc<dyn Wire>) -> Store {
    let connection = AzureConnection::parse("UseDevelopmentStorage=true").expect("it is one");
    let config = AzureConfig::new(connection, "simulated".to_owned());
    azure::open_over(&config, world, wire).expect("the prefix is valid")
}

/// The adapter of a process, with audits of its calls.
struct AuditedAdapter {
    /// The connection of the process to all other parts of the store.
    connection: Arc<StoreConnection>,
    /// The store over the adapter.
    store: Store,
}

/// Replaces the ports for rows by those of an adapter for Azure.
pub fn over_tables(
    connection: &Arc<StoreConnection>,
    world: &Arc<dyn World>,
    tables: &Arc<Mutex<Tables>>,
    others: Store,
) -> Store {
    let StoreConnection { network, process_id, .. } = &**connection;
    let wire = SimulatedWire::new(Arc::clone(network), *process_id, Arc::clone(tables));
    let wire: Arc<dyn Wire> = match network.mutation {
        Some(mutation) => Arc::new(MistakenWire::new(wire, mutation)),
        None => Arc::new(wire),
    };
    let store = open(Arc::clone(world), wire);
    let Store { log, archive, process_registry, clock, operations, .. } = store.clone();
    let audited = Arc::new(AuditedAdapter { connection: Arc::clone(connection), store });
    Store {
        ledger: audited.clone(),
        accounts: audited.clone(),
        dead_letters: audited.clone(),
        sync: audited.clone(),
        records: audited,
        log,
        archive,
        process_registry,
        clock,
        operations,
        ..others
    }
}

impl AuditedAdapter {
    fn network(&self) -> &Network {
        &self.connection.network
    }

    fn process_id(&self) -> ProcessId {
        self.connection.process_id
    }
}

#[async_trait]
impl LedgerDecorator for AuditedAdapter {
    fn inner(&self) -> &dyn Ledger {
        &*self.store.ledger
    }

    async fn accept(&self, group: &[Submission], nonce: Nonce) -> Result<Vec<AcceptOutcome>, StoreFault> {
        self.network().auditor.inserts(self.process_id(), group);
        let kept = group.to_vec();
        let check = move |network: &Network, _| network.auditor.accepted(&network.raw, &kept);
        let outcomes = checked(check, self.store.ledger.accept(group, nonce)).await?;
        self.network().auditor.accept_answered(group, &outcomes);
        Ok(outcomes)
    }

    async fn commit(&self, commit: &AccountCommit) -> Result<Committed, StoreFault> {
        let (network, is_chunk) = (self.network(), is_of_chunk(commit));
        let (auditor, time) = (&network.auditor, network.scheduler.now());
        let at_once = !commit.inserted().is_empty() && !is_chunk;
        let in_progress =
            at_once.then(|| auditor.posts_at_once(&network.raw, self.process_id(), commit, time));
        let kept = commit.clone();
        let check = move |network: &Network, is_written| {
            let answer = if is_written {
                Committed::Done { revision: Some(Revision::new("written")) }
            } else {
                Committed::Stale
            };
            network.auditor.committed(&network.raw, &kept, &Ok(answer));
            if is_chunk && is_written {
                network.auditor.batches(|batches| batches.posted(&network.raw, kept.inserted()));
            }
        };
        let answer = checked(check, self.store.ledger.commit(commit)).await;
        drop(in_progress);
        if at_once {
            network.count_immediate(|counts| counts.add_answer(commit, &answer));
        }
        if is_chunk {
            count_answer(&self.connection, commit, &answer);
        }
        auditor.commit_answered(&network.raw, commit, &answer);
        answer
    }

    async fn reject_unknown(&self, commit: &UnknownAccountCommit) -> Result<Committed, StoreFault> {
        let kept = commit.clone();
        let check = move |network: &Network, is_written| {
            network.auditor.rejected_unknown(&network.raw, &kept, is_written);
            if is_written {
                network.auditor.batches(|batches| batches.posted(&network.raw, &kept.decided));
            }
        };
        let answer = checked(check, self.store.ledger.reject_unknown(commit)).await;
        self.network().auditor.rejection_answered(&self.network().raw, commit, &answer);
        answer
    }

    async fn account(&self, key: AccountKey) -> Result<Option<Versioned<Account>>, StoreFault> {
        let found = self.store.ledger.account(key).await?;
        if found.is_none() {
            self.network().auditor.missed(key);
        }
        Ok(found)
    }

    async fn mark(
        &self,
        key: &TransactionKey,
        revision: &Revision,
        marks: Marks,
    ) -> Result<Option<Revision>, StoreFault> {
        let kept = key.clone();
        let check = move |network: &Network, _| network.auditor.marked(&network.raw, &kept);
        checked(check, self.store.ledger.mark(key, revision, marks)).await
    }
}

#[async_trait]
impl AccountsDecorator for AuditedAdapter {
    fn inner(&self) -> &dyn Accounts {
        &*self.store.accounts
    }

    async fn open(&self, opening: &AccountDecision) -> Result<Opened, StoreFault> {
        let key = opening.after.key;
        let check = move |network: &Network, _| network.auditor.changed(&network.raw, key);
        checked(check, self.store.accounts.open(opening)).await
    }

    async fn change(
        &self,
        guard: &Revision,
        change: &AccountDecision,
    ) -> Result<Option<Revision>, StoreFault> {
        let key = change.after.key;
        let check = move |network: &Network, _| network.auditor.changed(&network.raw, key);
        checked(check, self.store.accounts.change(guard, change)).await
    }
}

#[async_trait]
impl DeadLettersDecorator for AuditedAdapter {
    fn inner(&self) -> &dyn DeadLetters {
        &*self.store.dead_letters
    }

    async fn add(&self, letter: &DeadLetter) -> Result<(), StoreFault> {
        let kept = letter.clone();
        let check = move |network: &Network, is_written| {
            if is_written {
                network.auditor.set_aside(&kept);
            }
        };
        checked(check, self.store.dead_letters.add(letter)).await
    }

    async fn resolve(&self, id: &str, resolution: &Resolution) -> Result<bool, StoreFault> {
        let kept = id.to_owned();
        let check = move |network: &Network, _| network.auditor.resolved(&network.raw, &kept);
        checked(check, self.store.dead_letters.resolve(id, resolution)).await
    }
}

#[async_trait]
impl SyncStoreDecorator for AuditedAdapter {
    fn inner(&self) -> &dyn SyncStore {
        &*self.store.sync
    }

    async fn swap(
        &self,
        name: &str,
        expected: Option<&Revision>,
        value: &str,
    ) -> Result<Swapped, StoreFault> {
        let kept = name.to_owned();
        let check = move |network: &Network, _| {
            network.auditor.swapped(&network.raw, &kept, store_time(&network.scheduler));
        };
        checked(check, self.store.sync.swap(name, expected, value)).await
    }
}

#[async_trait]
impl RecordsDecorator for AuditedAdapter {
    fn inner(&self) -> &dyn Records {
        &*self.store.records
    }

    async fn save(
        &self,
        of: Collection,
        id: &str,
        body: &str,
        expected: Option<&Revision>,
    ) -> Result<Swapped, StoreFault> {
        let kept = id.to_owned();
        let check = move |network: &Network, _| {
            if of == Collection::Batches {
                network.auditor.batches(|batches| batches.saved(&network.raw, &kept));
            }
        };
        checked(check, self.store.records.save(of, id, body, expected)).await
    }
}
