//! The endpoints of the API. The annotation of a handler declares its path and its method, and its arguments say what a request
//! must have. Both the routes and the OpenAPI document are made from them.

use actix_web::http::Method;
use actix_web::web::to;
use actix_web::{Handler, Responder, Route};
use utoipa::openapi::path::{HttpMethod, Operation, PathItem};
use utoipa::openapi::security::SecurityRequirement;
use utoipa::{OpenApi, Path as Annotated};

use crate::api::arguments::Argument;
use crate::api::handlers::{
    accounts, admin, admin_batches, anchors, audit_trail, batches, dead_letters, gate, health, ingest, key,
    overview, partners, submit, transactions,
};

/// Lists the handlers of all endpoints, by module.
macro_rules! endpoints {
    ($($module:ident: $($handler:ident)+;)*) => {
        /// Returns all endpoints, in the order in which their paths are matched.
        pub fn endpoints() -> Vec<Endpoint> {
            pastey::paste! {
                vec![$($(Endpoint::of::<$module::[<__path_ $handler>], _, _>($module::$handler),)+)*]
            }
        }

        #[derive(OpenApi)]
        #[openapi(paths($($($module::$handler),+),*))]
        struct Annotations;
    };
}

// Frequent ones come first.
endpoints! {
    submit: deposit withdrawal;
    accounts: list find open change;
    transactions: statement find;
    batches: submit list find cancel results;
    ingest: ring;
    key: find;
    overview: find;
    admin: queues order_numbers transactions scrubber scale storage_operations;
    gate: find change;
    partners: list find put add_key revoke_key add_signing remove_signing;
    audit_trail: list;
    anchors: list;
    admin_batches: list find cancel results;
    dead_letters: list find discard replay;
    health: livez readyz metrics;
}

/// A handler with its path and method.
pub struct Endpoint {
    /// Template of the path.
    pub path: String,
    /// The method. For GET, HEAD is served, too.
    pub method: Method,
    /// Route to the handler, for every method.
    pub route: Route,
    describe: fn(&mut Operation),
}

impl Endpoint {
    fn of<O: Annotated, H, A>(handler: H) -> Self
    where
        H: Handler<A>,
        H::Output: Responder + 'static,
        A: Argument + 'static,
    {
        let method = match O::methods().first() {
            Some(HttpMethod::Put) => Method::PUT,
            Some(HttpMethod::Post) => Method::POST,
            Some(HttpMethod::Patch) => Method::PATCH,
            Some(HttpMethod::Delete) => Method::DELETE,
            _ => Method::GET,
        };
        Self { path: O::path(), method, route: to(handler), describe: A::describe }
    }

    fn operation_in<'a>(&self, item: &'a mut PathItem) -> Option<&'a mut Operation> {
        let operation = match self.method {
            Method::PUT => &mut item.put,
            Method::POST => &mut item.post,
            Method::PATCH => &mut item.patch,
            Method::DELETE => &mut item.delete,
            _ => &mut item.get,
        };
        operation.as_mut()
    }
}

/// Returns the operations of all endpoints, with their parameters and scopes.
pub fn operations() -> utoipa::openapi::OpenApi {
    let mut document = Annotations::openapi();
    for endpoint in endpoints() {
        let item = document.paths.paths.get_mut(&endpoint.path);
        if let Some(operation) = item.and_then(|item| endpoint.operation_in(item)) {
            // Without a caller among the arguments.
            operation.security = Some(vec![SecurityRequirement::default()]);
            (endpoint.describe)(operation);
        }
    }
    document
}

#[cfg(test)]
mod tests {
    use utoipa::openapi::RefOr;
    use utoipa::openapi::path::ParameterIn;

    use super::*;

    #[test]
    fn each_endpoint_reads_the_parameters_of_its_path() {
        let mut document = operations();
        for endpoint in endpoints() {
            let name = format!("{} {}", endpoint.method, endpoint.path);
            let item = document.paths.paths.get_mut(&endpoint.path).expect(&name);
            let operation = endpoint.operation_in(item).expect(&name);
            let read = operation.parameters.iter().flatten().filter_map(|parameter| match parameter {
                RefOr::T(it) => (it.parameter_in == ParameterIn::Path).then_some(it.name.as_str()),
                RefOr::Ref(_) => None,
            });
            let in_path = endpoint.path.split('/').filter_map(|it| it.strip_prefix('{')?.strip_suffix('}'));
            assert_eq!(read.collect::<Vec<_>>(), in_path.collect::<Vec<_>>(), "{name}");
        }
    }
}
