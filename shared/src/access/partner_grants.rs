//! Permissions of partners whose requests carry no API key: producers that write direct orders to an ingest queue.
//!
//! The checks and their order are the same as for an HTTP request. [`PartnerGrants::find`] checks that the partner
//! exists and is active. Then the caller checks the rate. [`PartnerGrant::check`] checks that no signature is required,
//! that the partner has the scope, and that the account is within its reach.
//!
//! Scopes belong to keys, and a direct order carries no key. A partner therefore has the union of the scopes of its
//! active keys (listed in its record, neither revoked nor expired). A direct order can do nothing that the partner
//! could not do over HTTP, and a partner without active keys can do nothing.

use std::sync::Arc;

use futures::future::try_join_all;

use crate::access::partner_cache::{Answer, OfPartner, PartnerCache, Standing};
use crate::access::partner_records::PartnerRecords;
use crate::domain::ids::{AccountKey, PartnerId};
use crate::domain::instruction::TransactionKind;
use crate::domain::partner::{Partner, PartnerStatus};
use crate::domain::scope::Scope;
use crate::domain::time::Timestamp;
use crate::ports::Store;
use crate::ports::api_keys::ApiKeys;
use crate::ports::fault::StoreFault;
use crate::ports::world::World;

/// Why a direct order is not allowed, as a sentence for operators.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GrantError {
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
         of {0}, or set another partner of the ingest queue, then replay"
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
    /// The scopes of each of its active keys, and the time from which on the key does not count.
    pub keys: Vec<(Vec<Scope>, Option<Timestamp>)>,
}

impl OfPartner for PartnerGrant {
    fn partner(&self) -> &PartnerId {
        &self.partner.id
    }
}

impl PartnerGrant {
    /// Checks that an order of this kind on this account is within the terms. Returns the time until which it is, if a key expires.
    ///
    /// # Errors
    /// [`GrantError`] when it is not.
    pub fn check(
        &self,
        kind: TransactionKind,
        account: AccountKey,
        now: Timestamp,
    ) -> Result<Option<Timestamp>, GrantError> {
        let Self { partner, keys } = self;
        if partner.signature_required {
            return Err(GrantError::SignatureRequired(partner.id.clone()));
        }
        let scope = match kind {
            TransactionKind::Deposit => Scope::Deposit,
            TransactionKind::Withdrawal => Scope::Withdraw,
        };
        let having = keys.iter().filter(|(scopes, _)| scopes.iter().any(|own| own.includes(scope)));
        let until = having.map(|(_, at)| *at).filter(|at| at.is_none_or(|at| now < at));
        // That of the key that counts for the longest time.
        let Some(until) = until.max_by_key(|at| (at.is_none(), *at)) else {
            return Err(GrantError::ScopeMissing { partner: partner.id.clone(), scope });
        };
        if !partner.reach.has_account(account) {
            return Err(GrantError::OutOfReach { account, partner: partner.id.clone() });
        }
        Ok(until)
    }
}

/// The grants of the partners of a store, cached by [`crate::access::partner_cache`]. One per process.
pub struct PartnerGrants {
    partners: PartnerRecords,
    keys: Arc<dyn ApiKeys>,
    world: Arc<dyn World>,
    cache: PartnerCache<PartnerId, PartnerGrant, GrantError>,
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
    /// [`StoreFault`] when they cannot be read.
    pub async fn find(
        &self,
        id: &PartnerId,
    ) -> Result<Result<(Arc<PartnerGrant>, Standing), GrantError>, StoreFault> {
        self.cache.get_or_load(id, self.read(id)).await
    }

    /// Removes the cached grants of one partner, or of all partners.
    pub fn forget(&self, partner: Option<&PartnerId>) {
        self.cache.forget(partner);
    }

    async fn read(&self, id: &PartnerId) -> Result<Answer<PartnerGrant, GrantError>, StoreFault> {
        let Some(stored) = self.partners.find(id).await? else {
            return Ok(Answer::Refused(GrantError::Unknown(id.clone())));
        };
        let partner = stored.value;
        match partner.status() {
            PartnerStatus::Active => {}
            PartnerStatus::Suspended => return Ok(Answer::Refused(GrantError::Suspended(id.clone()))),
        }
        let records = try_join_all(partner.keys.iter().map(|key| self.keys.find(&key.id))).await?;
        let (active, now) = (records.into_iter().flatten(), self.world.now());
        let active = active.filter(|record| record.is_valid_at(now) && record.partner == *id);
        let keys = active.map(|record| (Scope::of_stored(&record.scopes), record.expires_at)).collect();
        Ok(Answer::Granted(PartnerGrant { partner, keys }))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use uuid::Uuid;

    use super::*;
    use crate::domain::ids::{AccountId, UserId};
    use crate::domain::partner::Reach;

    fn account(number: u128) -> AccountKey {
        let user = UserId::from_uuid(Uuid::from_u128(1));
        AccountKey { user, account: AccountId::from_uuid(Uuid::from_u128(number)) }
    }

    #[test]
    fn an_order_needs_its_scope_and_an_account_within_the_reach() {
        use TransactionKind::{Deposit, Withdrawal};
        let id = PartnerId::parse("shop").unwrap();
        let reach = Reach::Named { users: BTreeSet::new(), accounts: BTreeSet::from([account(1)]) };
        let now = Timestamp::from_unix_ms(0);
        let mut grant = PartnerGrant {
            partner: Partner::active(id.clone(), reach, now),
            keys: vec![(vec![Scope::Deposit], None)],
        };
        let without = |scope| Err(GrantError::ScopeMissing { partner: id.clone(), scope });
        let outside = Err(GrantError::OutOfReach { account: account(2), partner: id.clone() });
        assert_eq!(grant.check(Deposit, account(1), now), Ok(None));
        assert_eq!(grant.check(Withdrawal, account(1), now), without(Scope::Withdraw));
        assert_eq!(grant.check(Deposit, account(2), now), outside);
        // As over HTTP: the scope is checked first, and `admin` does not include it.
        assert_eq!(grant.check(Withdrawal, account(2), now), without(Scope::Withdraw));
        grant.keys = vec![(vec![Scope::Withdraw, Scope::Admin], None)];
        assert_eq!(grant.check(Withdrawal, account(1), now), Ok(None));
        assert_eq!(grant.check(Deposit, account(1), now), without(Scope::Deposit));
        grant.partner.signature_required = true;
        assert_eq!(grant.check(Withdrawal, account(1), now), Err(GrantError::SignatureRequired(id.clone())));
    }

    #[test]
    fn a_scope_counts_until_the_last_key_that_has_it_expires() {
        use TransactionKind::{Deposit, Withdrawal};
        let id = PartnerId::parse("shop").unwrap();
        let [now, soon, later] = [0, 1000, 2000].map(Timestamp::from_unix_ms);
        let partner = Partner::active(id.clone(), Reach::Everything, now);
        let keys = vec![
            (vec![Scope::Deposit], Some(later)),
            (vec![Scope::Deposit, Scope::Withdraw], Some(soon)),
            (vec![Scope::Read], None),
        ];
        let mut grant = PartnerGrant { partner, keys };
        let without = |scope| Err(GrantError::ScopeMissing { partner: id.clone(), scope });
        assert_eq!(grant.check(Deposit, account(1), now), Ok(Some(later)));
        assert_eq!(grant.check(Withdrawal, account(1), now), Ok(Some(soon)));
        assert_eq!(grant.check(Withdrawal, account(1), soon), without(Scope::Withdraw));
        assert_eq!(grant.check(Deposit, account(1), later), without(Scope::Deposit));
        grant.keys.push((vec![Scope::Deposit], None));
        assert_eq!(grant.check(Deposit, account(1), soon), Ok(None));
    }
}
