//! Work of producers that write to the queue directly: it was never accepted when it arrives, so the
//! worker accepts it first. The same rules hold as for a request over HTTP, and the same insert is
//! the idempotency check; but it is on the queue already, and nobody waits for a promise.

use super::{AcceptFault, Acceptor, as_stored};
use crate::domain::decision::Work;
use crate::domain::ids::{AccountKey, PartnerId, TransactionKey};
use crate::domain::money::Currency;
use crate::messaging::direct_producers::{DirectOrder, LegacyAmountError};
use crate::ports::ledger::{AcceptOutcome, NewTransaction};
use crate::ports::world::WorldExt as _;

/// What became of an order.
#[must_use]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    /// It is accepted, by this call or before. Its work is to be posted.
    Open(Box<Work>),
    /// It was accepted before, and is final.
    Final,
    /// It is not acceptable. Nothing was changed, and the id is not used up by it.
    Refused(Refusal),
}

/// Why an order is not acceptable: a sentence for a person.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There is no such account. It may be opened, and the order replayed.
    #[error("the account {0} does not exist")]
    AccountUnknown(AccountKey),
    /// The amount is none of the account's currency.
    #[error("Amount {error} (the account is in {currency})")]
    Amount {
        /// What is wrong with it.
        error: LegacyAmountError,
        /// The account's currency.
        currency: Currency,
    },
    /// Same key, other content.
    #[error(
        "the TransactionId {} was used before with another content on the account {} by partner {}; \
         nothing was changed",
        .0.message, .0.account, .0.partner
    )]
    KeyReused(Box<TransactionKey>),
}

impl Acceptor {
    /// Accepts an order that lies on the queue, in the name of a partner. Asking again gives the same
    /// answer, or says that it became final.
    ///
    /// # Errors
    /// [`AcceptFault`] when the log could not be reached: the order may be accepted, and asking again
    /// is safe.
    pub async fn admit(&self, order: &DirectOrder, partner: &PartnerId) -> Result<Admission, AcceptFault> {
        let account = order.account;
        let Some(currency) = self.currency(account).await? else {
            return Ok(Admission::Refused(Refusal::AccountUnknown(account)));
        };
        let instruction = match order.instruction(currency) {
            Ok(instruction) => instruction,
            Err(error) => return Ok(Admission::Refused(Refusal::Amount { error, currency })),
        };
        let key = TransactionKey { account, partner: partner.clone(), message: order.message };
        let new = NewTransaction {
            key: key.clone(),
            instruction,
            accepted_at: self.world.now(),
            nonce: self.world.nonce(),
        };
        let stored = match self.insert(new.clone()).await? {
            // Where accepting enqueues in the same step, the work is on the queue twice now. That does
            // no harm: whichever comes second finds it final.
            AcceptOutcome::Inserted { revision, enqueued: _ } => as_stored(new, revision),
            AcceptOutcome::Existing(stored) if !new.instruction.matches(&stored.fingerprint) => {
                return Ok(Admission::Refused(Refusal::KeyReused(Box::new(key))));
            }
            AcceptOutcome::Existing(stored) => *stored,
        };
        Ok(stored.work().map_or(Admission::Final, |work| Admission::Open(Box::new(work))))
    }
}
