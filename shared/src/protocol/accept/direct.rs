//! Orders of direct producers. They are on a queue before they are accepted, so the worker accepts them first. The
//! rules of HTTP requests apply, and the same insert is the idempotency check. No client waits for an answer.

use super::{AcceptFault, Acceptor};
use crate::access::partner_cache::Standing;
use crate::domain::decision::{Submission, Work};
use crate::domain::ids::{AccountKey, PartnerId, TransactionKey};
use crate::domain::money::Currency;
use crate::domain::origin::Origin;
use crate::messaging::direct_producers::{DirectOrder, LegacyAmountError};
use crate::ports::ledger::{AcceptOutcome, StoredTransaction};

/// Result of accepting an order.
#[must_use]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    /// The order is accepted, by this call or an earlier one. Its work must be posted.
    Open(Box<Work>),
    /// The order was accepted before and is final.
    Final,
    /// The order is refused. Nothing was changed, and its id can be used again.
    Refused(OrderError),
}

/// The reason why an order is refused, as a sentence for operators.
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
    /// Accepts an order that is on the queue, on behalf of a partner, unless its rights changed before the insert. Repeating the
    /// call gives the same answer, or [`Admission::Final`] when the transaction became final.
    ///
    /// # Errors
    /// [`AcceptFault`] if the log is not available or the rights changed. The order may be accepted; a repetition is safe.
    pub async fn admit(
        &self,
        order: &DirectOrder,
        partner: &PartnerId,
        mut standing: Standing,
    ) -> Result<Admission, AcceptFault> {
        let account = order.account;
        let Some(currency) = self.currency(account).await? else {
            return Ok(Admission::Refused(OrderError::AccountUnknown(account)));
        };
        let instruction = match order.instruction(currency) {
            Ok(instruction) => instruction,
            Err(error) => return Ok(Admission::Refused(OrderError::Amount { error, currency })),
        };
        let key = TransactionKey { account, partner: partner.clone(), message: order.message };
        let new = Submission {
            key: key.clone(),
            instruction,
            accepted_at: self.world.now(),
            origin: Origin::default(),
            batch_line: None,
        };
        let stored = match self.insert(new.clone(), &mut standing, false).await? {
            // A store that enqueues in the same step has enqueued it twice. The second delivery finds it final.
            AcceptOutcome::Inserted { revision, enqueued: _ } => {
                self.served.accept(1);
                StoredTransaction::inserted(new, revision, None)
            }
            AcceptOutcome::Existing(stored) if !new.instruction.matches(&stored.fingerprint) => {
                return Ok(Admission::Refused(OrderError::KeyReused(Box::new(key))));
            }
            AcceptOutcome::Existing(stored) => *stored,
        };
        Ok(stored.work().map_or(Admission::Final, |work| Admission::Open(Box::new(work))))
    }
}
