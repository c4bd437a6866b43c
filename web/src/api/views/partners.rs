//! Partners in response bodies.

use std::collections::BTreeMap;

use postonce_schemas::json as wire;
use postonce_shared::domain::ids::AccountKey;
use postonce_shared::domain::partner::{ActiveKey, Partner, Reach, RequestRate, SignatureKey};
use sha2::{Digest as _, Sha256};

use crate::access::management_rights::KeyDetails;

/// Converts a partner, with the details of its keys.
pub fn partner(partner: &Partner, details: &BTreeMap<String, KeyDetails>) -> wire::Partner {
    let Partner {
        id,
        suspended_with,
        reach,
        format,
        rate,
        credit_ceilings,
        signature_required,
        signature_keys,
        keys,
        created_at,
        changed_at,
    } = partner;
    let signature_key = |key: &SignatureKey| wire::PartnerSignatureKey {
        key_id: key.id.clone(),
        algorithm: key.algorithm.code().into(),
    };
    let key = |key: &ActiveKey| {
        let KeyDetails { scopes, expires_at, last_used_at } =
            details.get(&key.id).cloned().unwrap_or_default();
        wire::PartnerKey {
            key_id: key.id.clone(),
            scopes: scopes.into_iter().map(|scope| scope.code().into()).collect(),
            created_at: key.created_at.to_string(),
            expires_at: expires_at.map(|at| at.to_string()),
            last_used_at: last_used_at.map(|at| at.to_string()),
        }
    };
    wire::Partner {
        partner_id: id.to_string(),
        status: partner.status().code().into(),
        resume_needs: suspended_with.map(|scope| scope.code().into()),
        reach: self::reach(reach),
        format: format.clone(),
        rate: rate.map(|RequestRate { per_second, burst }| wire::PartnerRate { per_second, burst }),
        credit_ceilings: credit_ceilings.listed(|ceiling| ceiling.to_string()),
        signature_required: *signature_required,
        signature_keys: signature_keys.iter().map(signature_key).collect(),
        keys: keys.iter().map(key).collect(),
        created_at: created_at.to_string(),
        changed_at: changed_at.to_string(),
    }
}

fn reach(reach: &Reach) -> wire::PartnerReach {
    let account = |key: &AccountKey| wire::PartnerAccount {
        user_id: key.user.to_string(),
        account_id: key.account.to_string(),
    };
    match reach {
        Reach::Everything => wire::PartnerReach { everything: Some(true), users: None, accounts: None },
        Reach::Named { users, accounts } => wire::PartnerReach {
            everything: None,
            users: Some(users.iter().map(ToString::to_string).collect()),
            accounts: Some(accounts.iter().map(account).collect()),
        },
    }
}

/// Returns the `ETag` of a partner: a hash of its representation, which is the same in all processes of one version, and of
/// the material of its signature keys. Details of its API keys are omitted: only the time of the last use changes without a
/// change of the partner, and every comparison would have to read them.
pub fn partner_etag(partner: &Partner) -> String {
    let representation = serde_json::to_vec(&self::partner(partner, &BTreeMap::new()))
        .expect("texts and numbers can always be written as JSON");
    let mut digest = Sha256::new_with_prefix(representation);
    partner.signature_keys.iter().for_each(|key| digest.update(&key.material));
    let digest: [u8; 32] = digest.finalize().into();
    format!("\"{}\"", hex::encode(digest.split_at(16).0))
}
