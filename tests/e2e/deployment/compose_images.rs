//! The services of the file for Compose as containers of the built images, as [`image`](super::image) starts one of each: the
//! first deposit of the README, the loss of one container of each kind, and the end of all.
//!
//! Azurite is a process of this machine, because its image is in a registry, and the containers are on the network of this
//! machine. No engine starts a killed container again: the test does.

use futures::future::join;
use postonce_tests::container::Container;
use postonce_tests::images::Images;
use postonce_tests::load::Load;
use postonce_tests::prelude::*;

use super::machine::{Machine, client_of};

#[tokio::test]
async fn the_containers_post_a_first_deposit_survive_a_loss_and_drain() {
    let _images = Images::shared();
    if !Container::can_start() {
        println!("the images are built and not started: this machine allows no namespaces");
        return;
    }
    let machine = Machine::prepare(51);
    let _azurite = machine.start_azurite();
    let (mut webs, mut workers) =
        (machine.start_containers(Binary::Web), machine.start_containers(Binary::Worker));
    for (_, container) in webs.iter_mut().chain(&mut workers) {
        container.until_healthy();
    }
    let address = |name: &str| client_of(&format!("http://{}:8080", machine.address(name)));
    let clients: Vec<_> = webs.iter().map(|(name, _)| address(name)).collect();
    let account = fresh_account();
    let first = clients.first().expect("a web process");
    first.open(account).await;
    drop(first.post(account, fresh_id(), &Submission::deposit("125.50")).await);
    assert_eq!(first.balance(account).await, "125.50");

    let load = Load::begin(clients).await;
    let steps = async {
        load.until_more_is_accepted().await;
        for (binary, containers) in [(Binary::Worker, &mut workers), (Binary::Web, &mut webs)] {
            let (name, container) = containers.last_mut().expect("two of each kind");
            container.drain().await;
            load.until_more_is_accepted().await;
            load.none_failed("while a container drains");
            *container = machine.start_container(binary, name);
            container.until_healthy();
        }
        for (binary, containers) in [(Binary::Worker, &mut workers), (Binary::Web, &mut webs)] {
            let (name, container) = containers.first_mut().expect("two of each kind");
            container.kill();
            load.until_more_is_accepted().await;
            *container = machine.start_container(binary, name);
            container.until_healthy();
            load.until_more_is_accepted().await;
        }
        load.end();
    };
    join(load.run(), steps).await;
    load.until_each_is_posted_once().await;
    for (_, container) in webs.iter_mut().chain(&mut workers) {
        container.drain().await;
    }
    machine.has_no_finding();
}
