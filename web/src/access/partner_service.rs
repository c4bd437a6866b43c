//! Administration of partners and their keys, for the command line and the admin API. Every change is one
//! conditional write of the partner record (optimistic concurrency), so concurrent operators never undo each
//! other's changes or exceed the maximum number of keys.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use postonce_shared::access::partner_cache::{RightsChanged, Standing};
use postonce_shared::access::partner_records::PartnerRecords;
use postonce_shared::backoff::SHARED_VALUE_WRITE;
use postonce_shared::domain::account::{Revision, Versioned};
use postonce_shared::domain::ids::PartnerId;
use postonce_shared::domain::partner::{ACTIVE_KEYS_MAX, ActiveKey, Partner, Reach};
use postonce_shared::domain::time::Timestamp;
use postonce_shared::ports::Store;
use postonce_shared::ports::api_keys::{ApiKeyRecord, ApiKeys};
use postonce_shared::ports::fault::{StoreFault, chain};
use postonce_shared::ports::sync_store::Swapped;
use postonce_shared::ports::world::World;

use crate::access::api_keys::NewKey;
use crate::access::keyring::Grant;
use crate::access::management_rights::{Bounds, KeyDetails, ManagementRights};
use crate::access::partner_broadcast::{PartnerBroadcast, PendingNotification};
use crate::access::partner_terms::{NewKeyTerms, PartnerChangeError, TermsChange};
use crate::access::scopes::Scope;

const READS_AT_ONCE: usize = 8;

/// Result of changing a partner.
#[must_use]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PartnerChangeOutcome {
    /// The partner is in the requested state.
    Done(Partner),
    /// The partner does not exist.
    Unknown,
    /// The change is not possible in the current state of the partner.
    Refused(PartnerChangeError),
}

/// Result of [`PartnerService::put`].
#[must_use]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PartnerPutOutcome {
    /// The partner was created.
    Created(Partner),
    /// The partner existed and has the new terms.
    Changed(Partner),
    /// The change is not possible in the current state of the partner.
    Refused(PartnerChangeError),
}

/// Creates and changes partners and their keys.
#[derive(Clone)]
pub struct PartnerService {
    partners: PartnerRecords,
    keys: Arc<dyn ApiKeys>,
    world: Arc<dyn World>,
    broadcast: Arc<PartnerBroadcast>,
    standing: Standing,
}

impl PartnerService {
    /// Creates the service for a store. Every change is broadcast, including writes with unknown outcome.
    pub fn new(store: &Store, world: Arc<dyn World>, broadcast: Arc<PartnerBroadcast>) -> Self {
        let (partners, keys) = (PartnerRecords::new(store), Arc::clone(&store.api_keys));
        Self { partners, keys, world, broadcast, standing: Standing::ALWAYS }
    }

    /// Returns the service for a caller, which begins no change once the rights of the caller have changed.
    pub fn acting_on(&self, standing: &Standing) -> Self {
        Self { standing: standing.clone(), ..self.clone() }
    }

    /// Returns the current time, for new partners.
    pub fn now(&self) -> Timestamp {
        self.world.now()
    }

    /// Finds a partner.
    ///
    /// # Errors
    /// [`StoreFault`] when it cannot be read.
    pub async fn find(&self, id: &PartnerId) -> Result<Option<Partner>, StoreFault> {
        Ok(self.partners.find(id).await?.map(|stored| stored.value))
    }

    /// Lists at most `limit` partners in the order of their ids, after the given one.
    ///
    /// # Errors
    /// [`StoreFault`] when they cannot be read.
    pub async fn list(&self, after: Option<&PartnerId>, limit: usize) -> Result<Vec<Partner>, StoreFault> {
        self.partners.list(after, limit).await
    }

    /// Creates a partner. Returns `false` and changes nothing when the id exists.
    ///
    /// # Errors
    /// [`StoreFault`]: the outcome is unknown. It is safe to retry.
    pub async fn create(&self, partner: &Partner) -> Result<bool, StoreFault> {
        self.standing.check("creating a partner")?;
        Ok(matches!(self.save(partner, None).await?, Swapped::Done(_)))
    }

    /// Reads the limits of a caller that manages a partner; `None` if the caller has the scope `admin`.
    ///
    /// # Errors
    /// [`StoreFault`] when the keys of the partner cannot be read.
    pub async fn bounds<'a>(
        &self,
        id: &PartnerId,
        caller: &'a Grant,
    ) -> Result<Option<Bounds<'a>>, StoreFault> {
        if caller.allows(Scope::Admin) {
            return Ok(None);
        }
        let partner = self.find(id).await?;
        let keys = self.keys_of(partner.as_slice()).await?;
        Ok(Some(Bounds { caller, keys }))
    }

    /// Sets the terms of a partner within the rights of the caller. A new partner reaches only what the terms name.
    ///
    /// # Errors
    /// [`StoreFault`]: the outcome is unknown. It is safe to retry.
    pub async fn put(
        &self,
        id: &PartnerId,
        terms: &TermsChange,
        rights: ManagementRights<'_>,
        is_expected: impl Fn(Option<&Partner>) -> bool,
    ) -> Result<PartnerPutOutcome, StoreFault> {
        let edit = |partner: &mut Partner| {
            if !is_expected(Some(partner)) {
                return Err(PartnerChangeError::ConcurrentChange);
            }
            rights.check_partner(partner)?;
            let before = partner.clone();
            terms.apply(partner, rights.scope())?;
            rights.check_terms(Some(&before), partner)
        };
        loop {
            match self.change(id, edit).await? {
                PartnerChangeOutcome::Done(partner) => return Ok(PartnerPutOutcome::Changed(partner)),
                PartnerChangeOutcome::Refused(refusal) => return Ok(PartnerPutOutcome::Refused(refusal)),
                PartnerChangeOutcome::Unknown if !is_expected(None) => {
                    return Ok(PartnerPutOutcome::Refused(PartnerChangeError::ConcurrentChange));
                }
                PartnerChangeOutcome::Unknown => {}
            }
            let nothing = Reach::Named { users: BTreeSet::new(), accounts: BTreeSet::new() };
            let mut partner = Partner::active(id.clone(), nothing, self.world.now());
            let applied =
                terms.apply(&mut partner, rights.scope()).and_then(|()| rights.check_terms(None, &partner));
            if let Err(refusal) = applied {
                return Ok(PartnerPutOutcome::Refused(refusal));
            }
            // A conflict means that the partner exists. Partners are never deleted, so the loop ends.
            if self.create(&partner).await? {
                return Ok(PartnerPutOutcome::Created(partner));
            }
        }
    }

    /// Changes a partner with `edit`, which is called again after each conflict. An edit without effect writes nothing.
    ///
    /// # Errors
    /// [`StoreFault`]: the outcome is unknown. It is safe to retry.
    pub async fn change(
        &self,
        id: &PartnerId,
        edit: impl Fn(&mut Partner) -> Result<(), PartnerChangeError>,
    ) -> Result<PartnerChangeOutcome, StoreFault> {
        let mut lost = None;
        for attempt in 1..=SHARED_VALUE_WRITE.attempts {
            let Some(Versioned { value: before, revision }) = self.partners.find(id).await? else {
                return Ok(PartnerChangeOutcome::Unknown);
            };
            let mut after = before.clone();
            if let Err(refusal) = edit(&mut after) {
                return Ok(PartnerChangeOutcome::Refused(refusal));
            }
            if after == before {
                // An earlier attempt may have succeeded without an answer, after its notification was sent.
                PendingNotification::of(&self.broadcast, id).send().await;
                return Ok(PartnerChangeOutcome::Done(after));
            }
            after.changed_at = self.world.now();
            self.standing.check("changing a partner")?;
            match self.save(&after, Some(&revision)).await {
                Ok(Swapped::Done(_)) => return Ok(PartnerChangeOutcome::Done(after)),
                Ok(Swapped::Conflict) => {}
                // The write may have succeeded: the next read shows it, and the revision prevents a second write.
                Err(fault) if fault.is_transient() => lost = Some(fault),
                Err(fault) => return Err(fault),
            }
            SHARED_VALUE_WRITE.pause(attempt, &*self.world).await;
        }
        let contended = || StoreFault::Unavailable {
            doing: "changing a partner",
            source: format!(
                "a concurrent change conflicted with each of {} attempts",
                SHARED_VALUE_WRITE.attempts
            )
            .into(),
        };
        Err(lost.unwrap_or_else(contended))
    }

    /// Saves a partner. Sends a notification if the write may have changed something.
    async fn save(&self, partner: &Partner, expected: Option<&Revision>) -> Result<Swapped, StoreFault> {
        let notification = PendingNotification::of(&self.broadcast, &partner.id);
        let saved = self.partners.save(partner, expected).await;
        match &saved {
            Ok(Swapped::Conflict) => notification.cancel(),
            Ok(Swapped::Done(_)) | Err(_) => notification.send().await,
        }
        saved
    }

    /// Generates a key within the rights of the caller. The caller must show it, because clear text is not stored.
    ///
    /// # Errors
    /// [`StoreFault`]: a key that was never shown may be stored. It counts as active, is listed, and can be revoked.
    pub async fn add_key(
        &self,
        id: &PartnerId,
        terms: &NewKeyTerms,
        rights: ManagementRights<'_>,
    ) -> Result<(NewKey, PartnerChangeOutcome), StoreFault> {
        let key = NewKey::random();
        let record = key.record(id.clone(), &terms.scopes, &*self.world);
        let record = ApiKeyRecord { expires_at: terms.expires_at, ..record };
        let check = |partner: &Partner| {
            rights.check_partner(partner)?;
            rights.check_key(partner, terms)?;
            match partner.keys.len() {
                active if active >= ACTIVE_KEYS_MAX => Err(PartnerChangeError::TooManyKeys(active)),
                _ => Ok(()),
            }
        };
        // Checked before the write too, so that a refusal leaves no row behind.
        match self.find(id).await? {
            None => return Ok((key, PartnerChangeOutcome::Unknown)),
            Some(partner) => {
                if let Err(refusal) = check(&partner) {
                    return Ok((key, PartnerChangeOutcome::Refused(refusal)));
                }
            }
        }
        self.standing.check("adding a key")?;
        // The row is written first: the key is not valid until the partner record lists it.
        self.keys.add(&record).await?;
        let changed = self
            .change(id, |partner| {
                if !partner.has_key(&record.id) {
                    check(partner)?;
                    partner.keys.push(ActiveKey { id: record.id.clone(), created_at: record.created_at });
                }
                Ok(())
            })
            .await;
        let is_unused = match &changed {
            Ok(PartnerChangeOutcome::Done(_)) => false,
            Ok(PartnerChangeOutcome::Unknown | PartnerChangeOutcome::Refused(_)) => true,
            // After any other fault the partner may list the key.
            Err(fault) => RightsChanged::is_cause_of(fault),
        };
        if is_unused && let Err(fault) = self.keys.revoke(&record.id, self.world.now()).await {
            tracing::warn!("The row of an unused key could not be revoked: {}", chain(&fault));
        }
        Ok((key, changed?))
    }

    /// Revokes a key of a partner permanently, within the rights of the caller. Revoking it again has no effect.
    ///
    /// # Errors
    /// [`StoreFault`]: the key may still be valid. It is safe to retry.
    pub async fn revoke_key(
        &self,
        id: &PartnerId,
        key_id: &str,
        rights: ManagementRights<'_>,
    ) -> Result<PartnerChangeOutcome, StoreFault> {
        let record = self.keys.find(key_id).await?;
        if record.is_none_or(|record| record.partner != *id) {
            let known = self.find(id).await?.is_some();
            return Ok(if known {
                PartnerChangeOutcome::Refused(PartnerChangeError::NoSuchKey)
            } else {
                PartnerChangeOutcome::Unknown
            });
        }
        // This change makes the key invalid.
        let changed = self.change(id, |partner| {
            rights.check_partner(partner)?;
            partner.keys.retain(|key| key.id != key_id);
            Ok(())
        });
        let changed = changed.await?;
        if matches!(changed, PartnerChangeOutcome::Refused(_)) {
            return Ok(changed);
        }
        self.keys.revoke(key_id, self.world.now()).await?;
        Ok(changed)
    }

    /// Returns details of the active keys of partners, by key id.
    ///
    /// # Errors
    /// [`StoreFault`] when they cannot be read.
    pub async fn keys_of(&self, partners: &[Partner]) -> Result<BTreeMap<String, KeyDetails>, StoreFault> {
        let ids = partners.iter().flat_map(|partner| &partner.keys).map(|key| key.id.clone());
        let read =
            stream::iter(ids).map(|id| async move { self.keys.find(&id).await }).buffered(READS_AT_ONCE);
        let records: Vec<Option<ApiKeyRecord>> = read.try_collect().await?;
        Ok(records
            .into_iter()
            .flatten()
            .map(|record| {
                let ApiKeyRecord { id, scopes, expires_at, last_used_at, .. } = record;
                (id, KeyDetails { scopes: Scope::of_stored(&scopes), expires_at, last_used_at })
            })
            .collect())
    }
}
