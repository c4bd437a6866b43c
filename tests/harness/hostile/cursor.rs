//! Cursors of listings: the query of a client, and the position that reaches a store if a client forges the checksum of a
//! cursor.

use std::sync::{Arc, LazyLock};

use actix_web::http::Uri;
use actix_web::test::TestRequest;
use postonce_shared::adapters::azure::cursor as azure;
use postonce_shared::testing::prelude::*;
use postonce_web::api::arguments::QueryParameters as _;
use postonce_web::api::pages::{LIMIT_MAX, Page, PageParams, cursor};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use uuid::Uuid;

use super::refusal;

/// Maximum size of a request line.
const TEXT_BYTES_MAX: usize = 16 * 1024;
const LISTING: &str = "posted of 0b1c/77aa";

/// Empty stores, opened once per process.
struct Stores {
    runtime: Runtime,
    all: [Store; 2],
    _directory: TempDir,
}

static STORES: LazyLock<Stores> = LazyLock::new(|| {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let directory = tempfile::tempdir().expect("a directory");
    let world: Arc<dyn World> = Arc::new(SystemWorld::new());
    let sqlite = {
        let _inside = runtime.enter();
        SqliteStore::open(&directory.path().join("bank.db"), Arc::new(|_| Vec::new()), Arc::clone(&world))
    };
    let all = [MemoryStore::new(world), sqlite.expect("an empty store")];
    Stores { runtime, all, _directory: directory }
});

/// Parses any bytes as a query, and uses them as the position in a cursor.
pub fn check(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    if text.len() > TEXT_BYTES_MAX {
        return;
    }
    if let Some(page) = query(text) {
        match page.position(LISTING) {
            Ok(Some(position)) => check_position(&position),
            Ok(None) => {}
            Err(error) => drop(refusal::check(&error)),
        }
    }
    check_position(text);
    check_stores(text);
}

fn query(text: &str) -> Option<Page> {
    let uri: Uri = format!("/?{text}").parse().ok()?;
    let request = TestRequest::with_uri(&uri.to_string()).to_http_request();
    match PageParams::read(&request) {
        Ok(page) => {
            assert!((1..=LIMIT_MAX).contains(&page.limit));
            Some(page)
        }
        Err(error) => {
            drop(refusal::check(&error));
            None
        }
    }
}

/// Checks that a position can be read back from its cursor, for the same listing only.
fn check_position(position: &str) {
    let cursor = cursor(LISTING, position);
    let page = query(&format!("cursor={cursor}")).expect("a cursor can stand in a query");
    assert_eq!(page.position(LISTING).ok(), Some(Some(position.to_owned())));
    assert!(page.position("accepted of 0b1c/77aa").is_err(), "{cursor} of another listing");
}

/// Checks that a store refuses a forged position or finds nothing. It must not return anything outside of the listing.
fn check_stores(position: &str) {
    let key = |number| Uuid::from_u128(number);
    let account = AccountKey { user: UserId::from_uuid(key(1)), account: AccountId::from_uuid(key(2)) };
    let Stores { runtime, all, _directory } = &*STORES;
    for store in all {
        let status = TransactionStatus::Rejected;
        expect_nothing(runtime.block_on(store.log.by_status(account, status, None, Some(position), 3)));
        let archive = &store.archive;
        expect_nothing(runtime.block_on(archive.accepted(UserRange::ALL, Some(position), 3)));
        expect_nothing(runtime.block_on(archive.rows(UserRange::ALL, Some(position), 3)));
    }
    if let Ok(Some(read)) = azure::read(LISTING, Some(position), "testing") {
        let again = azure::write(LISTING, read.clone());
        assert_eq!(azure::read(LISTING, Some(&again), "testing").ok(), Some(Some(read)));
        assert!(azure::read("another", Some(position), "testing").is_err());
    }
}

fn expect_nothing<T>(found: Result<postonce_shared::ports::ledger::Listing<T>, StoreFault>) {
    match found {
        Ok(listing) => assert!(listing.items.is_empty() && listing.next.is_none()),
        Err(StoreFault::ForeignCursor { .. }) => {}
        Err(fault) => panic!("a forged cursor became a fault of the store: {fault}"),
    }
}
