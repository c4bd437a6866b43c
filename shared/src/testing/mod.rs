//! Support for tests of adapters and of the protocol: the contract of the ports ([`conformance`]), ports that wrap
//! others ([`decorators`]), and entries of processes ([`registered`]).

pub mod conformance;
pub mod decorators;
pub mod registered;
