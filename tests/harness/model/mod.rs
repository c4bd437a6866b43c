//! What is proved instead of tried: small models of the protocol and of the order numbers, of which
//! a checker visits **every** reachable state.
//!
//! | model | mirrors | its faults |
//! |---|---|---|
//! | [`protocol`] | accept, post and settle above the contracts of ledger and queue | crashes, lost requests and answers, late requests, leases that end too early, repair |
//! | [`ranges`] | the allocator of order numbers above the contract of the sync store | crashes, lost requests and answers, late writes, processes that end and give back |
//!
//! A model can be wrong in the same way as the code, so each has rules that can be broken one by one
//! (`Mutation`): every one of them must make the property fall that it is about.

pub mod bounds;
pub mod explore;
mod fate;
pub mod protocol;
pub mod ranges;
