//! Routes of the console.

use actix_web::guard::{Any, Get, Head};
use actix_web::http::header::{CONTENT_SECURITY_POLICY, HeaderName, REFERRER_POLICY, X_FRAME_OPTIONS};
use actix_web::http::{Method, StatusCode};
use actix_web::middleware::{DefaultHeaders, from_fn};
use actix_web::web::{self, ServiceConfig, to};
use actix_web::{HttpResponse, Resource, Route};

use super::html::shell::POLICY;
use super::other_sites::refuse_other_sites;
use super::page_error::PageError;
use super::pages::{
    accounts, anchors, audit_trail, batches, costs, dead_letters, gate, order_numbers, overview, partners,
    queues, scrubber,
};
use super::visitor::Visitor;
use super::{assets, sign_in};
use crate::access::authentication::CONSOLE;
use crate::api::panics::answer_panics;

/// Header that prevents other sites from holding a reference to a console window (HTML Living Standard, section 7.1.3).
const OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");

/// Route of a path, by kind.
enum Answers {
    /// A page or a file, for GET and HEAD.
    Get(Route),
    /// An event stream. It accepts no HEAD requests, because its response does not end.
    Stream(Route),
    /// A submitted form.
    Post(Route),
}

#[rustfmt::skip]
fn table() -> Vec<(&'static str, Vec<Answers>)> {
    use Answers::{Get, Post, Stream};
    vec![
        ("", vec![Get(to(overview::show))]),
        ("/live/overview", vec![Stream(to(overview::live))]),
        ("/gate", vec![Get(to(gate::show)), Post(to(gate::change))]),
        ("/live/gate", vec![Stream(to(gate::live))]),
        ("/queues", vec![Get(to(queues::show))]),
        ("/live/queues", vec![Stream(to(queues::live))]),
        ("/batches", vec![Get(to(batches::list))]),
        ("/batches/{partner_id}/{batch_id}", vec![Get(to(batches::show))]),
        ("/batches/{partner_id}/{batch_id}/results", vec![Get(to(batches::results))]),
        ("/batches/{partner_id}/{batch_id}/cancel", vec![Post(to(batches::cancel))]),
        ("/dead-letters", vec![Get(to(dead_letters::list)), Post(to(dead_letters::decide_all))]),
        ("/dead-letters/{id}", vec![Get(to(dead_letters::show)), Post(to(dead_letters::decide))]),
        ("/accounts", vec![Get(to(accounts::find))]),
        ("/accounts/{user_id}/{account_id}", vec![Get(to(accounts::show))]),
        ("/accounts/{user_id}/{account_id}/{message_id}", vec![Get(to(accounts::transaction))]),
        ("/partners", vec![Get(to(partners::list))]),
        ("/partners/{partner_id}", vec![Get(to(partners::show)), Post(to(partners::change))]),
        ("/partners/{partner_id}/keys", vec![Post(to(partners::add_key))]),
        ("/partners/{partner_id}/keys/{key_id}", vec![Post(to(partners::revoke_key))]),
        ("/order-numbers", vec![Get(to(order_numbers::show))]),
        ("/scrubber", vec![Get(to(scrubber::show))]),
        ("/anchors", vec![Get(to(anchors::list))]),
        ("/audit", vec![Get(to(audit_trail::list))]),
        ("/costs", vec![Get(to(costs::show))]),
        ("/sign-in", vec![Get(to(sign_in::show)), Post(to(sign_in::sign_in))]),
        ("/sign-out", vec![Post(to(sign_in::sign_out))]),
        ("/assets/{name}", vec![Get(to(assets::asset))]),
    ]
}

/// Returns the templates of all paths, and whether each accepts a form.
pub fn paths() -> Vec<(String, bool)> {
    let has_form = |answers: &[Answers]| answers.iter().any(|answers| matches!(answers, Answers::Post(_)));
    table().iter().map(|(path, answers)| (format!("{CONSOLE}{path}"), has_form(answers))).collect()
}

/// Registers the routes. The application must have a [`super::context::Console`] and a [`super::local_api::LocalApi`].
pub fn configure(config: &mut ServiceConfig) {
    let policies = DefaultHeaders::new()
        .add((CONTENT_SECURITY_POLICY, POLICY))
        .add((X_FRAME_OPTIONS, "DENY"))
        .add((REFERRER_POLICY, "same-origin"))
        .add((OPENER_POLICY, "same-origin"));
    let scope = table().into_iter().fold(web::scope(CONSOLE), |scope, (path, answers)| {
        // A trailing slash leads to the same page. The first pattern names the route.
        let resource = web::resource([path.to_owned(), format!("{path}/")]);
        let resource = answers.into_iter().fold(resource, add);
        // Wraps each resource and not the scope, because around the scope the request would not be matched to a route yet.
        scope.service(resource.wrap(from_fn(refuse_other_sites)).wrap(from_fn(answer_panics)))
    });
    config.service(scope.default_service(to(unknown)).wrap(policies));
}

fn add(resource: Resource, answers: Answers) -> Resource {
    resource.route(match answers {
        Answers::Get(route) => route.guard(Any(Get()).or(Head())),
        Answers::Stream(route) => route.method(Method::GET),
        Answers::Post(route) => route.method(Method::POST),
    })
}

async fn unknown(visitor: Visitor) -> Result<HttpResponse, PageError> {
    let detail = "The console has no page at this address.";
    Err(visitor.refuse(StatusCode::NOT_FOUND, "No such page", detail))
}
