//! Sign-in with an API key, and sign-out.

use std::time::Duration;

use actix_web::http::{StatusCode, header};
use actix_web::web::Payload;
use actix_web::{HttpRequest, HttpResponse};
use maud::{Markup, html};
use postonce_schemas::json::Key;
use postonce_shared::access::client_network::client_network;
use postonce_shared::ports::world::WorldExt as _;

use super::act::Act;
use super::addresses::{SIGN_IN, is_page_of_console};
use super::context::is_encrypted;
use super::html::components::{Tone, notice};
use super::html::forms::{Field, TextKind, submit, text_input};
use super::local_api::Call;
use super::page_error::{PageError, answer, keys, parts, unanswered, without_session};
use super::session::Session;
use super::values::{FormLimits, Values};
use super::visitor::Visitor;
use crate::access::authentication::{CONSOLE, KEY};
use crate::access::client_address::client_address;
use crate::access::console_request::{SessionKey, ToConsole};
use crate::api::translate::limits;

/// Maximum size of the form, in bytes: a return address and a key.
const BYTES_MAX: usize = 1024;
const TIME_MAX: Duration = Duration::from_secs(3);

/// Shows the sign-in page.
pub async fn show(request: HttpRequest) -> HttpResponse {
    let query = Values::of_query(request.query_string());
    let note = query.given("expired").map(|_| {
        notice(
            Tone::Notice,
            "The session has ended",
            html! { "It was not used for a while, or its key is not valid any more. Sign in again." },
        )
    });
    answer(&mut HttpResponse::Ok(), form(note, query.text("next")).into_string())
}

/// Starts a session if the key is valid.
///
/// # Errors
/// [`PageError`] when the form cannot be received or the API does not answer. A refusal is shown on the page.
pub async fn sign_in(request: HttpRequest, payload: Payload) -> Result<HttpResponse, PageError> {
    let (console, api) = parts(&request)?;
    let form_of = |status, title: &str, detail: &str, next: &str| {
        let note = notice(Tone::Bad, title, html! { (detail) });
        Ok(answer(&mut HttpResponse::build(status), form(Some(note), next).into_string()))
    };
    // No other limit applies until the key is known. Slow clients must not prevent others from signing in.
    let address = client_address(&request).map(client_network);
    let time_max = limits(&request).body_timeout.min(TIME_MAX);
    let mut payload = payload.into_inner();
    let reading = Values::of_body(&request, &mut payload, FormLimits { bytes_max: BYTES_MAX, time_max });
    let Some(values) = console.shares.sign_ins.take(&address).hold(reading).await else {
        let detail = "The form took long, and others arrived. Try again.";
        return Err(PageError::plain(StatusCode::REQUEST_TIMEOUT, "The form took too long", detail));
    };
    let values = values?;
    let (key, next) = (values.text("key"), values.text("next"));
    if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
        let detail = "An API key has no spaces, and only visible ASCII characters.";
        return form_of(StatusCode::UNPROCESSABLE_ENTITY, "Enter an API key", detail, next);
    }
    let secret = keys(&console)?;
    let found = api.call(&request, key, Call::get(KEY)).await.map_err(|fault| unanswered(&fault))?;
    if !found.status.is_success() {
        let problem = found.problem();
        return form_of(found.status, &problem.title, &problem.detail, next);
    }
    let found: Key = serde_json::from_slice(&found.body).map_err(|fault| unanswered(&fault))?;
    ToConsole::note(&request, |known| known.key = Some(SessionKey::of(&found)));
    let session = Session::begin(key, console.world.now(), console.world.uuid());
    let next = if is_page_of_console(next) { next } else { CONSOLE };
    let mut response = HttpResponse::SeeOther();
    response.cookie(session.cookie(&secret, is_encrypted(&request))).insert_header((header::LOCATION, next));
    Ok(answer(&mut response, String::new()))
}

/// Removes the session from this browser.
pub async fn sign_out(act: Act) -> HttpResponse {
    let mut response = HttpResponse::SeeOther();
    response.cookie(Visitor::removal(&act.visitor)).insert_header((header::LOCATION, SIGN_IN));
    answer(&mut response, String::new())
}

fn form(note: Option<Markup>, next: &str) -> Markup {
    let next = Some(next).filter(|next| is_page_of_console(next)).unwrap_or_default();
    let key = Field::new("key", "API key").required().hint("It begins with po_.");
    without_session(
        "Sign in",
        html! {
            section.card.sign-in {
                .card-body {
                p { "The console shows and does what your API key may." }
                @if let Some(note) = note { (note) }
                form.form method="post" action=(SIGN_IN) {
                    input type="hidden" name="next" value=(next);
                    // Password managers store the key under this user name.
                    input type="text" name="username" value="API key" autocomplete="username" hidden;
                    (text_input(&key, TextKind::Secret, ""))
                    (submit("Sign in", Tone::Notice))
                }
                }
            }
        },
    )
}
