//! The ports of one process. Each call goes over the network, and the auditor checks the store after it. Mutations are applied
//! here.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use postonce_shared::adapters::memory::flaws::Flaw;
use postonce_shared::domain::decision::Submission;
use postonce_shared::ports::store_clock::{ClockSkew, StoreClock};
use postonce_shared::protocol::recovery_horizon;
use postonce_shared::testing::prelude::*;

use super::azure::ports::over_tables;
use super::batches::mistakes::Mistaken;
use super::mutations::Mutation;
use super::network::{Network, StoreRequest, now};
use super::process_world::store_time;
use super::scheduler::ProcessId;
use super::{archive_port, batches, immediate_commits, left_out_mutations, queue_port, repost_mutation};

/// Maximum time for which [`Mutation::RejectionFromOldCache`] keeps a row before it is used.
const OLD_ROW_TIME_MAX: Duration = Duration::from_secs(2);

/// The connection of a process with the store.
pub struct StoreConnection {
    /// The network to the store.
    pub network: Arc<Network>,
    /// The connected process.
    pub process_id: ProcessId,
    /// State for mistakes with batches.
    pub mistaken: Mutex<Mistaken>,
    /// The world of the process, whose clock may be wrong.
    world: Arc<dyn World>,
    clock: Arc<StoreClock>,
}

impl StoreConnection {
    /// Creates the ports of a process.
    pub fn ports(network: &Arc<Network>, process_id: ProcessId, world: &Arc<dyn World>) -> Store {
        let clock = if network.mutation == Some(Mutation::WrongClockReleases) {
            StoreClock::of_this_machine()
        } else {
            StoreClock::of_responses()
        };
        let (clock, network_, world) = (Arc::new(clock), Arc::clone(network), Arc::clone(world));
        let connection = Arc::new(Self {
            network: network_,
            process_id,
            mistaken: Mutex::default(),
            world,
            clock: Arc::clone(&clock),
        });
        let ports = Store {
            ledger: connection.clone(),
            accounts: connection.clone(),
            log: connection.clone(),
            archive: Arc::new(archive_port::ArchiveConnection(connection.clone())),
            queue: Arc::new(queue_port::QueueConnection(connection.clone())),
            dead_letters: connection.clone(),
            sync: connection.clone(),
            payloads: connection.clone(),
            process_registry: connection.clone(),
            records: connection.clone(),
            clock,
            // Not simulated, because the simulated processes do not use these ports.
            ..network.raw.clone()
        };
        match &network.tables {
            Some(tables) => over_tables(&connection, &connection.world, tables, ports),
            None => ports,
        }
    }

    /// Returns whether the run makes this mistake.
    pub fn makes(&self, mutation: Mutation) -> bool {
        self.network.mutation == Some(mutation)
    }

    /// Sends a request to the store.
    ///
    /// # Errors
    /// Same as [`Network::request`].
    pub async fn request<T: Send + 'static>(
        &self,
        request: StoreRequest,
        operation: impl Fn(&Network) -> Result<T, StoreFault> + Send + Sync + 'static,
    ) -> Result<T, StoreFault> {
        // The time of the store at which it processed the request, as in its response.
        let processed_ms = Arc::new(AtomicI64::new(0));
        let (sent, processed) = (self.world.uptime(), Arc::clone(&processed_ms));
        let operation = move |network: &Network| {
            processed.store(store_time(&network.scheduler).unix_ms(), Ordering::Relaxed);
            operation(network)
        };
        let answer = self.network.request(self.process_id, request, operation).await;
        if answer.is_ok() {
            let second = processed_ms.load(Ordering::Relaxed).div_euclid(1000);
            let date = Timestamp::from_unix_ms(second.saturating_mul(1000));
            let (received, uptime) = (self.world.now(), self.world.uptime());
            let skew = ClockSkew::of_response(date, received, uptime.saturating_sub(sent));
            let _warning = self.clock.record(skew, uptime);
        }
        answer
    }
}

#[async_trait]
impl Ledger for StoreConnection {
    fn checks_order(&self) -> bool {
        self.network.raw.ledger.checks_order() || self.makes(Mutation::OrderCheckAssumed)
    }

    async fn accept(&self, group: &[Submission], nonce: Nonce) -> Result<Vec<AcceptOutcome>, StoreFault> {
        self.network.auditor.inserts(self.process_id, group);
        let kept = group.to_vec();
        let names: Vec<String> = group.iter().map(|new| short(&new.key)).collect();
        let answer = self.request(StoreRequest::write("accept", names.join(" ")), move |network| {
            let outcomes = now(network.raw.ledger.accept(&kept, nonce));
            network.auditor.accepted(&network.raw, &kept);
            outcomes
        });
        if self.makes(Mutation::AnswerBeforeLog) {
            // Writes the row in the background.
            let (process_id, network) = (self.process_id, Arc::clone(&self.network));
            let (kept, target) = (group.to_vec(), names.join(" "));
            self.network.scheduler.spawn(
                process_id,
                Box::pin(async move {
                    let written =
                        network.request(process_id, StoreRequest::write("accept", target), move |network| {
                            let outcomes = now(network.raw.ledger.accept(&kept, nonce));
                            network.auditor.accepted(&network.raw, &kept);
                            outcomes
                        });
                    drop(written.await);
                }),
            );
            let assumed = AcceptOutcome::Inserted { revision: Revision::new("unknown"), enqueued: false };
            return Ok(vec![assumed; group.len()]);
        }
        let mut outcomes = answer.await?;
        for (outcome, new) in outcomes.iter_mut().zip(group) {
            if let AcceptOutcome::Existing(stored) = outcome {
                if self.makes(Mutation::FingerprintSkipped) {
                    stored.fingerprint = new.instruction.fingerprint();
                }
                if self.makes(Mutation::ReplayTrustsTheRow) && stored.work().is_some() {
                    *outcome = AcceptOutcome::Inserted { revision: stored.revision.clone(), enqueued: true };
                }
            }
        }
        Ok(outcomes)
    }

    async fn commit(&self, commit: &AccountCommit) -> Result<Committed, StoreFault> {
        if batches::ports::is_of_chunk(commit) {
            return batches::ports::post(self, commit).await;
        }
        if !commit.inserted().is_empty() {
            return immediate_commits::post_at_once(self, commit).await;
        }
        let mut kept = commit.clone();
        left_out_mutations::leave_out_rejection(self, &mut kept.after, &mut kept.page);
        let names: Vec<String> =
            commit.stored().iter().map(|one| short(&one.pending.submission.key)).collect();
        let request = StoreRequest::write("commit", names.join(" "));
        let committed = self.request(request, move |network| {
            let committed = now(network.raw.ledger.commit(&kept));
            network.auditor.committed(&network.raw, &kept, &committed);
            committed
        });
        match committed.await {
            Err(_) if self.makes(Mutation::UnclearCommitPostedAgain) => {
                repost_mutation::post_again(self, commit).await
            }
            committed => committed,
        }
    }

    async fn reject_unknown(&self, commit: &UnknownAccountCommit) -> Result<Committed, StoreFault> {
        batches::ports::reject(self, commit).await
    }

    async fn account(&self, key: AccountKey) -> Result<Option<Versioned<Account>>, StoreFault> {
        let read = || {
            self.request(StoreRequest::read("account", key.account.as_uuid().as_u128()), move |network| {
                let found = now(network.raw.ledger.account(key));
                if matches!(found, Ok(None)) {
                    network.auditor.missed(key);
                }
                found
            })
        };
        let first = read().await?;
        if self.makes(Mutation::RejectionFromOldCache) {
            // Waits, so that the row is old when it is used.
            let scheduler = &self.network.scheduler;
            scheduler.sleep(self.process_id, scheduler.up_to(OLD_ROW_TIME_MAX)).await;
        }
        if self.makes(Mutation::AccountReadTorn) {
            let second = read().await?;
            return Ok(first
                .zip(second)
                .map(|(first, second)| Versioned { revision: second.revision, ..first }));
        }
        Ok(first)
    }

    async fn transaction(&self, key: &TransactionKey) -> Result<Option<StoredTransaction>, StoreFault> {
        let kept = key.clone();
        self.request(StoreRequest::read("transaction", short(key)), move |network| {
            now(network.raw.ledger.transaction(&kept))
        })
        .await
    }

    async fn mark(
        &self,
        key: &TransactionKey,
        revision: &Revision,
        marks: Marks,
    ) -> Result<Option<Revision>, StoreFault> {
        let (kept, revision) = (key.clone(), revision.clone());
        self.request(StoreRequest::write("mark", short(key)), move |network| {
            let marked = now(network.raw.ledger.mark(&kept, &revision, marks));
            network.auditor.marked(&network.raw, &kept);
            marked
        })
        .await
    }

    async fn probe(&self) -> Result<(), StoreFault> {
        self.request(StoreRequest::read("probe", ""), |network| now(network.raw.ledger.probe())).await
    }
}

#[async_trait]
impl DeadLetters for StoreConnection {
    async fn add(&self, letter: &DeadLetter) -> Result<(), StoreFault> {
        let kept = letter.clone();
        self.request(StoreRequest::write("set-aside", &letter.id), move |network| {
            let added = now(network.raw.dead_letters.add(&kept));
            network.auditor.set_aside(&kept);
            added
        })
        .await
    }

    async fn find(&self, id: &str) -> Result<Option<DeadLetter>, StoreFault> {
        let kept = id.to_owned();
        self.request(StoreRequest::read("letter", id), move |network| {
            now(network.raw.dead_letters.find(&kept))
        })
        .await
    }

    async fn list(
        &self,
        open_only: bool,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<DeadLetter>, StoreFault> {
        let cursor = cursor.map(str::to_owned);
        self.request(StoreRequest::read("letters", ""), move |network| {
            now(network.raw.dead_letters.list(open_only, cursor.as_deref(), limit))
        })
        .await
    }

    async fn resolve(&self, id: &str, resolution: &Resolution) -> Result<bool, StoreFault> {
        let (kept, resolution) = (id.to_owned(), resolution.clone());
        self.request(StoreRequest::write("resolve", id), move |network| {
            let resolved = now(network.raw.dead_letters.resolve(&kept, &resolution));
            network.auditor.resolved(&network.raw, &kept);
            resolved
        })
        .await
    }

    async fn count_open(&self) -> Result<Vec<(QueueName, u64)>, StoreFault> {
        self.request(StoreRequest::read("letters", "count"), |network| {
            now(network.raw.dead_letters.count_open())
        })
        .await
    }
}

#[async_trait]
impl SyncStore for StoreConnection {
    async fn get(&self, name: &str) -> Result<Option<Versioned<String>>, StoreFault> {
        let kept = name.to_owned();
        let read = self
            .request(StoreRequest::read("get", name), move |network| now(network.raw.sync.get(&kept)))
            .await;
        if read.is_err() && name == "gate" && self.makes(Mutation::UnreadableGateIsReleased) {
            return Ok(None);
        }
        if name == recovery_horizon::NAME && self.makes(Mutation::MissingPayloadSettled) {
            let (value, revision) = (i64::MAX.to_string(), Revision::new("unknown"));
            return Ok(Some(Versioned { value, revision }));
        }
        read
    }

    async fn swap(
        &self,
        name: &str,
        expected: Option<&Revision>,
        value: &str,
    ) -> Result<Swapped, StoreFault> {
        let (kept, expected, written) = (name.to_owned(), expected.cloned(), value.to_owned());
        let is_register = name == REGISTER;
        let compares_late = is_register && self.makes(Mutation::RangeComparedAtWrite);
        let swapped = self.request(StoreRequest::write_once("swap", name), move |network| {
            let current = now(network.raw.sync.get(&kept))?.map(|current| current.revision);
            let expected = if compares_late { current.as_ref() } else { expected.as_ref() };
            let swapped = now(network.raw.sync.swap(&kept, expected, &written));
            network.auditor.swapped(&network.raw, &kept, store_time(&network.scheduler));
            swapped
        });
        match swapped.await {
            Err(_) if is_register && self.makes(Mutation::RangePublishedBeforeConfirmed) => {
                Ok(Swapped::Done(Revision::new("unknown")))
            }
            swapped => swapped,
        }
    }
}

/// Returns the name of a transaction in the trace: its account and its id.
pub fn short(key: &TransactionKey) -> String {
    format!("{}/{}", key.account.account.as_uuid().as_u128(), key.message.as_uuid().as_u128())
}

/// Returns the ports of a store in memory, and of the same store without the guards that a mistake omits.
pub fn memory(store: &MemoryStore, mutation: Option<Mutation>) -> (Store, Store) {
    let flawed = match mutation.filter(|mutation| *mutation != Mutation::UnclearCommitPostedAgain) {
        Some(mutation) => mutation.flaw(),
        None => None,
    };
    let raw = match flawed {
        Some(flaw) => store.clone().flawed(flaw).ports(),
        None => store.ports(),
    };
    let without_guards = match mutation {
        Some(Mutation::KeyNotGuarded | Mutation::ChunkKeysNotGuarded) => Flaw::KeysUnguarded,
        _ => Flaw::RowsUnguarded,
    };
    (raw, store.clone().flawed(without_guards).ports())
}
