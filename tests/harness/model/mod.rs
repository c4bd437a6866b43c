//! Small models of protocols that exchange single writes. Every interleaving within the bounds is visited, which no simulation of the
//! real code can do.
//!
//! | model | protocol | faults |
//! |---|---|---|
//! | [`late_writes`] on [`ledger`] | accept, commit and repair, each at most once | crashes, lost requests and answers, writes that are carried out after their sender gave up, redelivery |
//! | [`order_numbers`] | ranges of order numbers: reserve, issue, return | the same |
//! | [`gate`] | hold, registration, acknowledgment, permits | an entry that ends, requests and reads of any duration, drains |
//!
//! A model can be wrong in the same way as the code. So each has mutations: each omits one rule of the real code, and must violate
//! the property that the rule protects.

pub mod explore;
mod gate;
mod late_writes;
mod ledger;
mod order_numbers;

use self::explore::{Bounds, Run};

/// Every protocol with all its rules.
pub fn runs(bounds: Bounds) -> Vec<Run> {
    [late_writes::runs(bounds), order_numbers::runs(bounds), gate::runs(bounds)]
        .into_iter()
        .flatten()
        .collect()
}

/// Every protocol without one of its rules, for each rule.
pub fn mutations() -> Vec<Run> {
    [late_writes::mutations(), order_numbers::mutations(), gate::mutations()].into_iter().flatten().collect()
}
