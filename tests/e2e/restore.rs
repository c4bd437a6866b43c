//! Restores: refused beside a running service and for what is no backup, killed at any time, and what comes of
//! work that waited when the backup was taken.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use postonce_shared::domain::ids::{AccountKey, MessageId};
use postonce_tests::client::Wish;
use postonce_tests::process::Signal;
use postonce_tests::scenario::{Plan, Scenario, Stand, fresh_account, fresh_id};
use postonce_tests::wait;
use tempfile::TempDir;

use super::backup::{DRAIN_TIME_MAX, Ledger, begin, restore, run};

/// A bank with one posted deposit, which is in a backup, and another one, which is not.
async fn bank_with_a_backup(plan: Plan) -> (Scenario, AccountKey, PathBuf) {
    let bank = plan.start().await;
    let client = bank.client(0);
    let account = fresh_account();
    client.open(account).await;
    drop(client.post(account, fresh_id(), &Wish::deposit("1.00")).await);
    let file = bank.directory().join("backup.db");
    let backup = run(&bank, &["backup", file.to_str().expect("a plain path")]).await;
    assert!(backup.status.success(), "{backup:?}");
    drop(client.post(account, fresh_id(), &Wish::deposit("2.00")).await);
    (bank, account, file)
}

#[tokio::test]
async fn a_restore_beside_the_running_service_is_refused_and_changes_nothing() {
    let (mut bank, account, file) = bank_with_a_backup(Plan::on(Stand::Sqlite).processes(1, 1)).await;
    let arguments = ["restore", "--yes", file.to_str().expect("a plain path")];
    let check_refused = async |bank: &Scenario| {
        let refused = run(bank, &arguments).await;
        assert!(!refused.status.success() && refused.printed.contains("is in use"), "{refused:?}");
    };
    check_refused(&bank).await;
    assert_eq!(bank.client(0).balance(account).await, "3.00");
    // The worker alone uses the store too, and so does one that stands still.
    bank.webs.remove(0).drain().await;
    check_refused(&bank).await;
    bank.workers[0].suspend();
    check_refused(&bank).await;
    bank.workers[0].resume();
    bank.workers.remove(0).drain().await;

    for (flag, done) in [("--dry-run", true), ("--held", false)] {
        let looked = run(&bank, &["restore", flag, file.to_str().expect("a plain path")]).await;
        assert_eq!(looked.status.success(), done, "{looked:?}");
        assert!(looked.printed.contains("nothing was changed"), "{looked:?}");
    }
    bank.host_worker();
    bank.start_web();
    let client = bank.client(0);
    client.until_ready().await;
    assert_eq!(client.balance(account).await, "3.00");
    drop(client.post(account, fresh_id(), &Wish::deposit("4.00")).await);
    bank.webs.remove(0).drain().await;

    let restored = run(&bank, &arguments).await;
    assert!(restored.status.success(), "{restored:?}");
    for told in ["are lost", "order numbers continue at", "kept as", "the gate"] {
        assert!(restored.printed.contains(told), "{told}: {restored:?}");
    }
    bank.start_web();
    let client = bank.client(0);
    client.until_ready().await;
    assert_eq!(client.balance(account).await, "1.00");
    drop(client.post(account, fresh_id(), &Wish::deposit("8.00")).await);
    assert_eq!(client.balance(account).await, "9.00");
}

#[tokio::test]
async fn what_was_accepted_when_the_backup_was_taken_is_posted_after_the_restore() {
    const DEPOSITS: usize = 5;
    // No worker: work waits.
    let mut bank = Plan::on(Stand::Sqlite).processes(1, 0).start().await;
    let client = bank.client(0);
    let account = fresh_account();
    client.open(account).await;
    for _ in 0..DEPOSITS {
        drop(client.submit(account, fresh_id(), &Wish::deposit("1.00")).await.expect(202));
    }
    let file = bank.directory().join("backup.db");
    let backup = run(&bank, &["backup", "backup.db"]).await;
    assert!(backup.printed.contains("5 still to be posted"), "{backup:?}");
    bank.host_worker();
    bank.webs.remove(0).drain().await;
    bank.start_web();
    let client = bank.client(0);
    client.until_ready().await;
    drop(client.post(account, fresh_id(), &Wish::deposit("7.00")).await);
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

/// Killed at any time, a restore leaves the old store or the new one: never half of it, never the log of one
/// beside the other. The old one was killed too, so that its last deposit is only in its log.
#[tokio::test]
async fn a_restore_that_is_killed_leaves_one_of_the_two_stores() {
    const KILLS: u32 = 24;
    let (mut bank, account, file) = bank_with_a_backup(Plan::on(Stand::Sqlite)).await;
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
        // Spread over the time that a whole one takes, and somewhat beyond.
        wait::pass(whole.saturating_mul(kill).checked_div(KILLS.saturating_sub(4)).expect("not zero")).await;
        process.signal(Signal::Kill);
        process.wait(wait::PATIENCE);
        let store = bank.store().await;
        let ledger = Ledger::read(&store, &[account]).await;
        drop(store);
        let cents = ledger.0.values().map(|account| account.balance).sum::<i64>();
        let posted: BTreeSet<MessageId> = ledger.entries().map(|entry| entry.message).collect();
        ledger.check_sound(&posted);
        let which = match cents {
            300 => "old",
            100 => "new",
            _ => panic!("after kill {kill} the balance is {cents}"),
        };
        let count = seen.entry(which).or_default();
        *count = count.saturating_add(1);
        // Whoever does it again gets there.
        assert!(run(&bank, &arguments).await.status.success());
    }
    println!("after {KILLS} kills: {seen:?}");
    assert!(seen.contains_key("old"), "some came in time: {seen:?}");
    bank.start_web();
    let client = bank.client(0);
    client.until_ready().await;
    assert_eq!(client.balance(account).await, "1.00");
}

/// The files of the store.
fn save(bank: &Scenario) -> TempDir {
    let saved = TempDir::with_prefix("postonce-saved-").expect("a directory");
    for name in ["postonce.db", "postonce.db-wal"] {
        std::fs::copy(bank.directory().join(name), saved.path().join(name))
            .expect("a killed store has a log");
    }
    saved
}

/// Puts them back as they were, and nothing else of the store.
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
async fn what_is_no_sound_backup_is_refused_and_the_store_stays() {
    let (mut bank, account, file) = bank_with_a_backup(Plan::on(Stand::Sqlite)).await;
    bank.webs.remove(0).drain().await;
    let sound = std::fs::read(&file).expect("a backup can be read");
    let half = sound.get(..sound.len().div_euclid(2)).expect("half of it").to_vec();
    let mut damaged = sound.clone();
    damaged.iter_mut().skip(half.len()).step_by(64).for_each(|byte| *byte = !*byte);
    let text = b"this is no database".repeat(100);
    for (name, content) in [("half.db", half), ("damaged.db", damaged), ("text.db", text)] {
        std::fs::write(bank.directory().join(name), content).expect("it can be written");
        let refused = run(&bank, &["restore", "--yes", name]).await;
        let told = ["malformed", "is damaged", "not a database"];
        assert!(!refused.status.success(), "{name}: {refused:?}");
        assert!(told.iter().any(|word| refused.printed.contains(word)), "{name}: {refused:?}");
    }
    bank.start_web();
    let client = bank.client(0);
    client.until_ready().await;
    assert_eq!(client.balance(account).await, "3.00");
}

#[tokio::test]
async fn an_azure_store_is_not_for_these_commands() {
    let bank = Plan::on(Stand::Azurite).processes(0, 0).start().await;
    for arguments in [["backup", "file.db"], ["restore", "file.db"]] {
        let refused = run(&bank, &arguments).await;
        assert!(!refused.status.success() && refused.printed.contains("embedded store"), "{refused:?}");
        assert!(!bank.directory().join("file.db").exists());
    }
}
