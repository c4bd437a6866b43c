//! Copies the ledger in concurrent ranges of users, account by account.
//!
//! The position in a range is saved after some reads. It is the read in which the current account began, because the
//! account row is written last: an interrupted account is read again from its row.

use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _, stream};
use parking_lot::Mutex;

use super::Copier;
use super::account::AccountCopy;
use super::progress::{RANGES, Saved, SavedRange};
use crate::domain::account::Account;
use crate::domain::ids::AccountKey;
use crate::domain::time::Timestamp;
use crate::ports::archive::{Readable, RowContent, StoredRow, UserRange};
use crate::ports::fault::{StoreFault, chain};
use crate::ports::import::AccountRows;
use crate::ports::ledger::Listing;
use crate::ports::world::WorldExt as _;

const RANGES_AT_ONCE: usize = 4;
const ROWS_LIMIT: usize = 1000;
/// Maximum number of accounts per import step if the operations of the target are limited.
const METERED_ACCOUNTS_MAX: usize = 64;
/// Number of reads of a range between two saves of its position.
const READS_PER_SAVE: u32 = 8;
/// Maximum number of times that an account is read again because its pages do not lead to its head.
const ACCOUNT_READS_MAX: u32 = 3;
const ACCOUNT_PAUSE: Duration = Duration::from_millis(200);

/// A range of users that is being copied.
struct RangeCopy<'a> {
    range: UserRange,
    index: usize,
    saved: &'a Mutex<Saved>,
    since: Option<Timestamp>,
    /// The cursor of the next read.
    cursor: Option<String>,
    /// The current account, and the cursor of the read in which it began.
    current: Option<(AccountCopy, Option<String>)>,
    rows: Vec<AccountRows>,
    reads: u32,
}

impl Copier<'_> {
    /// Copies the unfinished ranges.
    pub(super) async fn copy_ledger(&self, saved: &Mutex<Saved>) -> Result<(), StoreFault> {
        let (since, ranges) = {
            let saved = saved.lock();
            (saved.since.map(Timestamp::from_unix_ms), saved.ranges.clone())
        };
        let open = UserRange::divided(RANGES).into_iter().zip(ranges).enumerate();
        let open = open.filter(|(_, (_, range))| !range.finished);
        let copies: Vec<BoxFuture<'_, Result<(), StoreFault>>> = open
            .map(|(index, (range, SavedRange { cursor, .. }))| {
                let (current, rows, reads) = (None, Vec::new(), 0);
                let copy = RangeCopy { range, index, saved, since, cursor, current, rows, reads };
                self.copy_range(copy).boxed()
            })
            .collect();
        stream::iter(copies).buffer_unordered(RANGES_AT_ONCE).try_collect().await
    }

    async fn copy_range(&self, mut copy: RangeCopy<'_>) -> Result<(), StoreFault> {
        loop {
            let from = copy.cursor.clone();
            let Listing { items, next } = self.read_rows(&copy).await?;
            for item in items {
                self.add_row(&mut copy, item, from.as_ref()).await?;
            }
            if next.is_none() {
                self.end_account(&mut copy).await?;
            }
            copy.rows.extend(copy.current.iter_mut().map(|(account, _)| account.take_rows()));
            self.import(std::mem::take(&mut copy.rows)).await?;
            copy.reads = copy.reads.saturating_add(1);
            let is_end = next.is_none();
            copy.cursor = next;
            if is_end || copy.reads.checked_rem(READS_PER_SAVE) == Some(0) {
                self.save_range(&copy, is_end).await?;
            }
            self.note_place(&copy, is_end);
            if is_end {
                return Ok(());
            }
        }
    }

    async fn read_rows(&self, copy: &RangeCopy<'_>) -> Result<Listing<Readable<StoredRow>>, StoreFault> {
        let (archive, cursor) = (&self.source.archive, copy.cursor.as_deref());
        self.step(|| match copy.since {
            Some(since) => archive.rows_since(since, copy.range, cursor, ROWS_LIMIT),
            None => archive.rows(copy.range, cursor, ROWS_LIMIT),
        })
        .await
    }

    async fn add_row(
        &self,
        copy: &mut RangeCopy<'_>,
        row: Readable<StoredRow>,
        from: Option<&String>,
    ) -> Result<(), StoreFault> {
        let StoredRow { account: key, content } = match row {
            Ok(row) => row,
            Err(damaged) => {
                self.note_damaged(&damaged);
                return Ok(());
            }
        };
        if copy.current.as_ref().is_none_or(|(account, _)| account.key() != key) {
            self.end_account(copy).await?;
            let row = match &content {
                RowContent::Account(row) => row.as_ref().as_ref().ok().cloned(),
                RowContent::Page(_) | RowContent::DecisionPage(_) | RowContent::Transaction(_) => None,
            };
            let in_target = if copy.since.is_some() { self.in_target(key).await? } else { None };
            copy.current = Some((AccountCopy::begin(key, row, in_target.as_ref()), from.cloned()));
        }
        if let Some((account, _)) = &mut copy.current {
            self.add_content(account, &content);
        }
        Ok(())
    }

    fn add_content(&self, account: &mut AccountCopy, content: &RowContent) {
        let damaged = match content {
            RowContent::Account(row) => row.as_ref().as_ref().err(),
            RowContent::Page(stored) => stored.page.as_ref().map(|page| account.add_page(page)).err(),
            RowContent::DecisionPage(stored) => stored.page.as_ref().map(|page| account.add_page(page)).err(),
            RowContent::Transaction(stored) => {
                stored.as_ref().as_ref().map(|stored| account.add_transaction(stored)).err()
            }
        };
        damaged.into_iter().for_each(|damaged| self.note_damaged(damaged));
    }

    async fn in_target(&self, key: AccountKey) -> Result<Option<Account>, StoreFault> {
        Ok(self.target.ledger.account(key).await?.map(|found| found.value))
    }

    /// Ends the current account. If its pages do not lead to its head, a commit was becoming visible row by row, and the
    /// account is read again.
    async fn end_account(&self, copy: &mut RangeCopy<'_>) -> Result<(), StoreFault> {
        let Some((account, _)) = copy.current.take() else { return Ok(()) };
        let (key, mut counts) = (account.key(), account.counts());
        let (mut rows, mut is_sound) = account.end();
        for _ in 0..ACCOUNT_READS_MAX {
            if is_sound {
                break;
            }
            copy.rows.push(AccountRows { account: None, ..rows });
            self.world.sleep(ACCOUNT_PAUSE.saturating_add(self.world.jitter(ACCOUNT_PAUSE))).await;
            let again = self.read_account(key).await?;
            counts = again.counts();
            (rows, is_sound) = again.end();
        }
        if !is_sound {
            self.watcher.noticed(&format!("the pages of account {key} do not lead to its head"));
        }
        copy.rows.push(rows);
        self.note(|totals| {
            totals.accounts = totals.accounts.saturating_add(1);
            totals.pages = totals.pages.saturating_add(counts.0);
            totals.transactions = totals.transactions.saturating_add(counts.1);
        });
        Ok(())
    }

    async fn read_account(&self, key: AccountKey) -> Result<AccountCopy, StoreFault> {
        let (archive, ledger) = (&self.source.archive, &self.source.ledger);
        let row = match self.step(|| ledger.account(key)).await {
            Ok(row) => row.map(|row| row.value),
            Err(fault @ StoreFault::Corrupt { .. }) => {
                self.watcher.noticed(&format!("the account {key} cannot be read: {}", chain(&fault)));
                None
            }
            Err(fault) => return Err(fault),
        };
        let (mut copy, mut cursor) = (AccountCopy::begin(key, row, None), None::<String>);
        loop {
            let read = || archive.stored_decision_pages(key, cursor.as_deref(), ROWS_LIMIT);
            let Listing { items, next } = self.step(read).await?;
            items.into_iter().for_each(|page| self.add_content(&mut copy, &RowContent::DecisionPage(page)));
            let Some(next) = next else { break };
            cursor = Some(next);
        }
        cursor = None;
        loop {
            let read = || archive.stored_pages(key, cursor.as_deref(), ROWS_LIMIT);
            let Listing { items, next } = self.step(read).await?;
            items.into_iter().for_each(|page| self.add_content(&mut copy, &RowContent::Page(page)));
            let Some(next) = next else { break };
            cursor = Some(next);
        }
        cursor = None;
        loop {
            let read = || archive.stored_transactions(key, cursor.as_deref(), ROWS_LIMIT);
            let Listing { items, next } = self.step(read).await?;
            items.into_iter().for_each(|stored| {
                self.add_content(&mut copy, &RowContent::Transaction(Box::new(stored)));
            });
            let Some(next) = next else { return Ok(copy) };
            cursor = Some(next);
        }
    }

    async fn import(&self, mut rows: Vec<AccountRows>) -> Result<(), StoreFault> {
        rows.retain(|rows| rows.count() > 0);
        let at_once = if self.options.meters_target { METERED_ACCOUNTS_MAX } else { rows.len().max(1) };
        for part in rows.chunks(at_once) {
            self.step(|| self.target.import.import(part)).await?;
        }
        Ok(())
    }

    async fn save_range(&self, copy: &RangeCopy<'_>, finished: bool) -> Result<(), StoreFault> {
        let cursor = copy.current.as_ref().map_or(&copy.cursor, |(_, from)| from).clone();
        if let Some(range) = copy.saved.lock().ranges.get_mut(copy.index) {
            *range = SavedRange { cursor, finished };
        }
        let _turn = self.saving.lock().await;
        // Read under the lock, so that an older state cannot replace a newer one.
        let saved = copy.saved.lock().clone();
        self.save(&saved).await
    }

    /// Reports progress. User ids are random, so the position of a user in a range is the fraction of the range that is
    /// done.
    fn note_place(&self, copy: &RangeCopy<'_>, finished: bool) {
        let saved = copy.saved.lock();
        let finished_before = saved.ranges.iter().filter(|range| range.finished).count();
        drop(saved);
        let whole = u64::try_from(finished_before).unwrap_or(0).saturating_mul(1000);
        let part = match &copy.current {
            Some((account, _)) if !finished => part_of(copy.range, account.key()),
            Some(_) | None => 0,
        };
        let permille = whole.saturating_add(part).checked_div(u64::from(RANGES)).unwrap_or(0);
        self.note(|totals| totals.permille = totals.permille.max(permille));
        self.progress();
    }
}

/// Returns the fraction of a range before an account, in thousandths.
fn part_of(range: UserRange, account: AccountKey) -> u64 {
    let number = |user: crate::domain::ids::UserId| user.as_uuid().as_u128();
    let from = range.from.map_or(0, number);
    let width = range.to.map_or(u128::MAX, number).saturating_sub(from);
    let done = number(account.user).saturating_sub(from);
    let unit = width.checked_div(1000).unwrap_or(0).max(1);
    u64::try_from(done.checked_div(unit).unwrap_or(0)).unwrap_or(0).min(1000)
}
