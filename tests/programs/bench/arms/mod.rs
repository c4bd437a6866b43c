//! The arms: the bank on each store, and the alternatives that it is compared with.

mod classic;
mod postgres;
mod postonce;

use std::any::Any;

use postonce_tests::service::Service;

pub use classic::classic;
pub use postgres::{postgres, postgres_with};
pub use postonce::{azure, azure_counted, azure_workers, cold_azure, embedded, embedded_on, embedded_with};

use crate::bench::prelude::*;

/// The API key of the peers, which listen on loopback for some minutes.
const KEY: &str = "key-of-a-peer";

/// A peer with these processes, the first of which serves the API, on its own store.
fn peer(way: Way, services: Vec<(&'static str, Service)>, store: Box<dyn Any>) -> Arm {
    let (_, first) = services.first().expect("a peer has a process");
    let target = Target::of([first.address()], KEY);
    let counts = services.iter().map(|(_, it)| Source::Peer(it.address().to_owned())).collect();
    let processes = services.iter().map(|(name, it)| (*name, it.pid())).collect();
    Arm { target, way, counts, processes, files: None, holds: vec![Box::new(services), store] }
}
