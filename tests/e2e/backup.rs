//! Backups under load, and restores of each of them.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{join, join_all};
use postonce_shared::store;
use postonce_shared::testing::prelude::*;
use postonce_tests::journal::whole_journal;
use postonce_tests::prelude::*;
use tempfile::TempDir;

const ACCOUNTS: usize = 6;
const CONNECTIONS: usize = 8;
/// Number of backups that are taken under load. Each one is restored.
const BACKUPS: usize = 3;
/// Longest time for all work to become final after a start.
pub(super) const DRAIN_TIME_MAX: Duration = Duration::from_secs(90);

#[tokio::test]
async fn one_process_is_restored_from_backups_under_load() {
    backups_under_load(Plan::on(StoreKind::Sqlite).start().await).await;
}

#[tokio::test]
async fn a_web_and_a_worker_process_are_restored_from_backups_under_load() {
    backups_under_load(Plan::on(StoreKind::Sqlite).processes(1, 1).start().await).await;
}

/// Takes several backups while several connections deposit. Then restores each of them, the oldest last,
/// and continues to post after each restore.
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
                drop(client.submit_until_accepted(account, id, &Submission::deposit("1.00")).await);
                answered.set(answered.get().saturating_add(1));
            }
        }
    });
    let backups: RefCell<Vec<PathBuf>> = RefCell::default();
    let taking = async {
        for number in 0..BACKUPS {
            let before = answered.get();
            wait::until("the load continues", wait::TIMEOUT, async || match answered.get() {
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
    before.check_consistent(&sent.borrow());
    let mut numbers = before.numbers();
    stop(&mut bank).await;
    for backup in backups.into_inner().iter().rev() {
        let in_backup = read_backup(backup, &accounts).await;
        assert!(in_backup.is_prefix_of(&before), "a backup contains the ledger of one moment");
        restore(&bank, backup).await;
        start(&mut bank).await;
        let client = bank.client(bank.webs.len().saturating_sub(1));
        for account in &accounts {
            drop(client.post(*account, fresh_id_in(&sent), &Submission::deposit("1.00")).await);
        }
        client.until_drained(DRAIN_TIME_MAX).await;
        let after = Ledger::read(&bank.store().await, &accounts).await;
        after.check_consistent(&sent.borrow());
        in_backup.check_continued_in(&after);
        let verified = run(&bank, &["verify"]).await;
        assert!(verified.status.success(), "{verified:?}");
        let new: BTreeSet<OrderNumber> = after.numbers().difference(&in_backup.numbers()).copied().collect();
        let (highest, lowest) =
            (numbers.last().expect("some were posted"), new.first().expect("some are new"));
        assert!(
            lowest > highest,
            "order number {lowest} is not higher than {highest}, which was issued before"
        );
        numbers.extend(new);
        stop(&mut bank).await;
        before = in_backup;
    }
}

/// The ledger, read directly from the store.
pub(super) struct Ledger(pub(super) BTreeMap<AccountKey, Account>);

pub(super) struct Account {
    pub(super) balance: i64,
    head: PageHash,
    pages: Vec<JournalPage>,
    accepted: BTreeSet<MessageId>,
}

impl Ledger {
    pub(super) async fn read(store: &Store, accounts: &[AccountKey]) -> Self {
        let mut ledger = BTreeMap::new();
        for key in accounts {
            let account = store.ledger.account(*key).await.expect("it can be read").expect("it exists").value;
            let pages = whole_journal(store, *key).await;
            let accepted = store.log.by_status(*key, TransactionStatus::Accepted, None, None, 10_000).await;
            let accepted = accepted.expect("it can be read").items;
            let accepted = accepted.iter().map(|stored| stored.submission.key.message).collect();
            let balance = account.balance.minor_units();
            drop(ledger.insert(*key, Account { balance, head: account.head, pages, accepted }));
        }
        Self(ledger)
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.0.values().flat_map(Account::entries)
    }

    /// The transactions that are posted or still to be posted.
    pub(super) fn known(&self) -> BTreeSet<MessageId> {
        let accepted = self.0.values().flat_map(|account| account.accepted.iter().copied());
        self.entries().map(|entry| entry.message).chain(accepted).collect()
    }

    fn numbers(&self) -> BTreeSet<OrderNumber> {
        self.entries().map(|entry| entry.order_number).collect()
    }

    /// Checks balances, chains and order numbers, and that every transaction was sent.
    pub(super) fn check_consistent(&self, sent: &BTreeSet<MessageId>) {
        assert_eq!(self.numbers().len(), self.entries().count(), "an order number was issued twice");
        for (key, account) in &self.0 {
            let mut previous = PageHash::GENESIS;
            for page in &account.pages {
                page.check().unwrap_or_else(|flaw| panic!("account {key}: {flaw}"));
                assert!(page.previous_hash == previous, "account {key}: the chain is broken");
                previous = page.hash;
            }
            assert!(previous == account.head, "account {key} does not reference its last page");
            let cents: i64 = account.entries().map(|entry| entry.amount.minor_units()).sum();
            assert_eq!(account.balance, cents, "account {key}");
            let ids: BTreeSet<MessageId> = account.entries().map(|entry| entry.message).collect();
            assert_eq!(ids.len(), account.entries().count(), "account {key}: posted twice");
            assert!(ids.is_subset(sent), "account {key}: an unknown transaction");
        }
    }

    pub(super) fn is_prefix_of(&self, later: &Self) -> bool {
        let is_prefix = |(key, account): (&AccountKey, &Account)| {
            later.0.get(key).is_some_and(|later| later.pages.starts_with(&account.pages))
        };
        self.0.iter().all(is_prefix)
    }

    /// Checks that the later state contains this one, and that the accepted transactions are posted there.
    fn check_continued_in(&self, later: &Self) {
        assert!(self.is_prefix_of(later), "a posted transaction never changes");
        for (key, account) in &self.0 {
            let later = later.0.get(key).expect("the same accounts");
            let posted: BTreeSet<MessageId> = later.entries().map(|entry| entry.message).collect();
            assert!(account.accepted.is_subset(&posted), "account {key}: accepted work was not posted");
            let count = account.entries().count().saturating_add(account.accepted.len());
            assert_eq!(
                posted.len(),
                count.saturating_add(1),
                "account {key}: the recovered work and the new deposit"
            );
        }
    }
}

impl Account {
    fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.pages.iter().flat_map(|page| &page.entries)
    }
}

/// The content of a backup. A copy is opened, so that the backup does not change.
async fn read_backup(backup: &Path, accounts: &[AccountKey]) -> Ledger {
    let folder = TempDir::with_prefix("postonce-backup-").expect("a directory");
    let copy = folder.path().join("copy.db");
    std::fs::copy(backup, &copy).expect("a backup can be copied");
    let enqueue = store::enqueue(1, Arc::default(), seal());
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

pub(super) async fn restore(bank: &Scenario, backup: &Path) {
    let restored = run(bank, &["restore", "--yes", backup.to_str().expect("a plain path")]).await;
    assert!(restored.status.success(), "{restored:?}");
}

/// A command that has ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) status: ExitStatus,
    pub(super) printed: String,
}

/// Runs an operator command while the rest of the test continues.
pub(super) async fn run(bank: &Scenario, arguments: &[&str]) -> Ended {
    let mut process = begin(bank, arguments);
    let status = wait::until("the command ends", wait::TIMEOUT, async || {
        process.ended().ok_or_else(|| process.log().lines().join("\n"))
    })
    .await;
    process.wait_for_output();
    Ended { status, printed: process.log().lines().join("\n") }
}

pub(super) fn begin(bank: &Scenario, arguments: &[&str]) -> Process {
    Process::start(&service::launch(Binary::Web, &bank.settings, arguments, &bank.directory()))
}
