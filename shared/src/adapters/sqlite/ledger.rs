//! The two atomic steps of the protocol, and the reads for them.

use std::sync::Arc;

use async_trait::async_trait;

use super::accept::{AcceptedRow, accept};
use super::commit::{PreparedCommit, PreparedRejection, commit, commit_all, reject_unknown};
use super::database::Database;
use super::writer::Verdict;
use super::{Enqueue, accounts, columns, meter, transaction_row};
use crate::domain::account::{Account, Revision, Versioned};
use crate::domain::decision::{AccountCommit, Submission, UnknownAccountCommit};
use crate::domain::ids::{AccountKey, Nonce, TransactionKey};
use crate::ports::fault::StoreFault;
use crate::ports::ledger::{
    AcceptGrouping, AcceptOutcome, Committed, JointSteps, Ledger, Marks, StoredTransaction,
};

/// Maximum number of accounts per joint step. A commit of this size blocks other writers for some ten milliseconds.
const ACCOUNTS_MAX: usize = 256;

pub(super) struct SqliteLedger {
    database: Arc<Database>,
    enqueue: Enqueue,
}

impl SqliteLedger {
    pub(super) fn new(database: Arc<Database>, enqueue: Enqueue) -> Self {
        Self { database, enqueue }
    }
}

#[async_trait]
impl Ledger for SqliteLedger {
    fn accept_grouping(&self) -> AcceptGrouping {
        AcceptGrouping::AllAccounts
    }

    fn checks_order(&self) -> bool {
        true
    }

    /// One thread performs all writes, in the order of the calls.
    fn writes_in_order(&self) -> bool {
        true
    }

    async fn accept(&self, group: &[Submission], nonce: Nonce) -> Result<Vec<AcceptOutcome>, StoreFault> {
        let max = self.accept_grouping().group_max();
        assert!(group.len() <= max, "{} transactions in one group", group.len());
        let rows: Vec<AcceptedRow> = group.iter().map(|new| AcceptedRow::of(new, nonce)).collect();
        let (enqueue, world) = (Arc::clone(&self.enqueue), self.database.world());
        let job = move |connection: &_| accept(connection, &rows, &enqueue, world.now());
        let outcomes = self.database.write(meter::TABLE_BATCH, "accepting transactions", job).await?;
        self.database.note_queued();
        Ok(outcomes)
    }

    async fn commit(&self, wanted: &AccountCommit) -> Result<Committed, StoreFault> {
        let doing = "committing to an account";
        let prepared = PreparedCommit::of(wanted).map_err(|fault| fault.doing(doing))?;
        self.database.write(meter::TABLE_BATCH, doing, move |connection| commit(connection, &prepared)).await
    }

    async fn reject_unknown(&self, wanted: &UnknownAccountCommit) -> Result<Committed, StoreFault> {
        let doing = "rejecting transactions of an unknown account";
        let rejection = PreparedRejection::of(wanted).map_err(|fault| fault.doing(doing))?;
        let job = move |connection: &_| reject_unknown(connection, &rejection);
        self.database.write(meter::TABLE_BATCH, doing, job).await
    }

    async fn account(&self, key: AccountKey) -> Result<Option<Versioned<Account>>, StoreFault> {
        let job = move |connection: &_| accounts::find(connection, key);
        self.database.read(meter::TABLE_GET, "reading an account", job).await
    }

    async fn transaction(&self, key: &TransactionKey) -> Result<Option<StoredTransaction>, StoreFault> {
        let key = key.clone();
        let job = move |connection: &_| transaction_row::find(connection, &key);
        let found = self.database.read(meter::TABLE_GET, "reading a transaction", job).await?;
        Ok(found.map(|found| found.stored))
    }

    async fn mark(
        &self,
        key: &TransactionKey,
        revision: &Revision,
        marks: Marks,
    ) -> Result<Option<Revision>, StoreFault> {
        let Some(revision) = columns::version(revision) else { return Ok(None) };
        let (key, next) = (key.clone(), revision.saturating_add(1));
        let job = move |connection: &rusqlite::Connection| {
            let sql =
                "UPDATE transactions SET dead_letter = ?1, repairs = ?2, repaired_at = ?3, revision = ?4
                 WHERE account = (SELECT id FROM account_names WHERE user_id = ?5 AND account_id = ?6)
                   AND partner = (SELECT id FROM partners WHERE name = ?7) AND message = ?8
                   AND status = 'accepted' AND revision = ?9";
            let changed = connection.prepare_cached(sql)?.execute((
                marks.dead_letter,
                marks.repairs,
                marks.repaired_at.map(|at| at.unix_ms()),
                next,
                key.account.user.as_uuid().into_bytes(),
                key.account.account.as_uuid().into_bytes(),
                key.partner.as_str(),
                key.message.as_uuid().into_bytes(),
                revision,
            ))?;
            Ok(Verdict::Keep((changed == 1).then(|| columns::revision(next))))
        };
        self.database.write(meter::TABLE_MERGE, "marking a transaction", job).await
    }

    async fn probe(&self) -> Result<(), StoreFault> {
        let job = |connection: &rusqlite::Connection| {
            let any = "SELECT EXISTS (SELECT 1 FROM account_names)";
            let _: bool = connection.prepare_cached(any)?.query_row([], |row| row.get(0))?;
            Ok(())
        };
        self.database.read(meter::TABLE_GET, "probing the ledger", job).await
    }

    fn joint_steps(&self) -> Option<&dyn JointSteps> {
        Some(self)
    }
}

#[async_trait]
impl JointSteps for SqliteLedger {
    fn accounts_max(&self) -> usize {
        ACCOUNTS_MAX
    }

    async fn accounts(&self, keys: &[AccountKey]) -> Result<Vec<Option<Versioned<Account>>>, StoreFault> {
        let keys = keys.to_vec();
        let job = move |connection: &_| keys.into_iter().map(|key| accounts::find(connection, key)).collect();
        self.database.read(meter::TABLE_GET, "reading accounts", job).await
    }

    async fn commit_all(&self, wanted: &[AccountCommit]) -> Result<Vec<Committed>, StoreFault> {
        let doing = "committing to accounts";
        let prepared: Result<Vec<_>, _> = wanted.iter().map(PreparedCommit::of).collect();
        let prepared = prepared.map_err(|fault| fault.doing(doing))?;
        let job = move |connection: &_| commit_all(connection, &prepared);
        self.database.write(meter::TABLE_BATCH, doing, job).await
    }
}
