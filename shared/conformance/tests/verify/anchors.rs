//! Copies of anchors are compared with the store: each way in which anchors, their lists and the accounts can differ.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use postonce_shared::domain::anchor::AnchorKind;
use postonce_shared::domain::anchor::signed::{AnchorKey, AnchorPublicKey, SignedAnchor};
use postonce_shared::oversight::anchors::{
    AnchorLog, AnchorSigner, LeafLists, Occasion, SigningOutcome, StoredAnchor, append,
};
use postonce_shared::oversight::audit::{AuditTarget, Event, Outcome};
use postonce_shared::oversight::verify::FindingKind::{self, *};
use postonce_shared::oversight::verify::{AnchorCopies, Extent, Finding, Totals, Verifier};
use postonce_shared::ports::archive::{Archive, Readable, StoredRow, UserRange};
use postonce_shared::store::enqueue;
use postonce_shared::testing::changed_accounts::ChangedAccounts;
use postonce_shared::testing::prelude::*;

use super::stores::{RecordingWatcher, TestBank, everything, kinds, small_bank, system};

fn key() -> AnchorKey {
    AnchorKey::from_seed([1; 32])
}

async fn anchor(store: &Store, occasion: Occasion) -> StoredAnchor {
    let signer = AnchorSigner::new(store, &system(), key());
    let signing = append(store, &system(), &signer, occasion).await.unwrap();
    let SigningOutcome::Appended(anchor) = signing.outcome else {
        panic!("no anchor was made: {:?}", signing.outcome)
    };
    *anchor
}

async fn copies(store: &Store) -> Vec<SignedAnchor> {
    let anchors = AnchorLog::new(store, &system()).list(None, 100).await.unwrap();
    anchors.into_iter().map(|anchor| anchor.signed).collect()
}

async fn verify_with(
    store: &Store,
    copies: &[SignedAnchor],
    accepted: &[AnchorPublicKey],
    extent: Extent,
) -> (Totals, Vec<Finding>) {
    let watcher = RecordingWatcher::default();
    let copies = AnchorCopies { copies: copies.to_vec(), accepted: accepted.to_vec() };
    let verifier = Verifier::new(store, system(), &watcher).anchored_by(Some(copies));
    let totals = verifier.run(extent).await.unwrap();
    let mut found = watcher.0.into_inner();
    found.sort_by_key(|finding| (finding.account, finding.kind));
    (totals, found)
}

async fn verify(store: &Store, copies: &[SignedAnchor]) -> (Totals, Vec<Finding>) {
    verify_with(store, copies, &[key().public()], everything()).await
}

async fn record(store: &Store) {
    let audit = TestBank::over(store.clone()).inner.audit;
    audit.record(&Event::by_operator("gate.change", AuditTarget::nothing(), Outcome::Done)).await;
}

async fn remove_anchor(store: &Store, sequence: u64) {
    let id = format!("{:020}", u64::MAX - sequence);
    store.records.remove(Collection::Anchors, &id).await.unwrap();
}

#[tokio::test]
async fn a_sound_bank_agrees_with_its_anchors_in_both_stores() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("postonce.db");
    let file = SqliteStore::open(&path, enqueue(1, Arc::default(), seal()), system()).unwrap();
    for store in [MemoryStore::new(system()), file] {
        let bank = TestBank::over(store.clone());
        let accounts = small_bank(&bank).await;
        record(&store).await;
        let first = anchor(&store, Occasion::Round).await;
        assert_eq!((first.statement.leaves.count, first.statement.leaves.parts), (4, 1));
        assert_eq!(first.statement.audit.unwrap().sequence, 1);
        // Later decisions are not in the anchor, and contradict nothing.
        bank.post(accounts[0], &[5, 6]).await;
        bank.open().await;
        record(&store).await;
        let copied = copies(&store).await;
        let (totals, found) = verify(&store, &copied).await;
        assert_eq!((totals.accounts, totals.anchored_accounts, found), (5, 4, Vec::new()));
        let one = Extent { account: Some(accounts[1]), ..everything() };
        let (totals, found) = verify_with(&store, &copied, &[key().public()], one).await;
        assert_eq!((totals.accounts, totals.anchored_accounts, found), (1, 1, Vec::new()));
        let second = anchor(&store, Occasion::Round).await;
        assert_eq!(second.statement.previous, first.signed.hash());
        // An old copy alone proves less.
        let (totals, found) = verify(&store, &copied).await;
        assert_eq!((totals.anchored_accounts, found), (4, Vec::new()));
        let (totals, found) = verify(&store, &copies(&store).await).await;
        assert_eq!((totals.anchored_accounts, found), (5, Vec::new()));
    }
}

/// A bank with three anchors.
async fn anchored() -> (Store, Vec<AccountKey>, Vec<SignedAnchor>) {
    let store = MemoryStore::new(system());
    let bank = TestBank::over(store.clone());
    let accounts = small_bank(&bank).await;
    for _ in 0..3 {
        record(&store).await;
        anchor(&store, Occasion::Round).await;
        bank.post(accounts[0], &[5]).await;
    }
    let copied = copies(&store).await;
    (store, accounts, copied)
}

async fn check(store: &Store, copies: &[SignedAnchor], expected: &[FindingKind]) {
    let (_, found) = verify(store, copies).await;
    assert_eq!(kinds(&found), expected, "{found:#?}");
}

#[tokio::test]
async fn copies_must_be_signed_with_an_accepted_key() {
    let (store, _, copied) = anchored().await;
    let other = AnchorKey::from_seed([2; 32]);
    let (totals, found) = verify_with(&store, &copied, &[other.public()], everything()).await;
    let each_twice_and_no_leaves = [vec![AnchorSignature; 6], vec![AnchorUnprovable]].concat();
    assert_eq!((totals.anchored_accounts, kinds(&found)), (0, each_twice_and_no_leaves), "{found:#?}");
    let both = [other.public(), key().public()];
    assert_eq!(verify_with(&store, &copied, &both, everything()).await.1, Vec::new());
    let mut forged = copied.clone();
    forged[0].statement = forged[0].statement.replace("\"count\":4", "\"count\":5");
    assert_ne!(forged, copied);
    check(&store, &forged, &[AnchorSignature]).await;
    forged[0].statement = "{}".to_owned();
    check(&store, &forged, &[AnchorSignature]).await;
}

#[tokio::test]
async fn anchors_that_are_missing_or_other_ones_are_found() {
    let (store, _, copied) = anchored().await;
    remove_anchor(&store, 3).await;
    check(&store, &copied, &[AnchorMissing]).await;
    // The store makes another third anchor.
    anchor(&store, Occasion::Round).await;
    check(&store, &copied, &[AnchorDiffers]).await;
    remove_anchor(&store, 2).await;
    check(&store, &copied[1..], &[AnchorMissing, AnchorMissing]).await;
    // Without any anchor, nothing is proven.
    remove_anchor(&store, 1).await;
    remove_anchor(&store, 3).await;
    check(&store, &copied, &[AnchorMissing, AnchorMissing, AnchorMissing, AnchorUnprovable]).await;
}

#[tokio::test]
async fn a_list_that_is_missing_or_was_changed_proves_nothing() {
    let (store, _, copied) = anchored().await;
    // In the order of the anchors: lists that were begun within a millisecond have any order.
    let anchors = AnchorLog::new(&store, &system()).list(None, 100).await.unwrap();
    let parts = store.records.list(Collection::AnchorLeaves, "", None, 100).await.unwrap();
    let part_of = |anchor: &StoredAnchor| {
        parts.iter().find(|part| part.id.starts_with(&anchor.list)).expect("each list has a part")
    };
    let [last, .., first] = anchors.as_slice() else { panic!("three anchors") };
    let (first, last) = (part_of(first), part_of(last));
    let found = store.records.find(Collection::AnchorLeaves, &last.id).await.unwrap().unwrap();
    let saved =
        store.records.save(Collection::AnchorLeaves, &last.id, &first.body, Some(&found.revision)).await;
    drop(saved.unwrap());
    let (totals, found) = verify(&store, &copied).await;
    assert_eq!((totals.anchored_accounts, kinds(&found)), (0, vec![AnchorUnprovable]), "{found:#?}");
    store.records.remove(Collection::AnchorLeaves, &last.id).await.unwrap();
    check(&store, &copied, &[AnchorUnprovable]).await;
    // An older copy can still be checked.
    check(&store, &copied[1..], &[]).await;
}

#[tokio::test]
async fn the_audit_trail_must_have_the_row_of_the_anchor() {
    let (store, _, copied) = anchored().await;
    for sequence in 1..=3 {
        let id = format!("{:020}", u64::MAX - sequence);
        store.records.remove(Collection::AuditRows, &id).await.unwrap();
    }
    let head = store.sync.get("audit-head").await.unwrap().unwrap();
    drop(store.sync.swap("audit-head", Some(&head.revision), "1 1 x").await.unwrap());
    // The trail is written anew.
    for _ in 0..4 {
        record(&store).await;
    }
    let (_, found) = verify(&store, &copied).await;
    assert!(kinds(&found).contains(&AnchoredAudit), "{found:#?}");
}

/// An archive without an account.
struct WithoutAccount(Arc<dyn Archive>, AccountKey);

#[async_trait]
impl ArchiveDecorator for WithoutAccount {
    fn inner(&self) -> &dyn Archive {
        &*self.0
    }

    async fn rows(
        &self,
        range: UserRange,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<Readable<StoredRow>>, StoreFault> {
        let mut listing = self.0.rows(range, cursor, limit).await?;
        listing.items.retain(|row| row.as_ref().map(|row| row.account) != Ok(self.1));
        Ok(listing)
    }

    async fn listed_accounts(
        &self,
        range: UserRange,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<Readable<AccountKey>>, StoreFault> {
        let mut listing = self.0.listed_accounts(range, cursor, limit).await?;
        listing.items.retain(|account| account.as_ref() != Ok(&self.1));
        Ok(listing)
    }
}

#[tokio::test]
async fn an_account_that_the_walk_does_not_meet_is_read_by_its_key() {
    let (store, accounts, copied) = anchored().await;
    for account in &accounts {
        let archive = Arc::new(WithoutAccount(Arc::clone(&store.archive), *account));
        let without = Store { archive, ..store.clone() };
        let (totals, found) = verify(&without, &copied).await;
        // The row itself is still there.
        assert_eq!((totals.accounts, totals.anchored_accounts, found), (4, 4, Vec::new()));
    }
    // The same accounts in another store, which has the anchors but one account less.
    let other = MemoryStore::new(system());
    let elsewhere = Store { records: Arc::clone(&store.records), sync: Arc::clone(&store.sync), ..other };
    let (totals, found) = verify(&elsewhere, &copied).await;
    let gone: Vec<_> = found.iter().filter(|finding| finding.kind == AnchoredAccount).collect();
    assert_eq!((totals.anchored_accounts, gone.len()), (4, 4), "{found:#?}");
}

#[tokio::test]
async fn a_restore_gives_up_the_anchors_that_were_made_before_it() {
    let (store, _, copied) = anchored().await;
    // As after the restore of a backup that was taken after the first anchor.
    remove_anchor(&store, 2).await;
    remove_anchor(&store, 3).await;
    // Anchors that are made within a millisecond have later times.
    system().sleep(Duration::from_millis(10)).await;
    let restore = anchor(&store, Occasion::Restore).await;
    assert_eq!(restore.statement.sequence, 2);
    let (totals, found) = verify(&store, &copied).await;
    assert_eq!((totals.findings, totals.notices, totals.anchored_accounts), (0, 2, 4), "{found:#?}");
    assert_eq!(kinds(&found), [AnchorGivenUp, AnchorGivenUp]);
    // The copies of both branches in one file.
    anchor(&store, Occasion::Round).await;
    let both = [copied.clone(), copies(&store).await].concat();
    let (totals, found) = verify(&store, &both).await;
    assert_eq!((totals.findings, totals.notices), (0, 2), "{found:#?}");
    // A store that is replaced by an older one later is noticed, although that one contains a restore.
    remove_anchor(&store, 3).await;
    let (totals, found) = verify(&store, &both).await;
    assert_eq!((totals.findings, kinds(&found)[0]), (1, AnchorMissing), "{found:#?}");
}

#[tokio::test]
async fn a_restore_gives_up_anchors_that_the_store_has_and_contradicts() {
    let (store, _, copied) = anchored().await;
    let log = AnchorLog::new(&store, &system());
    let first = log.list(Some(2), 1).await.unwrap().pop().unwrap();
    let leaves = LeafLists::new(&store, &system()).read_part(&first.list, 0).await.unwrap();
    // As after a failover in which the newest writes of the ledger were lost.
    let change = move |account: &mut Account| {
        if let Some(leaf) = leaves.iter().find(|leaf| leaf.account == account.key) {
            (account.version, account.head) = (leaf.version, leaf.head);
        }
    };
    let archive = Arc::new(ChangedAccounts { inner: Arc::clone(&store.archive), change });
    let earlier = Store { archive, ..store.clone() };
    let signer = AnchorSigner::new(&earlier, &system(), key());
    let refused = append(&earlier, &system(), &signer, Occasion::Round).await.unwrap();
    assert!(matches!(refused.outcome, SigningOutcome::Contradicted(_, 1)), "{refused:?}");
    let restore = anchor(&earlier, Occasion::Restore).await;
    assert_eq!(restore.statement.sequence, 4);
    let returned_to = Some(first.signed.reference(1));
    assert_eq!(restore.statement.kind, AnchorKind::Restore { returned_to });
    let (totals, found) = verify(&store, &copied).await;
    assert_eq!(kinds(&found), [AnchorGivenUp, AnchorGivenUp], "{found:#?}");
    assert_eq!(totals.anchored_accounts, 4);
    // Later anchors are not given up.
    anchor(&store, Occasion::Round).await;
    let (totals, _) = verify(&store, &copies(&store).await).await;
    assert_eq!((totals.findings, totals.notices), (0, 2));
}
