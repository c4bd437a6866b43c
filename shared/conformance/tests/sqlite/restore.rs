//! Restores: numbers, epochs and revocations that were published after the backup are not repeated or undone.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use postonce_shared::adapters::sqlite::SCHEMA_VERSION;
use postonce_shared::adapters::sqlite::backup::{BackupFault, BackupOptions, Existing, SpaceLimits, take};
use postonce_shared::adapters::sqlite::restore::{
    Intent, NUMBERS_PER_SECOND_MAX, ORDER_NUMBER_GAP_MIN, Plan, Replaced, Restoration, RestoreOptions,
};
use postonce_shared::testing::prelude::*;
use rusqlite::Connection;
use uuid::Uuid;

use super::fixture::{Fixture, number, within_deadline, work_queue};

pub const REPLACE: RestoreOptions =
    RestoreOptions { intent: Intent::Replace, order_number_gap: None, held: false };
const INSPECT: RestoreOptions = RestoreOptions { intent: Intent::DryRun, ..REPLACE };

pub fn back_up(fixture: &Fixture) -> PathBuf {
    let file = fixture.file("backup.db");
    let options = BackupOptions { existing: Existing::Replace, limits: SpaceLimits::DEFAULT };
    drop(take(&fixture.path(), &file, options, fixture.world(), &mut |_| {}).unwrap());
    file
}

pub fn restore(fixture: &Fixture, file: &Path, options: RestoreOptions) -> Result<Plan, BackupFault> {
    Restoration::prepare(&fixture.path(), file, options, fixture.world(), &mut |_| {})?.carry_out(&mut |_| {})
}

/// Waits until no task has the store open: tasks may hold it a moment longer than its ports.
pub async fn until_closed(fixture: &Fixture) {
    let lock = fs::File::open(fixture.path().with_extension("db.lock")).unwrap();
    tokio::task::spawn_blocking(move || lock.lock()).await.unwrap().unwrap();
}

async fn register(store: &Store) -> Register {
    Register::decode(&store.sync.get(REGISTER).await.unwrap().unwrap().value).unwrap()
}

/// Takes numbers as a process does that is killed afterwards: its ranges are not returned.
async fn take_numbers(fixture: &Fixture, store: &Store, count: usize) -> u64 {
    let numbers = OrderNumbers::new(store.sync.clone(), store.archive.clone(), fixture.shared_world());
    numbers.take(count).await.unwrap().into_iter().map(|number| number.counter()).max().unwrap()
}

async fn send(store: &Store) -> u64 {
    store.queue.send(&work_queue(), b"x", Duration::ZERO).await.unwrap();
    let received = store.queue.receive(&work_queue(), 32, Duration::from_secs(60)).await.unwrap();
    received.iter().map(|message| message.lease.message_id.parse::<u64>().unwrap()).max().unwrap()
}

pub fn key(id: &str, fixture: &Fixture) -> ApiKeyRecord {
    ApiKeyRecord {
        id: id.to_owned(),
        hash: [1; 32],
        partner: PartnerId::parse("shop").unwrap(),
        scopes: Vec::new(),
        created_at: fixture.world().now(),
        revoked_at: None,
        expires_at: None,
        last_used_at: None,
    }
}

pub fn partner(id: &str) -> Partner {
    Partner::active(PartnerId::parse(id).unwrap(), Reach::Everything, Timestamp::from_unix_ms(0))
}

/// The partners of a plan that stay suspended.
pub fn suspended_in(plan: &Plan) -> Vec<PartnerId> {
    let restricted = plan.restricted.iter().map(|partner| &partner.restored);
    let suspended = restricted.filter(|partner| partner.suspended_with.is_some());
    suspended.map(|partner| partner.id.clone()).collect()
}

#[test]
fn nothing_that_was_published_since_the_backup_is_repeated() {
    within_deadline(async {
        let fixture = Fixture::new();
        let store = fixture.open();
        let gate = Gate::new(&store, &fixture.shared_world());
        for id in ["aaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbb"] {
            store.api_keys.add(&key(id, &fixture)).await.unwrap();
        }
        for id in ["shop", "mill"] {
            assert!(matches!(
                PartnerRecords::new(&store).save(&partner(id), None).await.unwrap(),
                Swapped::Done(_)
            ));
        }
        gate.set(GateState::Held { release_at: None }, &GateAct::by("a test")).await.unwrap();
        let process = RegisteredProcess {
            id: ProcessId::from_uuid(Uuid::from_u128(1)),
            kind: ProcessKind::Worker,
            address: Address::parse("127.0.0.1:1").unwrap(),
            started_at: fixture.world().now(),
            next_by: fixture.world().now(),
            attempts_survived: 0,
            level: LEVEL,
        };
        store.process_registry.announce(&process).await.unwrap();
        let early_number = take_numbers(&fixture, &store, 10).await;
        let early_message = send(&store).await;
        let file = back_up(&fixture);

        // Published after the backup.
        let issued_number = take_numbers(&fixture, &store, 1000).await;
        let issued_message = send(&store).await;
        assert!(issued_number > early_number && issued_message > early_message);
        store.api_keys.revoke("bbbbbbbbbbbbbbbb", fixture.world().now()).await.unwrap();
        store.api_keys.add(&key("cccccccccccccccc", &fixture)).await.unwrap();
        let shop = PartnerRecords::new(&store).find(&partner("shop").id).await.unwrap().unwrap();
        let shop = (Partner { suspended_with: Some(Scope::Admin), ..shop.value }, shop.revision);
        assert!(matches!(
            PartnerRecords::new(&store).save(&shop.0, Some(&shop.1)).await.unwrap(),
            Swapped::Done(_)
        ));
        gate.set(GateState::Released, &GateAct::by("a test")).await.unwrap();
        let published_epoch =
            gate.set(GateState::Held { release_at: None }, &GateAct::by("a test")).await.unwrap().value.epoch;
        drop((store, gate));
        until_closed(&fixture).await;
        // Only now: a process reserves its next range in the background.
        let reserved = register(&fixture.open()).await.next;
        until_closed(&fixture).await;

        let plan = restore(&fixture, &file, REPLACE).unwrap();
        assert_eq!(plan.gap, ORDER_NUMBER_GAP_MIN);
        let ids = |keys: &[ApiKeyRecord]| keys.iter().map(|key| key.id.clone()).collect::<Vec<_>>();
        assert_eq!(ids(&plan.revoked_again), ["bbbbbbbbbbbbbbbb"]);
        assert_eq!(ids(&plan.keys_gone), ["cccccccccccccccc"]);
        assert_eq!(ids(&plan.keys_working), ["aaaaaaaaaaaaaaaa"]);
        assert_eq!(suspended_in(&plan), std::slice::from_ref(&shop.0.id));

        let store = fixture.open();
        let after = register(&store).await;
        assert_eq!(after.next, reserved + ORDER_NUMBER_GAP_MIN);
        assert_eq!((plan.next_number.counter(), after.holdings.len()), (after.next, 0));
        let first = take_numbers(&fixture, &store, 1).await;
        assert!(first >= issued_number + ORDER_NUMBER_GAP_MIN, "{first} after {issued_number}");
        assert!(send(&store).await > issued_message + ORDER_NUMBER_GAP_MIN);
        assert!(store.api_keys.find("bbbbbbbbbbbbbbbb").await.unwrap().unwrap().revoked_at.is_some());
        assert!(store.api_keys.find("aaaaaaaaaaaaaaaa").await.unwrap().unwrap().revoked_at.is_none());
        assert_eq!(store.process_registry.list().await.unwrap(), []);
        let partners = PartnerRecords::new(&store).list(None, 10).await.unwrap();
        assert_eq!(partners, [partner("mill"), shop.0], "the suspension was published, and is kept");
        let order = Gate::new(&store, &fixture.shared_world()).read().await.unwrap();
        assert!(order.epoch > published_epoch && order.state == GateState::Held { release_at: None });
    });
}

/// Numbers that were issued between two restores of one backup must not be issued again either.
#[test]
fn a_backup_that_is_restored_twice_repeats_nothing() {
    within_deadline(async {
        let fixture = Fixture::new();
        let store = fixture.open();
        take_numbers(&fixture, &store, 1).await;
        let file = back_up(&fixture);
        drop(store);
        let mut issued = 0;
        for _ in 0..3 {
            until_closed(&fixture).await;
            restore(&fixture, &file, RestoreOptions { order_number_gap: Some(50), ..REPLACE }).unwrap();
            let store = fixture.open();
            let number = take_numbers(&fixture, &store, 300).await;
            assert!(
                register(&store).await.next > issued + 50 && number > issued + 300,
                "{number} after {issued}"
            );
            issued = number;
            fixture.move_clock(Duration::from_secs(1));
        }
    });
}

/// Without the replaced store, the number of issued numbers is unknown: the gap is the most that can have been issued.
#[test]
fn if_the_store_is_lost_the_gap_grows_with_the_age_of_the_backup() {
    within_deadline(async {
        const HOURS: u64 = 5;
        let fixture = Fixture::new();
        let store = fixture.open();
        take_numbers(&fixture, &store, 1).await;
        let file = back_up(&fixture);
        let reserved = register(&store).await.next;
        drop(store);
        until_closed(&fixture).await;
        fixture.move_clock(Duration::from_secs(HOURS * 3600));
        let known = restore(&fixture, &file, INSPECT).map(drop);
        assert!(matches!(known, Err(BackupFault::InUse { .. })), "this intent replaces nothing");
        let prepare = |options| {
            Restoration::prepare(&fixture.path(), &file, options, fixture.world(), &mut |_| {}).unwrap()
        };
        assert_eq!(prepare(INSPECT).plan().gap, ORDER_NUMBER_GAP_MIN);

        fs::write(fixture.path(), "not a database any more").unwrap();
        let least = ORDER_NUMBER_GAP_MIN + HOURS * 3600 * NUMBERS_PER_SECOND_MAX;
        assert!((least..least + 100 * NUMBERS_PER_SECOND_MAX).contains(&prepare(INSPECT).plan().gap));
        assert!(matches!(prepare(INSPECT).plan().replaced, Replaced::Unreadable(_)));
        assert_eq!(prepare(RestoreOptions { order_number_gap: Some(7), ..INSPECT }).plan().gap, 7);
        // A clock before the time of the backup gives no age.
        fixture.set_clock_back(Duration::from_secs(2 * HOURS * 3600));
        let refused = restore(&fixture, &file, REPLACE).unwrap_err();
        assert!(matches!(refused, BackupFault::AgeUnknown { .. }), "{refused}");
        fixture.move_clock(Duration::from_secs(2 * HOURS * 3600));
        let plan = restore(&fixture, &file, REPLACE).unwrap();
        assert_eq!(fs::read_to_string(plan.kept.unwrap()).unwrap(), "not a database any more");
        assert!(register(&fixture.open()).await.next >= reserved + least);
        until_closed(&fixture).await;

        fs::remove_dir_all(fixture.path().parent().unwrap()).unwrap();
        let plan = restore(&fixture, &file, REPLACE).unwrap();
        assert!(plan.gap >= least && plan.kept.is_none() && matches!(plan.replaced, Replaced::Nothing));
        assert!(register(&fixture.open()).await.next >= reserved + least);
    });
}

#[test]
fn a_store_that_never_issued_a_number_skips_the_gap_as_well() {
    within_deadline(async {
        let fixture = Fixture::new();
        drop(fixture.open());
        let file = back_up(&fixture);
        let issued = take_numbers(&fixture, &fixture.open(), 10).await;
        until_closed(&fixture).await;
        restore(&fixture, &file, RestoreOptions { held: true, ..REPLACE }).unwrap();
        let store = fixture.open();
        assert!(take_numbers(&fixture, &store, 1).await > issued + ORDER_NUMBER_GAP_MIN);
        assert!(send(&store).await > ORDER_NUMBER_GAP_MIN);
        let order = Gate::new(&store, &fixture.shared_world()).read().await.unwrap();
        assert_eq!((order.state, order.epoch), (GateState::Held { release_at: None }, 1));
    });
}

#[test]
fn a_store_in_use_is_not_replaced_and_a_store_under_restore_is_not_opened() {
    let fixture = Fixture::new();
    drop(fixture.open());
    let file = back_up(&fixture);
    let store = fixture.open();
    let before = files(&fixture);
    let refused = restore(&fixture, &file, REPLACE).unwrap_err();
    assert!(matches!(refused, BackupFault::InUse { .. }), "{refused}");
    let inspected =
        Restoration::prepare(&fixture.path(), &file, INSPECT, fixture.world(), &mut |_| {}).unwrap();
    assert!(inspected.plan().in_use);
    assert_eq!(files(&fixture), before);
    drop(store);
    let restoration =
        Restoration::prepare(&fixture.path(), &file, REPLACE, fixture.world(), &mut |_| {}).unwrap();
    assert!(!restoration.plan().in_use);
    let refused = fixture.refusal().to_string();
    assert!(refused.contains("is being restored"), "{refused}");
    drop(restoration);
    drop(fixture.open());
}

/// Removes the register of order numbers from a store that has a posting.
const WITHOUT_REGISTER: &str = "
    DELETE FROM sync_values WHERE name = 'order-numbers';
    INSERT INTO account_names VALUES (1, x'01', x'02');
    INSERT INTO partners VALUES (1, 'shop');
    INSERT INTO transactions (account, partner, message, status, revision, kind, amount, currency,
        fingerprint_version, fingerprint, accepted_at, accept_nonce)
    VALUES (1, 1, x'03', 'posted', 1, 'deposit', 1, 'EUR', 1, x'04', 1, x'05')";

#[test]
fn an_invalid_backup_is_refused_and_changes_nothing() {
    within_deadline(async {
        let fixture = Fixture::new();
        let store = fixture.open();
        take_numbers(&fixture, &store, 1).await;
        drop(store);
        until_closed(&fixture).await;
        let sound = fs::read(back_up(&fixture)).unwrap();
        let before = files(&fixture);
        let check = |name: &str, words: &str, spoil: &dyn Fn(&Path)| {
            let file = fixture.file(name);
            fs::write(&file, &sound).unwrap();
            spoil(&file);
            let refused = restore(&fixture, &file, REPLACE).map(drop).expect_err(name);
            let issued = postonce_shared::ports::fault::chain(&refused);
            assert!(issued.contains(words), "{name}: {issued}");
            assert_eq!(files(&fixture), before, "{name}");
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
        check("unregistered.db", "is missing, although the ledger has postings", &|file| {
            sql(file, WITHOUT_REGISTER);
        });
        check("gate.db", "contains a value", &|file| {
            sql(file, "INSERT INTO sync_values VALUES ('gate', 1, 'ajar')");
        });
        check("open.db", "beside it", &|file| fs::write(file.with_extension("db-wal"), "log").unwrap());
        let own = restore(&fixture, &fixture.path(), REPLACE).map(drop);
        assert!(matches!(own, Err(BackupFault::SameFile { .. })));
        assert_eq!(files(&fixture), before);
    });
}

/// The files of the store with the hashes of their contents.
fn files(fixture: &Fixture) -> BTreeMap<String, String> {
    let folder = fs::read_dir(fixture.path().parent().unwrap()).unwrap().map(|entry| entry.unwrap().path());
    // The index of the log is derived from the log, and an empty log has no content.
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
