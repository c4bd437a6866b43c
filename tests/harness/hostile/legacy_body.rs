//! Bodies that producers write to the queue directly: an XML document, or four fields separated by `|`.

use postonce_shared::messaging::direct_producers::{self, DirectOrder, Form};
use postonce_shared::testing::prelude::*;

/// Maximum length of a message about a body, which is stored in the dead letter.
const MESSAGE_CHARS_MAX: usize = 8 * 1024;

/// Parses any bytes as the body of a message.
pub fn check(input: &[u8]) {
    match direct_producers::parse(input) {
        None => {}
        Some(Ok(order)) => check_order(&order),
        Some(Err(invalid)) => {
            assert!(!invalid.violations.is_empty());
            for violation in &invalid.violations {
                assert!(!violation.field.is_empty() && !violation.rule.is_empty(), "{violation:?}");
            }
            let message = invalid.to_string();
            assert!(message.chars().count() <= MESSAGE_CHARS_MAX, "a message of {} bytes", message.len());
        }
    }
}

/// Returns the form of a body, if it is recognized.
pub(super) fn form_of(input: &[u8]) -> Option<Form> {
    match direct_producers::parse(input)? {
        Ok(_) => Some(if input.trim_ascii_start().starts_with(b"<") { Form::Xml } else { Form::Delimited }),
        Err(invalid) => Some(invalid.form),
    }
}

/// Checks that an order written in either form is parsed to the same order.
fn check_order(order: &DirectOrder) {
    let text = |order: &DirectOrder| {
        let sign = match order.kind {
            TransactionKind::Deposit => "",
            TransactionKind::Withdrawal => "-",
        };
        let (user, account) = (order.account.user, order.account.account);
        (
            user.to_string(),
            account.to_string(),
            order.message.to_string(),
            format!("{sign}{}", order.magnitude()),
        )
    };
    let (user, account, message, amount) = text(order);
    let delimited = format!("{user}|{account}|{message}|{amount}");
    assert_eq!(direct_producers::parse(delimited.as_bytes()), Some(Ok(order.clone())), "{delimited}");
    let xml = format!(
        "<UserAccountTransaction><Amount>{amount}</Amount><UserId>{user}</UserId>\
         <TransactionId>{message}</TransactionId><AccountId> {account} </AccountId></UserAccountTransaction>"
    );
    assert_eq!(direct_producers::parse(xml.as_bytes()), Some(Ok(order.clone())), "{xml}");
    for code in ["EUR", "JPY", "BHD"] {
        let currency = Currency::parse(code).expect("a currency of ISO 4217");
        if let Ok(instruction) = order.instruction(currency) {
            assert_eq!((instruction.kind, instruction.amount.currency()), (order.kind, currency));
        }
    }
}
