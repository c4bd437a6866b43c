//! Routes of the console.

use actix_web::guard::{Any, Get, Head};
use actix_web::http::header::{CONTENT_SECURITY_POLICY, HeaderName, REFERRER_POLICY, X_FRAME_OPTIONS};
use actix_web::http::{Method, StatusCode};
use actix_web::middleware::{DefaultHeaders, from_fn};
use actix_web::web::{self, ServiceConfig, to};
use actix_web::{HttpResponse, Resource, Route};

use super::addresses::{
    ACCOUNT, ASSET, BATCH, BATCH_CANCELLATION, BATCH_RESULTS, DEAD_LETTER, LIVE_GATE, LIVE_OVERVIEW,
    LIVE_QUEUES, PARTNER, PARTNER_KEY, PARTNER_KEYS, SIGN_IN, SIGN_OUT, Section, TRANSACTION,
};
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
    use Section::{
        Accounts, Anchors, AuditTrail, Batches, Costs, DeadLetters, Gate, OrderNumbers, Overview, Partners, Queues, Scrubber,
    };
    vec![
        (Overview.path(), vec![Get(to(overview::show))]),
        (LIVE_OVERVIEW, vec![Stream(to(overview::live))]),
        (Gate.path(), vec![Get(to(gate::show)), Post(to(gate::change))]),
        (LIVE_GATE, vec![Stream(to(gate::live))]),
        (Queues.path(), vec![Get(to(queues::show))]),
        (LIVE_QUEUES, vec![Stream(to(queues::live))]),
        (Batches.path(), vec![Get(to(batches::list))]),
        (BATCH.route(), vec![Get(to(batches::show))]),
        (BATCH_RESULTS.route(), vec![Get(to(batches::results))]),
        (BATCH_CANCELLATION.route(), vec![Post(to(batches::cancel))]),
        (DeadLetters.path(), vec![Get(to(dead_letters::list)), Post(to(dead_letters::decide_all))]),
        (DEAD_LETTER.route(), vec![Get(to(dead_letters::show)), Post(to(dead_letters::decide))]),
        (Accounts.path(), vec![Get(to(accounts::find))]),
        (ACCOUNT.route(), vec![Get(to(accounts::show))]),
        (TRANSACTION.route(), vec![Get(to(accounts::transaction))]),
        (Partners.path(), vec![Get(to(partners::list))]),
        (PARTNER.route(), vec![Get(to(partners::show)), Post(to(partners::change))]),
        (PARTNER_KEYS.route(), vec![Post(to(partners::add_key))]),
        (PARTNER_KEY.route(), vec![Post(to(partners::revoke_key))]),
        (OrderNumbers.path(), vec![Get(to(order_numbers::show))]),
        (Scrubber.path(), vec![Get(to(scrubber::show))]),
        (Anchors.path(), vec![Get(to(anchors::list))]),
        (AuditTrail.path(), vec![Get(to(audit_trail::list))]),
        (Costs.path(), vec![Get(to(costs::show))]),
        (SIGN_IN, vec![Get(to(sign_in::show)), Post(to(sign_in::sign_in))]),
        (SIGN_OUT, vec![Post(to(sign_in::sign_out))]),
        (ASSET.route(), vec![Get(to(assets::asset))]),
    ]
}

/// Returns the templates of all paths, and whether each accepts a form.
pub fn paths() -> Vec<(&'static str, bool)> {
    let has_form = |answers: &[Answers]| answers.iter().any(|answers| matches!(answers, Answers::Post(_)));
    table().iter().map(|(path, answers)| (*path, has_form(answers))).collect()
}

/// Registers the routes. The application must have a [`super::context::Console`] and a [`super::local_api::LocalApi`].
pub fn configure(config: &mut ServiceConfig) {
    let policies = DefaultHeaders::new()
        .add((CONTENT_SECURITY_POLICY, POLICY))
        .add((X_FRAME_OPTIONS, "DENY"))
        .add((REFERRER_POLICY, "same-origin"))
        .add((OPENER_POLICY, "same-origin"));
    let scope = table().into_iter().fold(web::scope(CONSOLE), |scope, (path, answers)| {
        let path = path.strip_prefix(CONSOLE).unwrap_or(path);
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
