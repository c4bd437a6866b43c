//! One account, its transactions and its journal, as changed by the writes of [`late_writes`](super::late_writes).
//!
//! Models the guarantees of `shared/src/ports/ledger.rs` that the adapters implement
//! (`adapters/azure/{accept,commit}.rs`, `adapters/sqlite/{accept,commit}.rs`): an insert happens at most once per key,
//! and a commit is written as a whole under its guards or not at all. The decision is that of `domain/decision/mod.rs`: a
//! pure function of the account and the transaction.
//!
//! Assumptions: a commit concerns one transaction, and rows are never deleted.

/// Number of transactions: a deposit of one, and a withdrawal of one, which needs the deposit or the initial balance.
pub const KEYS: usize = 2;
pub const DEPOSIT: usize = 0;
pub const WITHDRAWAL: usize = 1;
const AMOUNTS: [i8; KEYS] = [1, -1];

pub const POSTED_ONCE: &str = "a transaction is posted at most once";
pub const FINAL_STAYS: &str = "a final status never changes";
pub const BALANCE_IS_SUM: &str = "the balance is the sum of the entries";
pub const REJECTED_CORRECTLY: &str = "an old balance never refuses what the account can pay";

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    Accepted,
    Posted,
    Rejected,
}

/// The author of a write while it knows the nonce. No other party compares nonces.
pub type Nonce = Option<usize>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Row {
    /// Increases with each write.
    pub revision: u8,
    pub status: Status,
    pub nonce: Nonce,
}

impl Row {
    pub fn is_final(&self) -> bool {
        self.status != Status::Accepted
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Account {
    pub balance: i8,
    pub version: u8,
}

/// A commit of the outcome of one transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Commit {
    pub key: usize,
    /// Required revision of the row; `None` if the commit inserts the row.
    pub row: Option<u8>,
    /// Required version of the account.
    pub version: u8,
    pub balance: i8,
    pub status: Status,
    pub nonce: Nonce,
}

impl Commit {
    pub fn decide(account: Account, key: usize, row: Option<u8>, nonce: Nonce) -> Self {
        let after = account.balance.saturating_add(AMOUNTS[key]);
        let (status, balance) =
            if after < 0 { (Status::Rejected, account.balance) } else { (Status::Posted, after) };
        Self { key, row, version: account.version, balance, status, nonce }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Write {
    /// The insert of an accepted transaction.
    Insert(usize, Nonce),
    Commit(Commit),
    /// The repair mark on a transaction with this revision.
    Mark(usize, u8),
}

impl Write {
    pub fn nonce_mut(&mut self) -> Option<&mut Nonce> {
        match self {
            Self::Insert(_, nonce) | Self::Commit(Commit { nonce, .. }) => Some(nonce),
            Self::Mark(..) => None,
        }
    }
}

/// Guards that the store checks.
#[derive(Debug, Clone, Copy)]
pub struct Guards {
    pub account_in_commit: bool,
    pub account_in_rejection: bool,
    pub row_in_commit: bool,
    pub key_in_commit: bool,
    pub row_in_mark: bool,
}

/// The stored rows.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Ledger {
    pub rows: [Option<Row>; KEYS],
    pub account: Account,
    /// Number of journal entries of each transaction.
    pub entries: [u8; KEYS],
    funds: i8,
    /// A wrong write that is not visible in the rows.
    wrong: Option<&'static str>,
}

impl Ledger {
    /// Creates an open account with a balance.
    pub fn new(funds: i8) -> Self {
        let account = Account { balance: funds, version: 0 };
        Self { rows: [None; KEYS], account, entries: [0; KEYS], funds, wrong: None }
    }

    /// Returns whether a transaction is stored without an outcome.
    pub fn is_accepted(&self, key: usize) -> bool {
        self.rows[key].is_some_and(|row| !row.is_final())
    }

    /// Executes a write if its guards hold. Returns whether they hold.
    pub fn apply(&mut self, write: &Write, guards: &Guards) -> bool {
        match *write {
            Write::Insert(key, nonce) => {
                let is_free = self.rows[key].is_none();
                if is_free {
                    self.put(key, Status::Accepted, nonce);
                }
                is_free
            }
            Write::Mark(key, revision) => {
                let row = self.rows[key];
                let holds = row.is_some_and(|row| row.revision == revision) || !guards.row_in_mark;
                if holds {
                    self.put(key, Status::Accepted, row.and_then(|row| row.nonce));
                }
                holds
            }
            Write::Commit(commit) => self.commit(&commit, guards),
        }
    }

    fn commit(&mut self, commit: &Commit, guards: &Guards) -> bool {
        let Commit { key, row, version, balance, status, nonce } = *commit;
        let rejects = status == Status::Rejected;
        let is_guarded = guards.account_in_commit && (guards.account_in_rejection || !rejects);
        let account_holds = self.account.version == version || !is_guarded;
        let row_holds = match row {
            Some(revision) => {
                self.rows[key].is_some_and(|row| row.revision == revision) || !guards.row_in_commit
            }
            None => self.rows[key].is_none() || !guards.key_in_commit,
        };
        if !account_holds || !row_holds {
            return false;
        }
        if rejects {
            if self.account.balance.saturating_add(AMOUNTS[key]) >= 0 {
                self.wrong = self.wrong.or(Some(REJECTED_CORRECTLY));
            }
        } else {
            self.account.balance = balance;
            self.entries[key] = self.entries[key].saturating_add(1);
        }
        self.account.version = self.account.version.saturating_add(1);
        self.put(key, status, nonce);
        true
    }

    fn put(&mut self, key: usize, status: Status, nonce: Nonce) {
        let before = self.rows[key];
        if before.is_some_and(|row| row.is_final() && row.status != status) {
            self.wrong = self.wrong.or(Some(FINAL_STAYS));
        }
        let revision = before.map_or(0, |row| row.revision).saturating_add(1);
        self.rows[key] = Some(Row { revision, status, nonce });
    }

    /// Returns whether the guards of a write may still hold. Versions and revisions only increase.
    pub fn may_hold(&self, write: &Write) -> bool {
        let holds = |key: usize, revision: Option<u8>| {
            self.rows[key].map_or(0, |row| row.revision) <= revision.unwrap_or(0)
        };
        match write {
            Write::Insert(key, _) => holds(*key, None),
            Write::Mark(key, revision) => holds(*key, Some(*revision)),
            Write::Commit(commit) => self.account.version <= commit.version && holds(commit.key, commit.row),
        }
    }

    /// Returns the property that the rows violate.
    pub fn violated(&self) -> Option<&'static str> {
        if self.entries.iter().any(|entries| *entries > 1) {
            return Some(POSTED_ONCE);
        }
        let posted = (0..KEYS).filter(|key| self.entries[*key] > 0).map(|key| AMOUNTS[key]).sum::<i8>();
        if self.account.balance != self.funds.saturating_add(posted) || self.account.balance < 0 {
            return Some(BALANCE_IS_SUM);
        }
        self.wrong
    }
}
