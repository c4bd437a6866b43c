//! Small models of the protocol and of the allocator of order numbers. A checker visits **every** reachable
//! state of a model, so that its properties are proved within the bounds.
//!
//! | model | mirrors | faults |
//! |---|---|---|
//! | [`protocol`] | accept, post and settle above the contracts of ledger and queue | crashes, lost requests and answers, late requests, leases that end too early, repair |
//! | [`ranges`] | the allocator of order numbers above the contract of the sync store | crashes, lost requests and answers, late writes, processes that stop and return numbers |
//!
//! A model can be wrong in the same way as the code. Each model therefore has rules that can be broken one
//! by one (`Mutation`), and each broken rule must violate the property that it protects.

pub mod bounds;
pub mod explore;
pub mod protocol;
pub mod ranges;
mod request_outcome;
