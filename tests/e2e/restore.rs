//! Restores: refused while the service runs, and for invalid backups; killed at any time; and the work that
//! was waiting when the backup was taken.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use postonce_shared::testing::prelude::*;
use postonce_tests::prelude::*;
use postonce_tests::process::Signal;
use tempfile::TempDir;

use super::backup::{DRAIN_TIME_MAX, Ledger, begin, restore, run};

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

/// What a partner could do at the time of the backup was a mistake, which an operator has corrected since.
#[tokio::test]
async fn a_partner_does_not_regain_an_account_that_was_taken_from_it_after_the_backup() {
    let mut bank = Plan::on(StoreKind::Sqlite).start().await;
    let client = bank.client(0);
    let (kept, taken) = (fresh_account(), fresh_account());
    let name = |account: AccountKey| format!("{}/{}", account.user, account.account);
    for account in [kept, taken] {
        client.open(account).await;
    }
    let (kept_name, taken_name) = (name(kept), name(taken));
    let printed =
        bank.operate(&["partners", "add", "shop", "--account", &kept_name, "--account", &taken_name]);
    let key = printed.split_whitespace().find(|word| word.starts_with("po_")).expect("its key is printed");
    assert_eq!(client.with_key(key).get(&path_of(taken)).await.status, 200);
    let backup = run(&bank, &["backup", "backup.db"]).await;
    assert!(backup.status.success(), "{backup:?}");
    bank.operate(&["partners", "change", "shop", "--account", &kept_name]);
    bank.webs.remove(0).drain().await;

    let restored = run(&bank, &["restore", "--yes", "backup.db"]).await;
    assert!(restored.status.success(), "{restored:?}");
    assert!(
        restored.printed.contains("the reach of partner shop was changed after the backup"),
        "{restored:?}"
    );
    bank.start_web();
    let client = bank.client(0);
    client.until_ready().await;
    let shop = client.with_key(key);
    assert_eq!(shop.get(&path_of(kept)).await.status, 200);
    assert_eq!(shop.get(&path_of(taken)).await.status, 404);
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

/// A restore that is killed at any time leaves either the old or the new store, never a part of it, and
/// never the log of one with the file of the other. The old process was killed too, so that its last
/// deposit is only in its log.
#[tokio::test]
async fn a_restore_that_is_killed_leaves_one_of_the_two_stores() {
    const KILLS: u32 = 24;
    let (mut bank, account, file) = bank_with_a_backup(Plan::on(StoreKind::Sqlite)).await;
    bank.webs.remove(0).kill();
    let arguments = ["restore", "--yes", file.to_str().expect("a plain path")];
    let template = save(&bank);
    let whole = wait::Stopwatch::start();
    assert!(run(&bank, &arguments).await.status.success());
    let whole = whole.elapsed();
    let mut seen: BTreeMap<&str, u32> = BTreeMap::new();
    for kill in 0..KILLS {
        put_back(&template, &bank);
        let mut process = begin(&bank, &arguments);
        // Distributed over the duration of a complete restore, and slightly beyond.
        wait::pass(whole.saturating_mul(kill).checked_div(KILLS.saturating_sub(4)).expect("not zero")).await;
        process.signal(Signal::Kill);
        process.wait(wait::TIMEOUT);
        let store = bank.store().await;
        let ledger = Ledger::read(&store, &[account]).await;
        drop(store);
        let cents = ledger.0.values().map(|account| account.balance).sum::<i64>();
        let posted: BTreeSet<MessageId> = ledger.entries().map(|entry| entry.message).collect();
        ledger.check_consistent(&posted);
        let which = match cents {
            300 => "old",
            100 => "new",
            _ => panic!("after kill {kill} the balance is {cents}"),
        };
        let count = seen.entry(which).or_default();
        *count = count.saturating_add(1);
        // Another attempt completes the restore.
        assert!(run(&bank, &arguments).await.status.success());
    }
    println!("after {KILLS} kills: {seen:?}");
    assert!(seen.contains_key("old"), "some kills were early enough: {seen:?}");
    bank.start_web();
    let client = bank.client(0);
    client.until_ready().await;
    assert_eq!(client.balance(account).await, "1.00");
}

/// Copies the files of the store.
fn save(bank: &Scenario) -> TempDir {
    let saved = TempDir::with_prefix("postonce-saved-").expect("a directory");
    for name in ["postonce.db", "postonce.db-wal"] {
        std::fs::copy(bank.directory().join(name), saved.path().join(name))
            .expect("a killed store has a log");
    }
    saved
}

/// Replaces all files of the store by the saved ones.
fn put_back(saved: &TempDir, bank: &Scenario) {
    for entry in std::fs::read_dir(bank.directory()).expect("a directory can be read") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        if name.starts_with("postonce.db") && !name.ends_with("lock") {
            std::fs::remove_file(path).expect("it can be removed");
        }
    }
    for entry in std::fs::read_dir(saved.path()).expect("a directory can be read") {
        let path = entry.expect("an entry").path();
        let to = bank.directory().join(path.file_name().expect("a name"));
        std::fs::copy(&path, to).expect("it can be copied");
    }
}

#[tokio::test]
async fn an_invalid_backup_is_refused_and_the_store_does_not_change() {
    let (mut bank, account, file) = bank_with_a_backup(Plan::on(StoreKind::Sqlite)).await;
    bank.webs.remove(0).drain().await;
    let valid = std::fs::read(&file).expect("a backup can be read");
    let half = valid.get(..valid.len().div_euclid(2)).expect("half of it").to_vec();
    let mut damaged = valid.clone();
    damaged.iter_mut().skip(half.len()).step_by(64).for_each(|byte| *byte = !*byte);
    let text = b"this is no database".repeat(100);
    for (name, content) in [("half.db", half), ("damaged.db", damaged), ("text.db", text)] {
        std::fs::write(bank.directory().join(name), content).expect("it can be written");
        let refused = run(&bank, &["restore", "--yes", name]).await;
        let reasons = ["malformed", "is damaged", "not a database"];
        assert!(!refused.status.success(), "{name}: {refused:?}");
        assert!(reasons.iter().any(|reason| refused.printed.contains(reason)), "{name}: {refused:?}");
    }
    bank.start_web();
    let client = bank.client(0);
    client.until_ready().await;
    assert_eq!(client.balance(account).await, "3.00");
}
