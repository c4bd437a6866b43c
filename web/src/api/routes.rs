//! The table of all routes.

use actix_web::guard::{Any, Get, Head};
use actix_web::http::{Method, header};
use actix_web::middleware::from_fn;
use actix_web::web::{self, ServiceConfig, to};
use actix_web::{HttpRequest, HttpResponse, Route};

use crate::api::handlers::{
    self, accounts, admin, admin_batches, anchors, audit_trail, batches, dead_letters, documents, gate,
    greeting, health, key, overview, partners, submit, transactions,
};
use crate::api::panics::answer_panics;
use crate::api::soap;
use crate::api::surface::Surface;
use crate::error::{ApiError, Code};

/// A path template with its methods and handlers.
type Row = (&'static str, Vec<(Method, Route)>);

#[rustfmt::skip]
fn table() -> Vec<Row> {
    use Method as M;
    vec![
        // Paths are matched in this order, so frequent ones come first.
        ("/v1/users/{user_id}/accounts/{account_id}/deposits", vec![(M::POST, to(submit::deposit))]),
        ("/v1/users/{user_id}/accounts/{account_id}/withdrawals", vec![(M::POST, to(submit::withdrawal))]),
        ("/v1/users/{user_id}/accounts", vec![(M::GET, to(accounts::list))]),
        ("/v1/users/{user_id}/accounts/{account_id}", vec![
            (M::GET, to(accounts::find)),
            (M::PUT, to(accounts::open)),
            (M::PATCH, to(accounts::change)),
        ]),
        ("/v1/users/{user_id}/accounts/{account_id}/transactions", vec![(M::GET, to(transactions::statement))]),
        ("/v1/users/{user_id}/accounts/{account_id}/transactions/{message_id}", vec![
            (M::GET, to(transactions::find)),
        ]),
        ("/v1/batches", vec![(M::POST, to(batches::submit)), (M::GET, to(batches::list))]),
        ("/v1/batches/{batch_id}", vec![(M::GET, to(batches::find)), (M::DELETE, to(batches::cancel))]),
        ("/v1/batches/{batch_id}/results", vec![(M::GET, to(batches::results))]),
        ("/v1/key", vec![(M::GET, to(key::find))]),
        ("/v1/admin/overview", vec![(M::GET, to(overview::find))]),
        ("/v1/admin/queues", vec![(M::GET, to(admin::queues))]),
        ("/v1/admin/gate", vec![(M::GET, to(gate::find)), (M::PUT, to(gate::change))]),
        ("/v1/admin/partners", vec![(M::GET, to(partners::list))]),
        ("/v1/admin/partners/{partner_id}", vec![(M::GET, to(partners::find)), (M::PUT, to(partners::put))]),
        ("/v1/admin/partners/{partner_id}/keys", vec![(M::POST, to(partners::add_key))]),
        ("/v1/admin/partners/{partner_id}/keys/{key_id}", vec![(M::DELETE, to(partners::revoke_key))]),
        ("/v1/admin/partners/{partner_id}/signature-keys", vec![(M::POST, to(partners::add_signing))]),
        ("/v1/admin/partners/{partner_id}/signature-keys/{key_id}", vec![
            (M::DELETE, to(partners::remove_signing)),
        ]),
        ("/v1/admin/order-numbers", vec![(M::GET, to(admin::order_numbers))]),
        ("/v1/admin/transactions", vec![(M::GET, to(admin::transactions))]),
        ("/v1/admin/audit", vec![(M::GET, to(audit_trail::list))]),
        ("/v1/admin/anchors", vec![(M::GET, to(anchors::list))]),
        ("/v1/admin/scrubber", vec![(M::GET, to(admin::scrubber))]),
        ("/v1/admin/scale", vec![(M::GET, to(admin::scale))]),
        ("/v1/admin/storage-operations", vec![(M::GET, to(admin::storage_operations))]),
        ("/v1/admin/batches", vec![(M::GET, to(admin_batches::list))]),
        ("/v1/admin/batches/{partner_id}/{batch_id}", vec![
            (M::GET, to(admin_batches::find)),
            (M::DELETE, to(admin_batches::cancel)),
        ]),
        ("/v1/admin/batches/{partner_id}/{batch_id}/results", vec![(M::GET, to(admin_batches::results))]),
        ("/v1/admin/dead-letters", vec![(M::GET, to(dead_letters::list))]),
        ("/v1/admin/dead-letters/{id}", vec![
            (M::GET, to(dead_letters::find)),
            (M::DELETE, to(dead_letters::discard)),
        ]),
        ("/v1/admin/dead-letters/{id}/replay", vec![(M::POST, to(dead_letters::replay))]),
        (soap::PATH, vec![(M::POST, to(handlers::soap::call)), (M::GET, to(handlers::soap::wsdl))]),
        ("/xsd/{name}", vec![(M::GET, to(handlers::soap::schema))]),
        ("/livez", vec![(M::GET, to(health::livez))]),
        ("/readyz", vec![(M::GET, to(health::readyz))]),
        ("/metrics", vec![(M::GET, to(health::metrics))]),
        ("/", vec![(M::GET, to(greeting::greeting))]),
        ("/openapi.json", vec![(M::GET, to(documents::openapi))]),
        ("/openapi-strict.json", vec![(M::GET, to(documents::openapi_strict))]),
        ("/docs", vec![(M::GET, to(documents::docs))]),
        ("/docs/", vec![(M::GET, to(documents::docs))]),
        ("/docs/{asset}", vec![(M::GET, to(documents::asset))]),
    ]
}

/// Returns the templates of all paths.
pub fn paths() -> Vec<&'static str> {
    table().into_iter().map(|(path, _)| path).collect()
}

/// Registers all routes of an address. Unknown paths and methods also get a problem document. Routes for other processes of
/// the bank are not part of the API; if they are served at the same address, they must be registered first.
pub fn configure(config: &mut ServiceConfig, surface: Surface) {
    for (path, methods) in table().into_iter().filter(|(path, _)| surface.has(path)) {
        let mut resource = web::resource(path);
        let mut allowed = Vec::new();
        for (method, route) in methods {
            allowed.push(method.as_str().to_owned());
            resource = resource.route(if method == Method::GET {
                allowed.push(Method::HEAD.as_str().to_owned());
                route.guard(Any(Get()).or(Head()))
            } else {
                route.method(method)
            });
        }
        let allowed = allowed.join(", ");
        let refuse = to(move || std::future::ready(method_not_allowed(&allowed)));
        config.service(resource.route(refuse).wrap(from_fn(answer_panics)));
    }
    config.default_service(to(not_found));
}

fn method_not_allowed(allowed: &str) -> HttpResponse {
    let error = ApiError::new(Code::MethodNotAllowed, format!("Allowed here: {allowed}."));
    let mut response = HttpResponse::from_error(error);
    if let Ok(value) = allowed.parse() {
        response.headers_mut().insert(header::ALLOW, value);
    }
    response
}

async fn not_found(_: HttpRequest) -> Result<HttpResponse, ApiError> {
    Err(ApiError::new(Code::NotFound, "See /docs for the available paths."))
}
