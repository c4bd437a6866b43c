//! The mistake of treating a commit without a clear response as failed: it is decided again on the current account, and written
//! once more.

use postonce_shared::domain::decision::Pending;
use postonce_shared::testing::prelude::*;
use uuid::Uuid;

use super::network::{StoreRequest, now, unavailable};
use super::ports::StoreConnection;

/// Decides and writes a commit again.
///
/// # Errors
/// When the store is unavailable.
pub async fn post_again(
    connection: &StoreConnection,
    commit: &AccountCommit,
) -> Result<Committed, StoreFault> {
    let page = &commit.page;
    let Some(account) = connection.account(commit.account()).await? else {
        return Err(unavailable("the account is missing"));
    };
    let mut work = Vec::new();
    for finalization in commit.stored() {
        if let Some(row) = connection.transaction(&finalization.pending.submission.key).await? {
            // Included even if it is final.
            work.push(Pending::from(Work { submission: row.submission, row: row.revision, delivered: None }));
        }
    }
    let mut numbers: Vec<_> = page.entries.iter().map(|entry| entry.order_number).collect();
    while let Some(last) = numbers.last().copied().filter(|_| numbers.len() < work.len()) {
        numbers.push(last);
    }
    let nonce = Nonce::from_uuid(Uuid::from_u128(u128::from(connection.network.scheduler.random())));
    let posted_at = page.entries.first().map_or(commit.after.opened_at, |entry| entry.posted_at);
    let means = DecisionContext { nonce, now: posted_at, numbers: &numbers };
    if work.is_empty() || numbers.len() < work.len() {
        return Err(unavailable("it cannot be decided"));
    }
    let again = decide(&account, work, &means);
    connection
        .request(StoreRequest::write("commit", "again"), move |network| {
            let committed = now(network.unguarded.ledger.commit(&again));
            network.auditor.committed(&network.raw, &again, &committed);
            committed
        })
        .await
}
