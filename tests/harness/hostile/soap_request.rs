//! Envelopes of the SOAP service, in both versions.

use postonce_shared::domain::instruction::TransactionKind;
use postonce_shared::messaging::xml::{self, XmlLimits};
use postonce_web::api::soap::envelope::{Request, Version};
use postonce_web::api::soap::message::{self, Command};
use postonce_web::api::soap::operations::Operation;
use postonce_web::error::ApiError;
use postonce_web::formats::table;

use super::refusal;

/// Parses any bytes as a request in either version.
pub fn check(input: &[u8]) {
    for version in [Version::V11, Version::V12] {
        match read(version, input) {
            Ok((operation, asked)) => check_asked(version, operation, &asked, input),
            Err(error) => drop(refusal::check(&error)),
        }
    }
}

/// Parses a request in one version.
///
/// # Errors
/// The reason why it is refused.
pub fn read(version: Version, input: &[u8]) -> Result<(Operation, Command), ApiError> {
    let request = Request::parse(version, table::parse(input, &XmlLimits::default())?)
        .map_err(|refusal| refusal.error)?;
    if let Err(error) = message::message_id(request.addressing.as_ref()) {
        drop(refusal::check(&error));
    }
    let operation = Operation::of(&request.body)?;
    Ok((operation, message::read(operation, &request.body)?))
}

fn check_asked(version: Version, operation: Operation, asked: &Command, input: &[u8]) {
    match asked {
        Command::Submit(_, instruction, _) => {
            let kind = match operation {
                Operation::ReliableInsertMoney => TransactionKind::Deposit,
                Operation::ReliableWithdrawMoney => TransactionKind::Withdrawal,
                Operation::GetUserAccount | Operation::GetTransaction => panic!("{operation:?} moves money"),
            };
            assert_eq!(instruction.kind, kind);
            assert!(instruction.matches(&instruction.fingerprint()));
        }
        Command::Account(_) => assert_eq!(operation, Operation::GetUserAccount),
        Command::Transaction(..) => assert_eq!(operation, Operation::GetTransaction),
    }
    // Rewriting the document does not change its meaning.
    let root = xml::read(input, &XmlLimits::default()).expect("it was read before");
    let again = read(version, xml::write(&root).as_bytes());
    assert_eq!(again.ok().as_ref().map(|(_, asked)| asked), Some(asked));
}
