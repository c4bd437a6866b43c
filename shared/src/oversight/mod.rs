//! Tools of operators: the audit of a whole ledger ([`verify`]), the same as a walk that never ends ([`scrubber`]), the
//! number of workers that the backlog needs ([`scaling`]), the cost of storage operations ([`prices`]), the trail of
//! administrative actions ([`audit`]), signed statements about all journals ([`anchors`]), copies of a whole store ([`copy`]),
//! and the repair of a store that went back in time ([`failover`]).

pub mod anchors;
pub mod audit;
pub mod copy;
pub mod failover;
pub mod prices;
pub mod scaling;
pub mod scrubber;
pub mod verify;
