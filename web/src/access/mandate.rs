//! What a caller may do with partners and their keys. A key with the scope `admin` may do everything. A key that has only
//! `partners` must not be a way to get more than it has: it gives away at most its own scopes, reach and credit, it changes
//! no partner that may do more, it does not change the terms of its own partner, and it does not resume a partner that was
//! suspended with the scope `admin`.

use std::collections::BTreeMap;

use postonce_shared::domain::partner::Partner;
use postonce_shared::domain::time::Timestamp;

use crate::access::keyring::Grant;
use crate::access::partner_terms::{NewKeyTerms, PartnerChangeError};
use crate::access::scopes::Scope;

/// The right of a caller to change one partner.
#[derive(Debug, Clone, Copy)]
pub enum Mandate<'a> {
    /// Everything: of a command, and of a key with the scope `admin`.
    Full,
    /// As much as a key has itself.
    Within(&'a Bounds<'a>),
}

/// An active key, for people and for checks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KeyDetails {
    /// Its scopes.
    pub scopes: Vec<Scope>,
    /// The time from which on it is refused, if it expires.
    pub expires_at: Option<Timestamp>,
    /// The recorded time of a use, if there is one.
    pub last_used_at: Option<Timestamp>,
}

/// What limits a key that manages a partner.
#[derive(Debug)]
pub struct Bounds<'a> {
    /// The grant of the caller.
    pub caller: &'a Grant,
    /// The active keys of the partner, by key id. Their scopes never change.
    pub keys: BTreeMap<String, KeyDetails>,
}

impl Mandate<'_> {
    /// Returns the scope of the right, for acts that only an equal or higher one can undo.
    pub const fn scope(&self) -> Scope {
        match self {
            Self::Full => Scope::Admin,
            Self::Within(_) => Scope::Partners,
        }
    }

    /// Checks that the caller may change a partner and its keys, in the present state of the partner.
    ///
    /// # Errors
    /// [`PartnerChangeError::BeyondCaller`] if the partner may do more than the caller;
    /// [`PartnerChangeError::ChangedMeanwhile`] if its keys are not those that were read.
    pub fn check_partner(&self, partner: &Partner) -> Result<(), PartnerChangeError> {
        let Self::Within(Bounds { caller, keys }) = self else { return Ok(()) };
        check_reach(caller, partner)?;
        for key in &partner.keys {
            let details = keys.get(&key.id).ok_or(PartnerChangeError::ChangedMeanwhile)?;
            check_scopes(caller, partner, &details.scopes, "has a key with")?;
        }
        Ok(())
    }

    /// Checks that the caller may give a partner the terms of `after`; `before` is its present state, if it exists.
    ///
    /// # Errors
    /// [`PartnerChangeError::BeyondCaller`]
    pub fn check_terms(&self, before: Option<&Partner>, after: &Partner) -> Result<(), PartnerChangeError> {
        let Self::Within(Bounds { caller, .. }) = self else { return Ok(()) };
        if after.id == caller.partner.id {
            return Err(beyond(format!("partner {} is that of the API key", after.id)));
        }
        let lifted =
            before.filter(|_| after.suspended_with.is_none()).and_then(|before| before.suspended_with);
        if lifted.is_some_and(|needs| !self.scope().includes(needs)) {
            let id = &after.id;
            return Err(beyond(format!("partner {id} was suspended with the scope {}", Scope::Admin)));
        }
        check_reach(caller, after)?;
        if caller.allows(Scope::Credit) {
            return check_credit(caller, after);
        }
        let present = before.map(|partner| partner.credit_ceilings.clone()).unwrap_or_default();
        let is_unchanged = after.credit_ceilings == present;
        let lacking = || {
            beyond(format!(
                "a change of credit_ceilings needs the scope {}, which the API key lacks",
                Scope::Credit
            ))
        };
        if is_unchanged { Ok(()) } else { Err(lacking()) }
    }

    /// Checks that the caller may give a partner a key with these terms: no more scopes, and no later end, than its own.
    ///
    /// # Errors
    /// [`PartnerChangeError::BeyondCaller`]
    pub fn check_key(&self, partner: &Partner, terms: &NewKeyTerms) -> Result<(), PartnerChangeError> {
        let Self::Within(Bounds { caller, .. }) = self else { return Ok(()) };
        check_scopes(caller, partner, &terms.scopes, "would get a key with")?;
        match caller.expires_at {
            Some(own) if terms.expires_at.is_none_or(|at| at > own) => {
                Err(beyond(format!("expires_at must not be later than that of the API key, {own}")))
            }
            Some(_) | None => Ok(()),
        }
    }
}

fn check_reach(caller: &Grant, partner: &Partner) -> Result<(), PartnerChangeError> {
    if partner.reach.is_within(&caller.partner.reach) {
        return Ok(());
    }
    let (id, own) = (&partner.id, &caller.partner.id);
    Err(beyond(format!("the reach of partner {id} has accounts that partner {own} does not reach")))
}

fn check_scopes(
    caller: &Grant,
    partner: &Partner,
    scopes: &[Scope],
    has: &str,
) -> Result<(), PartnerChangeError> {
    if let Some(lacking) = scopes.iter().find(|scope| !caller.allows(**scope)) {
        let id = &partner.id;
        return Err(beyond(format!("partner {id} {has} the scope {lacking}, which the API key lacks")));
    }
    if scopes.iter().any(|scope| scope.includes(Scope::Credit)) {
        check_credit(caller, partner)
    } else {
        Ok(())
    }
}

fn check_credit(caller: &Grant, partner: &Partner) -> Result<(), PartnerChangeError> {
    if partner.credit_ceilings.is_within(&caller.partner.credit_ceilings) {
        return Ok(());
    }
    let (id, own) = (&partner.id, &caller.partner.id);
    Err(beyond(format!("the credit_ceilings of partner {id} allow more than those of partner {own}")))
}

fn beyond(why: String) -> PartnerChangeError {
    PartnerChangeError::BeyondCaller(format!("{why}: this needs a key with the scope {}", Scope::Admin))
}
