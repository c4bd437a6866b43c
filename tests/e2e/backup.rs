//! Backups under load, and the bank that comes back from one.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{join, join_all};
use postonce_shared::adapters::open;
use postonce_shared::adapters::sqlite::SqliteStore;
use postonce_shared::adapters::system::SystemWorld;
use postonce_shared::domain::ids::{AccountKey, MessageId, OrderNumber};
use postonce_shared::domain::journal::{Entry, JournalPage, PageHash};
use postonce_shared::domain::transaction::TransactionStatus;
use postonce_shared::ports::Store;
use postonce_tests::binaries::Binary;
use postonce_tests::client::{Client, Wish};
use postonce_tests::process::{Process, Signal};
use postonce_tests::scenario::{Plan, Scenario, Stand, fresh_account, fresh_id};
use postonce_tests::{service, wait};
use tempfile::TempDir;

const ACCOUNTS: usize = 6;
const CONNECTIONS: usize = 8;
/// Backups that are taken while the load runs. Each one is restored.
const BACKUPS: usize = 3;
/// Longest time for all work to become final after a start.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(90);

#[tokio::test]
async fn one_process_comes_back_from_backups_under_load() {
    backups_under_load(Plan::on(Stand::Sqlite).start().await).await;
}

#[tokio::test]
async fn a_web_and_a_worker_process_come_back_from_backups_under_load() {
    backups_under_load(Plan::on(Stand::Sqlite).processes(1, 1).start().await).await;
}

/// Several backups while several connections deposit; then each of them is restored in turn, the oldest
/// last, and the bank goes on from it.
async fn backups_under_load(mut bank: Scenario) {
    let client = bank.client(0);
    let accounts: Vec<AccountKey> = (0..ACCOUNTS).map(|_| fresh_account()).collect();
    for account in &accounts {
        client.open(*account).await;
    }
    let sent: RefCell<BTreeSet<MessageId>> = RefCell::default();
    let answered = Cell::new(0_usize);
    let loading = Cell::new(true);
    let connections = (0..CONNECTIONS).map(|connection| {
        let (client, account) = (client.on_own_connections(), accounts[connection % ACCOUNTS]);
        let (sent, answered, loading) = (&sent, &answered, &loading);
        async move {
            while loading.get() {
                let id = fresh_id();
                sent.borrow_mut().insert(id);
                drop(client.submit_until_accepted(account, id, &Wish::deposit("1.00")).await);
                answered.set(answered.get().saturating_add(1));
            }
        }
    });
    let backups: RefCell<Vec<PathBuf>> = RefCell::default();
    let taking = async {
        for number in 0..BACKUPS {
            let before = answered.get();
            wait::until("the load goes on", wait::PATIENCE, async || match answered.get() {
                now if now > before.saturating_add(40) => Ok(()),
                now => Err(format!("{now} answers")),
            })
            .await;
            let file = bank.directory().join(format!("backup-{number}.db"));
            let backup = run(&bank, &["backup", file.to_str().expect("a plain path")]).await;
            assert!(backup.status.success() && backup.printed.contains("checked"), "{backup:?}");
            backups.borrow_mut().push(file);
        }
        loading.set(false);
    };
    join(join_all(connections), taking).await;
    client.until_drained(DRAIN_TIME_MAX).await;

    let mut before = Ledger::read(&bank.store().await, &accounts).await;
    before.check_sound(&sent.borrow());
    let mut numbers = before.numbers();
    stop(&mut bank).await;
    for backup in backups.borrow().iter().rev() {
        let in_backup = look_into(backup, &accounts).await;
        assert!(in_backup.is_prefix_of(&before), "a backup is what the ledger was at one moment");
        restore(&bank, backup).await;
        start(&mut bank).await;
        let client = bank.client(bank.webs.len().saturating_sub(1));
        for account in &accounts {
            drop(client.post(*account, fresh_id_in(&sent), &Wish::deposit("1.00")).await);
        }
        client.until_drained(DRAIN_TIME_MAX).await;
        let after = Ledger::read(&bank.store().await, &accounts).await;
        after.check_sound(&sent.borrow());
        in_backup.check_goes_on_in(&after);
        let new: BTreeSet<OrderNumber> = after.numbers().difference(&in_backup.numbers()).copied().collect();
        let (highest, lowest) =
            (numbers.last().expect("some were posted"), new.first().expect("some are new"));
        assert!(lowest > highest, "order number {lowest} is not behind {highest}, which was told before");
        numbers.extend(new);
        stop(&mut bank).await;
        before = in_backup;
    }
}

/// What the store says, account by account, read past the service.
struct Ledger(BTreeMap<AccountKey, Account>);

struct Account {
    balance: i64,
    head: PageHash,
    pages: Vec<JournalPage>,
    accepted: BTreeSet<MessageId>,
}

impl Ledger {
    async fn read(store: &Store, accounts: &[AccountKey]) -> Self {
        let mut ledger = BTreeMap::new();
        for key in accounts {
            let account = store.ledger.account(*key).await.expect("it can be read").expect("it exists").value;
            let pages = store.log.pages(*key, 1, usize::MAX).await.expect("the journal can be read");
            let accepted = store.log.by_status(*key, TransactionStatus::Accepted, None, 10_000).await;
            let accepted = accepted.expect("it can be read").items;
            let accepted = accepted.iter().map(|stored| stored.transaction.key.message).collect();
            let balance = account.balance.minor_units();
            drop(ledger.insert(*key, Account { balance, head: account.head, pages, accepted }));
        }
        Self(ledger)
    }

    fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.0.values().flat_map(Account::entries)
    }

    fn numbers(&self) -> BTreeSet<OrderNumber> {
        self.entries().map(|entry| entry.order_number).collect()
    }

    /// Balances, chains and order numbers, and that somebody asked for all of it.
    fn check_sound(&self, sent: &BTreeSet<MessageId>) {
        assert_eq!(self.numbers().len(), self.entries().count(), "an order number was issued twice");
        for (key, account) in &self.0 {
            let mut previous = PageHash::GENESIS;
            for page in &account.pages {
                page.check().unwrap_or_else(|flaw| panic!("account {key}: {flaw}"));
                assert!(page.previous_hash == previous, "account {key}: the chain is broken");
                previous = page.hash;
            }
            assert!(previous == account.head, "account {key} does not name its last page");
            let cents: i64 = account.entries().map(|entry| entry.amount.minor_units()).sum();
            assert_eq!(account.balance, cents, "account {key}");
            let ids: BTreeSet<MessageId> = account.entries().map(|entry| entry.message).collect();
            assert_eq!(ids.len(), account.entries().count(), "account {key}: posted twice");
            assert!(ids.is_subset(sent), "account {key}: nobody asked for it");
        }
    }

    fn is_prefix_of(&self, later: &Self) -> bool {
        let is_prefix = |(key, account): (&AccountKey, &Account)| {
            later.0.get(key).is_some_and(|later| later.pages.starts_with(&account.pages))
        };
        self.0.iter().all(is_prefix)
    }

    /// Everything of it is in the later state, and what was accepted is posted there.
    fn check_goes_on_in(&self, later: &Self) {
        assert!(self.is_prefix_of(later), "a posted transaction never changes");
        for (key, account) in &self.0 {
            let later = later.0.get(key).expect("the same accounts");
            let posted: BTreeSet<MessageId> = later.entries().map(|entry| entry.message).collect();
            assert!(account.accepted.is_subset(&posted), "account {key}: accepted work was not posted");
            let count = account.entries().count().saturating_add(account.accepted.len());
            assert_eq!(posted.len(), count.saturating_add(1), "account {key}: that, and the new deposit");
        }
    }
}

impl Account {
    fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.pages.iter().flat_map(|page| &page.entries)
    }
}

/// What is in a backup. It is opened as a store elsewhere, so that it stays as it is.
async fn look_into(backup: &Path, accounts: &[AccountKey]) -> Ledger {
    let folder = TempDir::with_prefix("postonce-backup-").expect("a directory");
    let copy = folder.path().join("copy.db");
    std::fs::copy(backup, &copy).expect("a backup can be copied");
    let enqueue = open::enqueue(1, Arc::default());
    let store = SqliteStore::open(&copy, enqueue, Arc::new(SystemWorld::new()));
    Ledger::read(&store.expect("a backup can be opened"), accounts).await
}

fn fresh_id_in(sent: &RefCell<BTreeSet<MessageId>>) -> MessageId {
    let id = fresh_id();
    sent.borrow_mut().insert(id);
    id
}

async fn stop(bank: &mut Scenario) {
    for process in bank.webs.last_mut().into_iter().chain(bank.workers.last_mut()) {
        process.drain().await;
    }
}

async fn start(bank: &mut Scenario) {
    bank.start_web();
    if !bank.workers.is_empty() {
        bank.start_worker();
    }
    bank.client(bank.webs.len().saturating_sub(1)).until_ready().await;
}

async fn restore(bank: &Scenario, backup: &Path) {
    let restored = run(bank, &["restore", "--yes", backup.to_str().expect("a plain path")]).await;
    assert!(restored.status.success(), "{restored:?}");
}

/// A command that ended.
#[derive(Debug)]
struct Ended {
    status: ExitStatus,
    printed: String,
}

/// Runs a command of operators beside whatever else the test does.
async fn run(bank: &Scenario, arguments: &[&str]) -> Ended {
    let mut process = begin(bank, arguments);
    let status = wait::until("the command ends", wait::PATIENCE, async || {
        process.ended().ok_or_else(|| process.log().lines().join("\n"))
    })
    .await;
    process.wait_for_output();
    Ended { status, printed: process.log().lines().join("\n") }
}

fn begin(bank: &Scenario, arguments: &[&str]) -> Process {
    Process::start(&service::launch(Binary::Web, &bank.settings, arguments, &bank.directory()))
}

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
    for told in ["is forgotten", "order numbers go on at", "kept as", "the gate"] {
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
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
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
        drop(seen.entry(which.to_owned()).and_modify(|count| *count = count.saturating_add(1)).or_insert(1));
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
        drop(std::fs::copy(&path, to).expect("it can be copied"));
    }
}

#[tokio::test]
async fn what_is_no_sound_backup_is_refused_and_the_store_stays() {
    let (mut bank, account, file) = bank_with_a_backup(Plan::on(Stand::Sqlite)).await;
    bank.webs.remove(0).drain().await;
    let sound = std::fs::read(&file).expect("a backup can be read");
    let cut = sound.get(..sound.len().div_euclid(2)).expect("half of it");
    let mut damaged = sound.clone();
    damaged.iter_mut().skip(cut.len()).step_by(64).for_each(|byte| *byte = !*byte);
    for (name, content, word) in [
        ("cut.db", cut, "malformed"),
        ("damaged.db", &damaged, "is damaged"),
        ("other.db", b"SQL" as &[u8], "not a database"),
    ] {
        let path = bank.directory().join(name);
        std::fs::write(&path, content).expect("it can be written");
        let refused = run(&bank, &["restore", "--yes", name]).await;
        assert!(!refused.status.success() && refused.printed.contains(word), "{name}: {refused:?}");
    }
    bank.start_web();
    let client: Client = bank.client(0);
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
