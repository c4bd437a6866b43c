//! Bodies that producers write to the queue directly: an XML document, or four fields separated by `|`.

use postonce_shared::messaging::direct_producers::{self, DirectOrder, Order};
use postonce_shared::testing::prelude::*;

/// Maximum length of a message about a body, which is stored in the dead letter.
const MESSAGE_CHARS_MAX: usize = 8 * 1024;

/// Parses any bytes as the body of a message.
pub fn check(input: &[u8]) {
    let Some(orders) = direct_producers::parse(input) else { return };
    assert!((1..=direct_producers::ORDERS_MAX).contains(&orders.len()), "{} orders", orders.len());
    for Order { body, order } in orders {
        match &order {
            Ok(order) => check_order(order),
            Err(invalid) => {
                assert!(!invalid.violations.is_empty());
                for violation in &invalid.violations {
                    assert!(!violation.field.is_empty() && !violation.rule.is_empty(), "{violation:?}");
                }
                let message = invalid.to_string();
                assert!(message.chars().count() <= MESSAGE_CHARS_MAX, "a message of {} bytes", message.len());
            }
        }
        // The body of one order is read as that order again.
        let again = direct_producers::parse(&body).map(|orders| orders.into_iter().map(|it| it.order.ok()));
        if order.is_ok() {
            assert_eq!(
                again.map(Vec::from_iter),
                Some(vec![order.ok()]),
                "{}",
                String::from_utf8_lossy(&body)
            );
        }
    }
}

/// Returns whether a body contains a valid order.
pub(super) fn has_order(input: &[u8]) -> bool {
    let orders = direct_producers::parse(input).unwrap_or_default();
    orders.iter().any(|order| order.order.is_ok())
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
    let parsed =
        |body: &str| direct_producers::parse(body.as_bytes()).map(|mut orders| orders.remove(0).order);
    let plain = parsed(&delimited).expect("four fields").expect("valid values");
    assert_eq!((plain.account, plain.message, plain.kind), (order.account, order.message, order.kind));
    let xml = format!(
        "<UserAccountTransaction><Amount>{amount}</Amount><UserId>{user}</UserId>\
         <TransactionId>{message}</TransactionId><AccountId> {account} </AccountId></UserAccountTransaction>"
    );
    assert_eq!(parsed(&xml), Some(Ok(plain.clone())), "{xml}");
    let row = format!(
        "[{{\"Amount\":\"{amount}\",\"RowKey\":\"{message}\",\"PartitionKey\":\"{user}|{account}\"}}]"
    );
    assert_eq!(parsed(&row), Some(Ok(plain)), "{row}");
    for code in ["EUR", "JPY", "BHD"] {
        let currency = Currency::parse(code).expect("a currency of ISO 4217");
        if let Ok(instruction) = order.instruction(currency) {
            assert_eq!((instruction.kind, instruction.amount.currency()), (order.kind, currency));
        }
    }
}
