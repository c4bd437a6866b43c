//! Who may do what, decided: partners and their keys are made, changed and revoked here, for the commands and
//! for the admin API alike. What a key may do is decided by one guarded write of its partner's record, so that
//! operators who act at once never undo each other, and never make more keys than there may be.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use postonce_shared::backoff::SHARED_VALUE_WRITE;
use postonce_shared::domain::account::{Revision, Versioned};
use postonce_shared::domain::ids::PartnerId;
use postonce_shared::domain::partner::{ACTIVE_KEYS_MAX, ActiveKey, Partner, Reach};
use postonce_shared::domain::time::Timestamp;
use postonce_shared::ports::Store;
use postonce_shared::ports::api_keys::{ApiKeyRecord, ApiKeys};
use postonce_shared::ports::fault::{StoreFault, chain};
use postonce_shared::ports::partners::Partners;
use postonce_shared::ports::sync_store::Swapped;
use postonce_shared::ports::world::World;

use crate::access::api_keys::NewKey;
use crate::access::partner_broadcast::{OwedRing, PartnerBroadcast};
use crate::access::partner_terms::{TermsChange, Unfit};
use crate::access::scopes::Scope;

/// Keys that are read at the same time.
const READS_AT_ONCE: usize = 8;

/// What became of the wish to change a partner.
#[must_use]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Changed {
    /// It is as was wished.
    Done(Partner),
    /// There is no such partner.
    Unknown,
    /// The wish does not fit the partner as it is.
    Refused(Unfit),
}

/// What became of the wish that a partner has certain terms.
#[must_use]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Put {
    /// It is new.
    Created(Partner),
    /// It was known, and has them now.
    Changed(Partner),
    /// The wish does not fit the partner as it is.
    Refused(Unfit),
}

/// Makes and changes partners and their keys.
pub struct PartnerService {
    partners: Arc<dyn Partners>,
    keys: Arc<dyn ApiKeys>,
    world: Arc<dyn World>,
    ring: Arc<PartnerBroadcast>,
}

impl PartnerService {
    /// The desk of a store. Every change, also one that may have happened, is rung.
    pub fn new(store: &Store, world: Arc<dyn World>, ring: Arc<PartnerBroadcast>) -> Self {
        let (partners, keys) = (Arc::clone(&store.partners), Arc::clone(&store.api_keys));
        Self { partners, keys, world, ring }
    }

    /// The time, for new partners.
    pub fn now(&self) -> Timestamp {
        self.world.now()
    }

    /// A partner.
    ///
    /// # Errors
    /// [`StoreFault`] when it cannot be read.
    pub async fn find(&self, id: &PartnerId) -> Result<Option<Partner>, StoreFault> {
        Ok(self.partners.find(id).await?.map(|stored| stored.value))
    }

    /// Partners after the given one, by id, at most `limit`.
    ///
    /// # Errors
    /// [`StoreFault`] when they cannot be read.
    pub async fn list(&self, after: Option<&PartnerId>, limit: usize) -> Result<Vec<Partner>, StoreFault> {
        self.partners.list(after, limit).await
    }

    /// Makes a partner. False when there is one of that name; it stays as it is.
    ///
    /// # Errors
    /// [`StoreFault`]: it may have been made. Asking again is safe.
    pub async fn create(&self, partner: &Partner) -> Result<bool, StoreFault> {
        Ok(matches!(self.save(partner, None).await?, Swapped::Done(_)))
    }

    /// Gives a partner those terms, one that is not known as well: it reaches nothing but what they say.
    ///
    /// # Errors
    /// [`StoreFault`]: it may have been changed. Asking again is safe.
    pub async fn put(
        &self,
        id: &PartnerId,
        terms: &TermsChange,
        is_expected: impl Fn(Option<&Partner>) -> bool,
    ) -> Result<Put, StoreFault> {
        let wish = |partner: &mut Partner| {
            if !is_expected(Some(partner)) {
                return Err(Unfit::Changed);
            }
            terms.apply(partner)
        };
        loop {
            match self.change(id, wish).await? {
                Changed::Done(partner) => return Ok(Put::Changed(partner)),
                Changed::Refused(unfit) => return Ok(Put::Refused(unfit)),
                Changed::Unknown if !is_expected(None) => return Ok(Put::Refused(Unfit::Changed)),
                Changed::Unknown => {}
            }
            let nothing = Reach::Named { users: BTreeSet::new(), accounts: BTreeSet::new() };
            let mut partner = Partner::active(id.clone(), nothing, self.world.now());
            if let Err(unfit) = terms.apply(&mut partner) {
                return Ok(Put::Refused(unfit));
            }
            // Where somebody was faster it is known now, and stays so: the loop ends.
            if self.create(&partner).await? {
                return Ok(Put::Created(partner));
            }
        }
    }

    /// Changes a partner as `wish` says, which is asked again whenever somebody else was faster. A wish that
    /// is fulfilled already changes nothing.
    ///
    /// # Errors
    /// [`StoreFault`]: it may have been changed. Asking again is safe.
    pub async fn change(
        &self,
        id: &PartnerId,
        wish: impl Fn(&mut Partner) -> Result<(), Unfit>,
    ) -> Result<Changed, StoreFault> {
        let mut lost = None;
        for attempt in 1..=SHARED_VALUE_WRITE.attempts {
            let Some(Versioned { value: before, revision }) = self.partners.find(id).await? else {
                return Ok(Changed::Unknown);
            };
            let mut after = before.clone();
            if let Err(refusal) = wish(&mut after) {
                return Ok(Changed::Refused(refusal));
            }
            if after == before {
                // Perhaps by an attempt whose outcome was unclear, and which came after its ring.
                OwedRing::of(&self.ring, id).pay().await;
                return Ok(Changed::Done(after));
            }
            after.changed_at = self.world.now();
            match self.save(&after, Some(&revision)).await {
                Ok(Swapped::Done(_)) => return Ok(Changed::Done(after)),
                Ok(Swapped::Conflict) => {}
                // It may have happened: the next look tells, and its guard keeps it from happening twice.
                Err(fault) if fault.is_transient() => lost = Some(fault),
                Err(fault) => return Err(fault),
            }
            SHARED_VALUE_WRITE.pause(attempt, &*self.world).await;
        }
        let contended = || StoreFault::Unavailable {
            doing: "changing a partner",
            source: format!("others changed it during each of {} attempts", SHARED_VALUE_WRITE.attempts)
                .into(),
        };
        Err(lost.unwrap_or_else(contended))
    }

    /// Saves a partner, and rings where that may have changed something.
    async fn save(&self, partner: &Partner, expected: Option<&Revision>) -> Result<Swapped, StoreFault> {
        let owed = OwedRing::of(&self.ring, &partner.id);
        let saved = self.partners.save(partner, expected).await;
        match &saved {
            Ok(Swapped::Conflict) => owed.waive(),
            Ok(Swapped::Done(_)) | Err(_) => owed.pay().await,
        }
        saved
    }

    /// Makes a key, which the caller has to show: it is not stored in the clear.
    ///
    /// # Errors
    /// [`StoreFault`]: a key that nobody knows may take a place; it is listed, and can be revoked.
    pub async fn add_key(&self, id: &PartnerId, scopes: &[Scope]) -> Result<(NewKey, Changed), StoreFault> {
        let key = NewKey::random();
        let record = key.record(id.clone(), scopes, &*self.world);
        let room = |partner: &Partner| match partner.keys.len() {
            working if working >= ACTIVE_KEYS_MAX => Err(Unfit::TooManyKeys(working)),
            _ => Ok(()),
        };
        // Asked first as well, so that a refused key leaves no row behind.
        match self.find(id).await? {
            None => return Ok((key, Changed::Unknown)),
            Some(partner) => {
                if let Err(refusal) = room(&partner) {
                    return Ok((key, Changed::Refused(refusal)));
                }
            }
        }
        // The row first: it opens nothing until the record lists it.
        self.keys.add(&record).await?;
        let changed = self
            .change(id, |partner| {
                if !partner.has_key(&record.id) {
                    room(partner)?;
                    partner.keys.push(ActiveKey { id: record.id.clone(), created_at: record.created_at });
                }
                Ok(())
            })
            .await?;
        if !matches!(changed, Changed::Done(_))
            && let Err(fault) = self.keys.revoke(&record.id, self.world.now()).await
        {
            tracing::warn!("A key that was not given out stays in the store: {}", chain(&fault));
        }
        Ok((key, changed))
    }

    /// Revokes a key of a partner, for ever. Revoking it again changes nothing.
    ///
    /// # Errors
    /// [`StoreFault`]: it may still work. Asking again is safe.
    pub async fn revoke_key(&self, id: &PartnerId, key_id: &str) -> Result<Changed, StoreFault> {
        let record = self.keys.find(key_id).await?;
        if record.is_none_or(|record| record.partner != *id) {
            let known = self.find(id).await?.is_some();
            return Ok(if known { Changed::Refused(Unfit::NoSuchKey) } else { Changed::Unknown });
        }
        // From here on it opens nothing.
        let changed = self.change(id, |partner| {
            partner.keys.retain(|key| key.id != key_id);
            Ok(())
        });
        let changed = changed.await?;
        self.keys.revoke(key_id, self.world.now()).await?;
        Ok(changed)
    }

    /// What the keys of partners allow, by the ids of the keys.
    ///
    /// # Errors
    /// [`StoreFault`] when they cannot be read.
    pub async fn scopes_of(&self, partners: &[Partner]) -> Result<BTreeMap<String, Vec<Scope>>, StoreFault> {
        let ids = partners.iter().flat_map(|partner| &partner.keys).map(|key| key.id.clone());
        let read =
            stream::iter(ids).map(|id| async move { self.keys.find(&id).await }).buffered(READS_AT_ONCE);
        let records: Vec<Option<ApiKeyRecord>> = read.try_collect().await?;
        Ok(records.into_iter().flatten().map(|record| (record.id, Scope::of_codes(&record.scopes))).collect())
    }
}
