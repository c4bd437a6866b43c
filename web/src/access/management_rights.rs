//! Rights of a caller over partners and their keys. A key with the scope `admin` may do everything. A key with only the
//! scope `partners` must not gain rights through them: it grants at most its own scopes, reach and credit, changes no
//! partner with more rights nor the terms of its own, and resumes no partner that was suspended with the scope `admin`.

use std::collections::BTreeMap;

use postonce_shared::domain::partner::Partner;
use postonce_shared::domain::time::Timestamp;

use crate::access::keyring::Grant;
use crate::access::partner_terms::{NewKeyTerms, PartnerChangeError};
use crate::access::scopes::Scope;

/// The right of a caller to change one partner.
#[derive(Debug, Clone, Copy)]
pub enum ManagementRights<'a> {
    /// Unlimited: for commands, and for keys with the scope `admin`.
    Full,
    /// Limited to the rights of the caller's key.
    Within(&'a Bounds<'a>),
}

/// Details of an active key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KeyDetails {
    /// Scopes of the key.
    pub scopes: Vec<Scope>,
    /// Time from which the key is refused, if it expires.
    pub expires_at: Option<Timestamp>,
    /// Time of the last recorded use, if there is one.
    pub last_used_at: Option<Timestamp>,
}

/// Limits of a caller that manages a partner.
#[derive(Debug)]
pub struct Bounds<'a> {
    /// The grant of the caller.
    pub caller: &'a Grant,
    /// Active keys of the partner, by key id. The scopes of a key never change.
    pub keys: BTreeMap<String, KeyDetails>,
}

impl ManagementRights<'_> {
    /// Returns the scope under which an act is recorded. Only an equal or higher scope can undo a suspension.
    pub const fn scope(&self) -> Scope {
        match self {
            Self::Full => Scope::Admin,
            Self::Within(_) => Scope::Partners,
        }
    }

    /// Checks that the caller may change a partner and its keys, given the current state of the partner.
    ///
    /// # Errors
    /// [`PartnerChangeError::BeyondCaller`] if the partner has more rights than the caller;
    /// [`PartnerChangeError::ChangedMeanwhile`] if its keys differ from those that were read.
    pub fn check_partner(&self, partner: &Partner) -> Result<(), PartnerChangeError> {
        let Self::Within(Bounds { caller, keys }) = self else { return Ok(()) };
        check_reach(caller, partner)?;
        for key in &partner.keys {
            let details = keys.get(&key.id).ok_or(PartnerChangeError::ChangedMeanwhile)?;
            check_scopes(caller, partner, &details.scopes, "has a key with")?;
        }
        Ok(())
    }

    /// Checks that the caller may give a partner the terms of `after`; `before` is its current state, if it exists.
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

    /// Checks that the caller may give a partner a key with these terms: no more scopes, and no later expiry, than its own.
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
