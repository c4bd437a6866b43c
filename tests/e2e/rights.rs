//! A process names at its start each right that it lacks, and is not ready. The requests that find it change nothing.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use postonce_shared::adapters::azure::{self, AzureConfig, AzureConnection, AzureIdentity, IdentityTerms};
use postonce_shared::messaging::envelope;
use postonce_shared::ports::rights::QueueUse;
use postonce_shared::testing::prelude::*;
use postonce_tests::azurite::{Azurite, Ports};
use postonce_tests::entra::{Entra, Principal, Role};
use postonce_tests::prelude::*;
use postonce_tests::scenario::{fresh_account, fresh_id, fresh_prefix};
use postonce_tests::shared_access::{ALL, LATER, connection_string, signature};
use tempfile::TempDir;

/// The first key of every bank.
const BANK_KEY: &str = "test-key-of-a-bank-with-few-rights";

fn settings(entra: &Entra, principal: Principal) -> Settings {
    let settings = Settings::default()
        .with("POSTONCE_BIND", "127.0.0.1:0")
        .with("POSTONCE_WORKER_BIND", "127.0.0.1:0")
        .with("POSTONCE_BOOTSTRAP_KEY", BANK_KEY);
    entra.on_machine(settings, principal)
}

fn start(entra: &Entra, principal: Principal, directory: &Path) -> (Service, ProcessProbe) {
    let (binary, arguments): (_, &[&str]) = match principal {
        Principal::Web => (Binary::Web, &["--no-worker"]),
        Principal::Worker => (Binary::Worker, &[]),
    };
    let service = Service::start(binary, &settings(entra, principal), arguments, directory);
    let probe = ProcessProbe::of(service.address());
    (service, probe)
}

/// A tenant whose queues exist, because a worker has run.
async fn prepared(directory: &Path) -> Entra {
    let entra = Entra::start(Principal::Web.roles(), Principal::Worker.roles());
    let (mut worker, probe) = start(&entra, Principal::Worker, directory);
    probe.until_ready().await;
    worker.drain().await;
    entra
}

/// What a process without this role lacks.
fn lacked(role: Role) -> String {
    let place = match role {
        Role::TableContributor | Role::TableReader => "table postoncestate",
        Role::BlobContributor | Role::BlobReader => "container postonce-payloads",
        Role::QueueContributor | Role::QueueReader | Role::MessageSender | Role::MessageProcessor => {
            "queue postonce-work-0"
        }
    };
    format!("the process lacks at the storage: {} on {place}", role.name())
}

/// Waits until a process tells this reason for which it is not ready.
async fn until_told(service: &Service, probe: &ProcessProbe, expected: &str) {
    wait::until(expected, wait::TIMEOUT, async || {
        let health = probe.health().await.unwrap_or_default();
        let reasons = health["reasons"].as_array().cloned().unwrap_or_default();
        let rights = reasons.iter().find(|reason| reason["part"] == "rights");
        let is_told = rights.is_some_and(|reason| reason["reason"] == expected);
        if is_told { Ok(()) } else { Err(health.to_string()) }
    })
    .await;
    service.until_logged(&format!("ERROR Not ready: {expected}")).await;
}

#[tokio::test]
async fn each_documented_role_is_necessary_and_named_at_the_start_when_it_is_missing() {
    let directory = TempDir::with_prefix("postonce-rights-").expect("a directory");
    let entra = prepared(directory.path()).await;
    for principal in [Principal::Web, Principal::Worker] {
        for missing in principal.roles() {
            let left: Vec<Role> = principal.roles().iter().copied().filter(|role| role != missing).collect();
            entra.assign(principal, &left);
            let (service, probe) = start(&entra, principal, directory.path());
            until_told(&service, &probe, &lacked(*missing)).await;
            // Only the checks read a blob here. They report the role once, and log no line for each refused request.
            let refused =
                |line: &str| line.contains("refuses the operation blob get").then(|| line.to_owned());
            assert_eq!(service.log().find(refused), None);
            // Without a restart.
            entra.assign(principal, principal.roles());
            probe.until_ready().await;
        }
    }
}

#[tokio::test]
async fn the_roles_of_a_sender_and_a_processor_of_messages_are_not_enough_for_a_worker() {
    let directory = TempDir::with_prefix("postonce-rights-").expect("a directory");
    let entra = prepared(directory.path()).await;
    let processor = [
        Role::TableContributor,
        Role::BlobContributor,
        Role::QueueReader,
        Role::MessageSender,
        Role::MessageProcessor,
    ];
    entra.assign(Principal::Worker, &processor);
    let (service, probe) = start(&entra, Principal::Worker, directory.path());
    until_told(&service, &probe, &lacked(Role::QueueContributor)).await;
    let is_renewal = |refused: &String| refused.contains("PUT") && refused.contains("/messages/");
    assert!(entra.refused().iter().any(is_renewal), "{:#?}", entra.refused());
}

#[tokio::test]
async fn while_the_storage_cannot_be_asked_no_right_is_reported_as_missing() {
    let directory = TempDir::with_prefix("postonce-rights-").expect("a directory");
    let entra = prepared(directory.path()).await;
    entra.set_failing(true);
    let (service, probe) = start(&entra, Principal::Web, directory.path());
    service.until_logged("Not ready since the start, rights is missing").await;
    assert!(!service.log().lines().iter().any(|line| line.contains("lacks at the storage")));
    entra.set_failing(false);
    probe.until_ready().await;
}

/// A store in Azurite, opened with a shared access signature.
async fn opened(ports: Ports, prefix: &str, permissions: &str) -> Store {
    let connection = connection_string(ports, &signature(permissions, LATER));
    let connection = AzureConnection::parse(&connection).expect("a connection string");
    let identity = IdentityTerms { kind: AzureIdentity::Sas, client_id: None };
    let config = AzureConfig { identity, ..AzureConfig::new(connection, prefix.to_owned()) };
    azure::open(&config, Arc::new(SystemWorld::new())).await.expect("a store")
}

fn queue() -> QueueName {
    envelope::queues(1).swap_remove(0)
}

async fn lacking(store: &Store) -> Vec<String> {
    store.rights.lacking(&queue(), QueueUse::Process).await.expect("an answer")
}

#[tokio::test]
async fn finding_missing_rights_changes_nothing() {
    let (ports, prefix) = (Azurite::shared().ports(), fresh_prefix());
    let store = opened(ports, &prefix, ALL).await;
    assert_eq!(lacking(&store).await, Vec::<String>::new(), "nothing exists yet");
    assert!(store.queue.create(&queue()).await.expect("a queue"), "the queue was not created");

    store.queue.send(&queue(), b"work", Duration::ZERO).await.expect("a message");
    store.payloads.put("work-1", b"work").await.expect("a payload");
    let swapped = store.sync.swap("value", None, "1").await.expect("a value");
    assert!(matches!(swapped, Swapped::Done(_)));
    for _ in 0..2 {
        assert_eq!(lacking(&store).await, Vec::<String>::new());
    }
    let received = store.queue.receive(&queue(), 32, Duration::from_secs(60)).await.expect("messages");
    let received: Vec<_> = received.iter().map(|message| (&*message.body, message.dequeue_count)).collect();
    assert_eq!(received, [(&b"work"[..], 1)]);
    let payloads = store.payloads.list("", None, 10).await.expect("payloads").items;
    assert_eq!(payloads.iter().map(|payload| &*payload.name).collect::<Vec<_>>(), ["work-1"]);
    assert_eq!(store.sync.get("rights-probe").await.expect("no value").map(|found| found.value), None);
}

#[tokio::test]
async fn each_missing_permission_of_a_signature_is_named() {
    let (ports, prefix) = (Azurite::shared().ports(), fresh_prefix());
    let (queue, container, table) = (
        format!("queue {prefix}-work-0"),
        format!("container {prefix}-payloads"),
        format!("table {prefix}state"),
    );
    let cases = [
        ('r', vec![("get", &container), ("get", &table), ("metadata", &queue), ("peek", &queue)]),
        ('w', vec![("put", &container)]),
        ('d', vec![("delete", &container)]),
        ('a', vec![("send", &queue)]),
        ('u', vec![("merge", &table), ("update", &queue)]),
        ('p', vec![("delete", &queue)]),
    ];
    for (permission, expected) in cases {
        let store = opened(ports, &prefix, &ALL.replace(permission, "")).await;
        let name = |(operation, place): (&str, &String)| {
            format!("permission of the shared access signature to {operation} on {place}")
        };
        let mut expected: Vec<String> = expected.into_iter().map(name).collect();
        expected.sort();
        assert_eq!(lacking(&store).await, expected, "{permission}");
    }
    // A process that only sends needs less.
    let store = opened(ports, &prefix, &ALL.replace('p', "")).await;
    let lacking = store.rights.lacking(&self::queue(), QueueUse::Send).await.expect("an answer");
    assert_eq!(lacking, Vec::<String>::new());
}

#[tokio::test]
async fn a_storage_that_does_not_answer_tells_nothing_about_rights() {
    let ports = Ports { blob: 1, queue: 1, table: 1 };
    let store = opened(ports, &fresh_prefix(), ALL).await;
    let answer = store.rights.lacking(&queue(), QueueUse::Process).await;
    assert!(matches!(answer, Err(StoreFault::Unavailable { .. })), "{answer:?}");
}

/// Runs a command of operators, which must succeed, and returns what it prints.
fn operate(settings: &Settings, arguments: &[&str], directory: &Path) -> String {
    let (status, lines) = launch(Binary::Web, settings, arguments, directory).run(wait::TIMEOUT);
    let printed = lines.join("\n");
    assert!(status.success(), "{arguments:?}: {printed}");
    printed
}

#[tokio::test]
async fn commands_of_operators_need_only_the_roles_of_a_web_process() {
    let directory = TempDir::with_prefix("postonce-rights-").expect("a directory");
    let entra = Entra::start(Principal::Web.roles(), Principal::Worker.roles());
    let (_worker, probe) = start(&entra, Principal::Worker, directory.path());
    probe.until_ready().await;
    let (web, probe) = start(&entra, Principal::Web, directory.path());
    probe.until_ready().await;
    let client = Client::new(web.address(), BANK_KEY);
    let account = fresh_account();
    client.open(account).await;
    drop(client.submit_and_wait(account, fresh_id(), &Submission::deposit("1.00")).await.expect(200));
    for body in ["no work", "neither"] {
        entra.send_message(Principal::Worker, "postonce-work-0", body.as_bytes()).await;
    }
    let letters = wait::until("both messages are set aside", wait::TIMEOUT, async || {
        let letters = client.dead_letters().await;
        if letters.len() == 2 { Ok(letters) } else { Err(format!("{letters:?}")) }
    })
    .await;
    let ids: Vec<&str> = letters.iter().filter_map(|letter| letter["id"].as_str()).collect();

    let settings = settings(&entra, Principal::Web);
    let run = |arguments: &[&str]| operate(&settings, arguments, directory.path());
    for arguments in [
        &["dead-letters", "replay", ids[0]][..],
        &["dead-letters", "discard", ids[1], "--yes"],
        &["gate", "hold", "--reason", "a test"],
        &["gate", "release"],
        &["partners", "add", "reader", "--all-accounts", "--scope", "read"],
        &["queues"],
        &["workers"],
        &["accounts", "list", &account.user.to_string()],
        &["recover"],
        &["sweep"],
        &["anchors"],
        &["verify"],
        &["backup", "backup.db"],
    ] {
        drop(run(arguments));
    }
    let other = settings.clone().with("POSTONCE_NAME_PREFIX", "restored");
    drop(operate(&other, &["restore", "backup.db", "--yes"], directory.path()));
    assert_eq!(entra.refused(), Vec::<String>::new());
}
