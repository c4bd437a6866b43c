//! The allocator of order numbers: every rule broken once.

use postonce_tests::model::explore::counterexample;
use postonce_tests::model::ranges::rules::{Mutation, Rules};
use postonce_tests::model::ranges::{Budget, Ranges};

const NOTHING: Budget = Budget { numbers: 4, losses: 0, crashes: 0, closings: 0 };

/// With that rule broken, the property falls that the rule is there for.
#[track_caller]
fn falls(mutation: Mutation, budget: Budget) {
    let property = mutation.breaks();
    let Some((steps, story)) = counterexample(Ranges { rules: Rules::with(mutation), budget }, property)
    else {
        panic!("{mutation:?} is not noticed: \"{property}\" still holds under {budget:?}");
    };
    println!("{mutation:?} is noticed after {steps} steps. {story}");
}

#[test]
fn publishing_before_the_confirmation_is_noticed() {
    falls(Mutation::PublishBeforeConfirmation, NOTHING);
}

#[test]
fn an_unclear_write_that_counts_as_done_is_noticed() {
    falls(Mutation::UnclearIsDone, Budget { losses: 1, ..NOTHING });
}

#[test]
fn comparing_with_the_newest_revision_is_noticed() {
    falls(Mutation::CompareWithNewest, NOTHING);
}

#[test]
fn fetching_without_end_is_noticed() {
    falls(Mutation::FetchWithoutEnd, Budget { numbers: 6, crashes: 1, ..NOTHING });
}

#[test]
fn giving_back_a_range_that_is_still_open_is_noticed() {
    falls(Mutation::GiveBackOpenRange, Budget { closings: 1, ..NOTHING });
}

#[test]
fn giving_back_what_was_issued_is_noticed() {
    falls(Mutation::GiveBackWholeRange, Budget { closings: 1, ..NOTHING });
}

#[test]
fn giving_back_what_is_not_the_last_is_noticed() {
    falls(Mutation::GiveBackFromTheMiddle, Budget { closings: 1, ..NOTHING });
}

#[test]
fn giving_back_twice_is_noticed() {
    falls(Mutation::GiveBackAgain, Budget { losses: 1, closings: 1, ..NOTHING });
}

#[test]
fn a_burnt_number_that_is_handed_out_again_is_noticed() {
    falls(Mutation::ReuseBurntNumber, NOTHING);
}
