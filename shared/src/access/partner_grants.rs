//! Permissions of partners whose requests carry no API key: producers that write direct orders to a work queue.
//!
//! The checks and their order are the same as for an HTTP request. [`PartnerGrants::find`] checks that the partner
//! exists and is active. Then the caller checks the rate. [`PartnerGrant::check`] checks that no signature is required,
//! that the partner has the scope, and that the account is within its reach.
//!
//! Scopes belong to keys, and a direct order carries no key. A partner therefore has the union of the scopes of its
//! active keys (listed in its record, neither revoked nor expired). A direct order can do nothing that the partner
//! could not do over HTTP, and a partner without active keys can do nothing.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::future::try_join_all;

use crate::access::partner_cache::{Answer, OfPartner, PartnerCache, Standing};
use crate::access::partner_records::PartnerRecords;
use crate::domain::ids::{AccountKey, PartnerId};
use crate::domain::instruction::TransactionKind;
use crate::domain::partner::{Partner, PartnerStatus};
use crate::domain::scope::Scope;
use crate::ports::Store;
use crate::ports::api_keys::ApiKeys;
use crate::ports::fault::StoreFault;
use crate::ports::world::World;

/// Why a direct order is not allowed, as a sentence for operators.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Denial {
    /// There is no such partner.
    #[error(
        "partner {0} does not exist; add it, with the reach and the scopes that its orders need, then replay"
    )]
    Unknown(PartnerId),
    /// The partner is suspended.
    #[error("partner {0} is suspended; resume it, then replay")]
    Suspended(PartnerId),
    /// The partner must sign its requests, and direct orders have no signature.
    #[error(
        "partner {0} must sign its requests, and an order on a queue has no signature; do not require signatures \
         of {0}, or set another legacy-partner, then replay"
    )]
    SignatureRequired(PartnerId),
    /// No active key of the partner has the scope.
    #[error("no key of partner {partner} has the scope {scope}; add a key that has it, then replay")]
    ScopeMissing {
        /// The partner.
        partner: PartnerId,
        /// The required scope.
        scope: Scope,
    },
    /// The partner may not access the account, which may not exist.
    #[error("the account {account} is outside the reach of partner {partner}; extend its reach, then replay")]
    OutOfReach {
        /// The account.
        account: AccountKey,
        /// The partner.
        partner: PartnerId,
    },
}

/// An active partner, with the scopes of its active keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartnerGrant {
    /// The record of the partner when it was read.
    pub partner: Partner,
    /// The union of the scopes of its active keys.
    pub scopes: Vec<Scope>,
}

impl OfPartner for PartnerGrant {
    fn partner(&self) -> &PartnerId {
        &self.partner.id
    }
}

impl PartnerGrant {
    /// Checks that an order of this kind on this account is allowed.
    ///
    /// # Errors
    /// [`Denial`] if it is not.
    pub fn check(&self, kind: TransactionKind, account: AccountKey) -> Result<(), Denial> {
        let Self { partner, scopes } = self;
        if partner.signature_required {
            return Err(Denial::SignatureRequired(partner.id.clone()));
        }
        let scope = match kind {
            TransactionKind::Deposit => Scope::Deposit,
            TransactionKind::Withdrawal => Scope::Withdraw,
        };
        if !scopes.iter().any(|own| own.includes(scope)) {
            return Err(Denial::ScopeMissing { partner: partner.id.clone(), scope });
        }
        if !partner.reach.has_account(account) {
            return Err(Denial::OutOfReach { account, partner: partner.id.clone() });
        }
        Ok(())
    }
}

/// The grants of the partners of a store, cached by [`crate::access::partner_cache`]. One per process.
pub struct PartnerGrants {
    partners: PartnerRecords,
    keys: Arc<dyn ApiKeys>,
    world: Arc<dyn World>,
    cache: PartnerCache<PartnerId, PartnerGrant, Denial>,
}

impl PartnerGrants {
    /// Creates the grants of a store. Nothing is read yet.
    pub fn new(store: &Store, world: Arc<dyn World>) -> Self {
        let (partners, keys) = (PartnerRecords::new(store), Arc::clone(&store.api_keys));
        Self { partners, keys, cache: PartnerCache::new(Arc::clone(&world)), world }
    }

    /// Returns a partner if it exists and is active. On a cache miss this reads the partner and each of its keys.
    ///
    /// # Errors
    /// [`StoreFault`] when the store cannot be read.
    pub async fn find(&self, id: &PartnerId) -> Result<Result<Arc<PartnerGrant>, Denial>, StoreFault> {
        self.cache.get_or_load(id, self.read(id)).await
    }

    /// Returns the [`Standing`] of grants that are looked up after this call.
    pub fn standing(&self) -> Standing {
        self.cache.standing()
    }

    /// Removes the cached grants of one partner, or of all partners.
    pub fn forget(&self, partner: Option<&PartnerId>) {
        self.cache.forget(partner);
    }

    async fn read(&self, id: &PartnerId) -> Result<Answer<PartnerGrant, Denial>, StoreFault> {
        let Some(stored) = self.partners.find(id).await? else {
            return Ok(Answer::Refused(Denial::Unknown(id.clone())));
        };
        let partner = stored.value;
        match partner.status() {
            PartnerStatus::Active => {}
            PartnerStatus::Suspended => return Ok(Answer::Refused(Denial::Suspended(id.clone()))),
        }
        let records = try_join_all(partner.keys.iter().map(|key| self.keys.find(&key.id))).await?;
        // A key that expires while the grant is cached stays valid until the next read.
        let (active, now) = (records.into_iter().flatten(), self.world.now());
        let active = active.filter(|record| record.is_valid_at(now) && record.partner == *id);
        let scopes: BTreeSet<Scope> = active.flat_map(|record| Scope::of_stored(&record.scopes)).collect();
        Ok(Answer::Granted(PartnerGrant { scopes: scopes.into_iter().collect(), partner }))
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::domain::ids::{AccountId, UserId};
    use crate::domain::partner::Reach;
    use crate::domain::time::Timestamp;

    fn account(number: u128) -> AccountKey {
        let user = UserId::from_uuid(Uuid::from_u128(1));
        AccountKey { user, account: AccountId::from_uuid(Uuid::from_u128(number)) }
    }

    #[test]
    fn an_order_needs_its_scope_and_an_account_within_the_reach() {
        use TransactionKind::{Deposit, Withdrawal};
        let id = PartnerId::parse("shop").unwrap();
        let reach = Reach::Named { users: BTreeSet::new(), accounts: BTreeSet::from([account(1)]) };
        let mut grant = PartnerGrant {
            partner: Partner::active(id.clone(), reach, Timestamp::from_unix_ms(0)),
            scopes: vec![Scope::Deposit],
        };
        let without = |scope| Err(Denial::ScopeMissing { partner: id.clone(), scope });
        let outside = Err(Denial::OutOfReach { account: account(2), partner: id.clone() });
        assert_eq!(grant.check(Deposit, account(1)), Ok(()));
        assert_eq!(grant.check(Withdrawal, account(1)), without(Scope::Withdraw));
        assert_eq!(grant.check(Deposit, account(2)), outside);
        // The scope is checked first, as over HTTP. `admin` does not include it.
        assert_eq!(grant.check(Withdrawal, account(2)), without(Scope::Withdraw));
        grant.scopes = vec![Scope::Withdraw, Scope::Admin];
        assert_eq!(grant.check(Withdrawal, account(1)), Ok(()));
        assert_eq!(grant.check(Deposit, account(1)), without(Scope::Deposit));
        grant.partner.signature_required = true;
        assert_eq!(grant.check(Withdrawal, account(1)), Err(Denial::SignatureRequired(id.clone())));
    }
}
