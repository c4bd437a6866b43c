//! Accounts: the search, the accounts of a user, an account with its statement, and a transaction with its events.

mod account;
mod search;
mod transaction;

use actix_web::HttpResponse;
use actix_web::http::{Method, StatusCode};
use maud::{Markup, html};
use postonce_schemas::json::{
    Account, AccountPage, FoundTransactions, Problem, RejectReason, Transaction, TransactionPage,
};

use self::account::{Listed, Statement};
use self::search::{Errors, Wanted};
use crate::access::scopes::Scope;
use crate::console::act::Values;
use crate::console::addresses::{cursor_parameter, encoded};
use crate::console::html::components::problem;
use crate::console::html::format;
use crate::console::html::shell::Section;
use crate::console::page_error::PageError;
use crate::console::visitor::Visitor;

const PAGE_LEN: usize = 50;

/// Rights of the session's key to other pages. A page is linked only if the key may read it.
#[derive(Debug, Clone, Copy)]
struct Rights {
    read: bool,
    admin: bool,
    metrics: bool,
    operate: bool,
    partners: bool,
    batches: bool,
}

impl Rights {
    fn of(visitor: &Visitor) -> Self {
        Self {
            read: visitor.may(Scope::Read),
            admin: visitor.may(Scope::Admin),
            metrics: visitor.may(Scope::Metrics),
            operate: visitor.may(Scope::Operate),
            partners: visitor.may(Scope::Partners),
            batches: visitor.may(Scope::Batch),
        }
    }
}

/// Returns the address of the page of an account.
pub fn account_path(user_id: &str, account_id: &str) -> String {
    format!("{}/{}/{}", Section::Accounts.path(), encoded(user_id), encoded(account_id))
}

/// Returns the address of the page of a transaction.
pub fn transaction_path(user_id: &str, account_id: &str, message_id: &str) -> String {
    format!("{}/{}", account_path(user_id, account_id), encoded(message_id))
}

/// Shows the search form, or the accounts of a user. Redirects to an account or a transaction that the query identifies.
///
/// # Errors
/// [`PageError`] when the API does not answer. A refusal is shown above the form.
pub async fn find(visitor: Visitor) -> Result<HttpResponse, PageError> {
    let (values, rights) = (Values::of_query(visitor.request()), Rights::of(&visitor));
    let wanted = match search::wanted(&values, rights) {
        Ok(wanted) => wanted,
        Err(errors) => return Ok(form(&visitor, &values, &errors, html! {})),
    };
    let result = match wanted {
        Wanted::Nothing => html! {},
        Wanted::Account { user, account } => return Ok(visitor.see_other(&account_path(&user, &account))),
        Wanted::Message { user, account, message } => {
            return Ok(visitor.see_other(&transaction_path(&user, &account, &message)));
        }
        Wanted::User(user) => accounts_of(&visitor, &user, values.given("cursor")).await?,
        Wanted::OrderNumber(number) => {
            let path = format!("/v1/admin/transactions?order_number={}", encoded(&number));
            match visitor.attempt::<FoundTransactions>((Method::GET, &path), None).await? {
                Ok(found) => match found.transactions.as_slice() {
                    [only] => {
                        let Transaction { user_id, account_id, message_id, .. } = &only.transaction;
                        return Ok(visitor.see_other(&transaction_path(user_id, account_id, message_id)));
                    }
                    several => search::found(&number, several),
                },
                Err(refusal) => refused(&refusal),
            }
        }
    };
    Ok(form(&visitor, &values, &Errors::default(), result))
}

/// Shows an account with its statement.
///
/// # Errors
/// [`PageError`] with the problem that the API answers. If only the statement cannot be read, the page shows its problem.
pub async fn show(visitor: Visitor) -> Result<HttpResponse, PageError> {
    let values = Values::of_query(visitor.request());
    let listed = Listed::of_code(values.text("status"));
    let path = api_path(&visitor);
    let shown: Account = visitor.get(&path).await?;
    let query = format!("{}{}", listed.query(), cursor_parameter(values.given("cursor")));
    let path = format!("{path}/transactions?limit={PAGE_LEN}&{query}");
    let page = visitor.attempt::<TransactionPage>((Method::GET, &path), None).await?;
    let statement = Statement { listed, page: page.as_ref(), own: visitor.partner() };
    Ok(visitor.page(Section::Accounts, "Account", account::body(&shown, &statement, Rights::of(&visitor))))
}

/// Shows a transaction with its events. With the scope `admin`, shows those of all partners that used the message id.
///
/// # Errors
/// [`PageError`] with the problem that the API answers, and when there is no such transaction.
pub async fn transaction(visitor: Visitor) -> Result<HttpResponse, PageError> {
    let rights = Rights::of(&visitor);
    let message = encoded(visitor.request().match_info().query("message_id"));
    let body = if rights.admin {
        let (user, account) = ids(&visitor);
        let query = format!("message_id={message}&user_id={user}&account_id={account}");
        let found: FoundTransactions = visitor.get(&format!("/v1/admin/transactions?{query}")).await?;
        if found.transactions.is_empty() {
            let detail = "No partner has sent a transaction with this message id for this account. Check all three ids, and \
                          search by order number if you have one.";
            return Err(visitor.refuse(StatusCode::NOT_FOUND, "No such transaction", detail));
        }
        transaction::bodies(&found, rights)
    } else {
        let path = format!("{}/transactions/{message}", api_path(&visitor));
        let own: Transaction = visitor.get(&path).await?;
        transaction::body_of_own(&own, visitor.partner(), rights)
    };
    Ok(visitor.page(Section::Accounts, "Transaction", body))
}

fn form(visitor: &Visitor, values: &Values, errors: &Errors, result: Markup) -> HttpResponse {
    let body = html! { (result) (search::body(values, errors, Rights::of(visitor))) };
    visitor.page(Section::Accounts, "Accounts", body)
}

async fn accounts_of(visitor: &Visitor, user: &str, cursor: Option<&str>) -> Result<Markup, PageError> {
    let path = format!("/v1/users/{}/accounts?limit={PAGE_LEN}{}", encoded(user), cursor_parameter(cursor));
    let found = visitor.attempt::<AccountPage>((Method::GET, &path), None).await?;
    Ok(found.map_or_else(|refusal| refused(&refusal), |page| search::accounts(user, &page)))
}

fn refused(refusal: &Problem) -> Markup {
    let violations = refusal.violations.iter();
    let violations: Vec<_> = violations.map(|it| (it.field.clone(), it.message.clone())).collect();
    let Problem { status, title, detail, request_id, .. } = refusal;
    problem(*status, title, detail, &violations, request_id.as_deref())
}

/// Returns the ids in the path of the page, encoded for a path or a query.
fn ids(visitor: &Visitor) -> (String, String) {
    let path = visitor.request().match_info();
    (encoded(path.query("user_id")), encoded(path.query("account_id")))
}

fn api_path(visitor: &Visitor) -> String {
    let (user, account) = ids(visitor);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_in_addresses_are_encoded() {
        assert_eq!(account_path("a b", "c?d"), "/console/accounts/a%20b/c%3Fd");
        assert_eq!(transaction_path("u", "a", "m&n"), "/console/accounts/u/a/m%26n");
    }
}
