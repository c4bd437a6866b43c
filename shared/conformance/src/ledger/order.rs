//! Tests of [`writes_in_order`](postonce_shared::ports::ledger::Ledger::writes_in_order), for the ledgers that promise it.

use std::task::{Context, Waker};

use crate::case::Case;
use postonce_shared::testing::fresh_nonce;

/// Number of writes whose callers are cancelled.
const ROUNDS: usize = 40;

pub(super) async fn contract(case: &impl AsyncFn() -> Case) {
    let case = case().await;
    if case.store.ledger.writes_in_order() {
        a_write_whose_caller_is_cancelled_is_not_written_after_later_ones(&case).await;
    }
}

async fn a_write_whose_caller_is_cancelled_is_not_written_after_later_ones(case: &Case) {
    let ledger = &case.store.ledger;
    let other = case.opened().await.value.key;
    let mut seen = Vec::new();
    for round in 0..ROUNDS {
        let account = case.opened().await;
        let new = case.deposit(account.value.key, 5);
        let (key, group) = (new.key.clone(), [new]);
        let commit = case.decided_with_new(&account, &[], &group);
        // Cancelled after its first step, as when a client closes its connection.
        let mut context = Context::from_waker(Waker::noop());
        if round % 2 == 0 {
            drop(ledger.accept(&group, fresh_nonce()).as_mut().poll(&mut context));
        } else {
            drop(ledger.commit(&commit).as_mut().poll(&mut context));
        }
        case.accepted(&[case.deposit(other, 1)]).await;
        seen.push((key.clone(), ledger.transaction(&key).await.unwrap()));
    }
    for (key, after_a_later_write) in seen {
        let now = ledger.transaction(&key).await.unwrap();
        assert_eq!(
            now, after_a_later_write,
            "a later write was done, so this one is never written afterwards"
        );
    }
}
