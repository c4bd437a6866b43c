//! The ports for accounts and for reads of transactions.

use async_trait::async_trait;
use postonce_shared::testing::prelude::*;

use super::left_out_mutations;
use super::network::{StoreRequest, now};
use super::ports::StoreConnection;

#[async_trait]
impl Accounts for StoreConnection {
    async fn open(&self, opening: &AccountDecision) -> Result<Opened, StoreFault> {
        let kept = opening.clone();
        let request = StoreRequest::write("open", opening.after.key.account.as_uuid().as_u128());
        self.request(request, move |network| {
            let opened = now(network.raw.accounts.open(&kept));
            network.auditor.changed(&network.raw, kept.after.key);
            opened
        })
        .await
    }

    async fn change(
        &self,
        guard: &Revision,
        change: &AccountDecision,
    ) -> Result<Option<Revision>, StoreFault> {
        let (guard, mut kept) = (guard.clone(), change.clone());
        left_out_mutations::leave_out_terms(self, &mut kept.after, &mut kept.page);
        let request = StoreRequest::write("change", change.after.key.account.as_uuid().as_u128());
        self.request(request, move |network| {
            let changed = now(network.raw.accounts.change(&guard, &kept));
            network.auditor.changed(&network.raw, kept.after.key);
            changed
        })
        .await
    }

    async fn list(
        &self,
        user: UserId,
        after: Option<AccountId>,
        limit: usize,
    ) -> Result<Vec<Account>, StoreFault> {
        self.request(StoreRequest::read("list", ""), move |network| {
            now(network.raw.accounts.list(user, after, limit))
        })
        .await
    }
}

#[async_trait]
impl TransactionLog for StoreConnection {
    async fn pages(
        &self,
        account: AccountKey,
        from: u64,
        entries: usize,
    ) -> Result<Vec<JournalPage>, StoreFault> {
        self.request(StoreRequest::read("pages", from), move |network| {
            now(network.raw.log.pages(account, from, entries))
        })
        .await
    }

    async fn decision_pages(
        &self,
        account: AccountKey,
        from: u64,
        limit: usize,
    ) -> Result<Vec<JournalPage>, StoreFault> {
        self.request(StoreRequest::read("decision-pages", from), move |network| {
            now(network.raw.log.decision_pages(account, from, limit))
        })
        .await
    }

    async fn by_status(
        &self,
        account: AccountKey,
        status: TransactionStatus,
        partner: Option<&PartnerId>,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<StoredTransaction>, StoreFault> {
        let (partner, cursor) = (partner.cloned(), cursor.map(str::to_owned));
        self.request(StoreRequest::read("by-status", status.code()), move |network| {
            now(network.raw.log.by_status(account, status, partner.as_ref(), cursor.as_deref(), limit))
        })
        .await
    }
}
