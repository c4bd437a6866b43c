//! The insert that is the idempotency check: a group of one account at once, each key once.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::FutureExt as _;

use super::sends::ConfirmedSends;
use super::{Shared, as_stored};
use crate::completions::{Completions, Waiter};
use crate::domain::ids::{AccountKey, TransactionKey};
use crate::group_commit::Flush;
use crate::ports::ledger::{AcceptOutcome, Ledger, NewTransaction};

/// Inserts a group. Within it each key stands once: whoever brought a key second joins the first,
/// and finds what the first one stored.
pub(super) fn insert_groups(
    ledger: Arc<dyn Ledger>,
    completions: Arc<Completions>,
    confirmed: Arc<ConfirmedSends>,
) -> Flush<AccountKey, NewTransaction, Shared<AcceptOutcome>> {
    Arc::new(move |_, group| {
        let (ledger, completions, confirmed) =
            (Arc::clone(&ledger), Arc::clone(&completions), Arc::clone(&confirmed));
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
            let outcomes = match ledger.accept(&firsts).await {
                Ok(outcomes) => outcomes,
                Err(fault) => {
                    let fault = Arc::new(fault);
                    return group.iter().map(|_| Err(Arc::clone(&fault))).collect();
                }
            };
            assert!(outcomes.len() == firsts.len(), "each transaction of a group has one outcome");
            for ((first, outcome), awaited) in firsts.iter().zip(&outcomes).zip(&awaited) {
                // Stored and enqueued in one step: whoever joined may be promised it as well.
                if matches!(outcome, AcceptOutcome::Inserted { enqueued: true, .. }) {
                    confirmed.insert(&first.key, awaited.is_some());
                }
            }
            let outcome = |(place, first): (usize, bool)| match (&outcomes[place], first) {
                (AcceptOutcome::Inserted { revision, enqueued: _ }, false) => {
                    let stored = as_stored(firsts[place].clone(), revision.clone());
                    AcceptOutcome::Existing(Box::new(stored))
                }
                (outcome, _) => outcome.clone(),
            };
            joins.into_iter().map(|join| Ok(outcome(join))).collect()
        }
        .boxed()
    })
}

/// For each transaction that somebody waits for, one more waiter while the group is stored: a store
/// that enqueues in the same step then finds it awaited and asks for a reply, whoever goes away.
fn hold_awaited(completions: &Completions, group: &[NewTransaction]) -> Vec<Option<Waiter>> {
    let hold = |new: &NewTransaction| {
        completions.reply_to([&new.key]).is_some().then(|| completions.register(&new.key))
    };
    group.iter().map(hold).collect()
}
