//! Tests of shared values.

use std::sync::Arc;

use super::case::{Case, forged_revisions};
use postonce_shared::ports::sync_store::{Swapped, VALUE_BYTES_MAX};
use postonce_shared::testing::prelude::*;

/// Tests an implementation of [`postonce_shared::ports::sync_store::SyncStore`].
pub async fn sync_store_contract<F>(fresh: F)
where
    F: AsyncFn() -> Store,
{
    let case = async || Case::new(fresh().await);
    a_value_is_created_only_if_it_does_not_exist(&case().await).await;
    a_value_is_swapped_under_the_revision_that_was_read(&case().await).await;
    a_value_that_is_written_again_has_a_new_revision(&case().await).await;
    values_survive_byte_for_byte(&case().await).await;
    one_of_concurrent_creations_succeeds(&case().await).await;
    concurrent_increments_add_up(&case().await).await;
}

fn done(swapped: Swapped) -> Revision {
    match swapped {
        Swapped::Done(revision) => revision,
        Swapped::Conflict => panic!("the swap returned a conflict without a concurrent write"),
    }
}

async fn get(case: &Case, name: &str) -> Option<Versioned<String>> {
    case.store.sync.get(name).await.unwrap()
}

async fn swap(case: &Case, name: &str, expected: Option<&Revision>, value: &str) -> Swapped {
    case.store.sync.swap(name, expected, value).await.unwrap()
}

async fn a_value_is_created_only_if_it_does_not_exist(case: &Case) {
    let (name, other) = (case.name(), format!("{}-2", case.name()));
    assert_eq!(get(case, &name).await, None, "the value was not written");
    let revision = done(swap(case, &name, None, "first").await);
    let stored = Versioned { value: "first".to_owned(), revision };
    assert_eq!(get(case, &name).await, Some(stored.clone()), "a stored value can be read");
    assert_eq!(swap(case, &name, None, "second").await, Swapped::Conflict, "it exists already");
    assert_eq!(swap(case, &name, None, "first").await, Swapped::Conflict, "also with the same value");
    assert_eq!(get(case, &name).await, Some(stored.clone()), "a conflict writes nothing");
    let answer = swap(case, &other, Some(&stored.revision), "x").await;
    assert_eq!(answer, Swapped::Conflict, "a value that does not exist matches no revision");
    assert_eq!(get(case, &other).await, None, "a conflict writes nothing");
}

async fn a_value_is_swapped_under_the_revision_that_was_read(case: &Case) {
    let name = case.name();
    let first = done(swap(case, &name, None, "1").await);
    let read = get(case, &name).await.unwrap();
    assert_eq!(read.revision, first, "a swap returns the revision that is read");
    let second = done(swap(case, &name, Some(&read.revision), "2").await);
    assert_ne!(second, first, "a changed row has a new revision");
    assert_eq!(swap(case, &name, Some(&first), "3").await, Swapped::Conflict, "the revision is outdated");
    for forged in forged_revisions() {
        assert_eq!(swap(case, &name, Some(&forged), "3").await, Swapped::Conflict, "it is not a revision");
    }
    let stored = Versioned { value: "2".to_owned(), revision: second.clone() };
    assert_eq!(get(case, &name).await, Some(stored), "a conflict writes nothing");
    done(swap(case, &name, Some(&second), "3").await);
    assert_eq!(
        get(case, &name).await.unwrap().value,
        "3",
        "the revision of a swap is the guard of the next one"
    );
}

async fn a_value_that_is_written_again_has_a_new_revision(case: &Case) {
    let name = case.name();
    let first = done(swap(case, &name, None, "a").await);
    let second = done(swap(case, &name, Some(&first), "b").await);
    let third = done(swap(case, &name, Some(&second), "a").await);
    let answer = swap(case, &name, Some(&first), "c").await;
    assert_eq!(answer, Swapped::Conflict, "the same value was written again, so the revision is outdated");
    let fourth = done(swap(case, &name, Some(&third), "a").await);
    let answer = swap(case, &name, Some(&third), "c").await;
    assert_eq!(answer, Swapped::Conflict, "writing the same value again is a write");
    done(swap(case, &name, Some(&fourth), "d").await);
}

async fn values_survive_byte_for_byte(case: &Case) {
    let longest = "x".repeat(VALUE_BYTES_MAX);
    let wide = "\u{1f980}".repeat(VALUE_BYTES_MAX / 4);
    let values = ["", " ", "{\"next\":\"99999999999999999\"}", "Grüße\n\t\"'<&>\\", "null", &longest, &wide];
    let name = case.name();
    let mut revision = None;
    for value in values {
        revision = Some(done(swap(case, &name, revision.as_ref(), value).await));
        assert!(get(case, &name).await.unwrap().value == value, "a value of {} bytes survives", value.len());
    }
}

async fn one_of_concurrent_creations_succeeds(case: &Case) {
    for _ in 0..10 {
        let name = case.name();
        let steps = (0..5).map(|racer| {
            let (sync, name) = (Arc::clone(&case.store.sync), name.clone());
            async move { (racer.to_string(), sync.swap(&name, None, &racer.to_string()).await.unwrap()) }
        });
        let answers = case.concurrently(steps).await;
        let winners: Vec<_> =
            answers.iter().filter(|(_, answer)| matches!(answer, Swapped::Done(_))).collect();
        assert_eq!(winners.len(), 1, "exactly one of several concurrent creations succeeds");
        let stored = get(case, &name).await.unwrap();
        let winner = (stored.value, Swapped::Done(stored.revision));
        assert_eq!(*winners[0], winner, "the value of the successful call is stored");
    }
}

async fn concurrent_increments_add_up(case: &Case) {
    const RACERS: u32 = 5;
    const ROUNDS: u32 = 10;
    let name = case.name();
    done(swap(case, &name, None, "0").await);
    let steps = (0..RACERS).map(|_| {
        let (sync, name) = (Arc::clone(&case.store.sync), name.clone());
        async move {
            let mut done = 0;
            // A conflict means that another attempt has succeeded, so all loops end.
            while done < ROUNDS {
                let read = sync.get(&name).await.unwrap().unwrap();
                let next: u32 = read.value.parse::<u32>().unwrap() + 1;
                match sync.swap(&name, Some(&read.revision), &next.to_string()).await.unwrap() {
                    Swapped::Done(_) => done += 1,
                    Swapped::Conflict => {}
                }
            }
        }
    });
    case.concurrently(steps).await;
    let total = get(case, &name).await.unwrap().value;
    assert_eq!(total, (RACERS * ROUNDS).to_string(), "no increment is lost");
}
