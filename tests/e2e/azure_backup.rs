//! Backups of a store on Azure, and restores from there to SQLite and back.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::future::{join, join_all};
use postonce_shared::oversight::copy::{COPIED_VALUES, SKIPPED_VALUES};
use postonce_shared::testing::prelude::*;
use postonce_tests::prelude::*;
use postonce_tests::process::{Process, Signal};
use reqwest::Method;
use serde_json::json;

use super::backup::{DRAIN_TIME_MAX, Ended, Ledger, begin, run};

const ACCOUNTS: usize = 6;
const CONNECTIONS: usize = 6;
/// Keeps the rows of the last moments from being read again in every incremental backup.
const OVERLAP: [&str; 2] = ["--overlap-s", "1"];

fn text(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

/// Runs a command on a SQLite file instead of the store of the bank.
async fn run_on_file(bank: &Scenario, store: &Path, arguments: &[&str]) -> Ended {
    let settings = bank.settings.clone().with("POSTONCE_STORAGE", format!("sqlite:{}", store.display()));
    let launch = service::launch(Binary::Web, &settings, arguments, &bank.directory());
    let mut process = Process::start(&launch);
    let status = wait::until("the command ends", wait::TIMEOUT, async || {
        process.ended().ok_or_else(|| process.log().lines().join("\n"))
    })
    .await;
    process.wait_for_output();
    Ended { status, printed: process.log().lines().join("\n") }
}

fn open_file(path: &Path) -> Store {
    SqliteStore::open_to_read(path, Arc::new(SystemWorld::new())).expect("it is a store")
}

/// Restores a backup into a new SQLite store, audits it, and returns its ledger.
async fn restored_on_sqlite(bank: &Scenario, file: &Path, name: &str, accounts: &[AccountKey]) -> Ledger {
    let store = bank.directory().join(name);
    let restored = run_on_file(bank, &store, &["restore", "--yes", text(file)]).await;
    assert!(restored.status.success(), "{restored:?}");
    let verified = run_on_file(bank, &store, &["verify"]).await;
    assert!(verified.status.success() && verified.printed.contains("findings: 0"), "{verified:?}");
    Ledger::read(&open_file(&store), accounts).await
}

async fn open_accounts(client: &Client, count: usize) -> Vec<AccountKey> {
    let accounts: Vec<AccountKey> = (0..count).map(|_| fresh_account()).collect();
    for account in &accounts {
        client.open(*account).await;
    }
    accounts
}

fn balances(ledger: &Ledger) -> Vec<(AccountKey, i64)> {
    ledger.0.iter().map(|(key, account)| (*key, account.balance)).collect()
}

/// Two web processes and a worker post while a backup is taken. What was acknowledged before is in it, and an update after the
/// end contains everything, to the cent.
#[tokio::test]
async fn a_backup_under_load_is_restored_on_sqlite() {
    let bank = Plan::on(StoreKind::Azurite).processes(2, 1).start().await;
    let accounts = open_accounts(&bank.client(0), ACCOUNTS).await;
    let sent: RefCell<BTreeSet<MessageId>> = RefCell::default();
    let acknowledged: RefCell<BTreeSet<MessageId>> = RefCell::default();
    let loading = Cell::new(true);
    let connections = (0..CONNECTIONS).map(|connection| {
        let (client, account) =
            (bank.client(connection % 2).on_own_connections(), accounts[connection % ACCOUNTS]);
        let (sent, acknowledged, loading) = (&sent, &acknowledged, &loading);
        async move {
            while loading.get() {
                let id = fresh_id();
                sent.borrow_mut().insert(id);
                drop(client.submit_until_accepted(account, id, &Submission::deposit("1.01")).await);
                acknowledged.borrow_mut().insert(id);
            }
        }
    });
    let (file, before) = (bank.directory().join("backup.db"), RefCell::new(BTreeSet::new()));
    let taking = async {
        wait::until("the load has begun", wait::TIMEOUT, async || match acknowledged.borrow().len() {
            count if count > 60 => Ok(()),
            count => Err(format!("{count} acknowledged")),
        })
        .await;
        before.borrow_mut().clone_from(&acknowledged.borrow());
        let slowly = ["backup", text(&file), "--operations-per-second", "20"];
        let backup = run(&bank, &slowly).await;
        assert!(backup.status.success() && backup.printed.contains("checked"), "{backup:?}");
        let later = acknowledged.borrow().len() - before.borrow().len();
        assert!(later > 20, "the load went on during the backup: {later} acknowledged");
        loading.set(false);
    };
    join(join_all(connections), taking).await;
    bank.client(0).until_drained(DRAIN_TIME_MAX).await;

    let azure = Ledger::read(&bank.store().await, &accounts).await;
    let restored = restored_on_sqlite(&bank, &file, "restored.db", &accounts).await;
    restored.check_consistent(&sent.borrow());
    assert!(restored.is_prefix_of(&azure), "each account is as it was at one of its versions");
    let kept = restored.known();
    assert!(before.borrow().is_subset(&kept), "what was acknowledged before the backup is in it");

    let update: Vec<&str> = ["backup", text(&file), "--incremental"].into_iter().chain(OVERLAP).collect();
    let updated = run(&bank, &update).await;
    assert!(updated.status.success(), "{updated:?}");
    let restored = restored_on_sqlite(&bank, &file, "updated.db", &accounts).await;
    assert_eq!(balances(&restored), balances(&azure), "equal to the cent");
    assert!(azure.is_prefix_of(&restored) && restored.is_prefix_of(&azure), "the same journals");
    let refused = run(&bank, &["backup", text(&file)]).await;
    assert!(!refused.status.success() && refused.printed.contains("exists"), "{refused:?}");
}

/// Posts transactions of several accounts as one batch.
async fn post_batch(client: &Client, accounts: &[AccountKey], count: usize) {
    let item = |account: &AccountKey| {
        let message = fresh_id().to_string();
        let (user, account) = (account.user.to_string(), account.account.to_string());
        json!({ "user_id": user, "account_id": account, "message_id": message, "type": "deposit",
                "amount": "1.01", "currency": "EUR" })
    };
    let items = accounts.iter().cycle().take(count);
    let body: String = items.map(|account| format!("{}\n", item(account))).collect();
    let id = fresh_id();
    let request = client.request(Method::POST, "/v1/batches").header("Idempotency-Key", id.to_string());
    let request = request.header("Content-Type", "application/x-ndjson").body(body);
    drop(client.send(request).await.expect(202));
    wait::until("the batch is completed", wait::TIMEOUT, async || {
        let answer = client.get(&format!("/v1/batches/{id}")).await;
        if answer.text_at("/phase") == "completed" { Ok(()) } else { Err(format!("{answer:?}")) }
    })
    .await;
}

/// The number of storage operations that a backup reports.
fn operations(backup: &Ended) -> u64 {
    service::number_after("storage operations: ", &backup.printed)
}

#[tokio::test]
async fn an_incremental_backup_reads_only_what_is_new() {
    let bank = Plan::on(StoreKind::Azurite).start().await;
    let client = bank.client(0);
    let accounts = open_accounts(&client, 40).await;
    post_batch(&client, &accounts, 40_000).await;
    let file = bank.directory().join("backup.db");
    let full = run(&bank, &["backup", text(&file)]).await;
    assert!(full.status.success(), "{full:?}");
    let update: Vec<&str> = ["backup", text(&file), "--incremental"].into_iter().chain(OVERLAP).collect();
    wait::until("the rows are older than the overlap", wait::TIMEOUT, async || {
        let update = run(&bank, &update).await;
        assert!(update.status.success(), "{update:?}");
        if update.printed.contains(": 0 accounts,") { Ok(()) } else { Err(format!("{update:?}")) }
    })
    .await;
    for account in &accounts[..3] {
        drop(client.post(*account, fresh_id(), &Submission::deposit("7.00")).await);
    }
    let updated = run(&bank, &update).await;
    assert!(updated.status.success(), "{updated:?}");
    let (all, new) = (operations(&full), operations(&updated));
    assert!(new * 2 < all, "{new} operations instead of {all}");
    assert!(updated.printed.contains("3 accounts"), "only those that changed: {updated:?}");
    let azure = Ledger::read(&bank.store().await, &accounts).await;
    let restored = restored_on_sqlite(&bank, &file, "restored.db", &accounts).await;
    assert_eq!(balances(&restored), balances(&azure), "equal to the cent");
}

#[tokio::test]
async fn an_interrupted_backup_is_continued() {
    let bank = Plan::on(StoreKind::Azurite).start().await;
    let client = bank.client(0);
    let accounts = open_accounts(&client, 20).await;
    post_batch(&client, &accounts, 20_000).await;
    let file = bank.directory().join("backup.db");
    let partial = PathBuf::from(format!("{}.partial", file.display()));
    let slowly = ["backup", text(&file), "--operations-per-second", "10"];
    let mut interrupted = begin(&bank, &slowly);
    wait::until("some rows are copied", wait::TIMEOUT, async || {
        let rows = rusqlite::Connection::open(&partial).and_then(|connection| {
            connection.query_row("SELECT count(*) FROM transactions", [], |row| row.get::<_, i64>(0))
        });
        match rows {
            Ok(rows) if rows > 0 => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    interrupted.signal(Signal::Kill);
    wait::until("the backup has ended", wait::TIMEOUT, async || {
        interrupted.ended().map(drop).ok_or_else(|| "it runs".to_owned())
    })
    .await;
    assert!(!file.exists() && partial.exists(), "the name refers to a complete backup, or to nothing");
    drop(client.post(accounts[0], fresh_id(), &Submission::deposit("3.00")).await);
    let continued = run(&bank, &["backup", text(&file)]).await;
    assert!(continued.status.success() && continued.printed.contains("continuing"), "{continued:?}");
    assert!(!partial.exists());
    let azure = Ledger::read(&bank.store().await, &accounts).await;
    let restored = restored_on_sqlite(&bank, &file, "restored.db", &accounts).await;
    let (restored, azure) = (balances(&restored), balances(&azure));
    // The account may have been copied before its last deposit.
    assert_eq!(restored[1..], azure[1..], "equal to the cent");
}

/// A SQLite store is moved to Azure: with open work, order numbers that are never issued again, and only into an empty store.
#[tokio::test]
async fn a_backup_of_sqlite_is_restored_on_azure() {
    let mut old = Plan::on(StoreKind::Sqlite).start().await;
    let client = old.client(0);
    let accounts = open_accounts(&client, ACCOUNTS).await;
    for account in &accounts {
        drop(client.post(*account, fresh_id(), &Submission::deposit("10.00")).await);
        drop(
            client.submit_and_wait(*account, fresh_id(), &Submission::withdrawal("99.00")).await.expect(200),
        );
    }
    post_batch(&client, &accounts, 600).await;
    drop(client.call(Method::PUT, "/v1/admin/gate", &json!({ "state": "held" })).await.expect(200));
    for account in &accounts {
        drop(client.submit_until_accepted(*account, fresh_id(), &Submission::deposit("0.50")).await);
    }
    let file = old.directory().join("backup.db");
    let backup = run(&old, &["backup", text(&file)]).await;
    assert!(backup.status.success(), "{backup:?}");
    check_values(&file);
    let before = Ledger::read(&open_file(&file), &accounts).await;
    let highest = before.entries().map(|entry| entry.order_number).max().expect("some were posted");
    old.webs.remove(0).drain().await;

    let mut new = Plan::on(StoreKind::Azurite).processes(0, 0).start().await;
    let planned = run(&new, &["restore", text(&file)]).await;
    assert!(!planned.status.success(), "{planned:?}");
    for part in ["are lost", "order numbers continue at", "the gate: held", "nothing was changed"] {
        assert!(planned.printed.to_lowercase().contains(part), "{part}: {planned:?}");
    }
    let dry = run(&new, &["restore", "--dry-run", text(&file)]).await;
    assert!(dry.status.success() && dry.printed.contains("nothing was changed"), "{dry:?}");
    let restored = run(&new, &["restore", "--yes", text(&file)]).await;
    assert!(restored.status.success() && restored.printed.contains("enqueued 6"), "{restored:?}");
    let again = run(&new, &["restore", "--yes", text(&file)]).await;
    assert!(!again.status.success() && again.printed.contains("not empty"), "{again:?}");
    assert!(again.printed.contains("rows of accounts"), "{again:?}");
    let verified = run(&new, &["verify"]).await;
    assert!(verified.status.success() && verified.printed.contains("findings: 0"), "{verified:?}");
    let copied = Ledger::read(&new.store().await, &accounts).await;
    assert!(before.is_prefix_of(&copied) && copied.is_prefix_of(&before), "the same journals");

    new.start_web();
    new.start_worker();
    let client = new.client(0).with_key(old.key());
    client.until_ready().await;
    drop(client.call(Method::PUT, "/v1/admin/gate", &json!({ "state": "released" })).await.expect(200));
    for account in &accounts {
        drop(client.post(*account, fresh_id(), &Submission::deposit("1.00")).await);
    }
    client.until_drained(DRAIN_TIME_MAX).await;
    let after = Ledger::read(&new.store().await, &accounts).await;
    for (key, balance) in balances(&before) {
        assert_eq!(after.0[&key].balance, balance + 150, "the open work and the new deposit of {key}");
    }
    let earlier: BTreeSet<OrderNumber> = before.entries().map(|entry| entry.order_number).collect();
    let later = after.entries().map(|entry| entry.order_number).filter(|number| !earlier.contains(number));
    assert!(later.min().expect("some are new") > highest, "order numbers are never issued again");
    let verified = run(&new, &["verify"]).await;
    assert!(verified.status.success() && verified.printed.contains("findings: 0"), "{verified:?}");
}

/// A restore that is killed leaves a store that refuses to post, and is continued by the same command.
#[tokio::test]
async fn an_interrupted_restore_is_continued() {
    let mut old = Plan::on(StoreKind::Sqlite).start().await;
    let client = old.client(0);
    let accounts = open_accounts(&client, 200).await;
    post_batch(&client, &accounts, 2_000).await;
    let file = old.directory().join("backup.db");
    let backup = run(&old, &["backup", text(&file)]).await;
    assert!(backup.status.success(), "{backup:?}");
    let before = Ledger::read(&open_file(&file), &accounts).await;
    old.webs.remove(0).drain().await;

    let new = Plan::on(StoreKind::Azurite).processes(0, 0).start().await;
    let mut interrupted = begin(&new, &["restore", "--yes", text(&file), "--operations-per-second", "30"]);
    let store = new.store().await;
    wait::until("some accounts are restored", wait::TIMEOUT, async || {
        let listing = store.archive.listed_accounts(UserRange::ALL, None, 10).await.expect("it can be read");
        if listing.items.is_empty() { Err("none yet".to_owned()) } else { Ok(()) }
    })
    .await;
    interrupted.kill();
    assert_eq!(store.sync.get("order-numbers").await.expect("it can be read"), None, "it is written last");
    let gate = store.sync.get("gate").await.expect("it can be read").expect("it is set");
    assert!(gate.value.contains("held"), "nothing is posted in the meantime: {}", gate.value);
    let other = old.directory().join("other.db");
    let backup = run(&old, &["backup", text(&other)]).await;
    assert!(backup.status.success(), "{backup:?}");
    let refused = run(&new, &["restore", "--yes", text(&other)]).await;
    assert!(
        !refused.status.success() && refused.printed.contains("not empty"),
        "another backup: {refused:?}"
    );
    let continued = run(&new, &["restore", "--yes", text(&file)]).await;
    assert!(continued.status.success() && continued.printed.contains("is continued"), "{continued:?}");
    let verified = run(&new, &["verify"]).await;
    assert!(verified.status.success() && verified.printed.contains("findings: 0"), "{verified:?}");
    assert_eq!(balances(&Ledger::read(&store, &accounts).await), balances(&before), "equal to the cent");
}

/// Every shared value of a store is either copied or left out on purpose.
fn check_values(file: &Path) {
    let connection = rusqlite::Connection::open(file).expect("it is a database");
    let mut statement = connection.prepare("SELECT name FROM sync_values").expect("it is a store");
    let names = statement.query_map([], |row| row.get::<_, String>(0)).expect("it can be read");
    for name in names {
        let name = name.expect("a name");
        let is_known = COPIED_VALUES.contains(&name.as_str()) || SKIPPED_VALUES.contains(&name.as_str());
        assert!(is_known || name.starts_with("leases-"), "is the shared value {name} copied?");
    }
}

#[tokio::test]
async fn options_of_azure_are_refused_on_sqlite() {
    let bank = Plan::on(StoreKind::Sqlite).start().await;
    for option in [&["--incremental"][..], &["--operations-per-second", "5"], &["--accept-findings"]] {
        let arguments: Vec<&str> = ["backup", "file.db"].into_iter().chain(option.iter().copied()).collect();
        let refused = run(&bank, &arguments).await;
        assert!(!refused.status.success() && refused.printed.contains(option[0]), "{refused:?}");
    }
}
