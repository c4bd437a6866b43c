//! Search for accounts and transactions: its criteria, its forms, and its results.

use std::str::FromStr;

use maud::{Markup, html};
use postonce_schemas::json::{AccountPage, FoundTransaction};
use postonce_shared::domain::ids::{AccountId, IdError, MessageId, OrderNumber, UserId, parse_hyphenated};

use super::account::status_badge;
use super::signed_amount;
use crate::access::scopes::Scope;
use crate::console::addresses::{ACCOUNT, Section, TRANSACTION, accounts_of};
use crate::console::html::components::{
    Place, Table, Tone, card, columns, copyable, empty, id, notice, time,
};
use crate::console::html::format::decimal;
use crate::console::html::forms::{Field, TextKind, search_form, submit, text_input};
use crate::console::values::Values;
use crate::console::viewer::Viewer;

const ID_CHARS: u16 = 36;

/// Search criteria. The ids are well-formed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// No criterion was given.
    Nothing,
    /// All accounts of a user.
    User(String),
    /// A single account.
    Account {
        /// Id of the user.
        user: String,
        /// Id of the account.
        account: String,
    },
    /// A transaction, by order number.
    OrderNumber(String),
    /// A transaction, by the message id that its partner chose.
    Message {
        /// Id of the user.
        user: String,
        /// Id of the account.
        account: String,
        /// Message id.
        message: String,
    },
}

/// Errors in the fields of a search.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Errors {
    user_id: Option<String>,
    account_id: Option<String>,
    order_number: Option<String>,
    message_id: Option<String>,
}

/// Parses the search criteria.
///
/// # Errors
/// [`Errors`] when a field is not valid.
pub fn wanted(values: &Values, viewer: &Viewer) -> Result<Wanted, Errors> {
    if let Some(number) = values.given("order_number") {
        let error = if viewer.may(Scope::Admin) {
            OrderNumber::parse(number).err().map(|invalid| format!("This {invalid}."))
        } else {
            Some("Only a key with the scope admin can search by order number.".to_owned())
        };
        return match error {
            None => Ok(Wanted::OrderNumber(number.to_owned())),
            Some(_) => Err(Errors { order_number: error, ..Errors::default() }),
        };
    }
    let (message, user, account) =
        (values.given("message_id"), values.given("user_id"), values.given("account_id"));
    let for_account = "Enter the user too: an account id is unique only for its user.";
    let for_message = "Enter it too: a message id is unique only for its account.";
    let errors = Errors {
        order_number: None,
        message_id: message.and_then(wrong::<MessageId>),
        user_id: match (user, account, message) {
            (Some(user), _, _) => wrong::<UserId>(user),
            (None, _, Some(_)) => Some(for_message.to_owned()),
            (None, Some(_), None) => Some(for_account.to_owned()),
            (None, None, None) => None,
        },
        account_id: match (account, message) {
            (Some(account), _) => wrong::<AccountId>(account),
            (None, Some(_)) => Some(for_message.to_owned()),
            (None, None) => None,
        },
    };
    if errors != Errors::default() {
        return Err(errors);
    }
    let owned = str::to_owned;
    Ok(match (user.map(owned), account.map(owned), message.map(owned)) {
        (Some(user), Some(account), Some(message)) => Wanted::Message { user, account, message },
        (Some(user), Some(account), None) => Wanted::Account { user, account },
        (Some(user), None, _) => Wanted::User(user),
        (None, _, _) => Wanted::Nothing,
    })
}

/// Returns the error of an id, if it is not well-formed.
fn wrong<T: FromStr<Err = IdError>>(text: &str) -> Option<String> {
    parse_hyphenated::<T>(text).err().map(|invalid| format!("This {invalid}."))
}

/// Returns the search forms with the submitted values.
pub fn body(values: &Values, errors: &Errors, viewer: &Viewer) -> Markup {
    // Both forms have fields for an account; only the submitted form shows the values.
    let is_transaction = values.given("order_number").or_else(|| values.given("message_id")).is_some();
    let (none, no_errors) = (Values::default(), Errors::default());
    let of = |is_sent: bool| if is_sent { (values, errors) } else { (&none, &no_errors) };
    columns(&[
        card("Find an account", account_form(of(!is_transaction), viewer)),
        card("Find a transaction", transaction_form(of(is_transaction), viewer)),
    ])
}

fn account_form((values, errors): (&Values, &Errors), viewer: &Viewer) -> Markup {
    let user = Field::new("user_id", "User").required().max_length(ID_CHARS);
    let user = user.hint("The id of the user. Alone it lists all accounts of the user.");
    let account = Field::new("account_id", "Account").max_length(ID_CHARS);
    let account = account.hint("The id of one account of that user.");
    let input = |field: &Field<'_>| text_input(field, TextKind::Code, values.text(field.name));
    search_form(
        Section::Accounts.path(),
        html! {
            @if !viewer.may(Scope::Read) { p { "To read accounts, the key needs the scope " code { "read" } "." } }
            (input(&user.error(errors.user_id.as_deref())))
            (input(&account.error(errors.account_id.as_deref())))
            (submit("Find the account", Tone::Notice))
        },
    )
}

fn transaction_form((values, errors): (&Values, &Errors), viewer: &Viewer) -> Markup {
    let input = |field: &Field<'_>| text_input(field, TextKind::Code, values.text(field.name));
    let number = Field::new("order_number", "Order number").max_length(18);
    let number = number.hint("The number that users quote. Its last digit is a check digit.");
    let message = Field::new("message_id", "Message id").max_length(ID_CHARS);
    let message = message.hint("The Idempotency-Key of the request. It needs the user and the account.");
    let user = Field::new("user_id", "User").id("transaction-user").max_length(ID_CHARS);
    let account = Field::new("account_id", "Account").id("transaction-account").max_length(ID_CHARS);
    search_form(
        Section::Accounts.path(),
        html! {
            @if viewer.may(Scope::Admin) {
                (input(&number.error(errors.order_number.as_deref())))
                p { "Or, without an order number:" }
            } @else {
                p {
                    "To search by order number, and for transactions of other partners, the key needs the scope "
                    code { "admin" } "."
                }
                @if let Some(error) = &errors.order_number { p.error role="alert" { (error) } }
            }
            (input(&message.error(errors.message_id.as_deref())))
            (input(&user.error(errors.user_id.as_deref())))
            (input(&account.error(errors.account_id.as_deref())))
            (submit("Find the transaction", Tone::Notice))
        },
    )
}

/// Lists the accounts of a user.
pub fn accounts(user: &str, AccountPage { accounts, next_cursor }: &AccountPage, is_first: bool) -> Markup {
    let table = Table::new("Accounts of the user", accounts)
        .text("Account", |of| {
            html! { a href=(ACCOUNT.of([&of.user_id, &of.account_id])) { (id(&of.account_id)) } }
        })
        .text("Status", |of| status_badge(&of.status))
        .number("Balance", |of| decimal(&of.balance))
        .number("Available", |of| decimal(&of.available))
        .number("Overdraft limit", |of| decimal(&of.overdraft_limit))
        .text("Currency", |of| of.currency.clone())
        .text("Opened", |of| time(&of.opened_at));
    let place = Place { first_page: &accounts_of(user), is_first, next_cursor: next_cursor.as_deref() };
    let help = html! { p { "This user has no account that the key reaches. Check the id of the user." } };
    let table = table;
    card(
        "Accounts of the user",
        html! {
            p { "User " (copyable(user)) }
            (place.listing(accounts.is_empty(), empty("No accounts", help), table))
        },
    )
}

/// Shows the transactions with an order number: none or one, but several if the store is damaged.
pub fn found(number: &str, transactions: &[FoundTransaction]) -> Markup {
    if transactions.is_empty() {
        return notice(
            Tone::Notice,
            "No transaction has this order number",
            html! {
                p { "Order number " (id(number)) " was not found within the reach of the key." }
                p {
                    "On Azure, a number is recorded some seconds after its posting, and later by the scrubber if a process \
                     could not. Search by message id, user and account instead."
                }
            },
        );
    }
    notice(
        Tone::Bad,
        "Several transactions have this order number",
        html! {
            p { "Each order number belongs to one transaction. Audit the ledger with " code { "postonce-web verify" } "." }
            ul {
                @for found in transactions {
                    @let of = &found.transaction;
                    li {
                        a href=(TRANSACTION.of([&of.user_id, &of.account_id, &of.message_id])) { (id(&of.message_id)) }
                        " " (signed_amount(of)) " " (of.currency)
                    }
                }
            }
        },
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::console::viewer::tests::viewer;

    const USER: &str = "0b1c6f0a-54f2-4f0c-9c64-2f4b6a3f0d11";
    const ACCOUNT: &str = "77aa0b9e-7c2f-4c35-8f0d-0a4f6f1f2e22";
    const MESSAGE: &str = "4f9d0c9e-5d3e-4c0e-9a51-1b7a4a4e2f10";
    fn errors(query: &str, scopes: &[Scope]) -> Errors {
        wanted(&Values::of_query(query), &viewer(scopes)).unwrap_err()
    }

    #[test]
    fn complete_searches_are_recognized() {
        let viewer = viewer(Scope::ALL);
        let check = |query: &str, expected: Wanted| {
            assert_eq!(wanted(&Values::of_query(query), &viewer), Ok(expected), "{query}");
        };
        let owned = str::to_owned;
        check("", Wanted::Nothing);
        check("user_id=&account_id=", Wanted::Nothing);
        check(&format!("user_id=+{USER}+"), Wanted::User(owned(USER)));
        let (user, account) = (owned(USER), owned(ACCOUNT));
        check(&format!("user_id={USER}&account_id={ACCOUNT}"), Wanted::Account { user, account });
        let number = OrderNumber::from_counter(1_000_042).to_string();
        check(&format!("order_number={number}"), Wanted::OrderNumber(number.clone()));
        let (user, account, message) = (owned(USER), owned(ACCOUNT), owned(MESSAGE));
        check(
            &format!("message_id={MESSAGE}&user_id={USER}&account_id={ACCOUNT}"),
            Wanted::Message { user, account, message },
        );
    }

    #[test]
    fn each_wrong_field_is_named() {
        let check = |query: &str, scopes, expected: [bool; 4]| {
            let Errors { user_id, account_id, order_number, message_id } = errors(query, scopes);
            let found = [user_id, account_id, order_number, message_id].map(|error| error.is_some());
            assert_eq!(found, expected, "{query}");
        };
        check("user_id=1", Scope::ALL, [true, false, false, false]);
        check(&format!("account_id={ACCOUNT}"), Scope::ALL, [true, false, false, false]);
        check(&format!("user_id={USER}&account_id=2"), Scope::ALL, [false, true, false, false]);
        check("order_number=17", Scope::ALL, [false, false, true, false]);
        check("order_number=5724", &[Scope::Read], [false, false, true, false]);
        check("message_id=3", Scope::ALL, [true, true, false, true]);
        check(&format!("message_id={MESSAGE}"), Scope::ALL, [true, true, false, false]);
    }

    #[test]
    fn errors_stand_beside_the_fields_of_their_form_and_text_is_escaped() {
        let query = "user_id=%3Cscript%3E";
        let errors = errors(query, Scope::ALL);
        let html = body(&Values::of_query(query), &errors, &viewer(Scope::ALL)).into_string();
        assert!(html.contains("field-user_id-error") && !html.contains("transaction-user-error"));
        assert!(html.contains("&lt;script&gt;") && !html.contains("<script>"));
    }

    #[test]
    fn what_the_key_may_not_is_said() {
        let shown =
            |scopes: &[Scope]| body(&Values::default(), &Errors::default(), &viewer(scopes)).into_string();
        let html = shown(&[Scope::Read]);
        assert!(html.contains("the key needs the scope <code>admin</code>"));
        assert!(!html.contains("name=\"order_number\""));
        assert!(shown(Scope::ALL).contains("name=\"order_number\""));
    }

    #[test]
    fn accounts_are_listed_with_links() {
        let account = json!({
            "user_id": USER, "account_id": ACCOUNT, "currency": "EUR", "status": "frozen", "balance": "-1234.50",
            "available": "0.00", "overdraft_limit": "5000.00", "version": 7, "opened_at": "2026-11-21T08:00:00.123Z"
        });
        let page = json!({ "accounts": [account], "next_cursor": "a-b" });
        let html = accounts(USER, &serde_json::from_value(page).unwrap(), true).into_string();
        assert!(html.contains(&format!(r#"href="/console/accounts/{USER}/{ACCOUNT}""#)));
        assert!(html.contains("\u{2212}1\u{202f}234.50") && html.contains("frozen"));
        assert!(html.contains(&format!("user_id={USER}&amp;cursor=a-b")));
        let none = AccountPage { accounts: Vec::new(), next_cursor: None };
        assert!(accounts(USER, &none, true).into_string().contains("No accounts"));
        assert!(found("5724", &[]).into_string().contains("No transaction has this order number"));
    }
}
