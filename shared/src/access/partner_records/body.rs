//! The JSON encoding of a partner, the same in every store.
//!
//! The secret of an HMAC key is stored in plain text, because the bank computes with it. Read access to the store
//! therefore suffices to sign requests, but not to authenticate them: of API keys only hashes are stored.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use crate::domain::credit::CreditCeilings;
use crate::domain::ids::{AccountKey, PartnerId};
use crate::domain::money::{Currency, OverdraftLimit};
use crate::domain::partner::{
    ActiveKey, Partner, PartnerStatus, Reach, RequestRate, SignatureAlgorithm, SignatureKey,
};
use crate::domain::scope::Scope;
use crate::domain::time::Timestamp;

/// The version that this program writes, and the highest that it reads. A newer version may have members that restrict
/// the partner, so this program must not ignore them.
const VERSION: u32 = 1;

/// Why a stored partner cannot be decoded.
#[derive(Debug, thiserror::Error)]
pub enum PartnerBodyError {
    /// The text is not the expected JSON.
    #[error("a partner is not the expected JSON")]
    Json(#[source] serde_json::Error),
    /// A newer program wrote the text.
    #[error("a partner has version {0}; this program reads up to {VERSION}")]
    Newer(u32),
    /// A member cannot be parsed.
    #[error("the {0} of a partner cannot be read")]
    Member(&'static str),
}

#[derive(Serialize, Deserialize)]
struct Body {
    v: u32,
    status: String,
    /// The scope of the caller that suspended the partner; present while it is suspended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    suspended_with: Option<String>,
    reach: ReachBody,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    format: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rate: Option<RateBody>,
    /// In minor units, by currency code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    credit_ceilings: Option<BTreeMap<String, i64>>,
    signature_required: bool,
    signature_keys: Vec<SignatureKeyBody>,
    keys: Vec<KeyBody>,
    created_at: i64,
    changed_at: i64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ReachBody {
    Everything,
    Named {
        users: Vec<String>,
        /// `user/account`.
        accounts: Vec<String>,
    },
}

#[derive(Serialize, Deserialize)]
struct RateBody {
    per_second: u32,
    burst: u32,
}

#[derive(Serialize, Deserialize)]
struct SignatureKeyBody {
    id: String,
    algorithm: String,
    /// Base64.
    material: String,
}

#[derive(Serialize, Deserialize)]
struct KeyBody {
    id: String,
    created_at: i64,
}

/// Encodes a partner without its id, which is the key of its row.
pub fn encode(partner: &Partner) -> String {
    let Partner {
        id: _,
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
    let signature_key = |key: &SignatureKey| SignatureKeyBody {
        id: key.id.clone(),
        algorithm: key.algorithm.code().to_owned(),
        material: STANDARD.encode(&key.material),
    };
    let key = |key: &ActiveKey| KeyBody { id: key.id.clone(), created_at: key.created_at.unix_ms() };
    let body = Body {
        v: VERSION,
        status: partner.status().code().to_owned(),
        suspended_with: suspended_with.map(|scope| scope.code().to_owned()),
        reach: reach_body(reach),
        format: format.clone(),
        rate: rate.map(|RequestRate { per_second, burst }| RateBody { per_second, burst }),
        credit_ceilings: credit_ceilings.listed(OverdraftLimit::minor_units),
        signature_required: *signature_required,
        signature_keys: signature_keys.iter().map(signature_key).collect(),
        keys: keys.iter().map(key).collect(),
        created_at: created_at.unix_ms(),
        changed_at: changed_at.unix_ms(),
    };
    serde_json::to_string(&body).expect("numbers and texts can always be written as JSON")
}

/// Decodes a partner written by [`encode`].
///
/// # Errors
/// [`PartnerBodyError`] if the text is anything else.
pub fn decode(id: PartnerId, text: &str) -> Result<Partner, PartnerBodyError> {
    /// Decoded first, because a newer version may differ in all other members.
    #[derive(Deserialize)]
    struct Version {
        v: u32,
    }
    let Version { v } = serde_json::from_str(text).map_err(PartnerBodyError::Json)?;
    if v > VERSION {
        return Err(PartnerBodyError::Newer(v));
    }
    let body: Body = serde_json::from_str(text).map_err(PartnerBodyError::Json)?;
    let signature_keys = body.signature_keys.into_iter().map(|key| {
        let SignatureKeyBody { id, algorithm, material } = key;
        let algorithm =
            SignatureAlgorithm::from_code(&algorithm).ok_or(PartnerBodyError::Member("algorithm"))?;
        let material = STANDARD.decode(material).map_err(|_| PartnerBodyError::Member("material"))?;
        Ok(SignatureKey { id, algorithm, material })
    });
    let signature_keys = signature_keys.collect::<Result<_, PartnerBodyError>>()?;
    let key = |KeyBody { id, created_at }| ActiveKey { id, created_at: Timestamp::from_unix_ms(created_at) };
    Ok(Partner {
        id,
        suspended_with: suspended_with(&body.status, body.suspended_with.as_deref())?,
        reach: reach(body.reach)?,
        format: body.format,
        rate: body.rate.map(|RateBody { per_second, burst }| RequestRate { per_second, burst }),
        credit_ceilings: credit_ceilings(body.credit_ceilings)?,
        signature_required: body.signature_required,
        signature_keys,
        keys: body.keys.into_iter().map(key).collect(),
        created_at: Timestamp::from_unix_ms(body.created_at),
        changed_at: Timestamp::from_unix_ms(body.changed_at),
    })
}

/// Returns the scope with which a partner was suspended. An unknown scope of a newer version counts as the highest.
fn suspended_with(status: &str, code: Option<&str>) -> Result<Option<Scope>, PartnerBodyError> {
    match (PartnerStatus::from_code(status), code) {
        (Some(PartnerStatus::Active), None) => Ok(None),
        (Some(PartnerStatus::Suspended), Some(code)) => {
            Ok(Some(Scope::from_code(code).unwrap_or(Scope::Admin)))
        }
        (Some(_), _) => Err(PartnerBodyError::Member("scope of the suspension")),
        (None, _) => Err(PartnerBodyError::Member("status")),
    }
}

fn credit_ceilings(body: Option<BTreeMap<String, i64>>) -> Result<CreditCeilings, PartnerBodyError> {
    let Some(ceilings) = body else { return Ok(CreditCeilings::Unlimited) };
    let ceilings = ceilings
        .into_iter()
        .map(|(code, minor_units)| OverdraftLimit::try_new(minor_units, Currency::parse(&code).ok()?).ok());
    let ceilings: Option<Vec<OverdraftLimit>> = ceilings.collect();
    ceilings.map(CreditCeilings::up_to).ok_or(PartnerBodyError::Member("credit ceilings"))
}

fn reach_body(reach: &Reach) -> ReachBody {
    match reach {
        Reach::Everything => ReachBody::Everything,
        Reach::Named { users, accounts } => ReachBody::Named {
            users: users.iter().map(ToString::to_string).collect(),
            accounts: accounts.iter().map(ToString::to_string).collect(),
        },
    }
}

fn reach(body: ReachBody) -> Result<Reach, PartnerBodyError> {
    let unreadable = || PartnerBodyError::Member("reach");
    let ReachBody::Named { users, accounts } = body else { return Ok(Reach::Everything) };
    let users = users.iter().map(|user| user.parse().map_err(|_| unreadable()));
    let accounts = accounts.iter().map(|key| {
        let (user, account) = key.split_once('/').ok_or_else(unreadable)?;
        let user = user.parse().map_err(|_| unreadable())?;
        Ok(AccountKey { user, account: account.parse().map_err(|_| unreadable())? })
    });
    Ok(Reach::Named {
        users: users.collect::<Result<_, _>>()?,
        accounts: accounts.collect::<Result<_, _>>()?,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use uuid::Uuid;

    use super::*;
    use crate::domain::ids::{AccountId, UserId};
    use crate::domain::money::AMOUNT_MINOR_UNITS_MAX;
    use crate::domain::partner::REACH_NAMES_MAX;
    use crate::ports::records::RECORD_BODY_BYTES_MAX;

    fn account(number: usize) -> AccountKey {
        let uuid = Uuid::from_u128(u128::try_from(number).unwrap());
        AccountKey { user: UserId::from_uuid(uuid), account: AccountId::from_uuid(uuid) }
    }

    #[test]
    fn a_partner_is_decoded_as_it_was_encoded() {
        let id = || PartnerId::parse("shop").unwrap();
        let bare = Partner::active(id(), Reach::Everything, Timestamp::from_unix_ms(7));
        let keys = [("ffffffffffffffff", 2), ("0000000000000000", 1)];
        let full = Partner {
            suspended_with: Some(Scope::Partners),
            reach: Reach::Named { users: [account(1).user].into(), accounts: [account(2)].into() },
            format: Some("wwi".to_owned()),
            rate: Some(RequestRate { per_second: u32::MAX, burst: 1 }),
            credit_ceilings: CreditCeilings::up_to([("EUR", 0), ("JPY", AMOUNT_MINOR_UNITS_MAX)].map(
                |(code, minor_units)| {
                    OverdraftLimit::try_new(minor_units, Currency::parse(code).unwrap()).unwrap()
                },
            )),
            signature_required: true,
            signature_keys: vec![
                SignatureKey {
                    id: "rot \"1\"".to_owned(),
                    algorithm: SignatureAlgorithm::HmacSha256,
                    material: (0..=255).collect(),
                },
                SignatureKey {
                    id: "2".to_owned(),
                    algorithm: SignatureAlgorithm::Ed25519,
                    material: vec![0; 32],
                },
            ],
            keys: keys
                .map(|(id, at)| ActiveKey { id: id.to_owned(), created_at: Timestamp::from_unix_ms(at) })
                .into(),
            changed_at: Timestamp::from_unix_ms(4),
            ..bare.clone()
        };
        let reach = |accounts: usize| Reach::Named {
            users: BTreeSet::new(),
            accounts: (0..accounts).map(account).collect(),
        };
        let nothing = Partner { reach: reach(0), ..bare.clone() };
        let widest = Partner { reach: reach(REACH_NAMES_MAX), ..full.clone() };
        for partner in [bare, full, nothing, widest] {
            let text = encode(&partner);
            assert!(text.len() <= RECORD_BODY_BYTES_MAX, "{} bytes", text.len());
            assert_eq!(decode(id(), &text).unwrap(), partner);
        }
    }

    #[test]
    fn a_newer_version_is_refused() {
        let shop = || PartnerId::parse("shop").unwrap();
        let partner = Partner::active(shop(), Reach::Everything, Timestamp::from_unix_ms(7));
        let text = encode(&partner);
        assert_eq!(decode(shop(), &text).unwrap(), partner);
        let newer = text.replacen("\"v\":1", "\"v\":2", 1);
        assert!(matches!(decode(shop(), &newer), Err(PartnerBodyError::Newer(2))), "{newer}");
        let suspended = encode(&Partner { suspended_with: Some(Scope::Partners), ..partner });
        let needs = |text: &str| decode(shop(), text).map(|partner| partner.suspended_with).ok();
        assert_eq!(needs(&suspended), Some(Some(Scope::Partners)));
        let of_newer = suspended.replacen("partners", "a newer scope", 1);
        assert_eq!(needs(&of_newer), Some(Some(Scope::Admin)));
        let unknown = suspended.replacen(",\"suspended_with\":\"partners\"", "", 1);
        assert_eq!(needs(&unknown), None, "{unknown}");
        for damaged in
            ["", "{}", &text.replacen("active", "asleep", 1), &text.replacen("everything", "all", 1)]
        {
            assert!(decode(shop(), damaged).is_err(), "{damaged}");
        }
    }
}
