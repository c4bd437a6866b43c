use std::time::Duration;

use postonce_shared::testing::prelude::*;
use uuid::Uuid;

use super::*;
use crate::access::scopes::Scope;

fn key() -> AccountKey {
    AccountKey {
        user: UserId::from_uuid(Uuid::from_u128(1)),
        account: AccountId::from_uuid(Uuid::from_u128(2)),
    }
}

/// Account store that changes the row before each of the first `changes` writes, so that these writes conflict.
struct Contended {
    inner: Arc<dyn Accounts>,
    ledger: Arc<dyn postonce_shared::ports::ledger::Ledger>,
    changes: std::sync::atomic::AtomicU32,
}

#[async_trait::async_trait]
impl Accounts for Contended {
    async fn open(&self, account: &AccountDecision) -> Result<Opened, StoreFault> {
        self.inner.open(account).await
    }

    async fn change(
        &self,
        guard: &Revision,
        after: &AccountDecision,
    ) -> Result<Option<Revision>, StoreFault> {
        use std::sync::atomic::Ordering::Relaxed;
        if self.changes.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok() {
            let found = self.ledger.account(key()).await?.unwrap();
            let touched = change_of_terms(&found.value, found.value.overdraft_limit, found.value.status);
            let _revision = self.inner.change(&found.revision, &touched).await?;
        }
        self.inner.change(guard, after).await
    }

    async fn list(
        &self,
        user: UserId,
        after: Option<AccountId>,
        limit: usize,
    ) -> Result<Vec<Account>, StoreFault> {
        self.inner.list(user, after, limit).await
    }
}

async fn close_while_it_changes(changes: u32) -> ChangeOutcome {
    let world: Arc<TestWorld> = Arc::new(TestWorld::new(1));
    let mut store = MemoryStore::new(world.clone());
    let (inner, ledger) = (Arc::clone(&store.accounts), Arc::clone(&store.ledger));
    store.accounts = Arc::new(Contended { inner, ledger, changes: changes.into() });
    let bell = Arc::new(LocalDoorbell::default());
    let seal = Seal::new(&DoorbellSecret::new(None));
    let accounts_service = AccountService::new(&Bank::new(store, world.clone(), bell, seal, 1));
    let partner = PartnerId::parse("shop").unwrap();
    let partner = Arc::new(Partner::active(partner, Reach::Everything, world.now()));
    let grant = Grant {
        key_id: "1".to_owned(),
        scopes: vec![Scope::Accounts],
        expires_at: None,
        last_used_at: None,
        partner,
    };
    let currency = Currency::parse("EUR").unwrap();
    let overdraft_limit = OverdraftLimit::none(currency);
    let terms = AccountTerms { currency, overdraft_limit, holder: None };
    assert!(matches!(accounts_service.open(key(), terms, &grant).await.unwrap(), OpenOutcome::Created(_)));
    let requested =
        AccountChange { overdraft_limit: None, status: Some(AccountStatus::Closed), holder: None };
    let clock = async {
        loop {
            world.advance(Duration::from_secs(1));
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        changing = accounts_service.change(key(), &requested, &grant, |_| true) => changing.unwrap(),
        () = clock => panic!("the clock never ends"),
    }
}

#[tokio::test]
async fn a_change_is_retried_after_concurrent_changes() {
    let ChangeOutcome::Done(account) = close_while_it_changes(3).await else { panic!("not done") };
    assert_eq!((account.status, account.version), (AccountStatus::Closed, 5));
    assert_eq!(close_while_it_changes(100).await, ChangeOutcome::Busy);
}
