//! Each way to change the rows of the audit trail, in memory and in a file, and its findings.

use std::sync::Arc;

use postonce_shared::domain::audit_row::AuditRow;
use postonce_shared::domain::journal::PageHash;
use postonce_shared::oversight::audit::{AuditTarget, Event, Outcome};
use postonce_shared::oversight::verify::Extent;
use postonce_shared::oversight::verify::FindingKind::{self, *};
use postonce_shared::ports::records::Collection::AuditRows;
use postonce_shared::store::enqueue;
use postonce_shared::testing::prelude::*;
use serde_json::{Value, json};

use super::stores::{TestBank, everything, system, verify};

/// The id of the record of a row.
fn id(sequence: u64) -> String {
    format!("{:020}", u64::MAX - sequence)
}

/// Writes acts of a process of its own.
async fn record(store: &Store, count: usize) {
    let audit = TestBank::over(store.clone()).inner.audit;
    for number in 0..count {
        let on = AuditTarget::one("number", number);
        audit.record(&Event::by_operator("gate.change", on, Outcome::Done)).await;
    }
    assert_eq!(audit.missing(), 0);
}

/// A trail of four rows that can be changed.
struct Trail(Store);

impl Trail {
    async fn text(&self, sequence: u64) -> String {
        self.0.records.find(AuditRows, &id(sequence)).await.unwrap().unwrap().value
    }

    async fn write(&self, id: &str, text: &str) {
        let found = self.0.records.find(AuditRows, id).await.unwrap();
        let revision = found.map(|found| found.revision);
        drop(self.0.records.save(AuditRows, id, text, revision.as_ref()).await.unwrap());
    }

    async fn remove(&self, sequence: u64) {
        self.0.records.remove(AuditRows, &id(sequence)).await.unwrap();
    }

    /// Changes the actor in a row; also its hash, if it is resealed.
    async fn change(&self, sequence: u64, reseal: bool) {
        let audit = TestBank::over(self.0.clone()).inner.audit;
        let rows = audit.list(Some(sequence + 1), 1).await.unwrap();
        let mut row: AuditRow = rows.into_iter().next().unwrap();
        row.done.actor = "nobody".to_owned();
        let mut body: Value = serde_json::from_str(&self.text(sequence).await).unwrap();
        body["actor"] = json!("nobody");
        if reseal {
            body["hash"] = json!(row.content_hash().to_string());
        }
        self.write(&id(sequence), &body.to_string()).await;
    }

    async fn announce(&self, text: &str) {
        let found = self.0.sync.get("audit-head").await.unwrap();
        let revision = found.map(|found| found.revision);
        drop(self.0.sync.swap("audit-head", revision.as_ref(), text).await.unwrap());
    }
}

/// Asserts the findings after a change of a trail, with their rows, in both stores.
async fn check(change: impl AsyncFn(&Trail), expected: &[(FindingKind, Option<u64>)]) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("postonce.db");
    let file = SqliteStore::open(&path, enqueue(1, Arc::default(), seal()), system()).unwrap();
    for store in [MemoryStore::new(system()), file] {
        TestBank::over(store.clone()).open().await;
        record(&store, 4).await;
        let (totals, found) = verify(&store, everything()).await.unwrap();
        assert_eq!((totals.audit_rows, found), (4, Vec::new()), "the trail is sound before the change");
        change(&Trail(store.clone())).await;
        let (totals, found) = verify(&store, everything()).await.unwrap();
        let mut kinds: Vec<_> = found.iter().map(|finding| (finding.kind, finding.audit_row)).collect();
        kinds.sort();
        assert_eq!(kinds, expected, "{found:#?}");
        assert_eq!(totals.findings, u64::try_from(expected.len()).unwrap());
        // Later acts hide nothing.
        record(&store, 2).await;
        let (_, later) = verify(&store, everything()).await.unwrap();
        assert!(later.len() >= found.len(), "{later:#?}");
    }
}

#[tokio::test]
async fn a_changed_row_is_found_also_with_a_new_hash() {
    check(async |trail| trail.change(2, false).await, &[(AuditHash, Some(2))]).await;
    check(async |trail| trail.change(2, true).await, &[(AuditChain, Some(3))]).await;
    check(async |trail| trail.change(4, true).await, &[(AuditHead, Some(4))]).await;
}

#[tokio::test]
async fn a_removed_row_is_found_wherever_it_was() {
    check(async |trail| trail.remove(1).await, &[(AuditMissing, None)]).await;
    check(async |trail| trail.remove(3).await, &[(AuditMissing, None)]).await;
    check(async |trail| trail.remove(4).await, &[(AuditMissing, None)]).await;
    let remove_all = async |trail: &Trail| {
        for sequence in 1..=4 {
            trail.remove(sequence).await;
        }
    };
    check(remove_all, &[(AuditMissing, None)]).await;
}

#[tokio::test]
async fn an_inserted_row_is_found() {
    let copied = |sequence: u64| {
        async move |trail: &Trail| {
            let copy = trail.text(2).await;
            trail.write(&id(sequence), &copy).await;
        }
    };
    check(copied(5), &[(AuditHash, Some(5)), (AuditChain, Some(5))]).await;
    check(copied(9), &[(AuditHash, Some(9)), (AuditMissing, None)]).await;
    check(async |trail| trail.write("a-row", &trail.text(2).await).await, &[(AuditUnreadable, None)]).await;
    check(async |trail| trail.write(&id(0), &trail.text(2).await).await, &[(AuditUnreadable, None)]).await;
    // A row in front of the first one, in its place.
    let replaced = async |trail: &Trail| {
        let later = TestBank::over(trail.0.clone()).inner.audit.list(Some(2), 1).await.unwrap();
        let done = later[0].done.clone();
        let row = AuditRow::after((0, PageHash::from_bytes([7; 32])), done);
        let mut body: Value = serde_json::from_str(&trail.text(1).await).unwrap();
        body["previous_hash"] = json!(row.previous_hash.to_string());
        body["hash"] = json!(row.hash.to_string());
        trail.write(&id(1), &body.to_string()).await;
    };
    check(replaced, &[(AuditChain, Some(1)), (AuditChain, Some(2))]).await;
}

#[tokio::test]
async fn an_unreadable_row_does_not_hide_others() {
    check(async |trail| trail.write(&id(3), "{}").await, &[(AuditUnreadable, Some(3))]).await;
    let both = async |trail: &Trail| {
        trail.write(&id(3), "{}").await;
        trail.change(2, false).await;
        trail.remove(1).await;
    };
    check(both, &[(AuditUnreadable, Some(3)), (AuditHash, Some(2)), (AuditMissing, None)]).await;
}

#[tokio::test]
async fn a_changed_announcement_is_found() {
    check(async |trail| trail.announce("nothing").await, &[(AuditHead, None)]).await;
    let other_hash = format!("1 4 {}", PageHash::from_bytes([7; 32]));
    check(async |trail| trail.announce(&other_hash).await, &[(AuditHead, Some(4))]).await;
    let later = format!("1 7 {}", PageHash::from_bytes([7; 32]));
    check(async |trail| trail.announce(&later).await, &[(AuditMissing, None)]).await;
}

#[tokio::test]
async fn the_audit_of_one_account_does_not_read_the_trail() {
    let store = MemoryStore::new(system());
    let account = TestBank::over(store.clone()).open().await;
    record(&store, 2).await;
    Trail(store.clone()).remove(1).await;
    let (totals, found) = verify(&store, Extent { account: Some(account), ..everything() }).await.unwrap();
    assert_eq!((totals.audit_rows, found), (0, Vec::new()));
}
