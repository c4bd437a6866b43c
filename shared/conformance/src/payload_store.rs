//! Tests of large bodies by reference.

use std::time::Duration;

use super::case::{Case, to_the_end};
use postonce_shared::testing::prelude::*;

/// Tests an implementation of [`postonce_shared::ports::payload_store::PayloadStore`].
pub async fn payload_store_contract<F>(fresh: F)
where
    F: AsyncFn() -> Store,
{
    let case = async || Case::new(fresh().await);
    a_payload_is_stored_until_it_is_deleted(&case().await).await;
    the_same_content_can_be_written_again(&case().await).await;
    payloads_survive_byte_for_byte(&case().await).await;
    payloads_with_a_prefix_are_listed_page_by_page(&case().await).await;
    a_listing_contains_the_storage_times(&case().await).await;
}

async fn get(case: &Case, name: &str) -> Option<Vec<u8>> {
    case.store.payloads.get(name).await.unwrap()
}

async fn a_payload_is_stored_until_it_is_deleted(case: &Case) {
    let (name, neighbor) = (case.name(), case.name());
    let payloads = &case.store.payloads;
    assert_eq!(get(case, &name).await, None, "the payload was not written");
    payloads.delete(&name).await.expect("deleting a missing payload succeeds");
    payloads.put(&name, b"one").await.unwrap();
    payloads.put(&neighbor, b"two").await.unwrap();
    assert_eq!(get(case, &name).await.as_deref(), Some(&b"one"[..]), "a stored body can be read");
    for _ in 0..2 {
        payloads.delete(&name).await.expect("deleting twice succeeds");
        assert_eq!(get(case, &name).await, None, "a deleted payload cannot be read");
    }
    assert_eq!(get(case, &neighbor).await.as_deref(), Some(&b"two"[..]), "other payloads are not deleted");
}

async fn the_same_content_can_be_written_again(case: &Case) {
    let name = case.name();
    for _ in 0..3 {
        case.store.payloads.put(&name, b"the same").await.expect("the same content is allowed");
        assert_eq!(get(case, &name).await.as_deref(), Some(&b"the same"[..]), "the body is unchanged");
    }
    case.store.payloads.delete(&name).await.unwrap();
    assert_eq!(get(case, &name).await, None, "one delete is enough");
}

async fn payloads_survive_byte_for_byte(case: &Case) {
    let any_bytes: Vec<u8> = (0..=u8::MAX).cycle().take(1024 * 1024).collect();
    let bodies = [any_bytes, Vec::new(), vec![0], "{\"text\":\"Grüße\"}".as_bytes().to_vec()];
    let name = case.name();
    let names = [format!("{name}-{}", "n".repeat(199 - name.len())), case.name(), case.name(), case.name()];
    assert_eq!(names[0].len(), 200, "the maximum length of a name");
    for (name, body) in names.iter().zip(&bodies) {
        case.store.payloads.put(name, body).await.unwrap();
    }
    for (name, body) in names.iter().zip(&bodies) {
        assert!(get(case, name).await.as_ref() == Some(body), "a body of {} bytes survives", body.len());
        case.store.payloads.delete(name).await.unwrap();
    }
}

async fn list(case: &Case, prefix: &str, limit: usize) -> Vec<PayloadEntry> {
    let page = async |cursor: Option<String>| {
        case.store.payloads.list(prefix, cursor.as_deref(), limit).await.unwrap()
    };
    to_the_end(limit, page).await
}

async fn payloads_with_a_prefix_are_listed_page_by_page(case: &Case) {
    let prefix = format!("{}-", case.name());
    assert_eq!(list(case, &prefix, 10).await, [], "no payload has the prefix");
    // Adjacent names: the prefix without its last character, and with another one.
    let (before, after) = (prefix.trim_end_matches('-').to_owned(), prefix.replace('-', "0"));
    let mut names: Vec<String> = ["0", "0-", "1", "9", "a", "z", "zz"].map(|end| prefix.clone() + end).into();
    for name in names.iter().rev().chain([&before, &after]) {
        case.store.payloads.put(name, name.as_bytes()).await.unwrap();
    }
    for limit in [1, 2, 3, 7, 8, 5000] {
        let listed: Vec<String> =
            list(case, &prefix, limit).await.into_iter().map(|entry| entry.name).collect();
        assert_eq!(listed, names, "each payload is listed once, by name, in pages of {limit}");
    }
    case.store.payloads.delete(&names.remove(3)).await.unwrap();
    let listed: Vec<String> = list(case, &prefix, 2).await.into_iter().map(|entry| entry.name).collect();
    assert_eq!(listed, names, "a deleted payload is not listed");
}

async fn a_listing_contains_the_storage_times(case: &Case) {
    let name = case.name();
    let before = case.world.now();
    case.store.payloads.put(&name, b"body").await.unwrap();
    let entries = list(case, &name, 10).await;
    let [entry] = entries.as_slice() else { panic!("one payload was stored, but {entries:?} are listed") };
    let (distance, most) =
        (entry.stored_at.since(before).max(before.since(entry.stored_at)), Duration::from_secs(60));
    assert!(distance < most, "stored at {before}, but listed with {}", entry.stored_at);
}
