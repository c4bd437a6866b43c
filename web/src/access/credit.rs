//! Permission to grant credit: whether a key may set or raise the overdraft limit of an account.

use postonce_shared::domain::ids::PartnerId;
use postonce_shared::domain::money::OverdraftLimit;

use crate::access::keyring::Grant;
use crate::access::scopes::Scope;
use crate::error::{ApiError, Code};

/// Reason why a key may not set an overdraft limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CreditError {
    /// The key of this partner lacks the scope `credit`.
    ScopeMissing(PartnerId),
    /// The limit exceeds the credit ceiling of this partner.
    AboveCeiling(PartnerId, OverdraftLimit),
}

/// Checks whether a key may change the limit of an account from `present` to `new`. Lowering a limit is always allowed.
///
/// # Errors
/// [`CreditError`] when the key may not raise it that far.
pub fn check(grant: &Grant, new: OverdraftLimit, present: OverdraftLimit) -> Result<(), CreditError> {
    if new.minor_units() <= present.minor_units() {
        return Ok(());
    }
    let partner = &grant.partner;
    if !grant.allows(Scope::Credit) {
        return Err(CreditError::ScopeMissing(partner.id.clone()));
    }
    let within = partner.credit_ceilings.check(new);
    within.map_err(|ceiling| CreditError::AboveCeiling(partner.id.clone(), ceiling))
}

impl From<CreditError> for ApiError {
    fn from(refusal: CreditError) -> Self {
        match refusal {
            CreditError::ScopeMissing(partner) => Self::new(
                Code::ScopeMissing,
                format!(
                    "The API key of partner {partner} lacks the scope {}, which a new or higher overdraft_limit needs.",
                    Scope::Credit
                ),
            ),
            CreditError::AboveCeiling(partner, ceiling) => Self::new(
                Code::CreditCeilingExceeded,
                format!(
                    "Partner {partner} may give an account an overdraft_limit of at most {ceiling} {}.",
                    ceiling.currency()
                ),
            ),
        }
    }
}
