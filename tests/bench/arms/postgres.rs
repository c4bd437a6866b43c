//! A service on PostgreSQL.

use std::path::Path;

use postonce_tests::binaries::Binary;
use postonce_tests::postgres::Postgres;
use postonce_tests::service::{Service, Settings};

use super::{KEY, peer};
use crate::arm::Arm;
use crate::load::Way;

/// One process on its own cluster, with additional arguments. Every request waits for its posting.
pub fn postgres(directory: &Path, more: &[&str]) -> Arm {
    let cluster = Postgres::start(directory);
    let url = cluster.url();
    let arguments = [&["--database", &url, "--key", KEY], more].concat();
    let service = Service::start(Binary::PeerPostgres, &Settings::default(), &arguments, directory);
    let server = ("postgres", cluster.pid());
    let mut arm = peer(Way::Waiting, vec![("web", service)], Box::new(cluster));
    arm.processes.push(server);
    arm
}
