//! The mistake of taking a commit without a clear answer for one that failed: it is decided anew on
//! the account as it is now, and written once more.

use postonce_shared::domain::decision::{AccountCommit, Means, Work, decide};
use postonce_shared::domain::ids::Nonce;
use postonce_shared::ports::fault::StoreFault;
use postonce_shared::ports::ledger::{Committed, Ledger as _};
use uuid::Uuid;

use super::network::{Request, now, unavailable};
use super::ports::Link;

/// Posts the transactions of a commit again.
///
/// # Errors
/// When the store is not available for that.
pub async fn post_again(link: &Link, commit: &AccountCommit) -> Result<Committed, StoreFault> {
    let Some(page) = &commit.page else { return Err(unavailable("nothing was posted")) };
    let Some(account) = link.account(commit.account()).await? else {
        return Err(unavailable("the account is gone"));
    };
    let mut work = Vec::new();
    for finalization in &commit.finalizations {
        if let Some(row) = link.transaction(&finalization.key).await? {
            let transaction = row.transaction;
            work.push(Work {
                key: transaction.key,
                instruction: transaction.instruction,
                accepted_at: transaction.accepted_at,
                revision: row.revision,
            });
        }
    }
    let mut numbers: Vec<_> = page.entries.iter().map(|entry| entry.order_number).collect();
    while let Some(last) = numbers.last().copied().filter(|_| numbers.len() < work.len()) {
        numbers.push(last);
    }
    let nonce = Nonce::from_uuid(Uuid::from_u128(u128::from(link.network.scheduler.random())));
    let posted_at = page.entries.first().map_or(commit.after.opened_at, |entry| entry.posted_at);
    let means = Means { nonce, now: posted_at, numbers: &numbers };
    let again = decide(&account, &work, &means).map_err(|_| unavailable("it cannot be decided"))?;
    link.ask(Request::write("commit", "again"), move |network| {
        let committed = now(network.unguarded.ledger.commit(&again));
        network.auditor.committed(&network.raw, &again);
        committed
    })
    .await
}
