//! Audits of whole stores: findings between accounts, and the effects of an audit on the store.

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use postonce_shared::domain::decision::Submission;
use postonce_shared::messaging::envelope;
use postonce_shared::oversight::verify::{
    Extent, Finding, FindingKind, Totals, Verifier, VerifyFault, Watcher,
};
use postonce_shared::ports::archive::{Archive, Readable, RowContent, StoredPage, StoredRow, UserRange};
use postonce_shared::protocol::dead_letters::DeadLetterService;
use postonce_shared::store::enqueue;
use postonce_shared::testing::decorators::{ArchiveDecorator, MissingValue};
use postonce_shared::testing::fresh_nonce;
use postonce_shared::testing::prelude::*;

use super::account_rows::euro;

/// Records the findings.
#[derive(Default)]
pub struct RecordingWatcher(pub Mutex<Vec<Finding>>);

impl Watcher for RecordingWatcher {
    fn found(&self, finding: &Finding) {
        self.0.lock().push(finding.clone());
    }

    fn progressed(&self, _: &Totals) {}
}

pub fn system() -> Arc<dyn World> {
    Arc::new(SystemWorld::new())
}

pub fn everything() -> Extent {
    Extent {
        account: None,
        concurrency: NonZeroUsize::new(4).unwrap(),
        batches_at_once: Extent::BATCHES_AT_ONCE,
    }
}

pub async fn verify(store: &Store, extent: Extent) -> Result<(Totals, Vec<Finding>), VerifyFault> {
    let watcher = RecordingWatcher::default();
    let totals = Verifier::new(store, system(), &watcher).run(extent).await?;
    let mut found = watcher.0.into_inner();
    found.sort_by_key(|finding| (finding.account, finding.sequence, finding.kind));
    Ok((totals, found))
}

pub fn kinds(found: &[Finding]) -> Vec<FindingKind> {
    found.iter().map(|finding| finding.kind).collect()
}

/// A bank whose transactions are posted at once.
pub struct TestBank {
    pub inner: Bank,
}

impl TestBank {
    pub fn over(store: Store) -> Self {
        let bell = Arc::new(postonce_shared::adapters::local_doorbell::LocalDoorbell::default());
        let inner = Bank::new(store, system(), bell, seal(), 1);
        count_as_draining(&inner);
        count_as_released(&inner);
        Self { inner }
    }

    pub fn in_memory() -> Self {
        Self::over(MemoryStore::new(system()))
    }

    pub async fn open(&self) -> AccountKey {
        let world = &self.inner.world;
        let key =
            AccountKey { user: UserId::from_uuid(world.uuid()), account: AccountId::from_uuid(world.uuid()) };
        let account = Account::open(key, euro(), OverdraftLimit::none(euro()), None, world.now());
        drop(self.inner.store.accounts.open(&opening(account)).await.unwrap());
        key
    }

    pub async fn accept(&self, account: AccountKey, cents: i64) -> Submission {
        let kind = if cents > 0 { TransactionKind::Deposit } else { TransactionKind::Withdrawal };
        let amount = Amount::try_new(cents.abs(), euro()).unwrap();
        let message = MessageId::from_uuid(self.inner.world.uuid());
        let new = Submission {
            key: TransactionKey { account, partner: PartnerId::parse("shop").unwrap(), message },
            instruction: Instruction { kind, amount, details: Details::default() },
            accepted_at: self.inner.world.now(),
            origin: Origin::default(),
            batch_line: None,
        };
        drop(self.inner.store.ledger.accept(std::slice::from_ref(&new), fresh_nonce()).await.unwrap());
        new
    }

    pub async fn post(&self, account: AccountKey, cents: &[i64]) {
        let mut work = Vec::new();
        for cents in cents {
            let new = self.accept(account, *cents).await;
            let stored = self.inner.store.ledger.transaction(&new.key).await.unwrap().unwrap();
            work.extend(stored.work());
        }
        for (_, settled) in self.inner.poster.post(account, work).await {
            settled.unwrap();
        }
    }
}

/// Three accounts with some history, and an empty one.
pub async fn small_bank(bank: &TestBank) -> Vec<AccountKey> {
    let mut keys = Vec::new();
    for _ in 0..3 {
        let key = bank.open().await;
        bank.post(key, &[100, 200, -50]).await;
        bank.post(key, &[-9_999]).await;
        bank.post(key, &[7]).await;
        bank.accept(key, 1).await;
        keys.push(key);
    }
    bank.open().await;
    keys.sort_unstable();
    keys
}

pub fn sound() -> Totals {
    Totals {
        accounts: 4,
        pages: 13,
        entries: 12,
        transactions: 18,
        order_numbers: 12,
        batches: 0,
        audit_rows: 0,
        anchored_accounts: 0,
        findings: 0,
        notices: 0,
    }
}

#[tokio::test]
async fn a_sound_bank_gives_no_finding_and_everything_is_counted() {
    let bank = TestBank::in_memory();
    let keys = small_bank(&bank).await;
    let (totals, found) = verify(&bank.inner.store, everything()).await.unwrap();
    assert_eq!((totals, found), (sound(), Vec::new()));
    let one = Extent { account: Some(keys[1]), ..everything() };
    let (totals, found) = verify(&bank.inner.store, one).await.unwrap();
    assert_eq!((totals.accounts, totals.entries, found), (1, 4, Vec::new()));
}

#[tokio::test]
async fn an_audit_only_reads_even_a_file_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("postonce.db");
    let open = || SqliteStore::open(&path, enqueue(1, Arc::default(), seal()), system()).unwrap();
    let bank = TestBank::over(open());
    small_bank(&bank).await;
    let reading = SqliteStore::open_to_read(&path, system()).unwrap();
    assert_eq!(verify(&reading, everything()).await.unwrap(), (sound(), Vec::new()));
    for (operation, count) in reading.operations.snapshot() {
        assert!(["get", "query"].contains(&operation.name), "{count} {operation:?} is not a read");
    }
    // Writes over this connection are refused.
    let account = bank.inner.store.accounts.list(UserId::from_uuid(uuid::Uuid::nil()), None, 1).await;
    assert!(account.unwrap().is_empty());
    let swap = reading.sync.swap("anything", None, "x").await;
    assert!(matches!(swap, Err(StoreFault::Refused { .. })), "{swap:?}");
}

#[tokio::test]
async fn a_missing_file_is_not_created() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("wrong.db");
    let refused = SqliteStore::open_to_read(Path::new(&path), system()).map(drop).unwrap_err();
    assert!(refused.to_string().contains("there is no database"), "{refused}");
    assert!(!path.exists());
}

#[tokio::test]
async fn an_audit_of_nothing_is_an_error() {
    let store = MemoryStore::new(system());
    assert!(matches!(verify(&store, everything()).await, Err(VerifyFault::Nothing)));
    let bank = TestBank::in_memory();
    small_bank(&bank).await;
    let stranger = AccountKey {
        user: UserId::from_uuid(uuid::Uuid::nil()),
        account: AccountId::from_uuid(uuid::Uuid::nil()),
    };
    let one = Extent { account: Some(stranger), ..everything() };
    assert!(matches!(verify(&bank.inner.store, one).await, Err(VerifyFault::NoSuchAccount(_))));
}

type Change = Box<dyn Fn(AccountKey, &mut Vec<StoredPage>) + Send + Sync>;

/// An archive with changed pages and account lists.
struct ChangedArchive {
    inner: Arc<dyn Archive>,
    pages: Change,
    unlisted: Option<AccountKey>,
    /// An account that is listed, but was never opened.
    named: Option<AccountKey>,
}

impl ChangedArchive {
    fn of(store: &Store) -> Self {
        Self { inner: Arc::clone(&store.archive), pages: Box::new(|_, _| ()), unlisted: None, named: None }
    }

    async fn verify(self, store: &Store) -> (Totals, Vec<Finding>) {
        verify(&Store { archive: Arc::new(self), ..store.clone() }, everything()).await.unwrap()
    }
}

fn account_of(row: &Readable<StoredRow>) -> Option<AccountKey> {
    row.as_ref().ok().map(|row| row.account)
}

fn is_account(row: &Readable<StoredRow>) -> bool {
    matches!(row, Ok(StoredRow { content: RowContent::Account(_), .. }))
}

#[async_trait]
impl ArchiveDecorator for ChangedArchive {
    fn inner(&self) -> &dyn Archive {
        &*self.inner
    }

    async fn listed_accounts(
        &self,
        range: UserRange,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<Readable<AccountKey>>, StoreFault> {
        let mut listing = self.inner.listed_accounts(range, cursor, limit).await?;
        listing.items.retain(|item| item.as_ref().ok() != self.unlisted.as_ref());
        listing.items.extend(self.named.filter(|named| range.contains(named.user)).map(Ok));
        listing.items.sort_by_key(|item| item.as_ref().ok().copied());
        Ok(listing)
    }

    /// Like [`Self::stored_pages`], for the pages of each account in the listing.
    async fn rows(
        &self,
        range: UserRange,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<Readable<StoredRow>>, StoreFault> {
        let Listing { items, next } = self.inner.rows(range, cursor, limit).await?;
        let mut changed: Vec<Readable<StoredRow>> = Vec::new();
        for rows in items.chunk_by(|one, other| account_of(one) == account_of(other)) {
            let Some(account) = account_of(&rows[0]) else {
                changed.extend_from_slice(rows);
                continue;
            };
            let page = |row: &Readable<StoredRow>| match row {
                Ok(StoredRow { content: RowContent::Page(page), .. }) => Some(page.clone()),
                Ok(_) | Err(_) => None,
            };
            let mut pages: Vec<StoredPage> = rows.iter().filter_map(page).collect();
            (self.pages)(account, &mut pages);
            let before = rows.iter().take_while(|row| is_account(row)).cloned();
            let after = rows.iter().filter(|row| !is_account(row) && page(row).is_none()).cloned();
            let pages =
                pages.into_iter().map(|page| Ok(StoredRow { account, content: RowContent::Page(page) }));
            changed.extend(before.chain(pages).chain(after));
        }
        Ok(Listing { items: changed, next })
    }

    async fn is_listed(&self, account: AccountKey) -> Result<bool, StoreFault> {
        Ok(self.named == Some(account)
            || (self.unlisted != Some(account) && self.inner.is_listed(account).await?))
    }

    async fn stored_pages(
        &self,
        account: AccountKey,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<StoredPage>, StoreFault> {
        let mut listing = self.inner.stored_pages(account, cursor, limit).await?;
        (self.pages)(account, &mut listing.items);
        Ok(listing)
    }
}

#[tokio::test]
async fn a_repeated_order_number_is_reported_with_both_entries() {
    let bank = TestBank::in_memory();
    let keys = small_bank(&bank).await;
    let store = &bank.inner.store;
    let first = store.log.pages(keys[0], 1, 1).await.unwrap();
    let taken: OrderNumber = first[0].entries[1].order_number;
    let repeating = keys[2];
    let pages: Change = Box::new(move |account, pages| {
        if account == repeating {
            let page = pages[1].page.as_mut().unwrap();
            page.entries[0].order_number = taken;
        }
    });
    let (totals, found) = ChangedArchive { pages, ..ChangedArchive::of(store) }.verify(store).await;
    assert_eq!(
        kinds(&found),
        [FindingKind::PageHash, FindingKind::OrderNumberRepeated, FindingKind::ContentDiffers]
    );
    let finding = found[1].to_string();
    for part in [format!("entry 2 of {}", keys[0]), format!("entry 4 of {}", keys[2]), taken.to_string()] {
        assert!(finding.contains(&part), "{finding} has no {part}");
    }
    assert_eq!((totals.findings, totals.order_numbers), (3, 11));
}

#[tokio::test]
async fn a_page_that_becomes_visible_late_is_no_finding() {
    let bank = TestBank::in_memory();
    let keys = small_bank(&bank).await;
    let reads = Mutex::new(0);
    let slow = keys[1];
    let pages: Change = Box::new(move |account, pages| {
        let mut reads = reads.lock();
        if account == slow && *reads == 0 {
            // The account row is visible already, but its last page is not.
            pages.pop();
            *reads += 1;
        }
    });
    let (totals, found) =
        ChangedArchive { pages, ..ChangedArchive::of(&bank.inner.store) }.verify(&bank.inner.store).await;
    assert_eq!((totals, found), (sound(), Vec::new()), "the late page is counted with the others");
}

#[tokio::test]
async fn the_account_list_is_compared_with_the_ledger() {
    let bank = TestBank::in_memory();
    let keys = small_bank(&bank).await;
    let named = AccountKey { user: keys[0].user, account: AccountId::from_uuid(uuid::Uuid::max()) };
    let changed = ChangedArchive {
        unlisted: Some(keys[1]),
        named: Some(named),
        ..ChangedArchive::of(&bank.inner.store)
    };
    let (totals, mut found) = changed.verify(&bank.inner.store).await;
    found.sort_by_key(|finding| finding.kind);
    assert_eq!(kinds(&found), [FindingKind::AccountUnlisted, FindingKind::NeverOpened]);
    assert_eq!(found[0].account, Some(keys[1]));
    assert_eq!(found[1].account, Some(named));
    assert_eq!((totals.findings, totals.notices), (1, 1));
    // Transactions of an account that was never opened.
    let orphan = AccountKey { user: keys[0].user, account: AccountId::from_uuid(uuid::Uuid::from_u128(5)) };
    bank.accept(orphan, 1).await;
    let (_, found) = verify(&bank.inner.store, everything()).await.unwrap();
    assert_eq!(kinds(&found), [FindingKind::AccountMissing]);
    assert_eq!(found[0].account, Some(orphan));
}

#[tokio::test]
async fn a_damaged_register_is_reported_and_the_rest_is_read() {
    let bank = TestBank::in_memory();
    small_bank(&bank).await;
    let store = &bank.inner.store;
    let register = store.sync.get(REGISTER).await.unwrap().unwrap();
    drop(store.sync.swap(REGISTER, Some(&register.revision), "{}").await.unwrap());
    let (totals, found) = verify(store, everything()).await.unwrap();
    assert_eq!(kinds(&found), [FindingKind::RegisterUnsound]);
    assert_eq!(totals, Totals { findings: 1, ..sound() });
}

#[tokio::test]
async fn a_missing_register_is_reported_and_the_rest_is_read() {
    let bank = TestBank::in_memory();
    small_bank(&bank).await;
    let store = bank.inner.store.clone();
    let without =
        Store { sync: Arc::new(MissingValue { inner: Arc::clone(&store.sync), name: REGISTER }), ..store };
    let (totals, found) = verify(&without, everything()).await.unwrap();
    assert_eq!(kinds(&found), [FindingKind::RegisterUnsound]);
    assert_eq!(totals, Totals { findings: 1, ..sound() });
}

/// Sets a message aside as a worker does.
async fn set_aside(bank: &TestBank, body: Vec<u8>) {
    let Bank { store, poster, doorbell, world, .. } = &bank.inner;
    let office = DeadLetterService::new(
        store,
        &seal(),
        Arc::clone(poster),
        Arc::clone(doorbell),
        Arc::clone(world),
        1,
    );
    let lease = Lease { message_id: world.uuid().simple().to_string(), pop_receipt: "r".to_owned() };
    let message = Message { lease, body, dequeue_count: 5, inserted_at: world.now() };
    office
        .set_aside(&envelope::queue_of(bank.open().await, 1), &message, &held_in(&message.body), "testing")
        .await
        .unwrap();
}

#[tokio::test]
async fn work_marked_as_a_dead_letter_must_be_in_one() {
    let bank = TestBank::in_memory();
    let keys = small_bank(&bank).await;
    let store = &bank.inner.store;
    let kept = bank.accept(keys[0], 5).await;
    let stored = store.ledger.transaction(&kept.key).await.unwrap().unwrap();
    let work: Vec<_> = stored.work().into_iter().collect();
    let body = envelope::pack(&work)[0].encode(&seal());
    set_aside(&bank, body).await;
    let (_, found) = verify(store, everything()).await.unwrap();
    assert_eq!(kinds(&found), [], "the dead letter holds the work");

    let lose = async || {
        let lost = bank.accept(keys[1], 5).await;
        let stored = store.ledger.transaction(&lost.key).await.unwrap().unwrap();
        let marks = postonce_shared::ports::ledger::Marks { dead_letter: true, ..stored.marks };
        store.ledger.mark(&lost.key, &stored.revision, marks).await.unwrap().unwrap();
        lost
    };
    let lost = lose().await;
    let (_, found) = verify(store, everything()).await.unwrap();
    assert_eq!(kinds(&found), [FindingKind::DeadLetterMissing]);
    assert_eq!(found[0].transaction, Some((lost.key.partner.clone(), lost.key.message)));

    // An unreadable dead letter may hold the work.
    set_aside(&bank, b"no envelope".to_vec()).await;
    let (totals, found) = verify(store, everything()).await.unwrap();
    assert_eq!(kinds(&found), [FindingKind::DeadLetterUnknown]);
    assert_eq!((totals.findings, totals.notices), (0, 1));

    // Those that are too many to be looked up are counted.
    for _ in 0..1000 {
        drop(lose().await);
    }
    let (_, found) = verify(store, everything()).await.unwrap();
    assert!(kinds(&found).contains(&FindingKind::More), "{} findings", found.len());
}
