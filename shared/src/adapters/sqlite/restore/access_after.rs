//! Who has access after a restore: what was revoked or taken after the backup is not given back.

use std::collections::{BTreeMap, BTreeSet};

use super::partners::{RestrictedPartner, restricted};
use super::plan::Access;
use crate::domain::ids::PartnerId;
use crate::domain::partner::Partner;
use crate::ports::api_keys::ApiKeyRecord;

/// The API keys and partners after the restore.
pub(super) struct AccessAfter {
    /// Keys of the backup that were revoked after it.
    pub(super) revoked_again: Vec<ApiKeyRecord>,
    /// Partners of the backup from which rights were taken after it.
    pub(super) restricted: Vec<RestrictedPartner>,
    /// Partners whose rights were changed, and of which the backup has no record that could carry the change.
    pub(super) unrestricted: BTreeSet<PartnerId>,
    /// Keys that were added after the backup.
    pub(super) keys_gone: Vec<ApiKeyRecord>,
    /// Keys that are valid, unless their partners are suspended.
    pub(super) keys_working: Vec<ApiKeyRecord>,
}

impl AccessAfter {
    pub(super) fn of(backup: Access, replaced: Access) -> Self {
        let replaced_partners = replaced.partners.unwrap_or_default();
        let restricted = restricted(backup.partners.as_ref().unwrap_or(&BTreeMap::new()), &replaced_partners);
        let in_backup = |id: &str| backup.keys.iter().any(|key| key.id == id);
        let gone = replaced.keys.iter().filter(|key| key.revoked_at.is_none() && !in_backup(&key.id));
        let keys_gone = gone.cloned().collect();
        let mut revoked = replaced.keys;
        revoked.retain(|key| key.revoked_at.is_some());
        let (mut revoked_again, mut keys_working) = (Vec::new(), Vec::new());
        for key in backup.keys.into_iter().filter(|key| key.revoked_at.is_none()) {
            let row = revoked.iter().find(|row| row.id == key.id);
            match row.cloned().or_else(|| unlisted(&key, &replaced_partners, &restricted)) {
                Some(key) => revoked_again.push(key),
                None => keys_working.push(key),
            }
        }
        let unrestricted = match backup.partners {
            Some(_) => BTreeSet::new(),
            None => {
                let partners = keys_working.iter().map(|key| &key.partner);
                partners.filter(|partner| replaced_partners.contains_key(partner)).cloned().collect()
            }
        };
        Self { revoked_again, restricted, unrestricted, keys_gone, keys_working }
    }
}

/// Returns the key as revoked if its partner does not list it any more. A revocation changes the record of the partner
/// first, and the process may have ended before it changed the key.
fn unlisted(
    key: &ApiKeyRecord,
    replaced: &BTreeMap<PartnerId, Partner>,
    restricted: &[RestrictedPartner],
) -> Option<ApiKeyRecord> {
    let at = replaced.get(&key.partner)?.changed_at;
    let partner = restricted.iter().find(|partner| partner.restored.id == key.partner)?;
    let is_taken = partner.in_backup.has_key(&key.id) && !partner.restored.has_key(&key.id);
    is_taken.then(|| ApiKeyRecord { revoked_at: Some(at), ..key.clone() })
}
