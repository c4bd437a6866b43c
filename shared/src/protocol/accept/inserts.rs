//! Inserts of new transactions in groups. The insert is the idempotency check; a key occurs once in a group.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;

use futures::FutureExt as _;

use super::Shared;
use super::sends::ConfirmedSends;
use crate::access::partner_cache::Standing;
use crate::cluster::completions::{Completions, Waiter};
use crate::domain::decision::Submission;
use crate::domain::ids::{AccountKey, Nonce, TransactionKey};
use crate::messaging::envelope;
use crate::messaging::queue_count::UsedQueues;
use crate::ports::doorbell::Doorbell;
use crate::ports::ledger::{AcceptGrouping, AcceptOutcome, Ledger, StoredTransaction};
use crate::ports::queue::QueueName;
use crate::ports::spans::SpanKind;
use crate::ports::world::{World, WorldExt as _};
use crate::posting::group_commit::{Flush, GroupCommit};
use crate::posting::traced::{end_write, error_of};
use crate::tracer::Tracer;

/// The transactions that are inserted in one group: those of one queue, and of one account if the ledger cannot
/// group several accounts.
pub(super) type InsertLane = (QueueName, Option<AccountKey>);

/// What is inserted, and the rights on which it was admitted.
pub(super) type Admitted = (Submission, Standing);

/// The answer of the ledger; `None` if the rights had changed when the insert began.
pub(super) type Inserted = Option<Shared<AcceptOutcome>>;

/// Groups the inserts of concurrent requests.
pub(super) type Inserts = GroupCommit<InsertLane, Admitted, Inserted>;

/// Number of groups that are written concurrently for all accounts. Such a ledger combines the groups that it
/// receives, so that a group that is ready when a write starts need not wait for the previous group.
const GROUPS_AT_ONCE: NonZeroUsize = NonZeroUsize::new(2).expect("not zero");

/// Returns the lane of an account.
pub(super) fn lane(grouping: AcceptGrouping, account: AccountKey, queue_count: u16) -> InsertLane {
    let only = match grouping {
        AcceptGrouping::OneAccount => Some(account),
        AcceptGrouping::AllAccounts => None,
    };
    (envelope::queue_of(account, queue_count), only)
}

/// Creates the grouped inserts for a ledger.
pub(super) fn inserts(
    world: &Arc<dyn World>,
    ledger: Arc<dyn Ledger>,
    completions: Arc<Completions>,
    confirmed: Arc<ConfirmedSends>,
    doorbell: Arc<dyn Doorbell>,
    used_queues: Arc<UsedQueues>,
    tracer: Arc<Tracer>,
) -> Inserts {
    let grouping = ledger.accept_grouping();
    let insert = insert_groups(world, ledger, completions, confirmed, doorbell, used_queues, tracer);
    let inserts = GroupCommit::new(Arc::clone(world), grouping.group_max(), insert);
    match grouping {
        AcceptGrouping::OneAccount => inserts,
        AcceptGrouping::AllAccounts => inserts.with_concurrency(GROUPS_AT_ONCE),
    }
}

/// Inserts what of a group was admitted on rights that have not changed. A key that occurs several times is inserted once; the later
/// requests get what the first one stored.
fn insert_groups(
    world: &Arc<dyn World>,
    ledger: Arc<dyn Ledger>,
    completions: Arc<Completions>,
    confirmed: Arc<ConfirmedSends>,
    doorbell: Arc<dyn Doorbell>,
    used_queues: Arc<UsedQueues>,
    tracer: Arc<Tracer>,
) -> Flush<InsertLane, Admitted, Inserted> {
    let world = Arc::clone(world);
    Arc::new(move |(queue, _), group| {
        let world = Arc::clone(&world);
        let (ledger, completions, confirmed) =
            (Arc::clone(&ledger), Arc::clone(&completions), Arc::clone(&confirmed));
        let (doorbell, used_queues) = (Arc::clone(&doorbell), Arc::clone(&used_queues));
        let tracer = Arc::clone(&tracer);
        async move {
            // Such a ledger may enqueue in the same step.
            if ledger.accept_grouping() == AcceptGrouping::AllAccounts
                && let Err(fault) = used_queues.record().await
            {
                let fault = Arc::new(fault);
                return group.iter().map(|_| Some(Err(Arc::clone(&fault)))).collect();
            }
            let mut known: BTreeMap<&TransactionKey, usize> = BTreeMap::new();
            let mut firsts: Vec<Submission> = Vec::new();
            let mut positions: Vec<Option<(usize, bool)>> = Vec::with_capacity(group.len());
            for (new, standing) in &group {
                // They may have waited for another group.
                if !standing.is_unchanged() {
                    positions.push(None);
                    continue;
                }
                let position = *known.entry(&new.key).or_insert(firsts.len());
                let first = position == firsts.len();
                if first {
                    firsts.push(new.clone());
                }
                positions.push(Some((position, first)));
            }
            if firsts.is_empty() {
                return positions.iter().map(|_| None).collect();
            }
            let waiters = keep_waiters(&completions, &firsts);
            let operation = tracer.begin_shared(
                format_args!("accept"),
                SpanKind::Database,
                firsts.iter().map(|new| &new.origin),
            );
            let outcomes = accept(&*ledger, &firsts, world.nonce()).await;
            if let Some(operation) = operation {
                let error =
                    |position: usize| outcomes.get(position)?.as_ref().err().map(|fault| error_of(fault));
                end_write(operation, "accept", firsts.len(), error);
            }
            let mut enqueued_any = false;
            for ((first, outcome), waiter) in firsts.iter().zip(&outcomes).zip(&waiters) {
                // Stored and enqueued in one step: the later requests with this key may be confirmed as well.
                if matches!(outcome, Ok(AcceptOutcome::Inserted { enqueued: true, .. })) {
                    confirmed.insert(&first.key, waiter.is_some());
                    enqueued_any = true;
                }
            }
            if enqueued_any {
                doorbell.ring(&queue);
            }
            let outcome = |(position, first): (usize, bool)| match (&outcomes[position], first) {
                (Ok(AcceptOutcome::Inserted { revision, enqueued: _ }), false) => {
                    let stored =
                        StoredTransaction::inserted(firsts[position].clone(), revision.clone(), None);
                    Ok(AcceptOutcome::Existing(Box::new(stored)))
                }
                (outcome, _) => outcome.clone(),
            };
            positions.into_iter().map(|position| position.map(outcome)).collect()
        }
        .boxed()
    })
}

/// Accepts a group; returns one answer each. A permanent fault concerns one of the transactions, such as a damaged
/// row under its key. It is isolated by bisection, so that the others succeed. Transactions that were stored in an
/// earlier part carry the same nonce and are recognized by it.
async fn accept(ledger: &dyn Ledger, group: &[Submission], nonce: Nonce) -> Vec<Shared<AcceptOutcome>> {
    let mut answers = Vec::with_capacity(group.len());
    let mut parts = vec![group];
    while let Some(part) = parts.pop() {
        match ledger.accept(part, nonce).await {
            Ok(outcomes) => {
                assert!(outcomes.len() == part.len(), "each transaction of a group has one outcome");
                answers.extend(outcomes.into_iter().map(Ok));
            }
            Err(fault) if fault.is_transient() || part.len() == 1 => {
                let fault = Arc::new(fault);
                answers.extend(part.iter().map(|_| Err(Arc::clone(&fault))));
            }
            Err(_) => {
                let (first, second) = part.split_at(part.len().div_euclid(2));
                parts.extend([second, first]);
            }
        }
    }
    answers
}

/// Registers one more waiter for each transaction that a request waits for, while the group is stored. So a store
/// that enqueues in the same step still adds the reply address if the request is cancelled meanwhile.
fn keep_waiters(completions: &Completions, group: &[Submission]) -> Vec<Option<Waiter>> {
    let keep =
        |new: &Submission| completions.reply_to([&new.key]).is_some().then(|| completions.register(&new.key));
    group.iter().map(keep).collect()
}
