//! The insert that is the idempotency check: a group at once, each key once.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;

use futures::FutureExt as _;

use super::sends::ConfirmedSends;
use super::{Shared, as_stored};
use crate::cluster::completions::{Completions, Waiter};
use crate::domain::ids::{AccountKey, TransactionKey};
use crate::messaging::envelope;
use crate::ports::doorbell::Doorbell;
use crate::ports::ledger::{AcceptGrouping, AcceptOutcome, Ledger, NewTransaction};
use crate::ports::queue::QueueName;
use crate::ports::world::World;
use crate::protocol::group_commit::{Flush, GroupCommit};

/// What is inserted in one group: the work of one queue, and where the ledger reaches no further, of one
/// account.
pub(super) type InsertLane = (QueueName, Option<AccountKey>);

/// Where inserts collect.
pub(super) type Inserts = GroupCommit<InsertLane, NewTransaction, Shared<AcceptOutcome>>;

/// Groups of all accounts that are under way at once: such a ledger writes what was handed to it together, so
/// that a group that is there when a write begins need not wait for the one before.
const GROUPS_AT_ONCE: NonZeroUsize = NonZeroUsize::new(2).expect("not zero");

/// The lane of an account.
pub(super) fn lane(reach: AcceptGrouping, account: AccountKey, queue_count: u16) -> InsertLane {
    let only = match reach {
        AcceptGrouping::OneAccount => Some(account),
        AcceptGrouping::AllAccounts => None,
    };
    (envelope::queue_of(account, queue_count), only)
}

/// Inserts in groups, as far as the ledger reaches.
pub(super) fn inserts(
    world: &Arc<dyn World>,
    ledger: Arc<dyn Ledger>,
    completions: Arc<Completions>,
    confirmed: Arc<ConfirmedSends>,
    doorbell: Arc<dyn Doorbell>,
) -> Inserts {
    let reach = ledger.accept_grouping();
    let insert = insert_groups(ledger, completions, confirmed, doorbell);
    let inserts = GroupCommit::new(Arc::clone(world), reach.group_max(), insert);
    match reach {
        AcceptGrouping::OneAccount => inserts,
        AcceptGrouping::AllAccounts => inserts.side_by_side(GROUPS_AT_ONCE),
    }
}

/// Inserts a group. Within it each key stands once: whoever brought a key second joins the first,
/// and finds what the first one stored.
fn insert_groups(
    ledger: Arc<dyn Ledger>,
    completions: Arc<Completions>,
    confirmed: Arc<ConfirmedSends>,
    doorbell: Arc<dyn Doorbell>,
) -> Flush<InsertLane, NewTransaction, Shared<AcceptOutcome>> {
    Arc::new(move |(queue, _), group| {
        let (ledger, completions, confirmed) =
            (Arc::clone(&ledger), Arc::clone(&completions), Arc::clone(&confirmed));
        let doorbell = Arc::clone(&doorbell);
        async move {
            let mut places: BTreeMap<&TransactionKey, usize> = BTreeMap::new();
            let mut firsts: Vec<NewTransaction> = Vec::new();
            let mut joins: Vec<(usize, bool)> = Vec::with_capacity(group.len());
            for new in &group {
                let place = *places.entry(&new.key).or_insert(firsts.len());
                let first = place == firsts.len();
                if first {
                    firsts.push(new.clone());
                }
                joins.push((place, first));
            }
            let awaited = hold_awaited(&completions, &firsts);
            let outcomes = accept(&*ledger, &firsts).await;
            let mut enqueued_any = false;
            for ((first, outcome), awaited) in firsts.iter().zip(&outcomes).zip(&awaited) {
                // Stored and enqueued in one step: whoever joined may be promised it as well.
                if matches!(outcome, Ok(AcceptOutcome::Inserted { enqueued: true, .. })) {
                    confirmed.insert(&first.key, awaited.is_some());
                    enqueued_any = true;
                }
            }
            if enqueued_any {
                doorbell.ring(&queue);
            }
            let outcome = |(place, first): (usize, bool)| match (&outcomes[place], first) {
                (Ok(AcceptOutcome::Inserted { revision, enqueued: _ }), false) => {
                    let stored = as_stored(firsts[place].clone(), revision.clone());
                    Ok(AcceptOutcome::Existing(Box::new(stored)))
                }
                (outcome, _) => outcome.clone(),
            };
            joins.into_iter().map(outcome).collect()
        }
        .boxed()
    })
}

/// Accepts a group; one answer each. A fault that does not pass is of one of them, such as a damaged row
/// under its key: it is looked for by halves, so that the others do not share it. Those that were stored
/// on the way carry the nonce of this attempt, and are found as its own.
async fn accept(ledger: &dyn Ledger, group: &[NewTransaction]) -> Vec<Shared<AcceptOutcome>> {
    let mut answers = Vec::with_capacity(group.len());
    let mut parts = vec![group];
    while let Some(part) = parts.pop() {
        match ledger.accept(part).await {
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

/// For each transaction that somebody waits for, one more waiter while the group is stored: a store
/// that enqueues in the same step then finds it awaited and asks for a reply, whoever goes away.
fn hold_awaited(completions: &Completions, group: &[NewTransaction]) -> Vec<Option<Waiter>> {
    let hold = |new: &NewTransaction| {
        completions.reply_to([&new.key]).is_some().then(|| completions.register(&new.key))
    };
    group.iter().map(hold).collect()
}
