//! What a partner may do without showing a key: the terms on which its orders are accepted that producers
//! write to a work queue directly.
//!
//! The checks and their order are those of a request over HTTP. [`PartnerGrants::find`]: the partner exists and
//! is active. Next is its rate, which the caller counts. [`PartnerGrant::check`]: no signature is required, it
//! has the scope, and the account is within its reach.
//!
//! Only keys have scopes, and an order shows no key. So a partner has the scopes of all its keys that work
//! (listed in its record and not revoked) together: an order does nothing that the partner could not do over
//! HTTP, and a partner whose keys were all revoked can do nothing.

use std::sync::Arc;

use futures::future::try_join_all;

use crate::access::partner_cache::{Answer, OfPartner, PartnerCache};
use crate::domain::ids::{AccountKey, PartnerId};
use crate::domain::instruction::TransactionKind;
use crate::domain::partner::{Partner, PartnerStatus};
use crate::domain::scope::Scope;
use crate::ports::Store;
use crate::ports::api_keys::ApiKeys;
use crate::ports::fault::StoreFault;
use crate::ports::partners::Partners;
use crate::ports::world::World;

/// Why the terms of a partner do not allow an order: a sentence for an operator.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Denial {
    /// There is no such partner.
    #[error(
        "partner {0} does not exist; add it, with the reach and the scopes that its orders need, then replay"
    )]
    Unknown(PartnerId),
    /// It may not act for now.
    #[error("partner {0} is suspended; resume it, then replay")]
    Suspended(PartnerId),
    /// What it sends has to be signed, and the forms of orders have no signature.
    #[error(
        "partner {0} has to sign its requests, and an order on a queue has no signature; do not require it of {0}, \
         or set another legacy-partner, then replay"
    )]
    SignatureRequired(PartnerId),
    /// None of its keys that work has the scope.
    #[error("no key of partner {partner} has the scope {scope}; add a key that has it, then replay")]
    ScopeMissing {
        /// The partner.
        partner: PartnerId,
        /// What the order needs.
        scope: Scope,
    },
    /// It may not touch the account, which may not even exist.
    #[error(
        "the account {account} is outside of the reach of partner {partner}; extend its reach, then replay"
    )]
    OutOfReach {
        /// The account.
        account: AccountKey,
        /// The partner.
        partner: PartnerId,
    },
}

/// An active partner, and the scopes of its keys that work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartnerGrant {
    /// The partner, as it was when it was read.
    pub partner: Partner,
    /// The scopes of all its keys together.
    pub scopes: Vec<Scope>,
}

impl OfPartner for PartnerGrant {
    fn partner(&self) -> &PartnerId {
        &self.partner.id
    }
}

impl PartnerGrant {
    /// Whether an order of that kind on that account is within the terms.
    ///
    /// # Errors
    /// [`Denial`] when it is not.
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

/// The grants of the partners of a store, remembered as [`crate::access::partner_cache`] says. One per process.
pub struct PartnerGrants {
    partners: Arc<dyn Partners>,
    keys: Arc<dyn ApiKeys>,
    memory: PartnerCache<PartnerId, PartnerGrant, Denial>,
}

impl PartnerGrants {
    /// The grants of a store. Nothing is read yet.
    pub fn new(store: &Store, world: Arc<dyn World>) -> Self {
        let (partners, keys) = (Arc::clone(&store.partners), Arc::clone(&store.api_keys));
        Self { partners, keys, memory: PartnerCache::new(world) }
    }

    /// A partner that exists and is active. Where it is not remembered, that is one read of the store for the
    /// partner and one for each of its keys.
    ///
    /// # Errors
    /// [`StoreFault`] when it cannot be read.
    pub async fn find(&self, id: &PartnerId) -> Result<Result<Arc<PartnerGrant>, Denial>, StoreFault> {
        self.memory.recall(id, self.read(id)).await
    }

    /// Forgets what is remembered of a partner, or, without one, of all partners.
    pub fn forget(&self, partner: Option<&PartnerId>) {
        self.memory.forget(partner);
    }

    async fn read(&self, id: &PartnerId) -> Result<Answer<PartnerGrant, Denial>, StoreFault> {
        let Some(stored) = self.partners.find(id).await? else {
            return Ok(Answer::Refused(Denial::Unknown(id.clone())));
        };
        let partner = stored.value;
        match partner.status {
            PartnerStatus::Active => {}
            PartnerStatus::Suspended => return Ok(Answer::Refused(Denial::Suspended(id.clone()))),
        }
        let records = try_join_all(partner.keys.iter().map(|key| self.keys.find(&key.id))).await?;
        let working = records.into_iter().flatten();
        let working = working.filter(|record| record.revoked_at.is_none() && record.partner == *id);
        let codes: Vec<String> = working.flat_map(|record| record.scopes).collect();
        Ok(Answer::Granted(PartnerGrant { scopes: Scope::of_codes(&codes), partner }))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

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
        // As over HTTP: the scope is checked first, and `admin` does not include it.
        assert_eq!(grant.check(Withdrawal, account(2)), without(Scope::Withdraw));
        grant.scopes = vec![Scope::Withdraw, Scope::Admin];
        assert_eq!(grant.check(Withdrawal, account(1)), Ok(()));
        assert_eq!(grant.check(Deposit, account(1)), without(Scope::Deposit));
        grant.partner.signature_required = true;
        assert_eq!(grant.check(Withdrawal, account(1)), Err(Denial::SignatureRequired(id.clone())));
    }
}
