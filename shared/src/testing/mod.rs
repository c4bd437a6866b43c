//! Support for tests of adapters and of the protocol: the contract of the ports ([`conformance`]) and ports that wrap
//! others ([`decorators`]).

pub mod conformance;
pub mod decorators;
