//! Finds transactions for operators: by order number, or by the message id that a client chose.

use postonce_shared::access::partner_records::PartnerRecords;
use postonce_shared::domain::ids::{AccountKey, MessageId, OrderNumber, PartnerId};
use postonce_shared::ports::Store;
use postonce_shared::ports::fault::StoreFault;
use postonce_shared::ports::ledger::StoredTransaction;
use postonce_shared::protocol::enquire;

const PARTNERS_PER_READ: usize = 200;

/// Criterion of a look-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// The transaction with this order number.
    Number(OrderNumber),
    /// The transactions of all partners on an account with this message id.
    Message(AccountKey, MessageId),
}

/// Returns the matching transactions, by partner.
///
/// # Errors
/// [`StoreFault`] when they cannot be read.
pub async fn find(store: &Store, wanted: Wanted) -> Result<Vec<StoredTransaction>, StoreFault> {
    match wanted {
        Wanted::Number(number) => Ok(enquire::by_order_number(store, number).await?.into_iter().collect()),
        Wanted::Message(account, message) => {
            let partners = partners(&PartnerRecords::new(store)).await?;
            enquire::by_message(store, (account, message), partners).await
        }
    }
}

async fn partners(records: &PartnerRecords) -> Result<Vec<PartnerId>, StoreFault> {
    let mut ids: Vec<PartnerId> = Vec::new();
    loop {
        let read = records.list(ids.last(), PARTNERS_PER_READ).await?;
        let is_last = read.len() < PARTNERS_PER_READ;
        ids.extend(read.into_iter().map(|partner| partner.id));
        if is_last {
            return Ok(ids);
        }
    }
}
