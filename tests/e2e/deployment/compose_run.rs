//! The services of the file for Compose as processes of this machine: a first deposit, and what Prometheus sees of it.
//!
//! Prometheus is the version of Debian, which is older than the one that the file names.

use std::collections::BTreeSet;

use postonce_tests::deployment::{self, items, text};
use postonce_tests::prelude::*;
use serde_json::Value;

use super::machine::{Machine, client_of};

#[tokio::test]
async fn the_services_post_a_first_deposit_and_are_healthy() {
    let machine = Machine::prepare(1);
    let _azurite = machine.start_azurite();
    let (webs, workers) = (machine.start(Binary::Web), machine.start(Binary::Worker));
    for (worker, settings) in &workers {
        ProcessProbe::of(worker.address()).until_ready().await;
        machine.run(Binary::Worker, settings, &["health"]);
    }
    let clients: Vec<Client> = webs.iter().map(|(web, _)| client_of(web.address())).collect();
    for (client, (_, settings)) in clients.iter().zip(&webs) {
        client.until_ready().await;
        machine.run(Binary::Web, settings, &["health"]);
    }

    // One deposit is posted by the process that receives it, one by a worker.
    let [first, second] = clients.as_slice() else { panic!("there are two web processes") };
    let account = fresh_account();
    first.open(account).await;
    drop(first.post(account, fresh_id(), &Submission::deposit("125.50")).await);
    let id = fresh_id();
    drop(second.submit_until_accepted(account, id, &Submission::deposit("1.00")).await);
    let answer = second.until_final(account, id).await;
    assert_eq!(answer.transaction_status(), "posted", "{answer:?}");
    assert_eq!(first.balance(account).await, "126.50");

    // The console is where operators are, at the port that the file publishes for them.
    let browser = reqwest::Client::builder().no_proxy().build().expect("a client");
    for (web, _) in &webs {
        let operators = web.operators_address().expect("it has an address for operators");
        assert!(operators.ends_with(":8081"), "{operators}");
        let page = browser.get(format!("{operators}/console/sign-in")).send().await.expect("an answer");
        let page = page.text().await.expect("a page");
        assert!(page.contains("API key"), "{page}");
    }

    let (_, settings) = webs.first().expect("web");
    let add = ["partners", "add", "prometheus", "--all-accounts", "--scope", "metrics"];
    let printed = machine.run(Binary::Web, settings, &add);
    let key = printed.iter().find(|line| line.starts_with("po_")).expect("the key");
    let (_prometheus, address) = machine.start_prometheus(key);
    reads_all_processes(&machine, &address).await;
}

/// Checks that Prometheus reads all four processes, evaluates all rules, and knows both deposits.
async fn reads_all_processes(machine: &Machine, prometheus: &str) {
    let names = ["web-1", "web-2", "worker-1", "worker-2"];
    let ports = [8081, 8081, 8082, 8082];
    let instance = |(name, port)| format!("{}:{port}", machine.address(name));
    let expected: BTreeSet<String> = names.into_iter().zip(ports).map(instance).collect();
    until_answered(&format!("{prometheus}/api/v1/targets"), "all targets are up", |answer| {
        let targets = items(&answer["data"]["activeTargets"]).iter();
        let up = targets.filter(|target| target["health"] == "up");
        up.map(|target| text(target, "/labels/instance").to_owned()).collect::<BTreeSet<_>>() == expected
    })
    .await;

    let rules = deployment::documents(&deployment::read("deploy/prometheus/rules.yaml"));
    let names_in = |groups: &Value, name: &str| {
        let rules = items(groups).iter().flat_map(|group| items(&group["rules"]));
        rules.map(|rule| text(rule, name).to_owned()).collect::<Vec<_>>()
    };
    let expected = names_in(&rules.first().expect("a document")["groups"], "/alert");
    assert!(!expected.is_empty());
    until_answered(&format!("{prometheus}/api/v1/rules"), "all rules are evaluated", |answer| {
        let groups = &answer["data"]["groups"];
        let mut rules = items(groups).iter().flat_map(|group| items(&group["rules"]));
        names_in(groups, "/name") == expected && rules.all(|rule| rule["health"] == "ok")
    })
    .await;

    // A process counts what it decides, so the sum is that of both deposits.
    let query = "query?query=sum(postonce_accepted_to_posted_seconds_count)";
    until_answered(&format!("{prometheus}/api/v1/{query}"), "both deposits are counted", |answer| {
        answer["data"]["result"][0]["value"][1] == "2"
    })
    .await;
}

/// Waits until an answer of Prometheus is as expected.
async fn until_answered(url: &str, what: &str, is_expected: impl Fn(&Value) -> bool) {
    let client = reqwest::Client::builder().no_proxy().build().expect("a client");
    wait::until(what, wait::TIMEOUT, async || {
        let answer = client.get(url).send().await.map_err(|error| error.to_string())?;
        let answer: Value = answer.json().await.map_err(|error| error.to_string())?;
        if is_expected(&answer) { Ok(()) } else { Err(format!("{answer:#}")) }
    })
    .await;
}
