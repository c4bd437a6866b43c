//! Tools for operators: the audit of a whole ledger ([`verify`]), the same audit as an endless background walk
//! ([`scrubber`]), the number of workers needed ([`scaling`]), the cost of storage operations ([`prices`], and before the
//! service runs [`estimate`]), the trail of administrative actions ([`audit`]), signed statements about all journals ([`anchors`]), copies of a whole store
//! ([`copy`]), and the repair of a store that lost its latest writes ([`failover`]).

pub mod anchors;
pub mod audit;
pub mod copy;
pub mod estimate;
pub mod failover;
pub mod prices;
pub mod scaling;
pub mod scrubber;
pub mod verify;
