//! Span of a request (OpenTelemetry conventions for HTTP servers), without names, references, keys or queries.

use std::sync::Arc;

use actix_web::HttpMessage as _;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::Version;
use actix_web::web::Data;
use postonce_shared::domain::partner::Partner;
use postonce_shared::ports::spans::SpanKind;
use postonce_shared::tracer::{Operation, Tracer};

use crate::access::signatures::Verifier;
use crate::api::payment_log::NotedPayment;
use crate::edge::request_ids::RequestIds;
use crate::formats::soap_names;

const API: &str = "/v1/";

/// Starts the span of a request to the API. Probes, scrapes, documents and calls of other processes are not traced.
pub fn begin<'t>(
    tracer: &'t Tracer,
    (request, method, route): (&ServiceRequest, Option<&'static str>, &str),
    ids: &RequestIds,
) -> Option<Operation<'t>> {
    if !route.starts_with(API) && !soap_names::is_endpoint(route) {
        return None;
    }
    // The conventions require these values for an unknown method.
    let (method, verb) = method.map_or(("_OTHER", "HTTP"), |method| (method, method));
    let name = format_args!("{verb} {route}");
    let mut operation = tracer.begin(name, SpanKind::Server, ids.place(), ids.parent().cloned())?;
    operation.set("http.request.method", method);
    operation.set("http.route", route.to_owned());
    let is_tls = request.app_data::<Data<Verifier>>().is_some_and(|verifier| verifier.is_tls);
    operation.set("url.scheme", if is_tls { "https" } else { "http" });
    let version = match request.version() {
        Version::HTTP_2 => "2",
        Version::HTTP_10 => "1.0",
        _ => "1.1",
    };
    operation.set("network.protocol.version", version);
    operation.set("postonce.request_id", ids.request_id().to_owned());
    Some(operation)
}

/// Sets the attributes of the response, and ends the span.
pub fn end<B>(mut operation: Operation<'_>, response: &ServiceResponse<B>) {
    let (request, status) = (response.request(), response.status());
    // A path that was not accepted can contain arbitrary text instead of ids.
    let is_valid = !status.is_client_error() && !status.is_server_error();
    if is_valid {
        operation.set("url.path", request.path().to_owned());
    }
    operation.set("http.response.status_code", usize::from(status.as_u16()));
    let extensions = request.extensions();
    if let Some(partner) = extensions.get::<Arc<Partner>>() {
        operation.set("postonce.partner_id", partner.id.to_string());
    }
    if let Some(payment) = extensions.get::<NotedPayment>() {
        operation.set("postonce.message_id", payment.message_id.clone());
        if let Some(status) = payment.status {
            operation.set("postonce.transaction.status", status);
        }
        if let Some(number) = &payment.order_number {
            operation.set("postonce.order_number", number.clone());
        }
    }
    operation.end(status.is_server_error().then(|| status.as_str().to_owned().into()));
}
