//! Partners: the list, a partner with its terms and keys, and the acts on it.

mod detail;
mod keys;
mod list;
mod viewer;

use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::http::{Method, StatusCode};
use postonce_schemas::json::{NewPartnerKey, Partner, PartnerPage};
use serde_json::json;

use self::detail::Question;
use self::keys::{Entered, Wrong};
use self::viewer::Viewer;
use crate::access::scopes::Scope;
use crate::console::act::{Act, CONFIRMED, Values};
use crate::console::addresses::{cursor_parameter, encoded};
use crate::console::html::shell::Section;
use crate::console::page_error::{PageError, unanswered};
use crate::console::visitor::Visitor;

const PAGE_LEN: usize = 100;
const DAY_S: u64 = 86_400;

/// Returns the address of the page of a partner.
pub fn partner_path(partner_id: &str) -> String {
    format!("{}/{}", Section::Partners.path(), encoded(partner_id))
}

/// Lists the partners.
///
/// # Errors
/// [`PageError`] with the problem that the API answers.
pub async fn list(visitor: Visitor) -> Result<HttpResponse, PageError> {
    let query = Values::of_query(visitor.request());
    let cursor = cursor_parameter(query.given("cursor"));
    let page: PartnerPage = visitor.get(&format!("/v1/admin/partners?limit={PAGE_LEN}{cursor}")).await?;
    let is_first = cursor.is_empty();
    Ok(visitor.page(Section::Partners, "Partners", list::body(&page, is_first, viewer(&visitor).now)))
}

/// Shows a partner. The query can request the confirmation of an act.
///
/// # Errors
/// [`PageError`] with the problem that the API answers.
pub async fn show(visitor: Visitor) -> Result<HttpResponse, PageError> {
    let query = Values::of_query(visitor.request());
    let partner: Partner = visitor.get(&api_path(&visitor)).await?;
    let question = Question::of_query(&query, &partner);
    let body = detail::body(&partner, &viewer(&visitor), question.as_ref(), query.text("done"));
    Ok(visitor.page(Section::Partners, &title(&partner), body))
}

/// Suspends or resumes a partner. Its other terms do not change.
///
/// # Errors
/// [`PageError`] when the confirmation is missing, or the API refuses.
pub async fn change(act: Act) -> Result<HttpResponse, PageError> {
    let visitor = &act.visitor;
    let (status, done) = match act.form.text("status") {
        "suspended" => ("suspended", "suspended"),
        "active" => ("active", "resumed"),
        _ => {
            let detail = "The form does not say whether to suspend or to resume the partner.";
            return Err(visitor.refuse(StatusCode::UNPROCESSABLE_ENTITY, "Nothing was done", detail));
        }
    };
    act.check_confirmed(CONFIRMED)?;
    let path = api_path(visitor);
    let (partner, etag): (Partner, _) = visitor.get_tagged(&path).await?;
    let etag = etag.ok_or_else(|| unanswered(&"a partner has no entity tag"))?;
    // The API replaces the reach as a whole. The entity tag ensures that the partner still has the reach that was read.
    let terms = json!({ "reach": partner.reach, "status": status });
    match visitor.attempt_if_match::<Partner>((Method::PUT, &path), Some(&terms), &etag).await? {
        Ok(changed) => Ok(visitor.see_other(&format!("{}?done={done}", partner_path(&changed.partner_id)))),
        Err(problem) if problem.code == "precondition_failed" => {
            let detail = "The partner was changed at the same time, so nothing was done. Open its page again, look at \
                          its terms, and repeat the act.";
            Err(visitor.refuse(StatusCode::CONFLICT, "The partner was changed meanwhile", detail))
        }
        Err(problem) => Err(visitor.refused(&problem)),
    }
}

/// Creates an API key. Only the page in the response contains it.
///
/// # Errors
/// [`PageError`] when the API refuses. Errors in the form are shown in the form.
pub async fn add_key(act: Act) -> Result<HttpResponse, PageError> {
    let visitor = &act.visitor;
    let viewer = viewer(visitor);
    let path = api_path(visitor);
    let entered = Entered::of_form(&act.form);
    let days = match entered.checked() {
        Ok(days) => days,
        Err(wrong) => return form_again(visitor, &entered, &wrong).await,
    };
    let expires_at = days.map(|days| viewer.now.after(Duration::from_secs(days.saturating_mul(DAY_S))));
    let codes: Vec<&str> = entered.scopes.iter().map(|scope| scope.code()).collect();
    let terms = match expires_at {
        Some(at) => json!({ "scopes": codes, "expires_at": at.to_string() }),
        None => json!({ "scopes": codes }),
    };
    let added =
        visitor.attempt::<NewPartnerKey>((Method::POST, &format!("{path}/keys")), Some(&terms)).await?;
    let new = added.map_err(|problem| visitor.refused(&problem))?;
    Ok(visitor.page(Section::Partners, "New API key", keys::new_key(&new)))
}

/// Revokes an API key.
///
/// # Errors
/// [`PageError`] when the confirmation is missing, or the API refuses.
pub async fn revoke_key(act: Act) -> Result<HttpResponse, PageError> {
    act.check_confirmed(CONFIRMED)?;
    let visitor = &act.visitor;
    let key = encoded(visitor.request().match_info().query("key_id"));
    let path = format!("{}/keys/{key}", api_path(visitor));
    let changed: Partner = visitor.send((Method::DELETE, &path), None).await?;
    Ok(visitor.see_other(&format!("{}?done=revoked", partner_path(&changed.partner_id))))
}

/// Shows the page of the partner again, with the submitted values and their errors.
async fn form_again(visitor: &Visitor, entered: &Entered, wrong: &Wrong) -> Result<HttpResponse, PageError> {
    let partner: Partner = visitor.get(&api_path(visitor)).await?;
    let body = detail::form_again(&partner, &viewer(visitor), entered, wrong);
    let mut response = visitor.page(Section::Partners, &title(&partner), body);
    *response.status_mut() = StatusCode::UNPROCESSABLE_ENTITY;
    Ok(response)
}

fn title(partner: &Partner) -> String {
    format!("Partner {}", partner.partner_id)
}

fn api_path(visitor: &Visitor) -> String {
    format!("/v1/admin/partners/{}", encoded(visitor.request().match_info().query("partner_id")))
}

fn viewer(visitor: &Visitor) -> Viewer<'_> {
    Viewer {
        csrf: visitor.form_token(),
        partner: visitor.partner(),
        key_id: visitor.key_id(),
        grants: Scope::ALL
            .iter()
            .copied()
            .filter(|scope| visitor.may(Scope::Admin) || visitor.may(*scope))
            .collect(),
        now: visitor.console().world.now(),
    }
}
