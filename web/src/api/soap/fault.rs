//! Refusals as faults.

use actix_web::body::BoxBody;
use actix_web::dev::ServiceResponse;
use actix_web::http::{StatusCode, header};
use actix_web::{HttpMessage as _, HttpRequest};
use postonce_shared::messaging::xml::{Attribute, Element, Name};

use super::envelope::{self, Addressing, Version, named};
use crate::error::{ApiError, Code};
use crate::formats::Document;
use crate::formats::table::members_of;
use crate::formats::xml::PROBLEM;

/// How clients that send a user name and a password are asked for them.
const CHALLENGE: &str = r#"Basic realm="postonce", charset="UTF-8""#;

/// Turns a refusal into the fault that tells it.
pub fn respond(response: ServiceResponse<BoxBody>) -> ServiceResponse<BoxBody> {
    let version = version_of(response.request());
    let Some(error) = response.response().error().and_then(|error| error.as_error::<ApiError>()) else {
        return response;
    };
    let fault = fault(version, error);
    let addressing = response.request().extensions().get::<Addressing>().cloned();
    let body = envelope::write(version, addressing.as_ref(), fault);
    let status = status(version, response.status());
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

/// The content type of a message.
pub const fn content_type(version: Version) -> &'static str {
    match version {
        Version::V11 => "text/xml; charset=utf-8",
        Version::V12 => "application/soap+xml; charset=utf-8",
    }
}

/// The version that the client of a request speaks, as far as that can be told.
fn version_of(request: &HttpRequest) -> Version {
    let content_type = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let essence = content_type.and_then(|text| text.split(';').next()).unwrap_or_default().trim();
    Version::of_media_type(essence).unwrap_or(Version::V11)
}

/// The status of a fault. What HTTP itself, a proxy or a browser acts on stays what it is, and so does
/// what is not there. For the rest, SOAP 1.1 knows 500 only, which old clients insist on (Basic Profile
/// 1.1, R1126), and SOAP 1.2 has 400 for what the sender has to mend (part 2, 7.5.2.2).
fn status(version: Version, status: StatusCode) -> StatusCode {
    let is_of_content =
        matches!(status, StatusCode::BAD_REQUEST | StatusCode::CONFLICT | StatusCode::UNPROCESSABLE_ENTITY);
    match version {
        Version::V11 if is_of_content => StatusCode::INTERNAL_SERVER_ERROR,
        Version::V12 if is_of_content => StatusCode::BAD_REQUEST,
        Version::V11 | Version::V12 => status,
    }
}

fn fault(version: Version, error: &ApiError) -> Element {
    let problem = error.problem();
    let code = error.code();
    let is_ours = code.published().status.is_server_error();
    let told = problem.detail.clone();
    let detail = PROBLEM.write(&members_of(&Document::Problem(problem)));
    let soap = |local: &str| named("soap", version.namespace(), local);
    let who = |ours, theirs| match (code == Code::HeaderNotUnderstood, is_ours) {
        (true, _) => "soap:MustUnderstand",
        (false, true) => ours,
        (false, false) => theirs,
    };
    match version {
        Version::V11 => {
            // The elements of a fault have no namespace (SOAP 1.1, section 4.4).
            let plain = |local: &str| Element::new("", local);
            let who = who("soap:Server", "soap:Client");
            soap("Fault")
                .with(plain("faultcode").with_text(who))
                .with(plain("faultstring").with_text(&told))
                .with(plain("detail").with(detail))
        }
        Version::V12 => {
            let who = who("soap:Receiver", "soap:Sender");
            let mut text = soap("Text").with_text(&told);
            let name = Name {
                prefix: "xml".to_owned(),
                namespace: "http://www.w3.org/XML/1998/namespace".to_owned(),
                local: "lang".to_owned(),
            };
            text.attributes.push(Attribute { name, value: "en".to_owned() });
            soap("Fault")
                .with(soap("Code").with(soap("Value").with_text(who)))
                .with(soap("Reason").with(text))
                .with(soap("Detail").with(detail))
        }
    }
}
