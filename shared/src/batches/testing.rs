//! Items for the tests of batches.

use uuid::Uuid;

use crate::domain::batch::Item;
use crate::domain::ids::{AccountId, AccountKey, MessageId, UserId};
use crate::domain::instruction::{Details, Instruction, TransactionKind};
use crate::domain::money::{Amount, Currency};

/// Returns a deposit on this line of the document.
pub fn item(line: u32, account: u128, cents: i64) -> Item {
    let user = UserId::from_uuid(Uuid::from_u128(7));
    let currency = Currency::parse("EUR").unwrap();
    Item {
        line,
        account: AccountKey { user, account: AccountId::from_uuid(Uuid::from_u128(account)) },
        message: MessageId::from_uuid(Uuid::from_u128(u128::from(line))),
        instruction: Instruction {
            kind: TransactionKind::Deposit,
            amount: Amount::try_new(cents, currency).unwrap(),
            details: Details::default(),
        },
    }
}
