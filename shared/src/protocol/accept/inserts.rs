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
use crate::posting::spans::{end_write, error_of};
use crate::tracer::Tracer;

/// A group contains transactions of one queue, and of one account only if the ledger cannot group several accounts.
pub(super) type InsertPartition = (QueueName, Option<AccountKey>);

/// A submission, and the rights on which it was admitted.
pub(super) type Admitted = (Submission, Standing);

/// The outcome of the insert; `None` if the rights had changed when it began.
pub(super) type Inserted = Option<Shared<AcceptOutcome>>;

/// Groups the inserts of concurrent requests.
pub(super) type Inserts = GroupCommit<InsertPartition, Admitted, Inserted>;

/// Number of groups that are written concurrently if the ledger groups all accounts. Such a ledger combines the groups
/// that it receives, so a group that is ready need not wait for the previous one.
const GROUPS_AT_ONCE: NonZeroUsize = NonZeroUsize::new(2).expect("not zero");

pub(super) fn partition(grouping: AcceptGrouping, account: AccountKey, queue_count: u16) -> InsertPartition {
    let only = match grouping {
        AcceptGrouping::OneAccount => Some(account),
        AcceptGrouping::AllAccounts => None,
    };
    (envelope::queue_of(account, queue_count), only)
}

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

/// Inserts the submissions of a group whose rights have not changed. A key that occurs several times is inserted once;
/// the later requests get the stored transaction.
fn insert_groups(
    world: &Arc<dyn World>,
    ledger: Arc<dyn Ledger>,
    completions: Arc<Completions>,
    confirmed: Arc<ConfirmedSends>,
    doorbell: Arc<dyn Doorbell>,
    used_queues: Arc<UsedQueues>,
    tracer: Arc<Tracer>,
) -> Flush<InsertPartition, Admitted, Inserted> {
    let world = Arc::clone(world);
    Arc::new(move |(queue, _), group| {
        let world = Arc::clone(&world);
        let (ledger, completions, confirmed) =
            (Arc::clone(&ledger), Arc::clone(&completions), Arc::clone(&confirmed));
        let (doorbell, used_queues) = (Arc::clone(&doorbell), Arc::clone(&used_queues));
        let tracer = Arc::clone(&tracer);
        async move {
            // A ledger that groups all accounts may enqueue in the same step.
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
                // The rights may have changed while the submission waited for another group.
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
                // The transaction was stored and enqueued in one step, so later requests with this key may be confirmed too.
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

/// Accepts a group and returns one answer per submission. A permanent fault concerns a single transaction, such as a
/// damaged row under its key. Bisection isolates it, so that the others succeed. Transactions that an earlier part
/// stored are recognized by the nonce, which is the same for all parts.
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

/// Registers an additional waiter for each awaited transaction until the group is stored. A store that enqueues in the
/// same step then adds the reply address even if the request is cancelled meanwhile.
fn keep_waiters(completions: &Completions, group: &[Submission]) -> Vec<Option<Waiter>> {
    let keep =
        |new: &Submission| completions.reply_to([&new.key]).is_some().then(|| completions.register(&new.key));
    group.iter().map(keep).collect()
}
