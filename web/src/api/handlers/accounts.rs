//! Opening, changing and reading accounts.

use actix_web::http::header;
use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use postonce_schemas::json::{
    Account as WireAccount, AccountPage, ChangeAccountRequest, OpenAccountRequest, Violation,
};
use postonce_shared::domain::account::Account;
use postonce_shared::domain::partner::WithinUser;
use postonce_shared::protocol::accept::Acceptor;

use crate::access::audit;
use crate::access::authentication::Caller;
use crate::access::scopes::{Accounts, Read};
use crate::api::account_service::{AccountService, ChangeOutcome, OpenOutcome};
use crate::api::arguments::{Headers, Path, Query};
use crate::api::negotiate::Reply;
use crate::api::operation_headers::{AccountGetHeaders, AccountPatchHeaders, AccountPutHeaders};
use crate::api::pages::{PageParams, cursor};
use crate::api::paths::{AccountPath, UserPath};
use crate::api::refusals::{ChangingRefusals, ListingRefusals, OpeningRefusals, ReadingRefusals};
use crate::api::translate::{self, InboundDocument};
use crate::api::{respond, views};
use crate::error::{ApiError, Code};

/// Open an account
///
/// The client chooses the ids. Repeating the request returns 200 with the current account. If the terms differ from
/// the current terms of the account, the response is 409. An overdraft limit needs the scope `credit`.
#[utoipa::path(
    put,
    path = "/v1/users/{user_id}/accounts/{account_id}",
    operation_id = "open_account",
    tag = "accounts",
    request_body(content = OpenAccountRequest, content_type = "application/json"),
    responses(
        (status = 201, description = "The account was opened.", body = WireAccount, headers(
            ("Location" = String, description = "Path of the account."),
            ("ETag" = String, description = "Entity tag of the account."),
        )),
        (status = 200, description = "The account existed with these terms.", body = WireAccount, headers(
            ("ETag" = String, description = "Entity tag of the account."),
        )),
        OpeningRefusals
    ),
)]
pub async fn open(
    mut caller: Caller<Accounts>,
    path: Path<AccountPath>,
    conditions: Headers<AccountPutHeaders>,
    request: HttpRequest,
    payload: Payload,
    accounts_service: Data<AccountService>,
    acceptor: Data<Acceptor>,
) -> Result<HttpResponse, ApiError> {
    let reply = Reply::to(&request)?;
    let key = path.value()?.key();
    let document = InboundDocument::read(&mut caller, &request, payload).await?;
    let terms = translate::account_terms(&document)?;
    let key = caller.within(key)?;
    let currency = terms.currency;
    let conditions = conditions.value()?;
    if let Some(expected) = conditions.if_match {
        let present = accounts_service.account(key).await?;
        if !present.as_ref().is_some_and(|account| expected.list_version(account.version)) {
            return Err(another_state(present.as_ref()));
        }
    }
    let opening = caller
        .under_present_rights(&request, async |caller| {
            let service = accounts_service.acting_on(caller.standing());
            service.open(caller.within(key)?, terms.clone(), caller.grant()).await.map_err(ApiError::from)
        })
        .await?;
    if let (OpenOutcome::Same(account) | OpenOutcome::Different(account), Some(unexpected)) =
        (&opening, conditions.if_none_match)
        && unexpected.refuse_version(account.version)
    {
        return Err(another_state(Some(account)));
    }
    let response = respond::opening(opening, reply)?;
    acceptor.remember(key, currency);
    Ok(response)
}

/// Change an account
///
/// Sets the overdraft limit, the status, the holder, or several of them. A frozen or closed account rejects every
/// transaction. It can be opened again. A higher overdraft limit needs the scope `credit`.
#[utoipa::path(
    patch,
    path = "/v1/users/{user_id}/accounts/{account_id}",
    operation_id = "change_account",
    tag = "accounts",
    request_body(content = ChangeAccountRequest, content_type = "application/json"),
    responses(
        (status = 200, description = "The current account.", body = WireAccount, headers(
            ("ETag" = String, description = "Entity tag of the account."),
        )),
        ChangingRefusals
    ),
)]
pub async fn change(
    mut caller: Caller<Accounts>,
    path: Path<AccountPath>,
    condition: Headers<AccountPatchHeaders>,
    request: HttpRequest,
    payload: Payload,
    accounts_service: Data<AccountService>,
) -> Result<HttpResponse, ApiError> {
    let reply = Reply::to(&request)?;
    let key = path.value()?.key();
    let document = InboundDocument::read(&mut caller, &request, payload).await?;
    let change = translate::account_change(&document)?;
    audit::annotate(&request, "changes", change.members());
    let key = caller.within(key)?;
    let expected = condition.value()?.if_match;
    let is_expected = |version| expected.as_ref().is_none_or(|expected| expected.list_version(version));
    let changed = caller
        .under_present_rights(&request, async |caller| {
            let service = accounts_service.acting_on(caller.standing());
            service
                .change(caller.within(key)?, &change, caller.grant(), is_expected)
                .await
                .map_err(ApiError::from)
        })
        .await?;
    match changed {
        ChangeOutcome::Done(account) => Ok(respond::tagged_account(HttpResponse::Ok(), account, reply)),
        ChangeOutcome::Unknown => Err(ApiError::account_unknown()),
        ChangeOutcome::AnotherVersion(account) => Err(another_state(Some(&account))),
        ChangeOutcome::CreditRefused(refusal) => Err(refusal.into()),
        ChangeOutcome::BalanceNotZero(account) => {
            let detail =
                format!("The balance is {}; an account can be closed only at zero.", account.balance);
            Err(ApiError::new(Code::AccountBalanceNotZero, detail))
        }
        ChangeOutcome::LimitInvalid(error) => {
            let violation = Violation { field: "overdraft_limit".to_owned(), message: error.to_string() };
            Err(ApiError::violations(Code::ValidationFailed, vec![violation]))
        }
        ChangeOutcome::Busy => Err(ApiError::new(
            Code::AccountBusy,
            "Concurrent postings changed the account at each attempt. Try again.",
        )),
    }
}

/// Read an account
#[utoipa::path(
    get,
    path = "/v1/users/{user_id}/accounts/{account_id}",
    operation_id = "get_account",
    tag = "accounts",
    responses(
        (status = 200, description = "The current account.", body = WireAccount, headers(
            ("ETag" = String, description = "Entity tag of the account."),
        )),
        (status = 304, description = "The account was not changed.", headers(
            ("ETag" = String, description = "Entity tag of the account."),
        )),
        ReadingRefusals
    ),
)]
pub async fn find(
    caller: Caller<Read>,
    path: Path<AccountPath>,
    condition: Headers<AccountGetHeaders>,
    request: HttpRequest,
    accounts_service: Data<AccountService>,
) -> Result<HttpResponse, ApiError> {
    let reply = Reply::to(&request)?;
    let key = caller.within(path.value()?.key())?;
    let account = accounts_service.account(key).await?.ok_or_else(ApiError::account_unknown)?;
    let tag = respond::account_tag(&account, reply);
    if condition.value()?.if_none_match.is_some_and(|known| known.list_weakly(&tag)) {
        let mut unchanged = HttpResponse::NotModified();
        return Ok(unchanged
            .insert_header((header::ETAG, tag))
            .insert_header((header::VARY, "Accept"))
            .finish());
    }
    Ok(respond::tagged_account(HttpResponse::Ok(), account, reply))
}

/// Error for an account whose version violates a condition of the request.
fn another_state(present: Option<&Account>) -> ApiError {
    let state = present
        .map_or_else(|| "does not exist".to_owned(), |account| format!("has version {}", account.version));
    ApiError::new(Code::PreconditionFailed, format!("The account {state}. Read it again, and decide anew."))
}

/// List the accounts of a user
///
/// Lists the accounts that the partner may access. A user without accounts has an empty list. If the partner may
/// access no account of the user, the response is 404.
#[utoipa::path(
    get,
    path = "/v1/users/{user_id}/accounts",
    operation_id = "list_accounts",
    tag = "accounts",
    responses((status = 200, description = "A page of accounts, by id.", body = AccountPage), ListingRefusals),
)]
pub async fn list(
    mut caller: Caller<Read>,
    path: Path<UserPath>,
    page: Query<PageParams>,
    request: HttpRequest,
    accounts_service: Data<AccountService>,
) -> Result<HttpResponse, ApiError> {
    let reply = Reply::to(&request)?;
    let user = path.value()?.user_id;
    let page = page.value()?;
    let listing = format!("accounts of {user}");
    let after =
        page.position(&listing)?.map(|id| id.parse()).transpose().map_err(|_| ApiError::cursor_invalid())?;
    let _turn = caller.page_turn(&request, page.limit).await?;
    let found = match caller.grant().partner.reach.of_user(user) {
        WithinUser::All => accounts_service.accounts(user, after, page.limit).await?,
        WithinUser::Only(accounts) if accounts.is_empty() => {
            return Err(ApiError::user_unknown().beyond_reach());
        }
        WithinUser::Only(accounts) => {
            accounts_service.named_accounts(user, &accounts, after, page.limit).await?
        }
    };
    let accounts = found.items.into_iter().map(views::account).collect();
    let next_cursor = found.next.map(|next| cursor(&listing, &next));
    caller.confirm(&request).await?;
    Ok(reply.with(HttpResponse::Ok(), AccountPage { accounts, next_cursor }))
}
