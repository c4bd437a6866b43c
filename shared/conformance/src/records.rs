//! Tests of the records.

use std::sync::Arc;

use super::case::{Case, forged_revisions};
use postonce_shared::ports::records::{Collection, RECORD_BODY_BYTES_MAX, RECORD_ID_CHARS_MAX, Record};
use postonce_shared::testing::prelude::*;

/// The collection of the cases that need only one.
const BATCHES: Collection = Collection::Batches;

/// Tests an implementation of [`postonce_shared::ports::records::Records`].
pub async fn records_contract<F>(fresh: F)
where
    F: AsyncFn() -> Store,
{
    let case = async || Case::new(fresh().await);
    a_record_is_read_as_it_was_saved(&case().await).await;
    no_part_of_an_earlier_body_remains(&case().await).await;
    a_record_is_saved_under_the_revision_that_was_read(&case().await).await;
    concurrent_saves_are_not_lost(&case().await).await;
    collections_do_not_mix(&case().await).await;
    records_are_listed_by_id(&case().await).await;
    long_records_are_listed(&case().await).await;
    a_removed_record_does_not_exist_and_can_be_saved_anew(&case().await).await;
}

impl Case {
    async fn body_of(&self, id: &str) -> Option<String> {
        self.store.records.find(BATCHES, id).await.unwrap().map(|stored| stored.value)
    }

    async fn save(&self, id: &str, body: &str, expected: Option<&Revision>) -> Swapped {
        self.store.records.save(BATCHES, id, body, expected).await.unwrap()
    }

    async fn saved(&self, id: &str, body: &str, expected: Option<&Revision>) -> Revision {
        match self.save(id, body, expected).await {
            Swapped::Done(revision) => revision,
            Swapped::Conflict => panic!("the save returned a conflict without a concurrent write"),
        }
    }

    /// Reads the records with a prefix in pages of `limit`.
    async fn records_with(&self, prefix: &str, after: Option<&str>, limit: usize) -> Vec<Record> {
        let (mut listed, mut after) = (Vec::<Record>::new(), after.map(str::to_owned));
        loop {
            let page = self.store.records.list(BATCHES, prefix, after.as_deref(), limit).await.unwrap();
            assert!(page.len() <= limit, "a page has at most `limit` items");
            let is_last = page.len() < limit;
            after = page.last().map(|record| record.id.clone()).or(after);
            listed.extend(page);
            if is_last {
                assert!(listed.is_sorted_by(|one, other| one.id < other.id), "each once, ordered by id");
                return listed;
            }
        }
    }
}

/// Returns bodies of every kind: empty, with all kinds of characters, and of the maximum size.
fn bodies() -> Vec<String> {
    let notes = "\u{1d11e}".repeat(RECORD_BODY_BYTES_MAX / 4);
    let lines = "\"gr\u{fc}\u{df}e\"\r\n\t".repeat(RECORD_BODY_BYTES_MAX / 12);
    let bodies = ["", "{}", " ", "\0", "a\0\u{1}\u{7f}b", "\u{feff}\u{fffe}\u{ffff}", "'\\\"<&%;--\n"];
    let mut bodies: Vec<String> = bodies.into_iter().map(str::to_owned).collect();
    bodies.extend(["x".repeat(100_000), "\u{e4}".repeat(100_000), "\0".repeat(RECORD_BODY_BYTES_MAX)]);
    // As much as fits in UTF-16, with escapes in JSON.
    let quotes = "\"\"\"\"\"\"\"\u{20ac}\u{20ac}\u{20ac}".repeat(RECORD_BODY_BYTES_MAX / 16);
    bodies.extend(["x".repeat(RECORD_BODY_BYTES_MAX), notes, lines, quotes]);
    bodies
}

async fn a_record_is_read_as_it_was_saved(case: &Case) {
    for body in bodies() {
        let size = body.len();
        let id = case.name();
        assert_eq!(case.body_of(&id).await, None, "the record was not saved");
        let revision = case.saved(&id, &body, None).await;
        let stored = case.store.records.find(BATCHES, &id).await.unwrap();
        let expected = Some(Versioned { value: body, revision });
        assert!(stored == expected, "the record of {size} bytes is read as it was saved");
    }
    let longest = format!("{}{}", case.name(), "x".repeat(RECORD_ID_CHARS_MAX));
    let longest = longest[..RECORD_ID_CHARS_MAX].to_owned();
    for id in
        [longest, format!("-{}", case.name()), format!("_{}-", case.name()), format!("0{}", case.name())]
    {
        case.saved(&id, "{}", None).await;
        assert_eq!(case.body_of(&id).await.as_deref(), Some("{}"), "{id}");
    }
}

async fn no_part_of_an_earlier_body_remains(case: &Case) {
    let id = case.name();
    let mut revision = case.saved(&id, "", None).await;
    let bodies = bodies();
    // Long and short bodies, text and others, in changing order.
    for body in bodies.iter().chain(bodies.iter().rev()).chain(bodies.iter().step_by(5)) {
        revision = case.saved(&id, body, Some(&revision)).await;
        assert!(case.body_of(&id).await.as_ref() == Some(body), "the body of {} bytes is stored", body.len());
    }
}

async fn a_record_is_saved_under_the_revision_that_was_read(case: &Case) {
    let (id, other) = (case.name(), case.name());
    let first = case.saved(&id, "one", None).await;
    assert_eq!(case.save(&id, "two", None).await, Swapped::Conflict, "it exists already");
    let answer = case.save(&other, "two", Some(&first)).await;
    assert_eq!(answer, Swapped::Conflict, "a record that does not exist matches no revision");
    assert_eq!(case.body_of(&other).await, None, "a conflict writes nothing");
    let second = case.saved(&id, "two", Some(&first)).await;
    assert_ne!(first, second, "a changed record has a new revision");
    assert_eq!(case.save(&id, "one", Some(&first)).await, Swapped::Conflict, "the revision is outdated");
    for forged in forged_revisions() {
        let answer = case.save(&id, "one", Some(&forged)).await;
        assert_eq!(answer, Swapped::Conflict, "{forged:?} is not a revision");
    }
    let stored = Versioned { value: "two".to_owned(), revision: second.clone() };
    let found = case.store.records.find(BATCHES, &id).await.unwrap();
    assert_eq!(found, Some(stored), "a conflict writes nothing");
    let third = case.saved(&id, "one", Some(&second)).await;
    let answer = case.save(&id, "two", Some(&first)).await;
    assert_eq!(answer, Swapped::Conflict, "the same body was written again, so the revision is outdated");
    case.saved(&id, "two", Some(&third)).await;
}

async fn concurrent_saves_are_not_lost(case: &Case) {
    const WRITERS: u8 = 5;
    let id = case.name();
    case.saved(&id, "", None).await;
    let steps = (0..WRITERS).map(|writer| {
        let (records, id) = (Arc::clone(&case.store.records), id.clone());
        async move {
            loop {
                let Versioned { value, revision } = records.find(BATCHES, &id).await.unwrap().unwrap();
                let body = format!("{value}{writer}");
                // A conflict means that another attempt has succeeded, so all loops end.
                match records.save(BATCHES, &id, &body, Some(&revision)).await.unwrap() {
                    Swapped::Done(_) => return,
                    Swapped::Conflict => {}
                }
            }
        }
    });
    case.concurrently(steps).await;
    let mut writers: Vec<char> = case.body_of(&id).await.unwrap().chars().collect();
    writers.sort_unstable();
    assert_eq!(writers, ['0', '1', '2', '3', '4'], "no save is lost");
}

async fn collections_do_not_mix(case: &Case) {
    let (id, records) = (case.name(), &case.store.records);
    for (index, collection) in Collection::ALL.into_iter().enumerate() {
        assert_eq!(records.find(collection, &id).await.unwrap(), None, "only others have the id");
        let saved = records.save(collection, &id, collection.code(), None).await.unwrap();
        assert!(matches!(saved, Swapped::Done(_)), "{saved:?}");
        for (other, collection) in Collection::ALL.into_iter().enumerate() {
            let found = records.find(collection, &id).await.unwrap().map(|stored| stored.value);
            let expected = (other <= index).then(|| collection.code().to_owned());
            assert_eq!(found, expected, "{collection:?}");
            let listed = records.list(collection, &id, None, 10).await.unwrap();
            let listed: Vec<&str> = listed.iter().map(|record| record.body.as_str()).collect();
            assert_eq!(listed, expected.as_deref().as_slice(), "{collection:?}");
        }
    }
    records.remove(Collection::OpenBatches, &id).await.unwrap();
    for collection in Collection::ALL {
        let found = records.find(collection, &id).await.unwrap();
        let is_removed = collection == Collection::OpenBatches;
        assert_eq!(found.is_none(), is_removed, "only one record is removed: {collection:?}");
    }
}

async fn records_are_listed_by_id(case: &Case) {
    // Ids whose order depends on the order of characters: `-`, digits, `_`, letters.
    let stem = case.name();
    let mut records = Vec::new();
    for end in ["9", "_", "a", "", "0", "_a", "-", "-0", "z", "zz", "a_1", "a-1", "a-2", "a0"] {
        let record = Record { id: format!("{stem}{end}"), body: format!("body of {end}") };
        case.saved(&record.id, &record.body, None).await;
        records.push(record);
    }
    // Neighbors of the listing.
    case.saved(&case.name(), "{}", None).await;
    case.saved(&stem[..stem.len() - 1], "{}", None).await;
    records.sort_unstable_by(|one, other| one.id.cmp(&other.id));
    let with_prefix = |prefix: &str| -> Vec<Record> {
        records.iter().filter(|record| record.id.starts_with(prefix)).cloned().collect()
    };
    for limit in [1, 4, 1000] {
        for end in ["", "a", "a-", "_", "z", "0", "none"] {
            let prefix = format!("{stem}{end}");
            let listed = case.records_with(&prefix, None, limit).await;
            assert_eq!(listed, with_prefix(&prefix), "the records {end:?} in pages of {limit}");
        }
        for (index, record) in records.iter().enumerate() {
            let listed = case.records_with(&stem, Some(&record.id), limit).await;
            assert_eq!(listed, records[index + 1..], "after {}", record.id);
        }
    }
    let after = |end: &str| format!("{stem}{end}");
    assert_eq!(case.records_with(&stem, Some("-"), 10).await, records, "an id before the prefix");
    assert_eq!(
        case.records_with(&after("a"), Some(&stem), 10).await,
        with_prefix(&after("a")),
        "before the prefix"
    );
    assert_eq!(case.records_with(&after("a"), Some(&after("az")), 10).await, [], "an id that does not exist");
    assert_eq!(case.records_with(&after("a"), Some(&after("b")), 10).await, [], "an id after the prefix");
    assert_eq!(case.store.records.list(BATCHES, &stem, None, 0).await.unwrap(), [], "no record");
    // Other tests may use the store at the same time.
    let mut all = case.records_with("", Some(&stem[..stem.len() - 1]), 1000).await;
    all.retain(|record| record.id.starts_with(&stem));
    assert_eq!(all, records, "the empty prefix matches all");
}

async fn long_records_are_listed(case: &Case) {
    let stem = case.name();
    let bodies = ["x", "\0", "\u{e4}"].map(|unit| unit.repeat(RECORD_BODY_BYTES_MAX / unit.len()));
    let mut records = Vec::new();
    for index in 0..9 {
        let record = Record { id: format!("{stem}-{index}"), body: bodies[index % 3].clone() };
        case.saved(&record.id, &record.body, None).await;
        records.push(record);
    }
    for limit in [2, 9, 1000] {
        assert!(case.records_with(&stem, None, limit).await == records, "long records in pages of {limit}");
    }
}

async fn a_removed_record_does_not_exist_and_can_be_saved_anew(case: &Case) {
    let (id, neighbor, records) = (case.name(), case.name(), &case.store.records);
    records.remove(BATCHES, &id).await.expect("removing a missing record succeeds");
    let mut earlier = Vec::new();
    case.saved(&neighbor, "{}", None).await;
    for _ in 0..3 {
        let revision = case.saved(&id, "{}", None).await;
        for old in &earlier {
            assert_eq!(case.save(&id, "old", Some(old)).await, Swapped::Conflict, "an earlier record");
        }
        assert_eq!(case.body_of(&id).await.as_deref(), Some("{}"), "a record can be saved anew");
        let changed = case.saved(&id, "{1}", Some(&revision)).await;
        for _ in 0..2 {
            records.remove(BATCHES, &id).await.expect("removing twice succeeds");
            assert_eq!(case.body_of(&id).await, None, "a removed record cannot be read");
            assert_eq!(case.records_with(&id, None, 9).await, [], "a removed record is not listed");
        }
        earlier.extend([revision, changed]);
        for old in &earlier {
            assert_eq!(case.save(&id, "old", Some(old)).await, Swapped::Conflict, "it does not exist");
        }
    }
    assert_eq!(case.body_of(&neighbor).await.as_deref(), Some("{}"), "other records are not removed");
}
