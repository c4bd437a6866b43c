//! Batches: the list, a batch with its results, and its cancellation.

mod detail;
mod list;
mod viewer;

use actix_web::HttpResponse;
use actix_web::http::{Method, StatusCode};
use postonce_schemas::json::{Batch, BatchPage, Gate, PartnerBatch, PartnerBatchPage};
use serde::de::IgnoredAny;

use self::detail::PageState;
use self::list::Search;
use self::viewer::Viewer;
use super::overview::is_held;
use crate::access::scopes::Scope;
use crate::console::act::{Act, Values};
use crate::console::addresses::encoded;
use crate::console::html::shell::Section;
use crate::console::page_error::PageError;
use crate::console::visitor::Visitor;

const PAGE_LEN: usize = 50;
/// Media type of downloaded results.
const CSV: &str = "text/csv";

/// Returns the address of the page of a batch.
pub fn batch_path(partner_id: &str, batch_id: &str) -> String {
    format!("{}/{}/{}", Section::Batches.path(), encoded(partner_id), encoded(batch_id))
}

/// Lists the open batches of all partners, or all batches of one. Redirects to a batch that the query identifies.
///
/// # Errors
/// [`PageError`] with the problem that the API answers, and when the key may not read any batches.
pub async fn list(visitor: Visitor) -> Result<HttpResponse, PageError> {
    let viewer = Viewer::of(&visitor);
    if !viewer.operates && !viewer.submits {
        let detail = "Batches of all partners are shown to keys with the scope operate, those of the own partner also to keys \
                      with the scope batch.";
        return Err(visitor.refuse(StatusCode::FORBIDDEN, "Your key may not read batches", detail));
    }
    let query = Values::of_query(visitor.request());
    let search = Search::of(&query, viewer);
    if search.is_wrong() {
        return Ok(visitor.page(Section::Batches, "Batches", search.form(viewer)));
    }
    if let Some(batch) = &search.batch {
        let partner = search.partner.as_deref().unwrap_or(viewer.partner);
        return Ok(visitor.see_other(&batch_path(partner, batch)));
    }
    let cursor = query.given("cursor");
    let page: PartnerBatchPage = if viewer.operates {
        visitor.get(&format!("/v1/admin/batches?limit={PAGE_LEN}{}", search.query(cursor))).await?
    } else {
        let page = visitor.get(&format!("/v1/batches?limit={PAGE_LEN}{}", search.query(cursor))).await?;
        of_partner(viewer.partner, page)
    };
    Ok(visitor.page(Section::Batches, "Batches", list::body(&page, &search, viewer)))
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
            PartnerBatch { partner_id: visitor.partner().to_owned(), batch }
        }
    };
    let (query, viewer) = (Values::of_query(visitor.request()), Viewer::of(&visitor));
    // The gate is read only if needed, because that costs a storage operation.
    let waits = !found.batch.phase.is_final();
    let state = PageState {
        is_gate_held: waits && viewer.operates && is_gate_held(&visitor).await?,
        asks: query.text("confirm") == "cancel",
        done: query.text("done"),
    };
    let body = detail::body(&found, viewer, state);
    Ok(visitor.page(Section::Batches, "Batch", body))
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
    let file_name = format!("batch-{}.csv", visitor.request().match_info().query("batch_id"));
    visitor.download(&format!("{path}/results"), CSV, &file_name).await
}

/// Cancels a batch of which no item is posted.
///
/// # Errors
/// [`PageError`] when the confirmation is missing, or the API refuses.
pub async fn cancel(act: Act) -> Result<HttpResponse, PageError> {
    let visitor = &act.visitor;
    if act.form.text("confirm") != "yes" {
        let detail = "The box of the confirmation was not ticked, so nothing was done. Go back and tick it.";
        return Err(visitor.refuse(StatusCode::UNPROCESSABLE_ENTITY, "Not confirmed", detail));
    }
    let (Route::All(path) | Route::Own(path)) = Route::of(visitor, Scope::Operate)?;
    let _cancelled: IgnoredAny = visitor.send((Method::DELETE, &path), None).await?;
    let names = visitor.request().match_info();
    let page = batch_path(names.query("partner_id"), names.query("batch_id"));
    Ok(visitor.see_other(&format!("{page}?done=cancelled")))
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
        let names = visitor.request().match_info();
        let (partner, batch) = (names.query("partner_id"), encoded(names.query("batch_id")));
        if visitor.may(all) {
            return Ok(Self::All(format!("/v1/admin/batches/{}/{batch}", encoded(partner))));
        }
        if partner == visitor.partner() && visitor.may(Scope::Batch) {
            return Ok(Self::Own(format!("/v1/batches/{batch}")));
        }
        let detail = format!(
            "For batches of all partners this needs a key with the scope {all}; for batches of the own partner, the scope batch \
             is enough."
        );
        Err(visitor.refuse(StatusCode::FORBIDDEN, "Your key may not do this", &detail))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_in_addresses_are_one_segment_each() {
        assert_eq!(batch_path("shop", "1c1d"), "/console/batches/shop/1c1d");
        assert_eq!(batch_path("a/b", "c?d"), "/console/batches/a%2Fb/c%3Fd");
    }
}
