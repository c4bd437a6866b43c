//! The classic design on Azurite.

use std::path::Path;

use postonce_tests::prelude::*;

use super::{KEY, peer};
use crate::bench::prelude::*;

/// Prefix of its tables and of its queue.
const PREFIX: &str = "classic";

/// A web and a worker process on their own Azurite.
pub fn classic(directory: &Path) -> Arm {
    let azurite = Azurite::private_in_memory();
    let proxies = StorageProxies::before(azurite.ports(), Likeness::chosen());
    let storage = proxies.ports().connection_string();
    let store = ["--storage", &storage, "--prefix", PREFIX];
    let start =
        |arguments: &[&str]| Service::start(Binary::PeerClassic, &Settings::default(), arguments, directory);
    let web = start(&[&["web"], &store[..], &["--key", KEY]].concat());
    let worker = start(&[&["worker"], &store[..]].concat());
    peer(Way::Queued, vec![("web", web), ("worker", worker)], Box::new((proxies, azurite)))
}
