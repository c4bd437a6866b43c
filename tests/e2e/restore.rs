//! Restores: refused while the service runs, and for invalid backups; killed at any time; and the work that
//! was waiting when the backup was taken.

use std::path::PathBuf;

use postonce_shared::domain::ids::AccountKey;
use postonce_tests::prelude::*;

use super::backup::{DRAIN_TIME_MAX, restore, run};

/// A bank with one posted deposit that is in a backup, and another one that is not.
async fn bank_with_a_backup(plan: Plan) -> (Scenario, AccountKey, PathBuf) {
    let bank = plan.start().await;
    let client = bank.client(0);
    let account = fresh_account();
    client.open(account).await;
    drop(client.post(account, fresh_id(), &Submission::deposit("1.00")).await);
    let file = bank.directory().join("backup.db");
    let backup = run(&bank, &["backup", file.to_str().expect("a plain path")]).await;
    assert!(backup.status.success(), "{backup:?}");
    drop(client.post(account, fresh_id(), &Submission::deposit("2.00")).await);
    (bank, account, file)
}

#[tokio::test]
async fn a_restore_beside_the_running_service_is_refused_and_changes_nothing() {
    let (mut bank, account, file) = bank_with_a_backup(Plan::on(StoreKind::Sqlite).processes(1, 1)).await;
    let arguments = ["restore", "--yes", file.to_str().expect("a plain path")];
    let check_refused = async |bank: &Scenario| {
        let refused = run(bank, &arguments).await;
        assert!(!refused.status.success() && refused.printed.contains("is in use"), "{refused:?}");
    };
    check_refused(&bank).await;
    assert_eq!(bank.client(0).balance(account).await, "3.00");
    // A worker alone also uses the store, even while it is suspended.
    bank.webs.remove(0).drain().await;
    check_refused(&bank).await;
    bank.workers[0].suspend();
    check_refused(&bank).await;
    bank.workers[0].resume();
    bank.workers.remove(0).drain().await;

    for (flag, done) in [("--dry-run", true), ("--held", false)] {
        let result = run(&bank, &["restore", flag, file.to_str().expect("a plain path")]).await;
        assert_eq!(result.status.success(), done, "{result:?}");
        assert!(result.printed.contains("nothing was changed"), "{result:?}");
    }
    bank.host_worker();
    bank.start_web();
    let client = bank.client(0);
    client.until_ready().await;
    assert_eq!(client.balance(account).await, "3.00");
    drop(client.post(account, fresh_id(), &Submission::deposit("4.00")).await);
    bank.webs.remove(0).drain().await;

    let restored = run(&bank, &arguments).await;
    assert!(restored.status.success(), "{restored:?}");
    for part in ["are lost", "order numbers continue at", "kept as", "the gate"] {
        assert!(restored.printed.contains(part), "{part}: {restored:?}");
    }
    bank.start_web();
    let client = bank.client(0);
    client.until_ready().await;
    assert_eq!(client.balance(account).await, "1.00");
    drop(client.post(account, fresh_id(), &Submission::deposit("8.00")).await);
    assert_eq!(client.balance(account).await, "9.00");
}

#[tokio::test]
async fn work_that_was_accepted_before_the_backup_is_posted_after_the_restore() {
    const DEPOSITS: usize = 5;
    // Without a worker, the work waits.
    let mut bank = Plan::on(StoreKind::Sqlite).processes(1, 0).start().await;
    let client = bank.client(0);
    let account = fresh_account();
    client.open(account).await;
    for _ in 0..DEPOSITS {
        drop(client.submit_until_accepted(account, fresh_id(), &Submission::deposit("1.00")).await);
    }
    let file = bank.directory().join("backup.db");
    let backup = run(&bank, &["backup", "backup.db"]).await;
    assert!(backup.printed.contains("5 still to be posted"), "{backup:?}");
    bank.host_worker();
    bank.webs.remove(0).drain().await;
    bank.start_web();
    let client = bank.client(0);
    client.until_ready().await;
    drop(client.post(account, fresh_id(), &Submission::deposit("7.00")).await);
    client.until_drained(DRAIN_TIME_MAX).await;
    assert_eq!(client.balance(account).await, "12.00");
    bank.webs.remove(0).drain().await;

    restore(&bank, &file).await;
    bank.start_web();
    let client = bank.client(0);
    client.until_ready().await;
    client.until_drained(DRAIN_TIME_MAX).await;
    assert_eq!(client.balance(account).await, "5.00");
    assert_eq!(client.listing(account, None, 100).await.len(), DEPOSITS);
}
