//! Tests of the process registry.

use std::time::Duration;

use super::case::{Case, moment, one_of_many};
use postonce_shared::ports::process_registry::live_processes;
use postonce_shared::testing::prelude::*;

/// Tests an implementation of [`postonce_shared::ports::process_registry::ProcessRegistry`].
pub async fn process_registry_contract<F>(fresh: F)
where
    F: AsyncFn() -> Store,
{
    let case = async || Case::new(fresh().await);
    an_entry_is_read_as_it_was_announced(&case().await).await;
    the_last_announcement_is_kept(&case().await).await;
    a_withdrawn_process_is_removed(&case().await).await;
    entries_are_listed_by_id_with_one_operation(&case().await).await;
    outdated_entries_are_skipped_and_removed(&case().await).await;
}

impl Case {
    fn registered_process(&self) -> RegisteredProcess {
        let now = self.world.now();
        RegisteredProcess {
            id: ProcessId::from_uuid(self.world.uuid()),
            kind: ProcessKind::Worker,
            address: Address::parse("http://worker-1.bank:40123").unwrap(),
            started_at: moment(7),
            next_by: now.after(Duration::from_secs(600)),
            attempts_survived: 0,
            level: LEVEL,
        }
    }

    async fn entry_now(&self, id: ProcessId) -> Option<RegisteredProcess> {
        self.store.process_registry.list().await.unwrap().into_iter().find(|entry| entry.id == id)
    }

    fn operations(&self) -> u64 {
        self.store.operations.snapshot().values().sum()
    }
}

async fn an_entry_is_read_as_it_was_announced(case: &Case) {
    let entry = case.registered_process();
    assert_eq!(case.entry_now(entry.id).await, None, "the process was not announced");
    case.store.process_registry.announce(&entry).await.unwrap();
    assert_eq!(case.entry_now(entry.id).await, Some(entry), "the entry is read as it was announced");
}

async fn the_last_announcement_is_kept(case: &Case) {
    let first = case.registered_process();
    let moved = RegisteredProcess {
        address: Address::parse("http://[::1]:9").unwrap(),
        started_at: moment(8),
        next_by: first.next_by.after(Duration::from_secs(1)),
        attempts_survived: 12_345_678_901,
        level: 0,
        ..first.clone()
    };
    for entry in [&first, &moved, &moved] {
        case.store.process_registry.announce(entry).await.unwrap();
        assert_eq!(
            case.entry_now(first.id).await.as_ref(),
            Some(entry),
            "the last announcement replaces the entry"
        );
    }
}

async fn a_withdrawn_process_is_removed(case: &Case) {
    let (entry, neighbor) = (case.registered_process(), case.registered_process());
    case.store.process_registry.withdraw(entry.id).await.unwrap();
    for entry in [&entry, &neighbor] {
        case.store.process_registry.announce(entry).await.unwrap();
    }
    for _ in 0..2 {
        case.store.process_registry.withdraw(entry.id).await.unwrap();
        assert_eq!(
            case.entry_now(entry.id).await,
            None,
            "a withdrawn entry is removed, also the second time"
        );
    }
    assert_eq!(case.entry_now(neighbor.id).await, Some(neighbor.clone()), "other entries are not removed");
    case.store.process_registry.announce(&entry).await.unwrap();
    assert_eq!(case.entry_now(entry.id).await, Some(entry), "a withdrawn process can announce itself again");
}

async fn entries_are_listed_by_id_with_one_operation(case: &Case) {
    let mut entries: Vec<RegisteredProcess> = (0..20).map(|_| case.registered_process()).collect();
    // Creates the table, so that later calls need one operation.
    case.store.process_registry.announce(&entries[0]).await.unwrap();
    for entry in &entries {
        let before = case.operations();
        case.store.process_registry.announce(entry).await.unwrap();
        assert_eq!(case.operations() - before, 1, "an announcement is one operation");
    }
    let list = async || {
        let before = case.operations();
        let listed = case.store.process_registry.list().await.unwrap();
        (case.operations() - before, listed)
    };
    let (_, listed) = one_of_many(list, |(operations, _)| *operations == 1, "a list is one operation").await;
    assert!(listed.is_sorted_by(|one, other| one.id < other.id), "each once, ordered by id");
    entries.sort_by_key(|entry| entry.id);
    // Other tests may use the store at the same time.
    let ours: Vec<RegisteredProcess> =
        listed.into_iter().filter(|listed| entries.iter().any(|entry| entry.id == listed.id)).collect();
    assert_eq!(ours, entries);
}

async fn outdated_entries_are_skipped_and_removed(case: &Case) {
    let alive = case.registered_process();
    let now = case.world.now();
    let late = |by: u64| {
        let next_by = postonce_shared::domain::time::Timestamp::from_unix_ms(
            now.unix_ms() - i64::try_from(by * 1000).unwrap(),
        );
        RegisteredProcess { next_by, ..case.registered_process() }
    };
    let (stale, forgotten) = (late(29 * 24 * 3600), late(31 * 24 * 3600));
    for entry in [&alive, &stale, &forgotten] {
        case.store.process_registry.announce(entry).await.unwrap();
    }
    let found = live_processes(&*case.store.process_registry, now).await.unwrap();
    let finds = |entry: &RegisteredProcess| found.iter().any(|found| found.id == entry.id);
    assert!(finds(&alive) && !finds(&stale) && !finds(&forgotten));
    assert_eq!(case.entry_now(stale.id).await, Some(stale), "a stale entry is not removed");
    assert_eq!(case.entry_now(forgotten.id).await, None, "a read removes entries that are long outdated");
}
