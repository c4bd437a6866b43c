//! The procedures of the README for Compose while clients deposit: each process is replaced as by an upgrade, and one of each
//! kind is killed.
//!
//! The new processes are of the same version here; `tests/upgrade` does the same with two versions.

use futures::future::join;
use postonce_tests::load::Load;
use postonce_tests::prelude::*;

use super::machine::{Machine, client_of};

/// Starts a process again in the place of one that has ended.
async fn replace(machine: &Machine, binary: Binary, place: &mut (Service, Settings)) {
    let (service, settings) = place;
    *service = machine.start_one(binary, settings);
    ProcessProbe::of(service.address()).until_ready().await;
}

#[tokio::test]
async fn processes_are_replaced_without_a_failed_request_and_killed_without_a_loss() {
    let machine = Machine::prepare(101);
    let _azurite = machine.start_azurite();
    let (mut webs, mut workers) = (machine.start(Binary::Web), machine.start(Binary::Worker));
    let load = Load::begin(webs.iter().map(|(web, _)| client_of(web.address())).collect()).await;
    let steps = async {
        load.until_more_is_accepted().await;
        // Forward and back: workers come first in an upgrade, and last in a rollback.
        for is_back in [false, true] {
            let mut order = [(Binary::Worker, &mut workers), (Binary::Web, &mut webs)];
            if is_back {
                order.reverse();
            }
            for (binary, places) in order {
                for place in places.iter_mut() {
                    place.0.drain().await;
                    replace(&machine, binary, place).await;
                    load.until_more_is_accepted().await;
                }
            }
            load.none_failed(if is_back { "during the rollback" } else { "during the upgrade" });
        }

        for (binary, places) in [(Binary::Worker, &mut workers), (Binary::Web, &mut webs)] {
            let place = places.first_mut().expect("two of each kind");
            place.0.kill();
            load.until_more_is_accepted().await;
            replace(&machine, binary, place).await;
        }
        load.end();
    };
    join(load.run(), steps).await;

    load.until_each_is_posted_once().await;
    machine.has_no_finding();
}
