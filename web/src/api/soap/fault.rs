//! Conversion of errors to SOAP faults.

use actix_web::body::BoxBody;
use actix_web::dev::ServiceResponse;
use actix_web::http::{StatusCode, header};
use actix_web::{HttpMessage as _, HttpRequest};
use postonce_shared::messaging::xml::{Attribute, Element, Name};

use super::contract::Contract;
use super::envelope::{self, ReplyTerms};
use super::parts::{FaultKind, Version, named};
use crate::error::ApiError;
use crate::formats::Document;
use crate::formats::table::members_of;
use crate::formats::xml::PROBLEM;
use crate::query;

/// Challenge for clients that authenticate with user name and password.
const CHALLENGE: &str = r#"Basic realm="postonce", charset="UTF-8""#;

/// Converts an error response to a fault.
pub fn respond(response: ServiceResponse<BoxBody>) -> ServiceResponse<BoxBody> {
    let Some(error) = response.response().error().and_then(|error| error.as_error::<ApiError>()) else {
        return response;
    };
    let terms = response.request().extensions().get::<ReplyTerms>().cloned();
    let terms = terms.unwrap_or_else(|| ReplyTerms::of(version_of(response.request())));
    let version = terms.version;
    let contract = Contract::at(query::path(response.request())).unwrap_or(Contract::Current);
    let body = envelope::write(contract, &terms, fault(&terms, error));
    let status = status(contract, &terms, response.status());
    let is_challenge = status == StatusCode::UNAUTHORIZED;
    response.map_body(|head, _| {
        head.status = status;
        let content_type = content_type(version);
        head.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(content_type));
        if is_challenge {
            let challenge = header::HeaderValue::from_static(CHALLENGE);
            head.headers_mut().append(header::WWW_AUTHENTICATE, challenge);
        }
        BoxBody::new(body)
    })
}

/// Returns the content type of a message.
pub const fn content_type(version: Version) -> &'static str {
    match version {
        Version::V11 => "text/xml; charset=utf-8",
        Version::V12 => "application/soap+xml; charset=utf-8",
    }
}

/// Returns the SOAP version of a request from its content type, or 1.1 if it is unknown.
fn version_of(request: &HttpRequest) -> Version {
    let content_type = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let essence = content_type.and_then(|text| text.split(';').next()).unwrap_or_default().trim();
    Version::of_media_type(essence).unwrap_or(Version::V11)
}

/// Returns the status of a fault. 400, 409 and 422 become 500 in SOAP 1.1, which old clients require (Basic Profile 1.1,
/// R1126), and 400 in SOAP 1.2. A version mismatch and a header that is not understood are 500 in both versions (SOAP 1.2,
/// part 2, section 7.5.2.2). Other statuses are kept, because proxies and browsers act on them; but not in the classic contract,
/// whose clients read a fault only at 500, and must learn from it whether to repeat the request.
fn status(contract: Contract, terms: &ReplyTerms, status: StatusCode) -> StatusCode {
    let is_of_content =
        matches!(status, StatusCode::BAD_REQUEST | StatusCode::CONFLICT | StatusCode::UNPROCESSABLE_ENTITY);
    let is_of_access = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
    if contract == Contract::Compat && !is_of_access {
        return StatusCode::INTERNAL_SERVER_ERROR;
    }
    match (terms.version, &terms.fault) {
        (Version::V11 | Version::V12, FaultKind::VersionMismatch | FaultKind::MustUnderstand(_)) => {
            StatusCode::INTERNAL_SERVER_ERROR
        }
        (Version::V11, FaultKind::Other) if is_of_content => StatusCode::INTERNAL_SERVER_ERROR,
        (Version::V12, FaultKind::Other) if is_of_content => StatusCode::BAD_REQUEST,
        (Version::V11 | Version::V12, FaultKind::Other) => status,
    }
}

fn fault(terms: &ReplyTerms, error: &ApiError) -> Element {
    let version = terms.version;
    let problem = error.problem();
    let is_server_error = error.code().published().status.is_server_error();
    let reason = problem.detail.clone();
    let detail = PROBLEM.write(&members_of(&Document::Problem(problem)));
    let soap = |local: &str| named("soap", version.namespace(), local);
    let fault_code = |server, client| match (&terms.fault, is_server_error) {
        (FaultKind::VersionMismatch, _) => "soap:VersionMismatch",
        (FaultKind::MustUnderstand(_), _) => "soap:MustUnderstand",
        (FaultKind::Other, true) => server,
        (FaultKind::Other, false) => client,
    };
    match version {
        Version::V11 => {
            // The child elements of a fault have no namespace (SOAP 1.1, section 4.4).
            let plain = |local: &str| Element::new("", local);
            let fault_code = fault_code("soap:Server", "soap:Client");
            soap("Fault")
                .with(plain("faultcode").with_text(fault_code))
                .with(plain("faultstring").with_text(&reason))
                .with(plain("detail").with(detail))
        }
        Version::V12 => {
            let fault_code = fault_code("soap:Receiver", "soap:Sender");
            let mut text = soap("Text").with_text(&reason);
            let name = Name {
                prefix: "xml".to_owned(),
                namespace: "http://www.w3.org/XML/1998/namespace".to_owned(),
                local: "lang".to_owned(),
            };
            text.attributes.push(Attribute { name, value: "en".to_owned() });
            soap("Fault")
                .with(soap("Code").with(soap("Value").with_text(fault_code)))
                .with(soap("Reason").with(text))
                .with(soap("Detail").with(detail))
        }
    }
}
