//! Envelopes of the SOAP service, in both contracts and both versions.

use postonce_shared::domain::instruction::TransactionKind;
use postonce_shared::domain::money::{Currency, check_decimal};
use postonce_shared::messaging::xml::{self, XmlLimits};
use postonce_web::api::soap::contract::Contract;
use postonce_web::api::soap::envelope::{Request, Version};
use postonce_web::api::soap::message::{self, Command};
use postonce_web::api::soap::operations::Operation;
use postonce_web::error::ApiError;
use postonce_web::formats::table;

use super::refusal;

/// Parses any bytes as a request of either contract in either version.
pub fn check(input: &[u8]) {
    for contract in Contract::ALL {
        for version in Version::ALL {
            match read(contract, version, input) {
                Ok((operation, asked)) => check_asked(version, operation, &asked, input),
                Err(error) => drop(refusal::check(&error)),
            }
        }
    }
}

/// Parses a request of one contract in one version.
///
/// # Errors
/// The reason why it is refused.
pub fn read(contract: Contract, version: Version, input: &[u8]) -> Result<(Operation, Command), ApiError> {
    let request = Request::parse(version, table::parse(input, &XmlLimits::default())?)
        .map_err(|refusal| refusal.error)?;
    if let Err(error) = message::message_id(contract, request.addressing.as_ref()) {
        drop(refusal::check(&error));
    }
    let operation = Operation::of(contract, &request.body)?;
    Ok((operation, message::read(operation, &request.body)?))
}

fn check_asked(version: Version, operation: Operation, asked: &Command, input: &[u8]) {
    match asked {
        Command::Submit(_, instruction, _) => {
            assert_eq!(Some(instruction.kind), kind(operation));
            assert!(instruction.matches(&instruction.fingerprint()));
        }
        Command::SubmitOrder(_, order) => {
            assert_eq!(Some(order.kind), kind(operation));
            // The amount is plain, and each currency allows it or says why not.
            assert_eq!(check_decimal(&order.amount), Ok(()), "{order:?}");
            for code in ["CLF", "EUR", "JPY"] {
                let currency = Currency::parse(code).expect("a currency");
                match order.clone().instruction(currency) {
                    Ok(instruction) => assert!(instruction.matches(&instruction.fingerprint())),
                    Err(error) => drop(refusal::check(&error)),
                }
            }
        }
        Command::Account(_) => {
            assert!([Operation::GetUserAccount, Operation::GetUserAccountBalance].contains(&operation));
        }
        Command::Transaction(..) => assert_eq!(operation, Operation::GetTransaction),
    }
    // Rewriting the document does not change its meaning.
    let root = xml::read(input, &XmlLimits::default()).expect("it was read before");
    let again = read(operation.contract(), version, xml::write(&root).as_bytes());
    assert_eq!(again.ok().as_ref().map(|(_, asked)| asked), Some(asked));
}

/// The direction of an operation that moves money.
const fn kind(operation: Operation) -> Option<TransactionKind> {
    match operation {
        Operation::ReliableInsertMoney | Operation::CompatInsertMoney => Some(TransactionKind::Deposit),
        Operation::ReliableWithdrawMoney | Operation::CompatWithdrawMoney => {
            Some(TransactionKind::Withdrawal)
        }
        Operation::GetUserAccount | Operation::GetTransaction | Operation::GetUserAccountBalance => None,
    }
}
