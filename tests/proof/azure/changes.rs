//! Changes of accounts and marks whose response was lost: they are reported as done, not done, or unknown.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use postonce_shared::testing::decorators::WorldDecorator;
use postonce_shared::testing::fresh_nonce;
use postonce_shared::testing::prelude::*;

use crate::azure::fixture::{Fixture, account, commit_of, deposit, revision_of, store_over};
use postonce_tests::fake_storage::Fault::{ApplyAndCut, Cut, CutAndApplyLate, Refuse};

type DuringWait = Box<dyn FnOnce() -> BoxFuture<'static, ()> + Send>;

/// A world that runs an action during its first wait.
struct WaitWorld {
    real: SystemWorld,
    during_wait: Mutex<Option<DuringWait>>,
}

#[async_trait]
impl WorldDecorator for WaitWorld {
    fn inner(&self) -> &dyn World {
        &self.real
    }

    fn uptime(&self) -> Duration {
        Duration::ZERO
    }

    async fn sleep(&self, _: Duration) {
        let during_wait = self.during_wait.lock().take();
        if let Some(during_wait) = during_wait {
            during_wait().await;
        }
    }
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.real.spawn(task);
    }
}

/// A second store over the same service, which runs an action during its first wait.
fn store_with(fixture: &Fixture, during_wait: DuringWait) -> Store {
    let world = WaitWorld { real: SystemWorld::new(), during_wait: Mutex::new(Some(during_wait)) };
    store_over(&fixture.fake, Arc::new(world))
}

fn closed(opened: &Versioned<Account>) -> AccountDecision {
    change_of_terms(&opened.value, opened.value.overdraft_limit, AccountStatus::Closed)
}

fn with_overdraft(opened: &Versioned<Account>, cents: i64) -> AccountDecision {
    let limit = OverdraftLimit::try_new(cents, opened.value.currency).unwrap();
    change_of_terms(&opened.value, limit, AccountStatus::Open)
}

#[tokio::test]
async fn a_change_whose_response_is_lost_is_recognized_by_its_nonce() {
    for fault in [ApplyAndCut, CutAndApplyLate] {
        let fixture = Fixture::new();
        let opened = fixture.open_account().await;
        fixture.fake.fail("batch", &[fault]);
        let changed = fixture.store.accounts.change(&opened.revision, &closed(&opened)).await.unwrap();
        assert_eq!(fixture.fake.requests(), ["batch", "batch", "get"]);
        let now = fixture.ledger.account(account().key).await.unwrap().unwrap();
        assert_eq!((changed, now.value), (Some(now.revision), closed(&opened).after));
    }
}

#[tokio::test]
async fn an_equal_change_of_another_process_is_a_conflict() {
    let fixture = Fixture::new();
    let opened = fixture.open_account().await;
    // The other process makes the same change.
    let theirs = fixture.store.accounts.change(&opened.revision, &closed(&opened)).await.unwrap();
    assert!(theirs.is_some());
    fixture.fake.fail("batch", &[Cut]);
    let ours = fixture.store.accounts.change(&opened.revision, &closed(&opened)).await.unwrap();
    assert_eq!(ours, None);
    // After a clear response, nothing is read back.
    fixture.fake.requests();
    assert_eq!(fixture.store.accounts.change(&opened.revision, &closed(&opened)).await.unwrap(), None);
    assert_eq!(fixture.fake.requests(), ["batch"]);
}

#[tokio::test]
async fn a_change_that_may_lie_under_a_newer_one_is_unknown() {
    let fixture = Fixture::new();
    let opened = fixture.open_account().await;
    let accounts = Arc::clone(&fixture.store.accounts);
    let ledger = Arc::clone(&fixture.ledger);
    let during_wait = async move {
        let now = ledger.account(account().key).await.unwrap().unwrap();
        assert!(accounts.change(&now.revision, &with_overdraft(&now, 700)).await.unwrap().is_some());
    };
    let ours = store_with(&fixture, Box::new(|| Box::pin(during_wait)));
    fixture.fake.fail("batch", &[ApplyAndCut]);
    let answer = ours.accounts.change(&opened.revision, &with_overdraft(&opened, 500)).await;
    assert!(matches!(answer, Err(StoreFault::Unavailable { .. })), "{answer:?}");
}

#[tokio::test]
async fn a_change_that_is_refused_after_a_lost_response_is_unknown() {
    let fixture = Fixture::new();
    let opened = fixture.open_account().await;
    fixture.fake.fail("batch", &[Cut, Refuse(403)]);
    let answer = fixture.store.accounts.change(&opened.revision, &closed(&opened)).await;
    assert!(matches!(answer, Err(StoreFault::Unavailable { .. })), "{answer:?}");
}

/// Equal marks of another process are not one's own: each mark counts for one repair.
#[tokio::test]
async fn equal_marks_of_another_process_are_a_conflict() {
    let fixture = Fixture::new();
    let (_, revision) = fixture.accepted(1).await;
    let marks = Marks { repairs: 1, ..Marks::default() };
    let theirs = fixture.ledger.mark(&deposit(1).key, &revision, marks).await.unwrap();
    assert!(theirs.is_some());
    assert_eq!(fixture.ledger.mark(&deposit(1).key, &revision, marks).await.unwrap(), None);
    let revision = theirs.unwrap();
    let ledger = Arc::clone(&fixture.ledger);
    let again = Marks { repairs: 2, ..Marks::default() };
    let during_wait = {
        let revision = revision.clone();
        async move { assert!(ledger.mark(&deposit(1).key, &revision, again).await.unwrap().is_some()) }
    };
    let ours = store_with(&fixture, Box::new(|| Box::pin(during_wait)));
    fixture.fake.fail("merge", &[Cut]);
    let answer = ours.ledger.mark(&deposit(1).key, &revision, again).await;
    assert!(matches!(answer, Err(StoreFault::Unavailable { .. })), "{answer:?}");
}

/// The account is closed, the response is lost, and a worker rejects work meanwhile: `None` would say that
/// the account is still open.
#[tokio::test]
async fn a_change_that_was_written_is_never_reported_as_refused() {
    let fixture = Fixture::new();
    let opened = fixture.open_account().await;
    let (new, revision) = fixture.accepted(5).await;
    let ledger = Arc::clone(&fixture.ledger);
    let commit = async move {
        let now = ledger.account(account().key).await.unwrap().unwrap();
        let answer = ledger.commit(&commit_of(&now, &[(&new, revision)])).await.unwrap();
        assert!(matches!(answer, Committed::Done { .. }), "{answer:?}");
    };
    let ours = store_with(&fixture, Box::new(|| Box::pin(commit)));
    let closed = change_of_terms(&opened.value, opened.value.overdraft_limit, AccountStatus::Closed);
    fixture.fake.fail("batch", &[ApplyAndCut]);
    let answer = ours.accounts.change(&opened.revision, &closed).await;
    let now = fixture.ledger.account(account().key).await.unwrap().unwrap();
    assert_eq!(now.value.status, AccountStatus::Closed, "the change was written");
    let revision = answer.unwrap().expect("the change was written");
    assert_ne!(revision, now.revision, "the revision is not of the balance that the caller knows");
}

/// The response to an insert would contain the whole row otherwise.
#[tokio::test]
async fn the_inserts_of_a_batch_ask_for_no_content() {
    let fixture = Fixture::new();
    let account = fixture.open_account().await;
    let new: Vec<_> = (1..=3).map(deposit).collect();
    fixture.fake.targets();
    let outcomes = fixture.ledger.accept(&new, fresh_nonce()).await.unwrap();
    let revisions: Vec<_> = outcomes.iter().map(revision_of).collect();
    assert_ne!(revisions[0], revisions[1], "the responses still contain the ETags");
    let work: Vec<_> = new.iter().zip(revisions).collect();
    drop(fixture.ledger.commit(&commit_of(&account, &work)).await.unwrap());
    let batches = fixture.fake.targets();
    let counts: Vec<_> = batches
        .iter()
        .map(|(_, body)| {
            let inserts = body.lines().filter(|line| line.starts_with("POST ")).count();
            (inserts, body.matches(" HTTP/1.1\nPrefer: return-no-content\n").count())
        })
        .collect();
    // Three rows; then a page beside the changes of the account and of the rows.
    assert_eq!(counts, [(3, 3), (1, 1)]);
}
