//! Tests of the ledger: accept, commit, marks.

mod accept;
mod commit;
mod content;
mod forged;
mod insertions;
mod joint;
mod marks;
mod order;
mod races;

use super::case::Case;
use postonce_shared::ports::Store;

/// Tests an implementation of [`postonce_shared::ports::ledger::Ledger`].
pub async fn ledger_contract<F>(fresh: F)
where
    F: AsyncFn() -> Store,
{
    let case = async || Case::new(fresh().await);
    an_empty_ledger_can_be_read(&case().await).await;
    accept::contract(&case).await;
    content::contract(&case).await;
    commit::contract(&case).await;
    insertions::contract(&case).await;
    joint::contract(&case).await;
    marks::contract(&case).await;
    forged::contract(&case).await;
    order::contract(&case).await;
    races::contract(&case).await;
}

async fn an_empty_ledger_can_be_read(case: &Case) {
    case.store.ledger.probe().await.expect("the probe of an available ledger succeeds");
    let key = case.account_key();
    assert_eq!(case.store.ledger.account(key).await.unwrap(), None, "the account was not opened");
    let never_accepted = case.deposit(key, 1).key;
    let found = case.store.ledger.transaction(&never_accepted).await.unwrap();
    assert_eq!(found, None, "the transaction was not accepted");
}
