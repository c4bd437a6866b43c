//! The lines of the log that operators rely on: the start, outages, and an end without warnings.

use std::time::Duration;

use postonce_tests::prelude::*;
use serde_json::Value;

on_both_stores![the_log_begins_with_the_build_and_ends_without_warnings];

/// Longest time for the end of a process.
const STOP_TIME_MAX: Duration = Duration::from_secs(30);

#[tokio::test]
async fn programs_tell_their_build_to_a_shell_and_while_they_run() {
    let bank = Plan::on(StoreKind::Azurite).start().await;
    let http = reqwest::Client::builder().no_proxy().build().expect("a client");
    let (web, worker) = (&bank.webs[0], &bank.workers[0]);
    for (binary, service) in [(Binary::Web, web), (Binary::Worker, worker)] {
        let answer = http.get(format!("{}/livez", service.address())).send().await.expect("an answer");
        let answer: Value = answer.json().await.expect("JSON");
        assert_eq!(answer["version"], env!("CARGO_PKG_VERSION"), "{answer}");
        let commit = answer["commit"].as_str().expect("a text");
        let expected = format!("{} {} (commit {commit})", binary.name(), env!("CARGO_PKG_VERSION"));
        let launch =
            service::launch(binary, &Settings::default(), &["--version"], bank.directory().as_path());
        let (status, printed) = launch.run(wait::TIMEOUT);
        assert_eq!((status.code(), printed), (Some(0), vec![expected]));
    }
}

async fn the_log_begins_with_the_build_and_ends_without_warnings(store_kind: StoreKind) {
    let mut bank = Plan::on(store_kind).processes(1, 1).with("POSTONCE_DRAIN_DELAY_S", "1").start().await;
    bank.until_workers_ready().await;
    let (client, account) = (bank.client(0), fresh_account());
    client.open(account).await;
    drop(client.post(account, fresh_id(), &Submission::deposit("1.00")).await);
    let (version, store) = (
        env!("CARGO_PKG_VERSION"),
        match store_kind {
            StoreKind::Sqlite => "sqlite:",
            StoreKind::Azurite => "azure:",
        },
    );
    let secret = bank
        .settings
        .get("POSTONCE_STORAGE")
        .and_then(|it| it.split_once("AccountKey="))
        .map(|(_, key)| key.split(';').next().expect("a key").to_owned());
    let key = bank.key().to_owned();
    for (program, service) in [("postonce-web", &mut bank.webs[0]), ("postonce-worker", &mut bank.workers[0])]
    {
        let before = service.log().lines().len();
        assert!(service.process().terminate(STOP_TIME_MAX).success());
        service.process().wait_for_output();
        let lines = service.log().lines();
        let first = &lines[0];
        for part in [&*format!("{program} {version} (commit "), store, "starts on ", "drain-delay-s=1"] {
            assert!(first.contains(part), "{part} is missing in {first}");
        }
        assert!(
            !lines
                .iter()
                .any(|line| line.contains(&key) || secret.as_ref().is_some_and(|it| line.contains(it)))
        );
        let alarming: Vec<&String> = lines
            .iter()
            .skip(before)
            .filter(|line| [" WARN ", " ERROR "].iter().any(|level| line.contains(level)))
            .collect();
        assert!(alarming.is_empty(), "{alarming:#?}");
        let foreign: Vec<&String> = lines.iter().filter(|line| line.contains("actix")).collect();
        assert!(foreign.is_empty(), "lines of libraries: {foreign:#?}");
    }
}

/// How often a text occurs in the log.
fn count(service: &Service, text: &str) -> usize {
    service.log().lines().iter().filter(|line| line.contains(text)).count()
}

#[tokio::test]
async fn an_outage_is_told_once_at_its_begin_and_once_at_its_end() {
    let bank = Plan::on(StoreKind::Azurite).behind_proxies().polling_often().processes(1, 1).start().await;
    bank.until_workers_ready().await;
    let (client, account) = (bank.client(0), fresh_account());
    client.open(account).await;
    // The worker is not asked for its health, and notices the outage in its own work.
    bank.proxies().switch_all(Mode::Refuse);
    let told = async |text: &str| {
        wait::until(text, wait::TIMEOUT, async || {
            drop(client.get(&path_of(account)).await);
            let counts = [&bank.webs[0], &bank.workers[0]].map(|service| count(service, text));
            if counts.iter().all(|count| *count > 0) { Ok(()) } else { Err(format!("{counts:?}")) }
        })
        .await;
    };
    told("Not ready, ").await;
    bank.proxies().switch_all(Mode::Forward);
    told("The outage of ").await;
    for service in [&bank.webs[0], &bank.workers[0]] {
        for part in ["ledger", "queue"] {
            let (begins, ends) = (
                count(service, &format!("Not ready, {part} is missing")),
                count(service, &format!("ended: {part} is available")),
            );
            assert!(begins <= 1 && ends <= begins, "{part}: {:#?}", service.log().lines());
        }
    }
}
