//! Files of an open store that are removed, moved or replaced: nothing is acknowledged any more, and what was acknowledged is
//! there again after the right files were put back.

use std::fs;
use std::path::PathBuf;

use postonce_shared::adapters::sqlite::OpenFault;
use postonce_shared::testing::fresh_nonce;
use postonce_shared::testing::prelude::*;

use super::backup::back_up;
use super::fixture::{Fixture, within_deadline};
use super::restore::until_closed;

/// What happens to the files, and how they are put back.
struct Case {
    name: &'static str,
    harm: fn(&Fixture),
    mend: fn(&Fixture),
    /// Whether a second process would open another store at the path, or one without the newest commits.
    is_other_store: bool,
}

fn file(fixture: &Fixture, suffix: &str) -> PathBuf {
    let mut name = fixture.path().into_os_string();
    name.push(suffix);
    name.into()
}

fn move_back(fixture: &Fixture) {
    fs::rename(fixture.file("aside"), fixture.path()).unwrap();
}

fn nothing(_: &Fixture) {}

const CASES: [Case; 7] = [
    Case {
        name: "the database is moved away",
        harm: |fixture| fs::rename(fixture.path(), fixture.file("aside")).unwrap(),
        mend: move_back,
        is_other_store: true,
    },
    Case {
        name: "another file is moved over the database",
        harm: |fixture| {
            fs::rename(fixture.path(), fixture.file("aside")).unwrap();
            fs::write(fixture.file("other"), "").unwrap();
            fs::rename(fixture.file("other"), fixture.path()).unwrap();
        },
        mend: move_back,
        is_other_store: true,
    },
    Case {
        name: "the log is removed",
        harm: |fixture| fs::remove_file(file(fixture, "-wal")).unwrap(),
        mend: nothing,
        is_other_store: true,
    },
    Case {
        name: "the log and its index are removed",
        harm: |fixture| {
            fs::remove_file(file(fixture, "-wal")).unwrap();
            fs::remove_file(file(fixture, "-shm")).unwrap();
        },
        mend: nothing,
        is_other_store: true,
    },
    Case {
        name: "the index of the log is removed",
        harm: |fixture| fs::remove_file(file(fixture, "-shm")).unwrap(),
        mend: nothing,
        is_other_store: false,
    },
    Case {
        name: "the lock is removed",
        harm: |fixture| fs::remove_file(file(fixture, ".lock")).unwrap(),
        mend: nothing,
        is_other_store: false,
    },
    Case {
        name: "the folder is moved, and another one is in its place",
        harm: |fixture| {
            fs::rename(fixture.path().parent().unwrap(), fixture.file("aside")).unwrap();
            fs::create_dir(fixture.path().parent().unwrap()).unwrap();
        },
        mend: |fixture| {
            fs::remove_dir_all(fixture.path().parent().unwrap()).unwrap();
            fs::rename(fixture.file("aside"), fixture.path().parent().unwrap()).unwrap();
        },
        is_other_store: false,
    },
];

#[test]
fn nothing_is_acknowledged_after_a_file_of_the_store_is_lost() {
    for Case { name, harm, mend, is_other_store } in CASES {
        within_deadline(async {
            let fixture = Fixture::new();
            let store = fixture.open();
            fixture.open_account(&store).await;
            let acknowledged: Vec<_> = (1..=20).map(|message| fixture.deposit(message)).collect();
            assert_eq!(store.ledger.accept(&acknowledged, fresh_nonce()).await.unwrap().len(), 20);
            harm(&fixture);
            let refused = store.ledger.accept(&[fixture.deposit(100)], fresh_nonce()).await;
            assert!(matches!(refused, Err(StoreFault::Unavailable { .. })), "{name}: {refused:?}");
            assert!(!store.files.are_intact(), "{name}");
            let read = store.ledger.transaction(&acknowledged[0].key).await;
            assert!(matches!(read, Err(StoreFault::Unavailable { .. })), "{name}: {read:?}");
            if is_other_store {
                let second = fixture.refusal();
                assert!(matches!(second, OpenFault::UsedElsewhere { .. }), "{name}: {second}");
                let backup = back_up(&fixture, &fixture.file("backup.db")).unwrap_err().to_string();
                let is_refused = ["another process still uses", "there is no file"];
                assert!(is_refused.iter().any(|text| backup.contains(text)), "{name}: {backup}");
            }
            drop(store);
            mend(&fixture);
            // A lock that was removed cannot be waited for.
            if file(&fixture, ".lock").exists() {
                until_closed(&fixture).await;
            }

            let store = fixture.open();
            // Each is a new attempt: one with the same nonce would be taken for the first.
            let again: Vec<_> = (1..=20).map(|message| fixture.deposit(message)).collect();
            for (index, outcome) in
                store.ledger.accept(&again, fresh_nonce()).await.unwrap().iter().enumerate()
            {
                assert!(matches!(outcome, AcceptOutcome::Existing(_)), "{name}, {index}: {outcome:?}");
            }
            // Its outcome was unknown; now it is there once, whether it was stored before or not.
            assert_eq!(
                store.ledger.accept(&[fixture.deposit(100)], fresh_nonce()).await.unwrap().len(),
                1,
                "{name}"
            );
            let again = store.ledger.accept(&[fixture.deposit(100)], fresh_nonce()).await.unwrap().remove(0);
            assert!(matches!(again, AcceptOutcome::Existing(_)), "{name}: {again:?}");
        });
    }
}

#[test]
fn an_idle_process_notices_that_its_file_is_lost() {
    within_deadline(async {
        let fixture = Fixture::new();
        let store = fixture.open();
        let mut files = store.files.clone();
        fs::rename(fixture.path(), fixture.file("aside")).unwrap();
        // Ends with the deadline of the test if the files are not checked.
        files.changed().await;
        assert!(!files.are_intact());
    });
}

#[test]
fn what_cannot_be_a_database_is_refused() {
    let fixture = Fixture::new();
    let refusal = |harm: &dyn Fn(PathBuf)| {
        fs::remove_dir_all(fixture.path().parent().unwrap()).unwrap_or_default();
        fs::create_dir_all(fixture.path().parent().unwrap()).unwrap();
        harm(fixture.path());
        fixture.refusal().to_string()
    };
    let folder = refusal(&|path| fs::create_dir(path).unwrap());
    assert!(folder.ends_with("it is a folder; name a file in it"), "{folder}");
    let device = refusal(&|path| std::os::unix::fs::symlink("/dev/null", path).unwrap());
    assert!(device.ends_with("it is not a regular file"), "{device}");
    let dangling = refusal(&|path| std::os::unix::fs::symlink("nowhere", path).unwrap());
    assert!(dangling.contains("a symbolic link to a file that cannot be found"), "{dangling}");
}

#[test]
fn a_database_that_is_gone_is_not_taken_for_a_new_one() {
    let fixture = Fixture::new();
    drop(fixture.open());
    fs::rename(fixture.path(), fixture.file("aside")).unwrap();
    let gone = fixture.refusal();
    assert!(matches!(gone, OpenFault::Gone { .. }), "{gone}");
    assert!(!fixture.path().exists());
    move_back(&fixture);
    drop(fixture.open());
    fs::remove_file(fixture.path()).unwrap();
    fs::remove_file(file(&fixture, ".lock")).unwrap();
    drop(fixture.open());
}
