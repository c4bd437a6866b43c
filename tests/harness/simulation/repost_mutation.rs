//! The mistake of treating a commit without a clear answer as failed: it is decided again on the current
//! account, and written once more.

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
    for finalization in &commit.finalizations {
        if let Some(row) = connection.transaction(&finalization.key).await? {
            let transaction = row.transaction;
            work.push(Work { submission: Submission { key: transaction.key, instruction: transaction.instruction, accepted_at: transaction.accepted_at, origin: Origin::default(), batch_line: None }, row: row.revision, delivered: None });
        }
    }
    let mut numbers: Vec<_> = page.entries.iter().map(|entry| entry.order_number).collect();
    while let Some(last) = numbers.last().copied().filter(|_| numbers.len() < work.len()) {
        numbers.push(last);
    }
    let nonce = Nonce::from_uuid(Uuid::from_u128(u128::from(connection.network.scheduler.random())));
    let posted_at = page.entries.first().map_or(commit.after.opened_at, |entry| entry.posted_at);
    let means = DecisionContext { nonce, now: posted_at, numbers: &numbers };
    let again = decide(&account, &work, &means).map_err(|_| unavailable("it cannot be decided"))?;
    connection
        .request(StoreRequest::write("commit", "again"), move |network| {
            let committed = now(network.unguarded.ledger.commit(&again));
            network.auditor.committed(&network.raw, &again, &committed);
            committed
        })
        .await
}
