//! API keys and partners after a restore. What was revoked or withdrawn after the backup is not restored.

use std::collections::BTreeMap;

use super::partners::{RestrictedPartner, restricted};
use super::plan::Access;
use crate::domain::ids::PartnerId;
use crate::domain::partner::Partner;
use crate::ports::api_keys::ApiKeyRecord;

pub(super) struct AccessAfter {
    /// Valid keys of the backup that were revoked later.
    pub(super) revoked_again: Vec<ApiKeyRecord>,
    /// Partners of the backup that lost rights later.
    pub(super) restricted: Vec<RestrictedPartner>,
    /// Keys that were added after the backup.
    pub(super) keys_gone: Vec<ApiKeyRecord>,
    /// Keys that are valid, unless their partners are suspended.
    pub(super) keys_working: Vec<ApiKeyRecord>,
}

impl AccessAfter {
    pub(super) fn of(backup: Access, replaced: Access) -> Self {
        let restricted = restricted(&backup.partners, &replaced.partners);
        let in_backup = |id: &str| backup.keys.iter().any(|key| key.id == id);
        let gone = replaced.keys.iter().filter(|key| key.revoked_at.is_none() && !in_backup(&key.id));
        let keys_gone = gone.cloned().collect();
        let mut revoked = replaced.keys;
        revoked.retain(|key| key.revoked_at.is_some());
        let (mut revoked_again, mut keys_working) = (Vec::new(), Vec::new());
        for key in backup.keys.into_iter().filter(|key| key.revoked_at.is_none()) {
            let row = revoked.iter().find(|row| row.id == key.id);
            match row.cloned().or_else(|| unlisted(&key, &replaced.partners, &restricted)) {
                Some(key) => revoked_again.push(key),
                None => keys_working.push(key),
            }
        }
        Self { revoked_again, restricted, keys_gone, keys_working }
    }
}

/// Returns the key as revoked if its partner no longer lists it. A revocation changes the record of the partner first,
/// so the process may have ended before it changed the key.
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
