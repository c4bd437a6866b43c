//! Commits of requests that are posted immediately, and their mutations.

use std::sync::Arc;

use futures::FutureExt as _;
use postonce_shared::testing::prelude::*;

use super::mutations::Mutation;
use super::network::{Network, StoreRequest, now};
use super::ports::{StoreConnection, short};

/// Sends a commit that inserts its transactions.
///
/// # Errors
/// Same as [`Network::request`].
pub async fn post_at_once(
    connection: &StoreConnection,
    commit: &AccountCommit,
) -> Result<Committed, StoreFault> {
    let StoreConnection { network, process_id, .. } = connection;
    let after_accepted = commit.after_accepted && !connection.makes(Mutation::OrderNotRequired);
    let sent = AccountCommit { after_accepted, ..commit.clone() };
    let (auditor, time) = (&network.auditor, network.scheduler.now());
    let in_progress = Arc::new(auditor.posts_at_once(&network.raw, *process_id, &sent, time));
    // If the strong reference is gone, the sender has received an error, or its process has ended.
    let sender = Arc::downgrade(&in_progress);
    let names: Vec<String> = sent.inserted().iter().map(|new| short(&new.pending.submission.key)).collect();
    let request = StoreRequest::write("commit-new", names.join(" "));
    let mutation = network.mutation;
    let write = move |network: &Network| {
        let answer = write(network, &sent, mutation);
        let is_written = matches!(answer, Ok(Committed::Done { revision: Some(_) }));
        if is_written && sender.strong_count() == 0 {
            network.count_immediate(|counts| counts.add_late());
        }
        answer
    };
    if connection.makes(Mutation::AnswerBeforeCommit) {
        let (process_id, network) = (*process_id, Arc::clone(network));
        let scheduler = network.scheduler.clone();
        let written = async move { drop(network.request(process_id, request, write).await) };
        scheduler.spawn(process_id, written.boxed());
        return Ok(Committed::Done { revision: None });
    }
    let answer = connection.request(request, write).await;
    drop(in_progress);
    network.count_immediate(|counts| counts.add_answer(commit, &answer));
    match answer {
        Ok(Committed::Taken(_)) if connection.makes(Mutation::TakenCountsAsPosted) => {
            Ok(Committed::Done { revision: None })
        }
        // Omits the new revision, so that the process does not cache its old balance under it.
        Ok(Committed::Done { .. })
            if connection.makes(Mutation::RejectionFromOldCache) && posts_nothing(commit) =>
        {
            Ok(Committed::Done { revision: None })
        }
        answer => answer,
    }
}

/// Executes the commit at the store.
fn write(
    network: &Network,
    sent: &AccountCommit,
    mutation: Option<Mutation>,
) -> Result<Committed, StoreFault> {
    let current = now(network.raw.ledger.account(sent.account())).ok().flatten();
    let written = match current.filter(|_| mutation == Some(Mutation::RejectionFromOldCache)) {
        Some(current) if posts_nothing(sent) => {
            let version = current.value.version.saturating_add(1);
            let mut after = Account { version, ..current.value };
            let place = (after.head, sent.page.nonce);
            let page = JournalPage::seal(&after, Vec::new(), sent.page.decided.clone(), place);
            after.head = page.hash;
            AccountCommit { guard: current.revision, after, page, ..sent.clone() }
        }
        _ => sent.clone(),
    };
    let is_guarded = mutation != Some(Mutation::KeyNotGuarded);
    let store = if is_guarded { &network.raw } else { &network.unguarded };
    let answer = now(store.ledger.commit(&written));
    network.auditor.committed(&network.raw, &written, &answer);
    answer
}

/// Returns whether a commit only rejects transactions.
const fn posts_nothing(commit: &AccountCommit) -> bool {
    commit.page.entries.is_empty()
}
