//! Orders of direct producers. The rules of HTTP requests apply, with the same insert as the idempotency check, and the same
//! send of the work. No client waits for an answer.

use super::{AcceptFault, Acceptance, Accepted, Acceptor};
use crate::access::partner_cache::Standing;
use crate::domain::ids::{AccountKey, PartnerId, TransactionKey};
use crate::domain::money::Currency;
use crate::domain::origin::Origin;
use crate::messaging::direct_producers::{DirectOrder, LegacyAmountError};

/// The reason why an order is refused, as a sentence for operators. Nothing was changed, and its id can be used again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OrderError {
    /// The account does not exist. If it is opened later, the order can be replayed.
    #[error("the account {0} does not exist")]
    AccountUnknown(AccountKey),
    /// The text is not an amount in the account's currency.
    #[error("Amount {error} (the account is in {currency})")]
    Amount {
        /// The defect of the amount.
        error: LegacyAmountError,
        /// The account's currency.
        currency: Currency,
    },
    /// The key was used before with another content.
    #[error(
        "the TransactionId {} was used before with another content on the account {} by partner {}; \
         nothing was changed",
        .0.message, .0.account, .0.partner
    )]
    KeyReused(Box<TransactionKey>),
}

impl Acceptor {
    /// Accepts an order on behalf of a partner, unless its rights changed before the insert, and sends its work. Repeating the
    /// call gives the same answer.
    ///
    /// # Errors
    /// [`AcceptFault`] if log or queue are not available or the rights changed. The order may be accepted; a repetition is safe.
    pub async fn admit(
        &self,
        order: &DirectOrder,
        partner: &PartnerId,
        mut standing: Standing,
    ) -> Result<Result<Accepted, OrderError>, AcceptFault> {
        let account = order.account;
        let Some(currency) = self.currency(account).await? else {
            return Ok(Err(OrderError::AccountUnknown(account)));
        };
        let instruction = match order.instruction(currency) {
            Ok(instruction) => instruction,
            Err(error) => return Ok(Err(OrderError::Amount { error, currency })),
        };
        let key = TransactionKey { account, partner: partner.clone(), message: order.message };
        let origin = Origin::default();
        match self.submit_while(&mut standing, key.clone(), instruction, origin, None).await? {
            Acceptance::Accepted(accepted) => Ok(Ok(accepted)),
            Acceptance::KeyReused => Ok(Err(OrderError::KeyReused(Box::new(key)))),
            // The currency is that of the account, which is known here and never changes.
            Acceptance::AccountUnknown | Acceptance::CurrencyMismatch { .. } => {
                Ok(Err(OrderError::AccountUnknown(account)))
            }
        }
    }
}
