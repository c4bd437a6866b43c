//! Every rule of the protocol broken once, and whether the checker detects it.

use postonce_tests::model::explore::{counterexample, exhaust};
use postonce_tests::model::protocol::rules::{Mutation, Rules};
use postonce_tests::model::protocol::{Budget, Protocol};
use stateright::{Checker as _, Model as _};

const NO_FAULTS: Budget = Budget {
    submits: [1, 1, 0],
    losses: 0,
    crashes: 0,
    expiries: 0,
    repairs: 0,
    waits: 0,
    holds: 0,
    funds: 0,
};
/// Clients wait for the outcomes.
const WAITING: Budget = Budget { waits: 2, ..NO_FAULTS };

/// Checks that breaking this rule violates the property that the rule protects.
#[track_caller]
fn is_detected(mutation: Mutation, budget: Budget) {
    is_detected_under(Rules::TWO_SERVICES.with(mutation), mutation, budget);
}

#[track_caller]
fn is_detected_under(rules: Rules, mutation: Mutation, budget: Budget) {
    let property = mutation.breaks().expect("a rule whose violation does harm");
    let Some((steps, text)) = counterexample(Protocol { rules, budget }, property) else {
        panic!("{mutation:?} is not detected: \"{property}\" still holds under {budget:?}");
    };
    println!("{mutation:?} is detected after {steps} steps. {text}");
}

#[test]
fn deleting_before_the_commit_is_detected() {
    is_detected(Mutation::DeleteBeforeCommit, NO_FAULTS);
}

#[test]
fn an_unclear_commit_that_counts_as_written_is_detected() {
    is_detected(Mutation::UnclearIsDone, Budget { losses: 1, ..NO_FAULTS });
}

#[test]
fn an_unclear_commit_that_counts_as_failed_and_is_posted_again_is_detected() {
    is_detected(Mutation::UnclearIsFailed, Budget { losses: 1, ..NO_FAULTS });
}

#[test]
fn deleting_a_message_with_unfinished_work_is_detected() {
    is_detected(Mutation::DeleteWithRest, Budget { submits: [2, 1, 0], losses: 1, ..NO_FAULTS });
}

#[test]
fn an_acknowledgement_before_the_send_is_detected() {
    is_detected(Mutation::AcknowledgeBeforeSend, NO_FAULTS);
}

#[test]
fn an_acknowledgement_without_a_confirmed_send_is_detected() {
    is_detected(Mutation::AcknowledgeOldRows, Budget { submits: [2, 0, 0], ..NO_FAULTS });
}

#[test]
fn content_that_is_not_compared_is_detected() {
    is_detected(Mutation::SkipFingerprint, Budget { submits: [1, 0, 1], ..NO_FAULTS });
}

#[test]
fn an_insert_that_replaces_is_detected() {
    is_detected(Mutation::InsertReplaces, Budget { submits: [2, 0, 0], ..NO_FAULTS });
}

#[test]
fn a_commit_without_the_version_of_the_account_is_detected() {
    is_detected(Mutation::NoAccountGuard, NO_FAULTS);
}

#[test]
fn a_commit_without_the_revisions_of_its_transactions_is_detected() {
    is_detected(Mutation::NoRowGuard, Budget { submits: [2, 0, 0], ..NO_FAULTS });
}

#[test]
fn a_rejection_without_the_version_of_the_account_is_detected() {
    is_detected(Mutation::NoGuardForRejections, NO_FAULTS);
}

#[test]
fn a_commit_that_is_recognized_without_its_nonce_is_detected() {
    is_detected(Mutation::RecognizeByStatus, Budget { losses: 1, expiries: 1, ..NO_FAULTS });
}

#[test]
fn a_cache_that_is_kept_after_a_stale_commit_is_detected() {
    is_detected(Mutation::KeepOldCache, NO_FAULTS);
}

#[test]
fn an_insertion_over_an_existing_row_is_detected() {
    is_detected(Mutation::NoKeyGuard, Budget { submits: [2, 0, 0], ..WAITING });
}

#[test]
fn an_insertion_without_the_version_of_the_account_is_detected() {
    is_detected(Mutation::NoAccountGuardForInsertions, Budget { funds: 1, ..WAITING });
}

#[test]
fn a_rejection_at_once_by_an_old_account_is_detected() {
    let mutation = Mutation::OldCacheRejects;
    is_detected_under(Rules::ONE_DATABASE.with(mutation), mutation, WAITING);
}

#[test]
fn a_rejection_at_once_before_accepted_work_is_detected() {
    is_detected(Mutation::RejectAtOnce, WAITING);
}

#[test]
fn open_work_that_is_forgotten_is_detected() {
    is_detected(Mutation::ForgetOpenWork, WAITING);
}

#[test]
fn a_commit_at_once_before_accepted_work_is_detected() {
    let mutation = Mutation::NoOrderCheck;
    is_detected_under(Rules::ONE_DATABASE.with(mutation), mutation, WAITING);
}

#[test]
fn posting_at_once_at_a_held_gate_is_detected() {
    is_detected(Mutation::IgnoreGate, Budget { holds: 1, ..WAITING });
}

#[test]
fn acknowledging_a_held_gate_during_a_commit_is_detected() {
    is_detected(Mutation::NoPermit, Budget { holds: 1, ..WAITING });
}

#[test]
fn an_answer_before_the_commit_is_detected() {
    is_detected(Mutation::AnswerBeforeCommit, WAITING);
}

#[test]
fn a_taken_key_that_counts_as_posted_is_detected() {
    is_detected(Mutation::TakenIsDone, Budget { submits: [2, 0, 0], ..WAITING });
}

#[test]
fn a_fallback_with_the_nonce_of_the_commit_is_detected() {
    is_detected(Mutation::FallbackSharesNonce, Budget { losses: 1, ..WAITING });
}

/// By design nothing depends on receipts.
#[test]
fn deleting_finished_work_without_a_receipt_does_no_harm() {
    assert_eq!(Mutation::IgnoreReceipts.breaks(), None);
    let rules = Rules::TWO_SERVICES.with(Mutation::IgnoreReceipts);
    let budget = Budget { losses: 1, expiries: 1, ..NO_FAULTS };
    let figures =
        exhaust(Protocol { rules, budget }, 1, |_| {}).unwrap_or_else(|findings| panic!("{findings}"));
    println!("Receipts ignored: {figures}");
}

/// Other tests treat states that differ only in the names of processes as one state. Without that reduction
/// the same properties hold, and there are at most four times as many states: two pairs can be renamed.
#[test]
fn processes_are_interchangeable() {
    let protocol =
        Protocol { rules: Rules::TWO_SERVICES, budget: Budget { losses: 1, expiries: 1, ..NO_FAULTS } };
    let reduced = exhaust(protocol, 1, |_| {}).unwrap_or_else(|findings| panic!("{findings}")).unique;
    let whole = protocol.checker().spawn_bfs().join();
    whole.assert_properties();
    let whole = whole.unique_state_count();
    println!("{whole} states, {reduced} without the names of processes");
    assert!((reduced * 3..=reduced * 4).contains(&whole), "{whole} states cannot be reduced to {reduced}");
}
