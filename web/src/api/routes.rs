//! The table of all routes.

use actix_web::guard::{Any, Get, Head};
use actix_web::http::{Method, header};
use actix_web::middleware::from_fn;
use actix_web::web::{self, ServiceConfig, to};
use actix_web::{HttpRequest, HttpResponse, Route};

use crate::api::endpoints::endpoints;
use crate::api::handlers::{self, documents, greeting};
use crate::api::panics::answer_panics;
use crate::api::soap::contract::Contract;
use crate::api::surface::Surface;
use crate::error::{ApiError, Code};

/// Templates of paths that are not in the OpenAPI document, with their methods and handlers.
fn undocumented() -> Vec<(&'static str, Method, Route)> {
    let soap = Contract::ALL.into_iter().flat_map(|contract| {
        let path = contract.path();
        [(path, Method::POST, to(handlers::soap::call)), (path, Method::GET, to(handlers::soap::wsdl))]
    });
    let others = [
        ("/xsd/{name}", Method::GET, to(handlers::soap::schema)),
        ("/", Method::GET, to(greeting::greeting)),
        ("/openapi.json", Method::GET, to(documents::openapi)),
        ("/openapi-strict.json", Method::GET, to(documents::openapi_strict)),
        ("/docs", Method::GET, to(documents::docs)),
        ("/docs/", Method::GET, to(documents::docs)),
        ("/docs/{asset}", Method::GET, to(documents::asset)),
    ];
    soap.chain(others).collect()
}

/// A path template with its methods and handlers.
type Row = (String, Vec<(Method, Route)>);

/// Returns all paths in the order in which they are matched.
fn table() -> Vec<Row> {
    let documented = endpoints().into_iter().map(|it| (it.path, it.method, it.route));
    let others = undocumented().into_iter().map(|(path, method, route)| (path.to_owned(), method, route));
    let mut rows: Vec<Row> = Vec::new();
    for (path, method, route) in documented.chain(others) {
        match rows.iter_mut().find(|(known, _)| *known == path) {
            Some((_, methods)) => methods.push((method, route)),
            None => rows.push((path, vec![(method, route)])),
        }
    }
    rows
}

/// Returns the templates of all paths.
pub fn paths() -> Vec<String> {
    table().into_iter().map(|(path, _)| path).collect()
}

/// Registers all routes of an address. Unknown paths and methods also get a problem document. Routes for other processes of
/// the bank are not part of the API; if they are served at the same address, they must be registered first.
pub fn configure(config: &mut ServiceConfig, surface: Surface) {
    for (path, methods) in table().into_iter().filter(|(path, _)| surface.has(path)) {
        let mut resource = web::resource(path.as_str());
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
