//! Reads of transactions and statements.

use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use postonce_schemas::json::{Transaction, TransactionPage};
use postonce_shared::domain::decision::Submission;
use postonce_shared::domain::ids::{AccountKey, PartnerId, TransactionKey};
use postonce_shared::domain::transaction::{Outcome, TransactionStatus};
use postonce_shared::ports::ledger::StoredTransaction;

use crate::access::authentication::{Caller, shares};
use crate::access::scopes::Read;
use crate::access::view::View;
use crate::api::account_service::AccountService;
use crate::api::arguments::{Path, Query};
use crate::api::negotiate::Reply;
use crate::api::pages::{PageParams, cursor};
use crate::api::paths::{AccountPath, TransactionPath};
use crate::api::refusals::{StatementRefusals, TransactionRefusals};
use crate::api::statement_page::StatementPage;
use crate::api::statement_query::{Order, StatementParams, StatementQuery};
use crate::api::{payment_log, views};
use crate::error::ApiError;

/// Read a transaction
///
/// Returns the transaction in any status. Message ids belong to a partner: transactions of other partners are not
/// found.
#[utoipa::path(
    get,
    path = "/v1/users/{user_id}/accounts/{account_id}/transactions/{message_id}",
    operation_id = "get_transaction",
    tag = "transactions",
    responses((status = 200, description = "The current state of the transaction.", body = Transaction), TransactionRefusals),
)]
pub async fn find(
    caller: Caller<Read>,
    path: Path<TransactionPath>,
    request: HttpRequest,
    accounts_service: Data<AccountService>,
) -> Result<HttpResponse, ApiError> {
    let reply = Reply::to(&request)?;
    let (account, message) = path.value()?.ids();
    // An account out of reach gives the same response as one that does not exist.
    let account = caller.within(account).map_err(|_| ApiError::transaction_unknown().beyond_reach())?;
    let key = TransactionKey { account, partner: caller.partner().clone(), message };
    let found = accounts_service.transaction(&key).await?;
    payment_log::found(&request, &key, found.as_ref());
    let StoredTransaction { submission, outcome, .. } = found.ok_or_else(ApiError::transaction_unknown)?;
    Ok(reply.with(HttpResponse::Ok(), views::transaction(submission, outcome)))
}

/// Read the statement of an account
///
/// Lists your posted transactions, oldest first, or newest first with `order`. With `status`, lists accepted or rejected
/// transactions by id; rejected ones also in the order of their decisions, with `order=by_decision`. Posted transactions, oldest
/// first, and rejected ones in that order are followed by later ones: repeat the request of the last page to find them.
/// The other parameters select transactions; one must meet all of them.
/// Transactions of other partners are included only for keys with the scope `admin`; these have the `partner_id`. A page can be short, or even
/// empty, before the end. On the last page, `next_cursor` is null.
#[utoipa::path(
    get,
    path = "/v1/users/{user_id}/accounts/{account_id}/transactions",
    operation_id = "get_statement",
    tag = "transactions",
    responses((status = 200, description = "A page of transactions.", body = TransactionPage), StatementRefusals),
)]
pub async fn statement(
    mut caller: Caller<Read>,
    path: Path<AccountPath>,
    query: Query<(PageParams, StatementParams)>,
    request: HttpRequest,
    accounts_service: Data<AccountService>,
) -> Result<HttpResponse, ApiError> {
    let reply = Reply::to(&request)?;
    let account = path.value()?.key();
    let (page, query) = query.value()?;
    let selected = query.name();
    let listing = match caller.view() {
        View::Own(partner) => format!("{} of {account} by {partner}{selected}", query.status.code()),
        View::All => format!("{} of {account}{selected}", query.status.code()),
    };
    let position = page.position(&listing)?;
    let account = caller.within(account)?;
    let turn = caller.page_turn(&request, page.limit).await?;
    let account = caller.within(account)?;
    let threads = &shares(&request)?.page_threads;
    let made = threads.make(async move {
        let (_turn, reader) = (turn, Reader { view: caller.view(), own: caller.partner() });
        let empty = StatementPage::new(reply, page.limit);
        let (filled, next) = match query.status {
            TransactionStatus::Posted => {
                posted(&accounts_service, (account, reader), (&query, position), empty).await?
            }
            TransactionStatus::Accepted | TransactionStatus::Rejected => {
                by_status(&accounts_service, (account, reader), (&query, position), empty).await?
            }
        };
        let next_cursor = next.map(|next| cursor(&listing, &next));
        let transactions = filled.into_transactions();
        Ok::<_, ApiError>((reply.write(TransactionPage { transactions, next_cursor }), caller))
    });
    let (body, mut caller) = made.await??;
    caller.confirm(&request).await?;
    caller.within(account)?;
    Ok(reply.with_body(HttpResponse::Ok(), body))
}

#[derive(Clone, Copy)]
struct Reader<'a> {
    view: View<'a>,
    own: &'a PartnerId,
}

impl Reader<'_> {
    /// Converts a transaction. A reader of the transactions of all partners gets the id of the partner, except for its own.
    fn sees(self, submission: Submission, outcome: Option<Outcome>) -> Transaction {
        let is_own = submission.key.partner == *self.own;
        match self.view {
            View::Own(_) => views::transaction(submission, outcome),
            View::All if is_own => {
                Transaction { partner_id: None, ..views::transaction_of_partner(submission, outcome) }
            }
            View::All => views::transaction_of_partner(submission, outcome),
        }
    }
}

/// Fills a page with posted transactions. Returns the page and the position of the next one.
async fn posted(
    accounts_service: &AccountService,
    (account, reader): (AccountKey, Reader<'_>),
    (query, position): (&StatementQuery, Option<String>),
    mut page: StatementPage,
) -> Result<(StatementPage, Option<String>), ApiError> {
    let sequence = |position: String| position.parse().map_err(|_| ApiError::cursor_invalid());
    let mut position = position.map(sequence).transpose()?;
    loop {
        let found =
            accounts_service.statement((account, reader.view), query, position, page.next_read()).await?;
        let found = found.ok_or_else(ApiError::account_unknown)?;
        let is_empty = found.items.is_empty();
        for entry in found.items {
            let again = match query.order {
                Order::OldestFirst | Order::ByDecision => entry.sequence,
                Order::NewestFirst => entry.sequence.saturating_add(1),
            };
            let (submission, outcome) = views::of_entry(account, entry);
            if !page.add(vec![reader.sees(submission, outcome)]) {
                return Ok((page, Some(again.to_string())));
            }
        }
        match found.next {
            Some(next) if !is_empty && page.next_read() > 0 => position = Some(sequence(next)?),
            next => return Ok((page, next)),
        }
    }
}

/// Fills a page with transactions in a status. Returns the page and the position of the next one.
async fn by_status(
    accounts_service: &AccountService,
    (account, reader): (AccountKey, Reader<'_>),
    (query, mut position): (&StatementQuery, Option<String>),
    mut page: StatementPage,
) -> Result<(StatementPage, Option<String>), ApiError> {
    let mut count = page.next_read();
    loop {
        let found =
            accounts_service.by_status((account, reader.view), query, position.as_deref(), count).await?;
        let found = found.ok_or_else(ApiError::account_unknown)?;
        let stored = found.items.into_iter();
        let transactions: Vec<Transaction> =
            stored.map(|it| reader.sees(it.submission, it.outcome)).collect();
        // Finding more can take long, and a page may be short.
        let is_short = transactions.len() < count;
        // Only the end of a read has a position, so transactions that do not fit are read again for the next page.
        if !page.add(transactions) {
            if !page.is_empty() {
                return Ok((page, position));
            }
            count = count.div_ceil(2);
            continue;
        }
        position = found.next;
        count = page.next_read();
        if is_short || position.is_none() || count == 0 {
            return Ok((page, position));
        }
    }
}
