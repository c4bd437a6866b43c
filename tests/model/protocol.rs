//! The protocol of accepting and posting: every rule broken once, and what the checker is told of it.

use postonce_tests::model::explore::{counterexample, exhaust};
use postonce_tests::model::protocol::rules::{Mutation, Rules};
use postonce_tests::model::protocol::{Budget, Protocol};
use stateright::{Checker as _, Model as _};

const NOTHING: Budget = Budget { submits: [1, 1, 0], losses: 0, crashes: 0, expiries: 0, repairs: 0 };

/// With that rule broken, the property falls that the rule is there for.
#[track_caller]
fn falls(mutation: Mutation, budget: Budget) {
    let property = mutation.breaks().expect("a rule whose breach does harm");
    let rules = Rules::TWO_SERVICES.with(mutation);
    let Some((steps, story)) = counterexample(Protocol { rules, budget }, property) else {
        panic!("{mutation:?} is not noticed: \"{property}\" still holds under {budget:?}");
    };
    println!("{mutation:?} is noticed after {steps} steps. {story}");
}

#[test]
fn deleting_before_the_commit_is_noticed() {
    falls(Mutation::DeleteBeforeCommit, NOTHING);
}

#[test]
fn an_unclear_commit_that_counts_as_written_is_noticed() {
    falls(Mutation::UnclearIsDone, Budget { losses: 1, ..NOTHING });
}

#[test]
fn an_unclear_commit_that_counts_as_failed_and_is_posted_again_is_noticed() {
    falls(Mutation::UnclearIsFailed, Budget { losses: 1, ..NOTHING });
}

#[test]
fn deleting_a_message_with_unfinished_work_is_noticed() {
    falls(Mutation::DeleteWithRest, Budget { submits: [2, 1, 0], losses: 1, ..NOTHING });
}

#[test]
fn a_promise_before_the_send_is_noticed() {
    falls(Mutation::PromiseBeforeSend, NOTHING);
}

#[test]
fn a_promise_of_work_that_others_may_have_sent_is_noticed() {
    falls(Mutation::PromiseOldRows, Budget { submits: [2, 0, 0], ..NOTHING });
}

#[test]
fn content_that_is_not_compared_is_noticed() {
    falls(Mutation::SkipFingerprint, Budget { submits: [1, 0, 1], ..NOTHING });
}

#[test]
fn an_insert_that_replaces_is_noticed() {
    falls(Mutation::InsertReplaces, Budget { submits: [2, 0, 0], ..NOTHING });
}

#[test]
fn a_commit_without_the_version_of_the_account_is_noticed() {
    falls(Mutation::NoAccountGuard, NOTHING);
}

#[test]
fn a_commit_without_the_revisions_of_its_transactions_is_noticed() {
    falls(Mutation::NoRowGuard, Budget { submits: [2, 0, 0], ..NOTHING });
}

#[test]
fn a_rejection_without_the_version_of_the_account_is_noticed() {
    falls(Mutation::NoGuardForRejections, NOTHING);
}

#[test]
fn a_commit_that_is_recognized_without_its_nonce_is_noticed() {
    falls(Mutation::RecognizeByStatus, Budget { losses: 1, expiries: 1, ..NOTHING });
}

#[test]
fn a_cache_that_is_kept_after_a_stale_commit_is_noticed() {
    falls(Mutation::KeepOldCache, NOTHING);
}

/// What DESIGN.md says of leases and receipts: nothing depends on them.
#[test]
fn whoever_deletes_finished_work_without_a_receipt_does_no_harm() {
    assert_eq!(Mutation::IgnoreReceipts.breaks(), None);
    let rules = Rules::TWO_SERVICES.with(Mutation::IgnoreReceipts);
    let budget = Budget { losses: 1, expiries: 1, ..NOTHING };
    let figures =
        exhaust(Protocol { rules, budget }, 1, |_| {}).unwrap_or_else(|findings| panic!("{findings}"));
    println!("Receipts ignored: {figures}");
}

/// Elsewhere the checker takes states for one that differ only in the names of processes. Here it does
/// not: the same promises hold, and there are as many more states as two pairs can be renamed at most.
#[test]
fn processes_are_interchangeable() {
    let protocol =
        Protocol { rules: Rules::TWO_SERVICES, budget: Budget { losses: 1, expiries: 1, ..NOTHING } };
    let reduced = exhaust(protocol, 1, |_| {}).unwrap_or_else(|findings| panic!("{findings}")).unique;
    let whole = protocol.checker().spawn_bfs().join();
    whole.assert_properties();
    let whole = whole.unique_state_count();
    println!("{whole} states are {reduced} when processes have no names");
    assert!((reduced * 3..=reduced * 4).contains(&whole), "{whole} states cannot be {reduced}");
}
