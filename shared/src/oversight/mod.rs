//! Tools of operators: the audit of a whole ledger ([`verify`]), the number of workers that the backlog needs
//! ([`scaling`]), the cost of storage operations ([`prices`]) and the trail of administrative actions ([`audit`]).

pub mod audit;
pub mod prices;
pub mod scaling;
pub mod verify;
