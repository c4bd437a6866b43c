//! Restores: what must not come again does not, and what must not be restored is not.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use postonce_shared::adapters::sqlite::SCHEMA_VERSION;
use postonce_shared::adapters::sqlite::backup::{BackupFault, Existing, take};
use postonce_shared::adapters::sqlite::restore::{
    Intent, NUMBERS_PER_SECOND_MAX, ORDER_NUMBER_GAP_MIN, Plan, Replaced, Restoration, RestoreOptions,
};
use postonce_shared::cluster::gate::{Gate, GateState};
use postonce_shared::domain::ids::PartnerId;
use postonce_shared::domain::partner::{Partner, PartnerStatus, Reach};
use postonce_shared::domain::time::Timestamp;
use postonce_shared::ports::Store;
use postonce_shared::ports::api_keys::ApiKeyRecord;
use postonce_shared::ports::process_registry::{Address, ProcessId, ProcessKind, RegisteredProcess};
use postonce_shared::ports::sync_store::Swapped;
use postonce_shared::protocol::order_numbers::{OrderNumbers, REGISTER, Register};
use rusqlite::Connection;
use uuid::Uuid;

use super::backup::first_schema;
use super::bank::{Bank, number, within_deadline, work_queue};

const REPLACE: RestoreOptions =
    RestoreOptions { intent: Intent::Replace, order_number_gap: None, held: false };
const LOOK: RestoreOptions = RestoreOptions { intent: Intent::DryRun, ..REPLACE };

fn back_up(bank: &Bank) -> PathBuf {
    let file = bank.file("backup.db");
    drop(take(&bank.path(), &file, Existing::Replace, bank.world(), &mut |_| {}).unwrap());
    file
}

fn restore(bank: &Bank, file: &Path, options: RestoreOptions) -> Result<Plan, BackupFault> {
    Restoration::prepare(&bank.path(), file, options, bank.world(), &mut |_| {})?.carry_out(&mut |_| {})
}

/// Returns when nobody has the store open: tasks may do so for a moment longer than their ports.
async fn until_closed(bank: &Bank) {
    let lock = fs::File::open(bank.path().with_extension("db.lock")).unwrap();
    tokio::task::spawn_blocking(move || lock.lock()).await.unwrap().unwrap();
}

async fn register(store: &Store) -> Register {
    Register::decode(&store.sync.get(REGISTER).await.unwrap().unwrap().value).unwrap()
}

/// Takes numbers as a process does that is killed afterwards: its ranges are not given back.
async fn take_numbers(bank: &Bank, store: &Store, count: usize) -> u64 {
    let numbers = OrderNumbers::new(store.sync.clone(), bank.shared_world());
    numbers.take(count).await.unwrap().into_iter().map(|number| number.counter()).max().unwrap()
}

async fn send(store: &Store) -> u64 {
    store.queue.send(&work_queue(), b"x", Duration::ZERO).await.unwrap();
    let received = store.queue.receive(&work_queue(), 32, Duration::from_secs(60)).await.unwrap();
    received.iter().map(|message| message.lease.message_id.parse::<u64>().unwrap()).max().unwrap()
}

fn key(id: &str, bank: &Bank) -> ApiKeyRecord {
    ApiKeyRecord {
        id: id.to_owned(),
        hash: [1; 32],
        partner: PartnerId::parse("shop").unwrap(),
        scopes: Vec::new(),
        created_at: bank.world().now(),
        revoked_at: None,
    }
}

fn partner(id: &str) -> Partner {
    Partner::active(PartnerId::parse(id).unwrap(), Reach::Everything, Timestamp::from_unix_ms(0))
}

#[test]
fn nothing_that_was_told_since_the_backup_comes_again() {
    within_deadline(async {
        let bank = Bank::new();
        let store = bank.open();
        let gate = Gate::new(store.sync.clone(), bank.shared_world());
        for id in ["aaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbb"] {
            store.api_keys.add(&key(id, &bank)).await.unwrap();
        }
        for id in ["shop", "mill"] {
            assert!(matches!(store.partners.save(&partner(id), None).await.unwrap(), Swapped::Done(_)));
        }
        gate.set(GateState::Held { release_at: None }).await.unwrap();
        let process = RegisteredProcess {
            id: ProcessId::from_uuid(Uuid::from_u128(1)),
            kind: ProcessKind::Worker,
            address: Address::parse("127.0.0.1:1").unwrap(),
            started_at: bank.world().now(),
            next_by: bank.world().now(),
        };
        store.roster.announce(&process).await.unwrap();
        let early_number = take_numbers(&bank, &store, 10).await;
        let early_message = send(&store).await;
        let file = back_up(&bank);

        // What was told to people and programs since.
        let told_number = take_numbers(&bank, &store, 1000).await;
        let told_message = send(&store).await;
        assert!(told_number > early_number && told_message > early_message);
        store.api_keys.revoke("bbbbbbbbbbbbbbbb", bank.world().now()).await.unwrap();
        store.api_keys.add(&key("cccccccccccccccc", &bank)).await.unwrap();
        let shop = store.partners.find(&partner("shop").id).await.unwrap().unwrap();
        let shop = (Partner { status: PartnerStatus::Suspended, ..shop.value }, shop.revision);
        assert!(matches!(store.partners.save(&shop.0, Some(&shop.1)).await.unwrap(), Swapped::Done(_)));
        gate.set(GateState::Released).await.unwrap();
        let told_epoch = gate.set(GateState::Held { release_at: None }).await.unwrap().epoch;
        let reserved = register(&store).await.next;
        drop((store, gate));
        until_closed(&bank).await;

        let plan = restore(&bank, &file, REPLACE).unwrap();
        assert_eq!(plan.gap, ORDER_NUMBER_GAP_MIN);
        let ids = |keys: &[ApiKeyRecord]| keys.iter().map(|key| key.id.clone()).collect::<Vec<_>>();
        assert_eq!(ids(&plan.revoked_again), ["bbbbbbbbbbbbbbbb"]);
        assert_eq!(ids(&plan.keys_gone), ["cccccccccccccccc"]);
        assert_eq!(ids(&plan.keys_working), ["aaaaaaaaaaaaaaaa"]);
        assert_eq!(plan.suspended_again, [shop.0.id.clone()].into());

        let store = bank.open();
        let after = register(&store).await;
        assert_eq!(after.next, reserved + ORDER_NUMBER_GAP_MIN);
        assert_eq!((plan.next_number.counter(), after.holdings.len()), (after.next, 0));
        let first = take_numbers(&bank, &store, 1).await;
        assert!(first >= told_number + ORDER_NUMBER_GAP_MIN, "{first} after {told_number}");
        assert!(send(&store).await > told_message + ORDER_NUMBER_GAP_MIN);
        assert!(store.api_keys.find("bbbbbbbbbbbbbbbb").await.unwrap().unwrap().revoked_at.is_some());
        assert!(store.api_keys.find("aaaaaaaaaaaaaaaa").await.unwrap().unwrap().revoked_at.is_none());
        assert_eq!(store.roster.list().await.unwrap(), []);
        let partners = store.partners.list(None, 10).await.unwrap();
        assert_eq!(partners, [partner("mill"), shop.0], "the suspension was told, and stands");
        let order = Gate::new(store.sync.clone(), bank.shared_world()).read().await.unwrap();
        assert!(order.epoch > told_epoch && order.state == GateState::Held { release_at: None });
    });
}

/// The same backup a second time: the numbers that were told between the two must not come again either.
#[test]
fn a_backup_that_is_restored_twice_repeats_nothing() {
    within_deadline(async {
        let bank = Bank::new();
        let store = bank.open();
        take_numbers(&bank, &store, 1).await;
        let file = back_up(&bank);
        drop(store);
        let mut told = 0;
        for _ in 0..3 {
            until_closed(&bank).await;
            restore(&bank, &file, RestoreOptions { order_number_gap: Some(50), ..REPLACE }).unwrap();
            let store = bank.open();
            let number = take_numbers(&bank, &store, 300).await;
            assert!(register(&store).await.next > told + 50 && number > told + 300, "{number} after {told}");
            told = number;
            bank.move_clock(Duration::from_secs(1));
        }
    });
}

/// Without the replaced store nobody knows how many numbers were told: more than can have been are skipped.
#[test]
fn the_gap_grows_with_the_age_of_the_backup_where_the_store_is_lost() {
    within_deadline(async {
        const HOURS: u64 = 5;
        let bank = Bank::new();
        let store = bank.open();
        take_numbers(&bank, &store, 1).await;
        let file = back_up(&bank);
        let reserved = register(&store).await.next;
        drop(store);
        until_closed(&bank).await;
        bank.move_clock(Duration::from_secs(HOURS * 3600));
        let known = restore(&bank, &file, LOOK).map(drop);
        assert!(matches!(known, Err(BackupFault::InUse { .. })), "a look replaces nothing");
        let prepare =
            |options| Restoration::prepare(&bank.path(), &file, options, bank.world(), &mut |_| {}).unwrap();
        assert_eq!(prepare(LOOK).plan().gap, ORDER_NUMBER_GAP_MIN);

        fs::write(bank.path(), "it was a database once").unwrap();
        let least = ORDER_NUMBER_GAP_MIN + HOURS * 3600 * NUMBERS_PER_SECOND_MAX;
        assert!((least..least + 100 * NUMBERS_PER_SECOND_MAX).contains(&prepare(LOOK).plan().gap));
        assert!(matches!(prepare(LOOK).plan().replaced, Replaced::Unreadable(_)));
        assert_eq!(prepare(RestoreOptions { order_number_gap: Some(7), ..LOOK }).plan().gap, 7);
        // A clock that stands before the backup tells no age.
        bank.set_clock_back(Duration::from_secs(2 * HOURS * 3600));
        let refused = restore(&bank, &file, REPLACE).unwrap_err();
        assert!(matches!(refused, BackupFault::AgeUnknown { .. }), "{refused}");
        bank.move_clock(Duration::from_secs(2 * HOURS * 3600));
        let plan = restore(&bank, &file, REPLACE).unwrap();
        assert_eq!(fs::read_to_string(plan.kept.unwrap()).unwrap(), "it was a database once");
        assert!(register(&bank.open()).await.next >= reserved + least);
        until_closed(&bank).await;

        fs::remove_dir_all(bank.path().parent().unwrap()).unwrap();
        let plan = restore(&bank, &file, REPLACE).unwrap();
        assert!(plan.gap >= least && plan.kept.is_none() && matches!(plan.replaced, Replaced::Nothing));
        assert!(register(&bank.open()).await.next >= reserved + least);
    });
}

#[test]
fn a_store_that_never_issued_a_number_skips_all_the_same() {
    within_deadline(async {
        let bank = Bank::new();
        drop(bank.open());
        let file = back_up(&bank);
        let told = take_numbers(&bank, &bank.open(), 10).await;
        until_closed(&bank).await;
        restore(&bank, &file, RestoreOptions { held: true, ..REPLACE }).unwrap();
        let store = bank.open();
        assert!(take_numbers(&bank, &store, 1).await > told + ORDER_NUMBER_GAP_MIN);
        assert!(send(&store).await > ORDER_NUMBER_GAP_MIN);
        let order = Gate::new(store.sync.clone(), bank.shared_world()).read().await.unwrap();
        assert_eq!((order.state, order.epoch), (GateState::Held { release_at: None }, 1));
    });
}

#[test]
fn a_store_in_use_is_not_replaced_and_one_that_is_being_replaced_is_not_used() {
    let bank = Bank::new();
    drop(bank.open());
    let file = back_up(&bank);
    let store = bank.open();
    let before = files(&bank);
    let refused = restore(&bank, &file, REPLACE).unwrap_err();
    assert!(matches!(refused, BackupFault::InUse { .. }), "{refused}");
    let look = Restoration::prepare(&bank.path(), &file, LOOK, bank.world(), &mut |_| {}).unwrap();
    assert!(look.plan().in_use);
    assert_eq!(files(&bank), before);
    drop(store);
    let restoration = Restoration::prepare(&bank.path(), &file, REPLACE, bank.world(), &mut |_| {}).unwrap();
    assert!(!restoration.plan().in_use);
    let refused = bank.refusal().to_string();
    assert!(refused.contains("is being restored"), "{refused}");
    drop(restoration);
    drop(bank.open());
}

#[test]
fn what_is_no_sound_backup_of_ours_is_refused_and_changes_nothing() {
    within_deadline(async {
        let bank = Bank::new();
        let store = bank.open();
        take_numbers(&bank, &store, 1).await;
        drop(store);
        until_closed(&bank).await;
        let sound = fs::read(back_up(&bank)).unwrap();
        let before = files(&bank);
        let check = |name: &str, words: &str, spoil: &dyn Fn(&Path)| {
            let file = bank.file(name);
            fs::write(&file, &sound).unwrap();
            spoil(&file);
            let refused = restore(&bank, &file, REPLACE).map(drop).expect_err(name);
            let told = postonce_shared::ports::fault::chain(&refused);
            assert!(told.contains(words), "{name}: {told}");
            assert_eq!(files(&bank), before, "{name}");
        };
        let sql = |file: &Path, batch: &str| Connection::open(file).unwrap().execute_batch(batch).unwrap();
        check("missing.db", "there is no file", &|file| fs::remove_file(file).unwrap());
        check("empty.db", "is empty", &|file| fs::write(file, "").unwrap());
        check("text.db", "not a database", &|file| fs::write(file, "text ".repeat(999)).unwrap());
        check("cut.db", "malformed", &|file| fs::write(file, &sound[..sound.len() / 2]).unwrap());
        check("damaged.db", "is damaged", &|file| {
            let root = "SELECT rootpage FROM sqlite_schema WHERE name = 'transactions'";
            let page = usize::try_from(number(&Connection::open(file).unwrap(), root)).unwrap();
            let mut damaged = sound.clone();
            damaged[(page - 1) * 4096..page * 4096].fill(0xff);
            fs::write(file, damaged).unwrap();
        });
        check("index.db", "is damaged", &|file| {
            sql(
                file,
                "PRAGMA writable_schema = ON; DELETE FROM sqlite_schema WHERE name = 'queue_messages_visible'",
            );
        });
        check("foreign.db", "belongs to another program", &|file| {
            fs::remove_file(file).unwrap();
            sql(file, "CREATE TABLE theirs (x)");
        });
        check("newer.db", "start a newer program", &|file| {
            sql(file, &format!("PRAGMA user_version = {}", SCHEMA_VERSION + 1));
        });
        check("register.db", "next", &|file| {
            sql(
                file,
                &format!(
                    "UPDATE sync_values SET value = replace(value, '\"next\":\"1', '\"next\":\"2') WHERE name = '{REGISTER}'"
                ),
            );
        });
        check("gate.db", "contains a value", &|file| {
            sql(file, "INSERT INTO sync_values VALUES ('gate', 1, 'ajar')");
        });
        check("open.db", "beside it", &|file| fs::write(file.with_extension("db-wal"), "log").unwrap());
        let own = restore(&bank, &bank.path(), REPLACE).map(drop);
        assert!(matches!(own, Err(BackupFault::SameFile { .. })));
        assert_eq!(files(&bank), before);
    });
}

#[test]
fn a_backup_of_an_older_program_is_restored_and_migrated_at_the_start() {
    let bank = Bank::new();
    first_schema(&bank);
    let file = back_up(&bank);
    // The upgrade, which is then undone.
    drop(bank.open());
    restore(&bank, &file, REPLACE).unwrap();
    assert_eq!(number(&bank.sql(), "PRAGMA user_version"), 1);
    drop(bank.open());
    assert_eq!(number(&bank.sql(), "PRAGMA user_version"), SCHEMA_VERSION);
}

/// The files of the store, with what is in them.
fn files(bank: &Bank) -> BTreeMap<String, String> {
    let folder = fs::read_dir(bank.path().parent().unwrap()).unwrap().map(|entry| entry.unwrap().path());
    // An index of the log has nothing in it that is not in the log, and an empty log nothing at all.
    let says_something =
        |name: &str, body: &[u8]| !(name.ends_with("-shm") || (name.ends_with("-wal") && body.is_empty()));
    let files = folder.map(|path| (path.to_string_lossy().into_owned(), fs::read(&path).unwrap()));
    files
        .filter(|(name, body)| says_something(name, body))
        .map(|(name, body)| {
            let mut sum = DefaultHasher::new();
            body.hash(&mut sum);
            (name, format!("{} bytes, {:016x}", body.len(), sum.finish()))
        })
        .collect()
}
