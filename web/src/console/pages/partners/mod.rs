//! Partners: the list, a partner with its terms and keys, and the acts on it.

mod detail;
mod keys;
mod list;

use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::http::{Method, StatusCode};
use postonce_schemas::json::{NewPartnerKey, Partner, PartnerPage};
use serde_json::json;

use self::detail::Asked;
use self::keys::{Entered, Wrong};
use crate::console::act::Act;
use crate::console::addresses::{PARTNER, encoded};
use crate::console::html::forms::TICKED;
use crate::console::page_error::{PageError, unanswered};
use crate::console::visitor::Visitor;

const DAY_S: u64 = 86_400;

/// Lists the partners.
///
/// # Errors
/// [`PageError`] with the problem that the API answers.
pub async fn list(visitor: Visitor) -> Result<HttpResponse, PageError> {
    let page: PartnerPage = visitor.listing("/v1/admin/partners?limit=100").await?;
    Ok(visitor.page("Partners", list::body(&page, visitor.is_first_page(), visitor.viewer().now)))
}

/// Shows a partner. The query can request the confirmation of an act.
///
/// # Errors
/// [`PageError`] with the problem that the API answers.
pub async fn show(visitor: Visitor) -> Result<HttpResponse, PageError> {
    let partner: Partner = visitor.get(&api_path(&visitor)).await?;
    let (query, viewer) = (visitor.query(), visitor.viewer());
    let asked = Asked::of_query(query, &partner);
    let body = detail::body(&partner, viewer, asked.as_ref(), query.text("done"));
    Ok(visitor.page(&title(&partner), body))
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
            return Err(act.incomplete("The form does not say whether to suspend or to resume the partner."));
        }
    };
    act.check_confirmed(TICKED)?;
    let path = api_path(visitor);
    let (partner, etag): (Partner, _) = visitor.get_tagged(&path).await?;
    let etag = etag.ok_or_else(|| unanswered(&"a partner has no entity tag"))?;
    // The API replaces the reach as a whole. The entity tag ensures that the partner still has the reach that was read.
    let terms = json!({ "reach": partner.reach, "status": status });
    match visitor.attempt_if_match::<Partner>((Method::PUT, &path), Some(&terms), &etag).await? {
        Ok(changed) => Ok(act.done(&PARTNER.of([&changed.partner_id]), done)),
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
    let path = api_path(visitor);
    let entered = Entered::of_form(&act.form);
    let days = match entered.checked() {
        Ok(days) => days,
        Err(wrong) => return form_again(visitor, &entered, &wrong).await,
    };
    let expires_at =
        days.map(|days| visitor.viewer().now.after(Duration::from_secs(days.saturating_mul(DAY_S))));
    let codes: Vec<&str> = entered.scopes.iter().map(|scope| scope.code()).collect();
    let terms = match expires_at {
        Some(at) => json!({ "scopes": codes, "expires_at": at.to_string() }),
        None => json!({ "scopes": codes }),
    };
    let added =
        visitor.attempt::<NewPartnerKey>((Method::POST, &format!("{path}/keys")), Some(&terms)).await?;
    let new = added.map_err(|problem| visitor.refused(&problem))?;
    Ok(visitor.page("New API key", keys::new_key(&new)))
}

/// Revokes an API key.
///
/// # Errors
/// [`PageError`] when the confirmation is missing, or the API refuses.
pub async fn revoke_key(act: Act) -> Result<HttpResponse, PageError> {
    act.check_confirmed(TICKED)?;
    let visitor = &act.visitor;
    let path = format!("{}/keys/{}", api_path(visitor), encoded(visitor.path("key_id")));
    let changed: Partner = visitor.send((Method::DELETE, &path), None).await?;
    Ok(act.done(&PARTNER.of([&changed.partner_id]), "revoked"))
}

/// Shows the page of the partner again, with the submitted values and their errors.
async fn form_again(visitor: &Visitor, entered: &Entered, wrong: &Wrong) -> Result<HttpResponse, PageError> {
    let partner: Partner = visitor.get(&api_path(visitor)).await?;
    let body = detail::form_again(&partner, visitor.viewer(), entered, wrong);
    Ok(visitor.page_again(StatusCode::UNPROCESSABLE_ENTITY, &title(&partner), body))
}

fn title(partner: &Partner) -> String {
    format!("Partner {}", partner.partner_id)
}

fn api_path(visitor: &Visitor) -> String {
    format!("/v1/admin/partners/{}", encoded(visitor.path("partner_id")))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// Returns the partner `shop` with changed members.
    pub fn shop(changes: &Value) -> Partner {
        let mut partner = json!({
            "partner_id": "shop", "status": "active", "reach": { "everything": true }, "signature_required": false,
            "signature_keys": [], "keys": [key("aaaa000011112222", None)],
            "created_at": "2026-11-01T08:00:00.000Z", "changed_at": "2026-11-02T08:00:00.000Z"
        });
        partner.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        serde_json::from_value(partner).unwrap()
    }

    /// Returns a key with this expiry.
    pub fn key(id: &str, expires_at: Option<&str>) -> Value {
        let mut key = json!({
            "key_id": id, "scopes": ["deposit", "read"], "created_at": "2026-11-01T08:00:00.000Z",
            "last_used_at": "2026-11-20T08:00:00.000Z"
        });
        if let Some(at) = expires_at {
            key["expires_at"] = at.into();
        }
        key
    }
}
