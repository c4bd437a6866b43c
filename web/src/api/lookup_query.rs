//! Query parameters of the lookup of a transaction by operators.

use std::str::FromStr;

use postonce_shared::domain::ids::{AccountKey, IdError, OrderNumber, parse_hyphenated};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::admin::lookup::Wanted;
use crate::api::arguments::QueryTexts;
use crate::query::Violations;

/// The transaction to find: by order number, or by message id and account.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct LookupParams {
    /// The order number, with its check digit.
    #[param(pattern = "^[0-9]{2,18}$", example = "10000422")]
    pub order_number: Option<String>,
    /// The `Idempotency-Key` of the request.
    #[param(format = "uuid")]
    pub message_id: Option<String>,
    /// The user of the account.
    #[param(format = "uuid")]
    pub user_id: Option<String>,
    /// The account of that user.
    #[param(format = "uuid")]
    pub account_id: Option<String>,
}

impl QueryTexts for LookupParams {
    type Value = Wanted;

    fn parse(self, violations: &mut Violations) -> Option<Wanted> {
        let Self { order_number, message_id, user_id, account_id } = self;
        let Some(number) = order_number else {
            let message = id(violations, "message_id", message_id);
            let (user, account) =
                (id(violations, "user_id", user_id), id(violations, "account_id", account_id));
            let account = user.zip(account).map(|(user, account)| AccountKey { user, account });
            return account.zip(message).map(|(account, message)| Wanted::Message(account, message));
        };
        for (name, value) in [("message_id", message_id), ("user_id", user_id), ("account_id", account_id)] {
            if value.is_some() {
                violations.refuse(name, "cannot be combined with order_number");
            }
        }
        let number = OrderNumber::parse(&number);
        number
            .map_err(|invalid| violations.refuse("order_number", invalid.to_string()))
            .ok()
            .map(Wanted::Number)
    }
}

/// Parses an id, which is required without an order number.
fn id<T: FromStr<Err = IdError>>(
    violations: &mut Violations,
    name: &str,
    value: Option<String>,
) -> Option<T> {
    let Some(value) = value else {
        violations.refuse(name, "is missing; send order_number, or message_id with user_id and account_id");
        return None;
    };
    parse_hyphenated(&value).map_err(|error: IdError| violations.refuse(name, error.to_string())).ok()
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;
    use crate::api::arguments::QueryParameters as _;
    use crate::error::ApiError;

    const USER: &str = "0b1c2d3e-0000-4000-8000-000000000001";
    const ACCOUNT: &str = "77aa0000-0000-4000-8000-000000000001";
    const MESSAGE: &str = "4f9d0c9e-5d3e-4c0e-9a51-1b7a4a4e2f10";

    fn parsed(query: &str) -> Result<Wanted, ApiError> {
        LookupParams::read(
            &TestRequest::with_uri(&format!("/v1/admin/transactions?{query}")).to_http_request(),
        )
    }

    #[test]
    fn a_lookup_names_an_order_number_or_a_message() {
        let number = OrderNumber::from_counter(1_000_042);
        assert_eq!(parsed(&format!("order_number={number}")).unwrap(), Wanted::Number(number));
        let account = AccountKey { user: USER.parse().unwrap(), account: ACCOUNT.parse().unwrap() };
        assert_eq!(
            parsed(&format!("message_id={MESSAGE}&user_id={USER}&account_id={ACCOUNT}")).unwrap(),
            Wanted::Message(account, MESSAGE.parse().unwrap())
        );
    }

    #[test]
    fn each_wrong_parameter_is_named() {
        let check = |query: &str, expected: &[&str]| {
            let problem = serde_json::to_value(parsed(query).unwrap_err().problem()).unwrap();
            let violations = problem["violations"].as_array().unwrap();
            let fields: Vec<_> = violations.iter().map(|it| it["field"].as_str().unwrap()).collect();
            assert_eq!(fields, expected, "{query}: {problem}");
        };
        check("", &["message_id", "user_id", "account_id"]);
        check("order_number=17", &["order_number"]);
        check(&format!("order_number=17&message_id={MESSAGE}"), &["message_id", "order_number"]);
        check(&format!("message_id={MESSAGE}"), &["user_id", "account_id"]);
        check(&format!("message_id=1&user_id={USER}&account_id={ACCOUNT}"), &["message_id"]);
    }
}
