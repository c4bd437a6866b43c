//! Small models of protocols that consist of single writes. Every interleaving within the bounds is visited, which a
//! simulation of the real code cannot do.
//!
//! | model | protocol | faults |
//! |---|---|---|
//! | [`late_writes`] on [`ledger`] | accept, commit and repair, each at most once | crashes, lost requests and answers, writes that are carried out after their sender gave up, redelivery |
//! | [`order_numbers`] | ranges of order numbers: reserve, issue, return | the same |
//! | [`gate`] | hold, registration, acknowledgment, permits | an entry that ends, requests and reads of any duration, drains |
//!
//! A model can be wrong in the same way as the code. Therefore each model has mutations: each omits one rule of the real
//! code, and must violate the property that the rule protects.

pub mod explore;
mod gate;
mod late_writes;
mod ledger;
mod order_numbers;

use self::explore::{Bounds, Run};

/// Returns an exploration of every protocol with all its rules.
pub fn runs(bounds: Bounds) -> Vec<Run> {
    [late_writes::runs(bounds), order_numbers::runs(bounds), gate::runs(bounds)]
        .into_iter()
        .flatten()
        .collect()
}

/// Returns an exploration of every protocol for each rule that is omitted.
pub fn mutations() -> Vec<Run> {
    [late_writes::mutations(), order_numbers::mutations(), gate::mutations()].into_iter().flatten().collect()
}
