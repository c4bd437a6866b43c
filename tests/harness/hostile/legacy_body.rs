//! Bodies that producers write to the queue directly: an XML document, or four texts with `|` between.

use postonce_shared::domain::instruction::TransactionKind;
use postonce_shared::domain::money::Currency;
use postonce_shared::messaging::direct_producers::{self, DirectOrder, Form};

/// Most characters of what is told about a body: it goes into the dead letter.
const TOLD_CHARS_MAX: usize = 8 * 1024;

/// Any bytes, as the body of a message.
pub fn check(input: &[u8]) {
    match direct_producers::parse(input) {
        None => {}
        Some(Ok(order)) => check_order(&order),
        Some(Err(invalid)) => {
            assert!(!invalid.violations.is_empty());
            for violation in &invalid.violations {
                assert!(!violation.field.is_empty() && !violation.rule.is_empty(), "{violation:?}");
            }
            let told = invalid.to_string();
            assert!(told.chars().count() <= TOLD_CHARS_MAX, "{} bytes are told", told.len());
        }
    }
}

/// Which form a body seems to have.
pub(super) fn form_of(input: &[u8]) -> Option<Form> {
    match direct_producers::parse(input)? {
        Ok(_) => Some(if input.trim_ascii_start().starts_with(b"<") { Form::Xml } else { Form::Delimited }),
        Err(invalid) => Some(invalid.form),
    }
}

/// What was read can be written in both forms, and is read back as the same order.
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
