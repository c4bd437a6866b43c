//! Every rule of the allocator of order numbers broken once.

use postonce_tests::model::explore::counterexample;
use postonce_tests::model::ranges::rules::{Mutation, Rules};
use postonce_tests::model::ranges::{Budget, Ranges};

const NO_FAULTS: Budget = Budget { numbers: 4, losses: 0, crashes: 0, closings: 0 };

/// Checks that breaking this rule violates the property that the rule protects.
#[track_caller]
fn is_detected(mutation: Mutation, budget: Budget) {
    let property = mutation.breaks();
    let Some((steps, text)) = counterexample(Ranges { rules: Rules::with(mutation), budget }, property)
    else {
        panic!("{mutation:?} is not detected: \"{property}\" still holds under {budget:?}");
    };
    println!("{mutation:?} is detected after {steps} steps. {text}");
}

#[test]
fn publishing_before_the_confirmation_is_detected() {
    is_detected(Mutation::PublishBeforeConfirmation, NO_FAULTS);
}

#[test]
fn an_unclear_write_that_counts_as_done_is_detected() {
    is_detected(Mutation::UnclearIsDone, Budget { losses: 1, ..NO_FAULTS });
}

#[test]
fn comparing_with_the_newest_revision_is_detected() {
    is_detected(Mutation::CompareWithNewest, NO_FAULTS);
}

#[test]
fn fetching_without_end_is_detected() {
    is_detected(Mutation::FetchWithoutEnd, Budget { numbers: 6, crashes: 1, ..NO_FAULTS });
}

#[test]
fn returning_a_range_that_is_still_open_is_detected() {
    is_detected(Mutation::ReturnOpenRange, Budget { closings: 1, ..NO_FAULTS });
}

#[test]
fn returning_issued_numbers_is_detected() {
    is_detected(Mutation::ReturnWholeRange, Budget { closings: 1, ..NO_FAULTS });
}

#[test]
fn returning_a_range_that_is_not_the_last_is_detected() {
    is_detected(Mutation::ReturnFromTheMiddle, Budget { closings: 1, ..NO_FAULTS });
}

#[test]
fn returning_numbers_twice_is_detected() {
    is_detected(Mutation::ReturnAgain, Budget { losses: 1, closings: 1, ..NO_FAULTS });
}

#[test]
fn a_used_number_that_is_issued_again_is_detected() {
    is_detected(Mutation::ReuseUsedNumber, NO_FAULTS);
}
