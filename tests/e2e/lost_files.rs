//! Files of the embedded store that are moved, replaced or removed while the service runs: nothing is acknowledged any more, and
//! after the right files were put back, everything that was acknowledged is there once.

use std::fs;
use std::path::{Path, PathBuf};

use postonce_shared::testing::prelude::*;
use postonce_tests::prelude::*;

use super::backup::run;

/// Deposits before the loss, and attempts after it.
const DEPOSITS: usize = 20;

fn store_of(bank: &Scenario) -> PathBuf {
    bank.directory().join("postonce.db")
}

#[tokio::test]
async fn a_database_that_is_moved_away_and_back_has_every_acknowledged_transaction() {
    let aside = |store: &Path| store.with_extension("aside");
    let harm = |store: &Path| fs::rename(store, aside(store)).expect("it can be moved");
    let mend = |store: &Path| fs::rename(aside(store), store).expect("it can be moved back");
    let refusal = Some("another process still uses the file that was at");
    loses(harm, mend, refusal).await;
}

#[tokio::test]
async fn a_database_that_another_file_replaces_is_not_used() {
    let aside = |store: &Path| store.with_extension("aside");
    let harm = |store: &Path| {
        fs::rename(store, aside(store)).expect("it can be moved");
        fs::write(store, "").expect("it can be written");
    };
    let mend = |store: &Path| fs::rename(aside(store), store).expect("it can be moved back");
    let refusal = Some("another process still uses the file that was at");
    loses(harm, mend, refusal).await;
}

/// What was acknowledged is in the log only, until it is moved into the database.
#[tokio::test]
async fn a_log_that_is_removed_loses_no_acknowledged_transaction() {
    let harm = |store: &Path| {
        for suffix in ["db-wal", "db-shm"] {
            fs::remove_file(store.with_extension(suffix)).expect("it can be removed");
        }
    };
    loses(harm, |_| (), None).await;
}

/// Loses files under a running process, which is then killed, and puts them back.
async fn loses(harm: impl Fn(&Path), mend: impl Fn(&Path), refusal: Option<&str>) {
    let mut bank = Plan::on(StoreKind::Sqlite).start().await;
    let client = bank.client(0);
    let account = fresh_account();
    client.open(account).await;
    let acknowledged: Vec<MessageId> = (0..DEPOSITS).map(|_| fresh_id()).collect();
    for id in &acknowledged {
        drop(client.post(account, *id, &Submission::deposit("1.00")).await);
    }
    harm(&store_of(&bank));
    let unknown: Vec<MessageId> = (0..DEPOSITS).map(|_| fresh_id()).collect();
    for id in &unknown {
        let answer = client.submit_and_wait(account, *id, &Submission::deposit("1.00")).await;
        assert_eq!((answer.status, answer.code()), (503, "storage_unavailable"), "{answer:?}");
    }
    client.until_status("/readyz", 503).await;
    wait::until("the missing part is named", wait::TIMEOUT, async || {
        let readiness = client.ready().await;
        if readiness.body.to_string().contains("\"files\"") { Ok(()) } else { Err(format!("{readiness:?}")) }
    })
    .await;
    bank.webs[0].until_logged("of the open store").await;
    let lines = bank.webs[0].log().lines();
    let is_told = |line: &&String| line.contains("ERROR") && line.contains("From now on no transaction is");
    let errors = lines.iter().filter(is_told);
    assert_eq!(errors.count(), 1, "{lines:#?}");
    if let Some(refusal) = refusal {
        let second = run(&bank, &["--with-worker"]).await;
        assert!(!second.status.success() && second.printed.contains(refusal), "{second:?}");
    }
    // Whatever happens next, the process has moved its log into the database by now.
    bank.webs[0].until_logged("is in the database itself now").await;
    bank.webs.remove(0).kill();
    mend(&store_of(&bank));
    bank.host_worker();
    bank.start_web();
    let client = bank.client(0);
    client.until_ready().await;
    check_all_once(&client, account, &acknowledged, &unknown).await;
    let verified = run(&bank, &["verify"]).await;
    assert!(verified.status.success(), "{verified:?}");
}

/// Checks that what was acknowledged is posted, and that a retry of the rest posts it once.
async fn check_all_once(
    client: &Client,
    account: AccountKey,
    acknowledged: &[MessageId],
    unknown: &[MessageId],
) {
    for id in acknowledged {
        let answer = client.transaction(account, *id).await;
        assert_eq!((answer.status, answer.transaction_status()), (200, "posted"), "{answer:?}");
    }
    for id in unknown.iter().chain(acknowledged) {
        drop(client.post(account, *id, &Submission::deposit("1.00")).await);
    }
    assert_eq!(client.balance(account).await, "40.00");
    assert_eq!(
        client.listing(account, None, 100).await.len(),
        acknowledged.len().saturating_add(unknown.len())
    );
}

/// SQLite would take it for a URI, and use a file of another name than the lock.
#[tokio::test]
async fn a_path_that_looks_like_a_uri_is_the_name_of_a_file() {
    const NAME: &str = "file:bank.db?mode=memory";
    let mut bank = Plan::on(StoreKind::Sqlite).start().await;
    bank.webs.remove(0).drain().await;
    bank.settings = bank.settings.clone().with("POSTONCE_STORAGE", format!("sqlite:{NAME}"));
    bank.start_web();
    let (client, account, id) = (bank.client(0), fresh_account(), fresh_id());
    client.until_ready().await;
    client.open(account).await;
    drop(client.post(account, id, &Submission::deposit("1.00")).await);
    bank.webs.remove(0).drain().await;
    let at = |name: &str| bank.directory().join(name);
    assert!(!at("bank.db").exists(), "another file");
    assert!(at(NAME).metadata().expect("it exists").len() > 0);
    assert!(at(&format!("{NAME}.lock")).exists());
    bank.start_web();
    let client = bank.client(0);
    client.until_ready().await;
    assert_eq!(client.balance(account).await, "1.00");
}
