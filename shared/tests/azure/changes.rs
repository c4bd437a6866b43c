//! Changes of accounts and marks whose answer was lost: done, not done, or honestly unknown.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use postonce_shared::adapters::azure::{self, AzureConfig, AzureConnection};
use postonce_shared::adapters::system::SystemWorld;
use postonce_shared::domain::account::{Account, AccountStatus, Versioned};
use postonce_shared::domain::money::OverdraftLimit;
use postonce_shared::ports::Store;
use postonce_shared::ports::fault::StoreFault;
use postonce_shared::ports::ledger::{Committed, Marks};
use postonce_shared::ports::world::World;
use postonce_shared::testing::decorators::WorldDecorator;

use crate::fake::Fault::{Cut, CutAndLandLate, DoAndCut, Refuse};
use crate::means::{Bench, account, commit_of, deposit, revision_of};

type Meanwhile = Box<dyn FnOnce() -> BoxFuture<'static, ()> + Send>;

/// A world in which something happens during the first wait.
struct BusyWorld {
    real: SystemWorld,
    meanwhile: Mutex<Option<Meanwhile>>,
}

#[async_trait]
impl WorldDecorator for BusyWorld {
    fn inner(&self) -> &dyn World {
        &self.real
    }

    fn uptime(&self) -> Duration {
        Duration::ZERO
    }

    async fn sleep(&self, _: Duration) {
        let meanwhile = self.meanwhile.lock().take();
        if let Some(meanwhile) = meanwhile {
            meanwhile().await;
        }
    }
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.real.spawn(task);
    }
}

/// One more store over the same service, during whose first wait something happens.
async fn store_with(bench: &Bench, meanwhile: Meanwhile) -> Store {
    let world = BusyWorld { real: SystemWorld::new(), meanwhile: Mutex::new(Some(meanwhile)) };
    let connection = AzureConnection::parse(&bench.fake.connection_string()).unwrap();
    let config = AzureConfig { connection, prefix: "test".to_owned() };
    azure::open(&config, Arc::new(world)).await.unwrap()
}

fn closed(opened: &Versioned<Account>) -> Account {
    opened.value.changed(opened.value.overdraft_limit, AccountStatus::Closed).unwrap()
}

fn with_overdraft(opened: &Versioned<Account>, cents: i64) -> Account {
    let limit = OverdraftLimit::try_new(cents, opened.value.currency).unwrap();
    opened.value.changed(limit, AccountStatus::Open).unwrap()
}

#[tokio::test]
async fn a_change_whose_answer_is_lost_is_recognized_by_its_nonce() {
    for (fault, requests) in
        [(DoAndCut, ["merge", "merge", "get"]), (CutAndLandLate, ["merge", "merge", "get"])]
    {
        let bench = Bench::new().await;
        let opened = bench.open_account().await;
        bench.fake.fail("merge", &[fault]);
        let changed = bench.store.accounts.change(&opened.revision, &closed(&opened)).await.unwrap();
        assert_eq!(bench.fake.seen(), requests);
        let now = bench.store.ledger.account(account().key).await.unwrap().unwrap();
        assert_eq!((changed, now.value), (Some(now.revision), closed(&opened)));
    }
}

#[tokio::test]
async fn a_change_that_somebody_else_made_first_is_not_ones_own() {
    let bench = Bench::new().await;
    let opened = bench.open_account().await;
    // The very same change: it is theirs all the same.
    let theirs = bench.store.accounts.change(&opened.revision, &closed(&opened)).await.unwrap();
    assert!(theirs.is_some());
    bench.fake.fail("merge", &[Cut]);
    let ours = bench.store.accounts.change(&opened.revision, &closed(&opened)).await.unwrap();
    assert_eq!(ours, None);
    // A clear answer needs no reading back.
    bench.fake.seen();
    assert_eq!(bench.store.accounts.change(&opened.revision, &closed(&opened)).await.unwrap(), None);
    assert_eq!(bench.fake.seen(), ["merge"]);
}

#[tokio::test]
async fn a_change_under_a_newer_one_is_unclear() {
    let bench = Bench::new().await;
    let opened = bench.open_account().await;
    let accounts = Arc::clone(&bench.store.accounts);
    let ledger = Arc::clone(&bench.store.ledger);
    let meanwhile = async move {
        let now = ledger.account(account().key).await.unwrap().unwrap();
        assert!(accounts.change(&now.revision, &with_overdraft(&now, 700)).await.unwrap().is_some());
    };
    let ours = store_with(&bench, Box::new(|| Box::pin(meanwhile))).await;
    bench.fake.fail("merge", &[DoAndCut]);
    let answer = ours.accounts.change(&opened.revision, &with_overdraft(&opened, 500)).await;
    assert!(matches!(answer, Err(StoreFault::Unavailable { .. })), "{answer:?}");
}

#[tokio::test]
async fn a_change_that_is_refused_after_a_lost_answer_is_unclear() {
    let bench = Bench::new().await;
    let opened = bench.open_account().await;
    bench.fake.fail("merge", &[Cut, Refuse(403)]);
    let answer = bench.store.accounts.change(&opened.revision, &closed(&opened)).await;
    assert!(matches!(answer, Err(StoreFault::Unavailable { .. })), "{answer:?}");
}

/// The same marks of somebody else are not ours: each counts for one repair.
#[tokio::test]
async fn equal_marks_of_somebody_else_are_not_ones_own() {
    let bench = Bench::new().await;
    let revision = revision_of(&bench.store.ledger.accept(&[deposit(1)]).await.unwrap()[0]);
    let marks = Marks { repairs: 1, ..Marks::default() };
    let theirs = bench.store.ledger.mark(&deposit(1).key, &revision, marks).await.unwrap();
    assert!(theirs.is_some());
    assert_eq!(bench.store.ledger.mark(&deposit(1).key, &revision, marks).await.unwrap(), None);
    let revision = theirs.unwrap();
    let ledger = Arc::clone(&bench.store.ledger);
    let again = Marks { repairs: 2, ..Marks::default() };
    let meanwhile = {
        let revision = revision.clone();
        async move { assert!(ledger.mark(&deposit(1).key, &revision, again).await.unwrap().is_some()) }
    };
    let ours = store_with(&bench, Box::new(|| Box::pin(meanwhile))).await;
    bench.fake.fail("merge", &[Cut]);
    let answer = ours.ledger.mark(&deposit(1).key, &revision, again).await;
    assert!(matches!(answer, Err(StoreFault::Unavailable { .. })), "{answer:?}");
}

/// The account is closed, the answer is lost, a worker rejects something: `None` would say that the
/// account is still open.
#[tokio::test]
async fn a_change_that_was_written_is_never_called_refused() {
    let bench = Bench::new().await;
    let opened = bench.open_account().await;
    let new = deposit(5);
    let revision = revision_of(&bench.store.ledger.accept(std::slice::from_ref(&new)).await.unwrap()[0]);
    let ledger = Arc::clone(&bench.store.ledger);
    let commit = async move {
        let now = ledger.account(account().key).await.unwrap().unwrap();
        let answer = ledger.commit(&commit_of(&now, &[(&new, revision)])).await.unwrap();
        assert!(matches!(answer, Committed::Done { .. }), "{answer:?}");
    };
    let ours = store_with(&bench, Box::new(|| Box::pin(commit))).await;
    let closed = opened.value.changed(opened.value.overdraft_limit, AccountStatus::Closed).unwrap();
    bench.fake.fail("merge", &[DoAndCut]);
    let answer = ours.accounts.change(&opened.revision, &closed).await;
    let now = bench.store.ledger.account(account().key).await.unwrap().unwrap();
    assert_eq!(now.value.status, AccountStatus::Closed, "it was written");
    let revision = answer.unwrap().expect("it was written");
    assert_ne!(revision, now.revision, "the revision is not of the balance that the caller knows");
}
