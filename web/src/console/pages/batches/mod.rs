//! Batches: the list, a batch with its results, and its cancellation.

mod detail;
mod list;
mod phase;

use actix_web::HttpResponse;
use actix_web::http::{Method, StatusCode};
use postonce_schemas::json::{Batch, BatchPage, Gate, PartnerBatch, PartnerBatchPage};
use serde::de::IgnoredAny;

use self::detail::PageState;
use self::list::Search;
use super::overview::is_held;
use crate::access::scopes::Scope;
use crate::console::act::Act;
use crate::console::addresses::{BATCH, Section, encoded};
use crate::console::html::forms::TICKED;
use crate::console::page_error::PageError;
use crate::console::visitor::Visitor;

/// Media type of downloaded results.
const CSV: &str = "text/csv";

/// Lists the open batches of all partners, or all batches of one. Redirects to a batch that the query identifies.
///
/// # Errors
/// [`PageError`] with the problem that the API answers, and when the key may not read any batches.
pub async fn list(visitor: Visitor) -> Result<HttpResponse, PageError> {
    let viewer = visitor.viewer();
    if !viewer.may_read(Section::Batches) {
        let detail = "Batches of all partners are shown to keys with the scope operate, those of the own partner also to keys \
                      with the scope batch.";
        return Err(visitor.refuse(StatusCode::FORBIDDEN, "Your key may not read batches", detail));
    }
    let search = Search::of(visitor.query(), viewer);
    if search.is_wrong() {
        return Ok(visitor.page("Batches", search.form(viewer)));
    }
    if let Some(batch) = &search.batch {
        let partner = search.partner.as_deref().unwrap_or(&viewer.partner);
        return Ok(visitor.see_other(&BATCH.of([partner, batch])));
    }
    let page: PartnerBatchPage = if viewer.may(Scope::Operate) {
        visitor.listing(&search.added_to("/v1/admin/batches?limit=50")).await?
    } else {
        of_partner(&viewer.partner, visitor.listing(&search.added_to("/v1/batches?limit=50")).await?)
    };
    Ok(visitor.page("Batches", list::body(&page, &search, visitor.is_first_page(), viewer)))
}

fn of_partner(partner: &str, BatchPage { batches, next_cursor }: BatchPage) -> PartnerBatchPage {
    let batches = batches.into_iter().map(|batch| PartnerBatch { partner_id: partner.to_owned(), batch });
    PartnerBatchPage { batches: batches.collect(), next_cursor }
}

/// Shows a batch. The query can request the confirmation of its cancellation.
///
/// # Errors
/// [`PageError`] with the problem that the API answers.
pub async fn show(visitor: Visitor) -> Result<HttpResponse, PageError> {
    let found: PartnerBatch = match Route::of(&visitor, Scope::Operate)? {
        Route::All(path) => visitor.get(&path).await?,
        Route::Own(path) => {
            let batch: Batch = visitor.get(&path).await?;
            PartnerBatch { partner_id: visitor.viewer().partner.clone(), batch }
        }
    };
    let (query, viewer) = (visitor.query(), visitor.viewer());
    // The gate is read only if needed, because that costs a storage operation.
    let waits = !found.batch.phase.is_final();
    let state = PageState {
        is_gate_held: waits && viewer.may(Scope::Operate) && is_gate_held(&visitor).await?,
        asks: query.text("confirm") == "cancel",
        done: query.text("done"),
    };
    let body = detail::body(&found, viewer, state);
    Ok(visitor.page("Batch", body))
}

/// Returns whether the gate is held; `false` if the API refuses or cannot read it.
///
/// # Errors
/// [`PageError`] when the API does not answer.
async fn is_gate_held(visitor: &Visitor) -> Result<bool, PageError> {
    let gate = visitor.attempt::<Gate>((Method::GET, "/v1/admin/gate"), None).await?;
    Ok(gate.is_ok_and(|gate| is_held(&gate)))
}

/// Downloads the results of a completed batch.
///
/// # Errors
/// [`PageError`] with the problem that the API answers.
pub async fn results(visitor: Visitor) -> Result<HttpResponse, PageError> {
    let (Route::All(path) | Route::Own(path)) = Route::of(&visitor, Scope::Admin)?;
    // The API answers successfully only for a well-formed id, which a header can contain.
    let file_name = format!("batch-{}.csv", visitor.path("batch_id"));
    visitor.download(&format!("{path}/results"), CSV, &file_name).await
}

/// Cancels a batch of which no item is posted.
///
/// # Errors
/// [`PageError`] when the confirmation is missing, or the API refuses.
pub async fn cancel(act: Act) -> Result<HttpResponse, PageError> {
    let visitor = &act.visitor;
    act.check_confirmed(TICKED)?;
    let (Route::All(path) | Route::Own(path)) = Route::of(visitor, Scope::Operate)?;
    let _cancelled: IgnoredAny = visitor.send((Method::DELETE, &path), None).await?;
    Ok(act.done(&BATCH.of([visitor.path("partner_id"), visitor.path("batch_id")]), "cancelled"))
}

/// Path of a batch in the API.
enum Route {
    /// The path for operators, who reach the batches of all partners.
    All(String),
    /// The path for a partner, which reaches its own batches.
    Own(String),
}

impl Route {
    /// Returns the API path of the batch in the page's path. The scope `all` extends to the batches of all partners.
    ///
    /// # Errors
    /// [`PageError`] when the key may not act on batches of that partner.
    fn of(visitor: &Visitor, all: Scope) -> Result<Self, PageError> {
        let (partner, batch) = (visitor.path("partner_id"), encoded(visitor.path("batch_id")));
        let viewer = visitor.viewer();
        if viewer.may(all) {
            return Ok(Self::All(format!("/v1/admin/batches/{}/{batch}", encoded(partner))));
        }
        if partner == viewer.partner && viewer.may(Scope::Batch) {
            return Ok(Self::Own(format!("/v1/batches/{batch}")));
        }
        let detail = format!(
            "For batches of all partners this needs a key with the scope {all}; for batches of the own partner, the scope batch \
             is enough."
        );
        Err(visitor.refuse(StatusCode::FORBIDDEN, "Your key may not do this", &detail))
    }
}
