//! The ledger: accept, commit, marks.

mod accept;
mod commit;
mod content;
mod forged;
mod marks;
mod races;

use super::case::Case;
use crate::ports::Store;

/// Checks [`crate::ports::ledger::Ledger`].
pub async fn ledger_contract<F>(fresh: F)
where
    F: AsyncFn() -> Store,
{
    let case = async || Case::new(fresh().await);
    the_ledger_answers(&case().await).await;
    accept::contract(&case).await;
    content::contract(&case).await;
    commit::contract(&case).await;
    marks::contract(&case).await;
    forged::contract(&case).await;
    races::contract(&case).await;
}

async fn the_ledger_answers(case: &Case) {
    case.store.ledger.probe().await.expect("a ledger that can be reached answers a probe");
    let key = case.account_key();
    assert_eq!(case.store.ledger.account(key).await.unwrap(), None, "nobody opened this account");
    let never_accepted = case.deposit(key, 1).key;
    let found = case.store.ledger.transaction(&never_accepted).await.unwrap();
    assert_eq!(found, None, "nobody accepted this transaction");
}
