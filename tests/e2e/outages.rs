//! Storage outages: at the start, in the middle, partial, and repeated. Afterwards everything acknowledged
//! is final, and there are no dead letters.

use std::time::Duration;

use postonce_shared::domain::ids::{AccountKey, MessageId};
use postonce_tests::prelude::*;

/// Longest time until work continues after the storage is available again.
const RECOVERY_TIME_MAX: Duration = Duration::from_secs(90);

#[tokio::test]
async fn processes_start_without_storage_and_become_ready_when_it_is_available() {
    let mut bank = Plan::on(StoreKind::Azurite).behind_proxies().processes(0, 0).start().await;
    bank.proxies().switch_all(Mode::Refuse);
    bank.start_web();
    bank.start_worker();
    let client = bank.client(0);
    until_not_ready(&client).await;
    assert_eq!(client.get("/livez").await.status, 200, "a process that waits for its storage is alive");
    let (account, id) = (fresh_account(), fresh_id());
    expect_unavailable(&client, account, id).await;

    bank.proxies().switch_all(Mode::Forward);
    client.until_ready().await;
    client.open(account).await;
    drop(client.post(account, id, &Submission::deposit("1.00")).await);
}

#[tokio::test]
async fn work_resumes_after_azurite_was_stopped_and_started() {
    let mut azurite = Azurite::private();
    let bank = Plan::on_private(&azurite).start().await;
    let client = bank.client(0);
    let account = fresh_account();
    let mut auditor = Auditor::default();
    client.open(account).await;
    auditor.account(account, "0.00");
    let ids: Vec<MessageId> = (0..20).map(|_| fresh_id()).collect();
    for id in &ids {
        drop(auditor.submit(&client, account, *id, &Submission::deposit("1.00")).await.expect(202));
    }
    azurite.stop();
    let late = fresh_id();
    expect_unavailable(&client, account, late).await;
    until_not_ready(&client).await;

    azurite.resume();
    client.until_ready().await;
    for id in ids.iter().chain([&late]) {
        let answer = auditor.submit(&client, account, *id, &Submission::deposit("1.00")).await;
        assert!([200, 202].contains(&answer.status), "{answer:?}");
    }
    client.until_drained(RECOVERY_TIME_MAX).await;
    assert_eq!(client.balance(account).await, "21.00");
    check(&bank, &client, &auditor).await;
}

async fn until_not_ready(client: &Client) {
    wait::until("the process is not ready", wait::TIMEOUT, async || {
        let answer = client.ready().await;
        match answer.status {
            503 if !answer.text.is_empty() => Ok(()),
            _ => Err(format!("{answer:?}")),
        }
    })
    .await;
}

async fn expect_unavailable(client: &Client, account: AccountKey, id: MessageId) {
    let answer = client.submit(account, id, &Submission::deposit("1.00")).await.expect(503);
    assert_eq!(answer.code(), "storage_unavailable");
    assert!(!answer.header("retry-after").is_empty(), "{answer:?}");
}

async fn check(bank: &Scenario, client: &Client, auditor: &Auditor) {
    assert_eq!(client.dead_letters().await, Vec::<serde_json::Value>::new());
    auditor.audit(client, &bank.store().await).await;
}
