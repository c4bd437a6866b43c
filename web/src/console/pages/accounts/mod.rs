//! Accounts: the search, the accounts of a user, an account with its statement, and a transaction with its events.

mod account;
mod search;
mod transaction;

use actix_web::HttpResponse;
use actix_web::http::{Method, StatusCode};
use maud::{Markup, html};
use postonce_schemas::json::{
    Account, AccountPage, FoundTransactions, RejectReason, Transaction, TransactionPage,
};

use self::account::{Listed, Statement};
use self::search::{Errors, Wanted};
use crate::access::scopes::Scope;
use crate::console::addresses::{ACCOUNT, TRANSACTION, encoded, with_query};
use crate::console::html::components::refusal;
use crate::console::html::format;
use crate::console::page_error::PageError;
use crate::console::visitor::Visitor;

/// Shows the search form, or the accounts of a user. Redirects to an account or a transaction that the query identifies.
///
/// # Errors
/// [`PageError`] when the API does not answer. A refusal is shown above the form.
pub async fn find(visitor: Visitor) -> Result<HttpResponse, PageError> {
    let wanted = match search::wanted(visitor.query(), visitor.viewer()) {
        Ok(wanted) => wanted,
        Err(errors) => return Ok(form(&visitor, &errors, html! {})),
    };
    let result = match wanted {
        Wanted::Nothing => html! {},
        Wanted::Account { user, account } => return Ok(visitor.see_other(&ACCOUNT.of([&user, &account]))),
        Wanted::Message { user, account, message } => {
            return Ok(visitor.see_other(&TRANSACTION.of([&user, &account, &message])));
        }
        Wanted::User(user) => accounts(&visitor, &user).await?,
        Wanted::OrderNumber(number) => {
            let path = format!("/v1/admin/transactions?order_number={}", encoded(&number));
            match visitor.attempt::<FoundTransactions>((Method::GET, &path), None).await? {
                Ok(found) => match found.transactions.as_slice() {
                    [only] => {
                        let Transaction { user_id, account_id, message_id, .. } = &only.transaction;
                        return Ok(visitor.see_other(&TRANSACTION.of([user_id, account_id, message_id])));
                    }
                    several => search::found(&number, several),
                },
                Err(problem) => refusal(&problem),
            }
        }
    };
    Ok(form(&visitor, &Errors::default(), result))
}

/// Shows an account with its statement.
///
/// # Errors
/// [`PageError`] with the problem that the API answers. If only the statement cannot be read, the page shows its problem.
pub async fn show(visitor: Visitor) -> Result<HttpResponse, PageError> {
    let listed = Listed::of_code(visitor.query().text("status"));
    let path = api_path(&visitor);
    let shown: Account = visitor.get(&path).await?;
    let path = format!("{path}/transactions?limit=50&{}", listed.query());
    let page = visitor.attempt_listing::<TransactionPage>(&path).await?;
    let statement = Statement { listed, page: page.as_ref(), is_first: visitor.is_first_page() };
    Ok(visitor.page("Account", account::body(&shown, &statement, visitor.viewer())))
}

/// Shows a transaction with its events. With the scope `admin`, shows those of all partners that used the message id.
///
/// # Errors
/// [`PageError`] with the problem that the API answers, and when there is no such transaction.
pub async fn transaction(visitor: Visitor) -> Result<HttpResponse, PageError> {
    let viewer = visitor.viewer();
    let body = if viewer.may(Scope::Admin) {
        let ids = ["message_id", "user_id", "account_id"].map(|name| (name, Some(visitor.path(name))));
        let found: FoundTransactions = visitor.get(&with_query("/v1/admin/transactions", &ids)).await?;
        if found.transactions.is_empty() {
            let detail = "No partner has sent a transaction with this message id for this account. Check all three ids, and \
                          search by order number if you have one.";
            return Err(visitor.refuse(StatusCode::NOT_FOUND, "No such transaction", detail));
        }
        transaction::bodies(&found, viewer)
    } else {
        let message = encoded(visitor.path("message_id"));
        let own: Transaction = visitor.get(&format!("{}/transactions/{message}", api_path(&visitor))).await?;
        transaction::body_of_own(&own, viewer)
    };
    Ok(visitor.page("Transaction", body))
}

fn form(visitor: &Visitor, errors: &Errors, result: Markup) -> HttpResponse {
    let body = html! { (result) (search::body(visitor.query(), errors, visitor.viewer())) };
    visitor.page("Accounts", body)
}

async fn accounts(visitor: &Visitor, user: &str) -> Result<Markup, PageError> {
    let path = format!("/v1/users/{}/accounts?limit=50", encoded(user));
    Ok(match visitor.attempt_listing::<AccountPage>(&path).await? {
        Ok(page) => search::accounts(user, &page, visitor.is_first_page()),
        Err(problem) => refusal(&problem),
    })
}

fn api_path(visitor: &Visitor) -> String {
    let [user, account] = ["user_id", "account_id"].map(|name| encoded(visitor.path(name)));
    format!("/v1/users/{user}/accounts/{account}")
}

/// Returns the amount of a transaction, with the sign of its effect on the balance.
fn signed_amount(of: &Transaction) -> String {
    let sign = if of.r#type == "withdrawal" { '\u{2212}' } else { '+' };
    format!("{sign}{}", format::decimal(&of.amount))
}

fn reason_in_words(reason: &RejectReason) -> &str {
    match reason {
        RejectReason::InsufficientFunds => {
            "the withdrawal was more than the balance plus the overdraft limit"
        }
        RejectReason::AccountClosed => "the account was closed",
        RejectReason::AccountFrozen => "the account was frozen",
        RejectReason::AccountUnknown => "the account did not exist",
        RejectReason::CurrencyMismatch => "the amount was in another currency than the account",
        RejectReason::AmountOutOfRange => "the balance would have left the supported range",
        RejectReason::Discarded => "an operator discarded its dead letter",
        RejectReason::Other(other) => other,
    }
}
