//! The arms: the bank on each store, and what a user would pick instead.

mod classic;
mod postgres;
mod postonce;

use std::any::Any;

use postonce_tests::service::Service;

pub use classic::classic;
pub use postgres::postgres;
pub use postonce::{azure, azure_counted, embedded};

use crate::arm::{Arm, Counts};
use crate::load::Target;

/// The key of the peers. They listen on loopback, for minutes.
const KEY: &str = "key-of-a-peer";

/// A peer of these processes, the first of which serves the API, on a store of its own.
fn peer(services: Vec<(&'static str, Service)>, store: Box<dyn Any>) -> Arm {
    let (_, first) = services.first().expect("a peer has a process");
    let target = Target::of(first.address(), KEY);
    let counts = services.iter().map(|(_, it)| Counts::Peer(it.address().to_owned())).collect();
    let processes = services.iter().map(|(name, it)| (*name, it.pid())).collect();
    Arm { target, counts, processes, holds: vec![Box::new(services), store] }
}
