//! Opening, changing and listing accounts.

use std::ops::Bound;

use async_trait::async_trait;
use uuid::Uuid;

use super::ledger::insert_page;
use super::{MemoryStore, Tables};
use crate::domain::account::{Account, Revision, Versioned};
use crate::domain::decision::AccountDecision;
use crate::domain::ids::{AccountId, AccountKey, UserId};
use crate::ports::fault::StoreFault;
use crate::ports::ledger::{Accounts, Opened};

#[async_trait]
impl Accounts for MemoryStore {
    async fn open(&self, opening: &AccountDecision) -> Result<Opened, StoreFault> {
        let AccountDecision { after: account, page } = opening;
        self.count_row("insert");
        Ok(self.step(|Tables { ledger, numbers, .. }| {
            if let Some(existing) = ledger.accounts.get(&account.key) {
                return Opened::Existing(existing.clone());
            }
            let created = Versioned { value: account.clone(), revision: numbers.revision() };
            ledger.accounts.insert(account.key, created.clone());
            insert_page(ledger, page);
            Opened::Created(created)
        }))
    }

    async fn change(
        &self,
        guard: &Revision,
        change: &AccountDecision,
    ) -> Result<Option<Revision>, StoreFault> {
        let AccountDecision { after, page } = change;
        self.count_row("merge");
        Ok(self.step(|Tables { ledger, numbers, .. }| {
            let row = ledger.accounts.get_mut(&after.key)?;
            if row.revision != *guard {
                return None;
            }
            row.value.status = after.status;
            row.value.overdraft_limit = after.overdraft_limit;
            if after.holder.is_some() {
                row.value.holder.clone_from(&after.holder);
            }
            row.value.version = after.version;
            row.revision = numbers.revision();
            let revision = row.revision.clone();
            row.value.head = page.hash;
            insert_page(ledger, page);
            Some(revision)
        }))
    }

    async fn list(
        &self,
        user: UserId,
        after: Option<AccountId>,
        limit: usize,
    ) -> Result<Vec<Account>, StoreFault> {
        self.count_query();
        let start = match after {
            Some(account) => Bound::Excluded(AccountKey { user, account }),
            None => Bound::Included(AccountKey { user, account: AccountId::from_uuid(Uuid::nil()) }),
        };
        Ok(self.step(|Tables { ledger, .. }| {
            let rows = ledger.accounts.range((start, Bound::Unbounded));
            let of_user = rows.take_while(|(key, _)| key.user == user);
            of_user.take(limit).map(|(_, row)| row.value.clone()).collect()
        }))
    }
}
