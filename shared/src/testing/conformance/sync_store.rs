//! Small values that processes agree on.

use std::sync::Arc;

use super::case::{Case, forged_revisions};
use crate::domain::account::{Revision, Versioned};
use crate::ports::Store;
use crate::ports::sync_store::{Swapped, VALUE_BYTES_MAX};

/// Checks [`crate::ports::sync_store::SyncStore`].
pub async fn sync_store_contract<F>(fresh: F)
where
    F: AsyncFn() -> Store,
{
    let case = async || Case::new(fresh().await);
    a_value_is_made_only_if_there_is_none(&case().await).await;
    a_value_is_swapped_in_the_state_that_was_read(&case().await).await;
    a_value_that_came_back_is_in_another_state(&case().await).await;
    values_survive_byte_for_byte(&case().await).await;
    of_concurrent_creations_one_is_done(&case().await).await;
    concurrent_increments_add_up(&case().await).await;
}

fn done(swapped: Swapped) -> Revision {
    match swapped {
        Swapped::Done(revision) => revision,
        Swapped::Conflict => panic!("nobody else was first, but the swap is called a conflict"),
    }
}

async fn get(case: &Case, name: &str) -> Option<Versioned<String>> {
    case.store.sync.get(name).await.unwrap()
}

async fn swap(case: &Case, name: &str, expected: Option<&Revision>, value: &str) -> Swapped {
    case.store.sync.swap(name, expected, value).await.unwrap()
}

async fn a_value_is_made_only_if_there_is_none(case: &Case) {
    let (name, other) = (case.name(), format!("{}-2", case.name()));
    assert_eq!(get(case, &name).await, None, "it was never written");
    let revision = done(swap(case, &name, None, "first").await);
    let stored = Versioned { value: "first".to_owned(), revision };
    assert_eq!(get(case, &name).await, Some(stored.clone()), "a confirmed value is read back");
    assert_eq!(swap(case, &name, None, "second").await, Swapped::Conflict, "there is one");
    assert_eq!(swap(case, &name, None, "first").await, Swapped::Conflict, "the same value or not");
    assert_eq!(get(case, &name).await, Some(stored.clone()), "a conflict writes nothing");
    let answer = swap(case, &other, Some(&stored.revision), "x").await;
    assert_eq!(answer, Swapped::Conflict, "a value that does not exist is in no state");
    assert_eq!(get(case, &other).await, None, "a conflict writes nothing");
}

async fn a_value_is_swapped_in_the_state_that_was_read(case: &Case) {
    let name = case.name();
    let first = done(swap(case, &name, None, "1").await);
    let read = get(case, &name).await.unwrap();
    assert_eq!(read.revision, first, "the revision of a swap is the one that is read");
    let second = done(swap(case, &name, Some(&read.revision), "2").await);
    assert_ne!(second, first, "another state has another revision");
    assert_eq!(swap(case, &name, Some(&first), "3").await, Swapped::Conflict, "somebody was first");
    for forged in forged_revisions() {
        assert_eq!(swap(case, &name, Some(&forged), "3").await, Swapped::Conflict, "it is no revision");
    }
    let stored = Versioned { value: "2".to_owned(), revision: second.clone() };
    assert_eq!(get(case, &name).await, Some(stored), "a conflict writes nothing");
    done(swap(case, &name, Some(&second), "3").await);
    assert_eq!(get(case, &name).await.unwrap().value, "3", "the revision of a swap guards the next");
}

async fn a_value_that_came_back_is_in_another_state(case: &Case) {
    let name = case.name();
    let first = done(swap(case, &name, None, "a").await);
    let second = done(swap(case, &name, Some(&first), "b").await);
    let third = done(swap(case, &name, Some(&second), "a").await);
    let answer = swap(case, &name, Some(&first), "c").await;
    assert_eq!(answer, Swapped::Conflict, "the value is the same, but it was written meanwhile");
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

async fn of_concurrent_creations_one_is_done(case: &Case) {
    for _ in 0..10 {
        let name = case.name();
        let steps = (0..5).map(|racer| {
            let (sync, name) = (Arc::clone(&case.store.sync), name.clone());
            async move { (racer.to_string(), sync.swap(&name, None, &racer.to_string()).await.unwrap()) }
        });
        let answers = case.at_once(steps).await;
        let winners: Vec<_> =
            answers.iter().filter(|(_, answer)| matches!(answer, Swapped::Done(_))).collect();
        assert_eq!(winners.len(), 1, "of concurrent creations exactly one is done");
        let stored = get(case, &name).await.unwrap();
        let winner = (stored.value, Swapped::Done(stored.revision));
        assert_eq!(*winners[0], winner, "the value is the winner's");
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
            // Each attempt that fails means that another one did not, so all end.
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
    case.at_once(steps).await;
    let total = get(case, &name).await.unwrap().value;
    assert_eq!(total, (RACERS * ROUNDS).to_string(), "no increment is lost");
}
