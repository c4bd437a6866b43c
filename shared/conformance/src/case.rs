//! The environment of a test case: a store, unique names, and helpers for common steps.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::join_all;
use postonce_shared::domain::decision::{Submission, discard, open};
use postonce_shared::domain::origin::{Delivered, Origin, RequestId};
use postonce_shared::testing::prelude::*;
use tokio::sync::oneshot;

/// Maximum wait for an expected condition.
pub(super) const TIMEOUT: Duration = Duration::from_secs(20);
/// Interval between two checks of a condition.
const POLL_INTERVAL: Duration = Duration::from_millis(40);

/// Maximum number of readings until one has a property. The service ends up to half of the pages early.
const READINGS_MAX: usize = 40;

/// Maximum number of pages of a listing: the store may be shared, but every listing must end.
const LISTING_PAGES_MAX: usize = 10_000;

/// The store under test, and the world of the test case.
pub(super) struct Case {
    pub(super) store: Store,
    pub(super) world: Arc<dyn World>,
}

/// All rows of one account, to check that a step had no effect.
#[derive(Debug, PartialEq)]
pub(super) struct AccountRows {
    account: Option<Versioned<Account>>,
    transactions: Vec<StoredTransaction>,
    pub(super) pages: Vec<JournalPage>,
}

impl Case {
    pub(super) fn new(store: Store) -> Self {
        Self { store, world: Arc::new(SystemWorld::new()) }
    }

    /// Returns a unique name: lower-case letters and digits, a letter first.
    pub(super) fn name(&self) -> String {
        format!("c{}", self.world.uuid().simple())
    }

    pub(super) fn account_key(&self) -> AccountKey {
        let user = UserId::from_uuid(self.world.uuid());
        AccountKey { user, account: AccountId::from_uuid(self.world.uuid()) }
    }

    /// Runs all steps concurrently, each in its own task; returns the results in the order of the steps.
    pub(super) async fn concurrently<T, S>(&self, steps: impl IntoIterator<Item = S>) -> Vec<T>
    where
        T: Send + 'static,
        S: Future<Output = T> + Send + 'static,
    {
        let mut answers = Vec::new();
        for step in steps {
            let (sender, answer) = oneshot::channel();
            self.world.spawn(
                async move {
                    // The receiver is dropped only if the test has failed already.
                    let _sent = sender.send(step.await);
                }
                .boxed(),
            );
            answers.push(answer);
        }
        join_all(answers).await.into_iter().map(|answer| answer.expect("a task panicked")).collect()
    }

    /// Polls until `check` returns a value; fails after a timeout.
    pub(super) async fn eventually<T>(
        &self,
        condition: &str,
        mut check: impl AsyncFnMut() -> Option<T>,
    ) -> T {
        let start = self.world.uptime();
        loop {
            if let Some(value) = check().await {
                return value;
            }
            let waited = self.world.uptime().saturating_sub(start);
            assert!(waited < TIMEOUT, "not true within {waited:?}: {condition}");
            self.world.sleep(POLL_INTERVAL).await;
        }
    }
}

/// Accounts and transactions.
impl Case {
    pub(super) async fn open(&self, account: &Account) -> Versioned<Account> {
        let opening = open(account.clone(), &self.terms_context());
        match self.store.accounts.open(&opening).await.unwrap() {
            Opened::Created(created) => created,
            Opened::Existing(_) => panic!("the account {} exists already", account.key),
        }
    }

    /// Opens a new account in EUR without overdraft.
    pub(super) async fn opened(&self) -> Versioned<Account> {
        self.opened_in(currency("EUR"), 0).await
    }

    pub(super) async fn opened_in(&self, currency: Currency, overdraft: i64) -> Versioned<Account> {
        let limit = OverdraftLimit::try_new(overdraft, currency).unwrap();
        self.open(&Account::open(self.account_key(), currency, limit, None, self.world.now())).await
    }

    pub(super) fn new_transaction(&self, account: AccountKey, instruction: Instruction) -> Submission {
        let (partner, message) = (partner("shop"), MessageId::from_uuid(self.world.uuid()));
        Submission {
            key: TransactionKey { account, partner, message },
            instruction,
            // Acceptance times are all different, so that a mix-up is detected.
            accepted_at: moment(i64::try_from(self.world.random() >> 24).unwrap()),
            origin: Origin { request_id: RequestId::parse(&self.name()).ok(), traceparent: None },
            batch_line: None,
        }
    }

    pub(super) fn deposit(&self, account: AccountKey, cents: i64) -> Submission {
        self.new_transaction(account, euros(TransactionKind::Deposit, cents))
    }

    pub(super) fn withdrawal(&self, account: AccountKey, cents: i64) -> Submission {
        self.new_transaction(account, euros(TransactionKind::Withdrawal, cents))
    }

    /// Accepts new transactions; returns the work as a queue item would contain it.
    pub(super) async fn accepted(&self, group: &[Submission]) -> Vec<Work> {
        self.accepted_by(group, self.world.nonce()).await
    }

    /// The same by the attempts with a nonce.
    pub(super) async fn accepted_by(&self, group: &[Submission], nonce: Nonce) -> Vec<Work> {
        let outcomes = self.store.ledger.accept(group, nonce).await.unwrap();
        assert_eq!(outcomes.len(), group.len(), "accept returns one outcome per transaction");
        let work = group.iter().zip(outcomes).map(|(new, outcome)| match outcome {
            AcceptOutcome::Inserted { revision, enqueued: _ } => {
                Work { submission: new.clone(), row: revision, delivered: None }
            }
            AcceptOutcome::Existing(_) => panic!("the key {} exists already", new.key),
        });
        work.collect()
    }

    /// Decides the work as the queue delivered it; every commit has its own nonce and order numbers.
    pub(super) fn decided(&self, account: &Versioned<Account>, work: &[Work]) -> AccountCommit {
        let work: Vec<Work> = work.iter().map(|work| self.delivered(work)).collect();
        decide(account, pending(&work, &[]), &self.context(&self.numbers(work.len())))
    }

    fn delivered(&self, work: &Work) -> Work {
        let time = || moment(i64::try_from(self.world.random() >> 24).unwrap());
        Work { delivered: Some(Delivered { sent_at: time(), received_at: time() }), ..work.clone() }
    }

    /// Returns order numbers that were not used before.
    fn numbers(&self, count: usize) -> Vec<OrderNumber> {
        // All counters are above 2^53: a store that keeps numbers as floats would change them.
        let number = || OrderNumber::from_counter(OrderNumber::COUNTER_MAX - (self.world.random() >> 8));
        (0..count).map(|_| number()).collect()
    }

    /// Decides accepted work and then new transactions, which the commit inserts.
    pub(super) fn decided_with_new(
        &self,
        account: &Versioned<Account>,
        accepted: &[Work],
        new: &[Submission],
    ) -> AccountCommit {
        let numbers = self.numbers(accepted.len() + new.len());
        decide(account, pending(accepted, &self.new_work(new)), &self.context(&numbers))
    }

    /// Every second one is from a batch.
    pub(super) fn new_work(&self, new: &[Submission]) -> Vec<Submission> {
        let batch = BatchId::from_uuid(self.world.uuid());
        let lines = (1..).map(|line| (line % 2 == 0).then_some(BatchLine { batch, line }));
        new.iter().zip(lines).map(|(new, batch_line)| Submission { batch_line, ..new.clone() }).collect()
    }

    /// Decides to reject the work.
    pub(super) fn discarded(&self, account: &Versioned<Account>, work: &[Work]) -> AccountCommit {
        discard(account, pending(work, &[]), &self.context(&[]))
    }

    fn context<'a>(&self, numbers: &'a [OrderNumber]) -> DecisionContext<'a> {
        let (nonce, now) = (self.world.nonce(), self.world.now());
        DecisionContext { nonce, now, numbers }
    }

    /// Decides a change of terms.
    pub(super) fn changed(
        &self,
        account: &Account,
        limit: OverdraftLimit,
        status: AccountStatus,
    ) -> AccountDecision {
        let terms = NewTerms { overdraft_limit: limit, status, holder: None };
        change_terms(account, terms, &self.terms_context()).unwrap()
    }

    pub(super) fn terms_context(&self) -> TermsContext {
        TermsContext { nonce: self.world.nonce(), now: self.world.now() }
    }

    pub(super) async fn committed(&self, commit: &AccountCommit) {
        let answer = self.store.ledger.commit(commit).await.unwrap();
        assert!(matches!(answer, Committed::Done { .. }), "all guards hold, but the result was {answer:?}");
    }

    /// Accepts and posts transactions.
    pub(super) async fn settled(&self, group: &[Submission]) -> AccountCommit {
        let account = self.account(group.first().unwrap().key.account).await;
        let commit = self.decided(&account, &self.accepted(group).await);
        self.committed(&commit).await;
        commit
    }

    /// Posts transactions in one step, which inserts them.
    pub(super) async fn inserted(&self, group: &[Submission]) -> AccountCommit {
        let account = self.account(group.first().unwrap().key.account).await;
        let commit = self.decided_with_new(&account, &[], group);
        self.committed(&commit).await;
        commit
    }

    pub(super) async fn account(&self, key: AccountKey) -> Versioned<Account> {
        let found = self.store.ledger.account(key).await.unwrap();
        found.expect("an opened account can be read")
    }

    pub(super) async fn stored(&self, key: &TransactionKey) -> StoredTransaction {
        let found = self.store.ledger.transaction(key).await.unwrap();
        found.expect("an accepted transaction can be read")
    }

    pub(super) async fn decision_pages(&self, account: AccountKey) -> Vec<JournalPage> {
        let page = async |cursor: Option<String>| {
            self.store.archive.stored_decision_pages(account, cursor.as_deref(), 3).await.unwrap()
        };
        let pages: Vec<StoredDecisionPage> = to_the_end(3, page).await;
        let read = |stored: StoredDecisionPage| {
            let page = stored.page.expect("no page is damaged");
            assert_eq!(stored.version, Some(page.version), "the key is the version");
            page
        };
        pages.into_iter().map(read).collect()
    }

    /// Asserts that the pages of an account are an unbroken hash chain from its opening to its state.
    pub(super) async fn assert_chain(&self, account: &Account) {
        let mut pages = self.journal(account.key).await;
        pages.extend(self.decision_pages(account.key).await);
        pages.sort_by_key(|page| page.version);
        assert_chain(&pages, account);
    }

    pub(super) async fn journal(&self, account: AccountKey) -> Vec<JournalPage> {
        self.store.log.pages(account, 1, 100_000).await.unwrap()
    }

    /// Reads all transactions of an account in that status, page by page.
    pub(super) async fn in_status(
        &self,
        account: AccountKey,
        status: TransactionStatus,
        limit: usize,
    ) -> Vec<StoredTransaction> {
        let log = &self.store.log;
        let page = async |cursor: Option<String>| {
            log.by_status(account, status, None, cursor.as_deref(), limit).await.unwrap()
        };
        to_the_end(limit, page).await
    }

    pub(super) async fn all_rows(&self, key: AccountKey) -> AccountRows {
        let mut transactions = Vec::new();
        for status in TransactionStatus::ALL {
            transactions.extend(self.in_status(key, status, 100).await);
        }
        let account = self.store.ledger.account(key).await.unwrap();
        let mut pages = self.journal(key).await;
        pages.extend(self.decision_pages(key).await);
        AccountRows { account, transactions, pages }
    }
}

/// Reads until the result has the property. For properties that a reading has only if the service does not end a
/// page early, which it may do at any time.
pub(super) async fn one_of_many<T>(
    read: impl AsyncFn() -> T,
    has_property: impl Fn(&T) -> bool,
    property: &str,
) -> T {
    for _ in 0..READINGS_MAX {
        let result = read().await;
        if has_property(&result) {
            return result;
        }
    }
    panic!("none of {READINGS_MAX} readings has this property: {property}");
}

/// Reads a listing page by page to its end.
pub(super) async fn to_the_end<T>(limit: usize, page: impl AsyncFn(Option<String>) -> Listing<T>) -> Vec<T> {
    let mut found = Vec::new();
    let mut cursor = None;
    for _ in 0..LISTING_PAGES_MAX {
        let Listing { items, next } = page(cursor).await;
        assert!(items.len() <= limit, "a page has at most `limit` items");
        found.extend(items);
        if next.is_none() {
            return found;
        }
        cursor = next;
    }
    panic!("the listing does not end within {LISTING_PAGES_MAX} pages");
}

/// Returns texts that are the revision of no row in any store, as an attacker may write them into a queue message:
/// HTTP wildcards, additional headers for the text of a batch, and other texts.
pub(super) fn forged_revisions() -> Vec<Revision> {
    let long = "9".repeat(100_000);
    let texts = [
        "\nif-match: *",
        "x\nif-match: *",
        "x\r\nIf-Match: *\r\nx: ",
        " *",
        "* ",
        "\t*",
        "*",
        "W/\"*\"",
        "W/\"datetime'*'\"",
        "W/\"datetime'2026'\", *",
        "W/\"datetime'2026'\"\nif-match: *",
        "\"\"",
        "",
        " ",
        "\0",
        "W/\"datetime'2026-11-22T20%3A08%3A00.1234567\u{fc}'\"",
        "\u{1d11e}",
        "-1",
        "1.5",
        &long,
    ];
    texts.into_iter().map(Revision::new).collect()
}

pub(super) fn currency(code: &str) -> Currency {
    Currency::parse(code).unwrap()
}

pub(super) fn partner(name: &str) -> PartnerId {
    PartnerId::parse(name).unwrap()
}

pub(super) fn instruction(kind: TransactionKind, minor_units: i64, currency: Currency) -> Instruction {
    let amount = Amount::try_new(minor_units, currency).unwrap();
    Instruction { kind, amount, details: Details::default() }
}

fn euros(kind: TransactionKind, cents: i64) -> Instruction {
    instruction(kind, cents, currency("EUR"))
}

pub(super) fn details(reference: &str, metadata: &[(&str, &str)], unknown: &str) -> Details {
    let metadata: BTreeMap<String, String> =
        metadata.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let unknown = UnknownMembers::of_canonical(unknown);
    Details::new(Some(reference.to_owned()), metadata, &unknown)
}

/// Asserts that the result of a commit reports that nothing was written.
pub(super) fn assert_refused(answer: &Committed, commit: &AccountCommit) {
    match answer {
        Committed::Done { .. } => panic!("a guard did not hold, but the result was Done"),
        Committed::Stale => {}
        Committed::Early => {
            assert!(commit.after_accepted, "the commit need not come after other transactions")
        }
        Committed::RowsChanged(keys) => {
            let own =
                |key: &TransactionKey| commit.stored().iter().any(|one| one.pending.submission.key == *key);
            assert!(!keys.is_empty() && keys.iter().all(own), "RowsChanged contains keys of the commit");
        }
        Committed::Taken(keys) => {
            let own =
                |key: &TransactionKey| commit.inserted().iter().any(|one| one.pending.submission.key == *key);
            assert!(!keys.is_empty() && keys.iter().all(own), "Taken contains keys that the commit inserts");
        }
    }
}

/// Asserts that the pages are an unbroken hash chain from the first one to the state of the account.
fn assert_chain(pages: &[JournalPage], account: &Account) {
    let mut previous = PageHash::GENESIS;
    let (mut sequence, mut version) = (0, 0);
    for page in pages {
        assert_eq!(page.check(), Ok(()), "the hash of the page is valid");
        assert_eq!(page.account, account.key, "the page belongs to the requested account");
        assert_eq!(page.previous_hash, previous, "the page has the hash of the previous page");
        assert_eq!(page.first_sequence, sequence + 1, "sequences have no gaps");
        assert_eq!(page.version, version + 1, "versions have no gaps");
        (previous, sequence, version) = (page.hash, page.last_sequence(), page.version);
    }
    assert_eq!(
        (account.head, account.sequence),
        (previous, sequence),
        "the account has the head and the last sequence of its journal"
    );
    assert_eq!(version, account.version, "each version has a page");
    let last = pages.iter().rev().find_map(|page| page.entries.last());
    let balance = last.map_or(0, |entry| entry.balance_after.minor_units());
    assert_eq!(account.balance.minor_units(), balance, "the balance is the sum of the posted entries");
}

/// Returns a timestamp with milliseconds.
pub(super) fn moment(index: i64) -> Timestamp {
    Timestamp::from_unix_ms(1_700_000_000_123 + index)
}
