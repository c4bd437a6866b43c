//! What SQLite can do on this machine: rows as the bank writes them for the items of a batch, inserted by one thread
//! into the table `transactions` with its indexes. Nothing is read, decided, or written to other tables.

use std::path::Path;

use postonce_tests::wait::Stopwatch;
use rusqlite::{Connection, Statement, params};
use tempfile::TempDir;

use super::store_file::StoreFile;
use super::{STORED, Size, TIME, bytes_in};
use crate::bench::prelude::*;

/// Rows of a database transaction: as many of the largest commits of an account, with 98 rows, as the bank's writer puts
/// into one.
const ROWS_PER_COMMIT: i64 = 98 * 128;
/// The settings of the bank's writer, and a checkpoint after as many pages.
const SETTINGS: &str = "
    PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; PRAGMA cache_size = -16384; PRAGMA temp_store = MEMORY;
    PRAGMA wal_autocheckpoint = 4000; PRAGMA journal_size_limit = 67108864;
    INSERT INTO partners (id, name) VALUES (1, 'bench')";
const INSERT: &str = "
    INSERT INTO transactions (account, partner, message, status, revision, kind, amount, currency, reference,
        metadata, unknown_members, fingerprint_version, fingerprint, accepted_at, accept_nonce, commit_nonce,
        decided_at, order_number, sequence, balance_after, reason, batch, batch_line)
    VALUES (?1, 1, ?2, 'posted', 1, 'deposit', 1250, 'EUR', NULL, NULL, NULL, 1, ?3, ?4, ?5, ?5, ?4, ?6, ?7, ?8, NULL,
        ?9, ?10)";
/// A time in milliseconds since 1970, as long as those of the bank.
const TIME_MS: i64 = 1_800_000_000_000;

/// Inserts the rows of a batch of this size into a copy of the file, account by account.
pub fn measure(size: Size, file: &StoreFile, below: &Path) -> Sample {
    let directory = TempDir::with_prefix_in("postonce-inserts-", below).expect("a directory");
    let path = directory.path().join("postonce.db");
    std::fs::copy(file.path(), &path).expect("the file can be copied");
    let stored_before = bytes_in(directory.path());
    let connection = Connection::open(path).expect("the file can be opened");
    connection.execute_batch(SETTINGS).expect("valid settings");
    let watch = Stopwatch::start();
    insert_all(&connection, size).expect("rows can be inserted");
    let took = watch.elapsed();
    let stored = bytes_in(directory.path()).saturating_sub(stored_before).checked_div(size.items);
    Sample::from([
        (TIME, micros(took)),
        (POSTED, per_second(size.items, took)),
        (STORED, stored.unwrap_or(0)),
    ])
}

fn insert_all(connection: &Connection, Size { items, accounts }: Size) -> rusqlite::Result<()> {
    let items = i64::try_from(items).unwrap_or(i64::MAX);
    let mut numbers = connection.prepare("SELECT id FROM accounts ORDER BY id")?;
    let numbers: Vec<i64> = numbers.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    let items_of_account = items.div_euclid(i64::try_from(accounts).unwrap_or(i64::MAX)).max(1);
    let mut insert = connection.prepare(INSERT)?;
    let mut line = 0_i64;
    while line < items {
        connection.execute_batch("BEGIN IMMEDIATE")?;
        let end = line.saturating_add(ROWS_PER_COMMIT).min(items);
        while line < end {
            let account = usize::try_from(line.div_euclid(items_of_account)).unwrap_or_default();
            let account = numbers.get(account.checked_rem(numbers.len()).unwrap_or_default());
            let account = account.copied().unwrap_or_default();
            insert_row(&mut insert, account, line, line.rem_euclid(items_of_account).saturating_add(1))?;
            line = line.saturating_add(1);
        }
        connection.execute_batch("COMMIT")?;
    }
    Ok(())
}

fn insert_row(insert: &mut Statement<'_>, account: i64, line: i64, sequence: i64) -> rusqlite::Result<()> {
    let (message, fingerprint): ([u8; 16], [u8; 32]) = (rand::random(), rand::random());
    let (nonce, batch) = ([7_u8; 16], [8_u8; 16]);
    let balance = sequence.saturating_mul(1250);
    insert
        .execute(params![account, message, fingerprint, TIME_MS, nonce, line, sequence, balance, batch, line])
        .map(drop)
}
