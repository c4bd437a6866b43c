//! Content negotiation: the formats of request and response, from `Content-Type` and `Accept` (RFC 9110), or from the
//! profile of the partner.

use std::sync::Arc;

use actix_web::body::{BoxBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::header::{self, HeaderMap, HeaderName};
use actix_web::middleware::Next;
use actix_web::{Error, HttpMessage as _, HttpRequest, HttpResponse, HttpResponseBuilder};
use postonce_schemas::json::Problem;
use postonce_shared::domain::partner::Partner;
use postonce_shared::text::Charset;

use crate::api::soap;
use crate::error::{ApiError, Code};
use crate::formats::{Document, FORMATS, Format, GENERIC_XML, named, soap_names};
use crate::headers::{self, X_REQUEST_ID, unquoted};
use crate::query;

/// Returns the format of a body. `profile` is the default format of the partner.
///
/// # Errors
/// [`ApiError`] with status 415 when the format is not supported.
pub fn body_format(
    headers: &HeaderMap,
    profile: Option<&'static dyn Format>,
) -> Result<&'static dyn Format, ApiError> {
    let unsupported = |detail: String| Err(ApiError::new(Code::MediaTypeUnsupported, detail));
    let known = || {
        let own: Vec<&str> = FORMATS.iter().map(|format| format.media_type()).collect();
        format!("{} or {}", own.join(", "), GENERIC_XML.join(", "))
    };
    match utf8_essence(headers)? {
        Some(essence) => format_of(essence, profile)
            .map_or_else(|| unsupported(format!("Send {}; {essence:?} is not supported here.", known())), Ok),
        None => {
            profile.map_or_else(|| unsupported(format!("Send the header Content-Type: {}.", known())), Ok)
        }
    }
}

/// Returns the media type of a body without its parameters, or `None` when the header is missing. Bodies must be
/// uncompressed, and in UTF-8 or its subset US-ASCII.
///
/// # Errors
/// [`ApiError`] with status 415 for another character set, and for a compressed body.
pub fn utf8_essence(headers: &HeaderMap) -> Result<Option<&str>, ApiError> {
    let encoding = headers.get(header::CONTENT_ENCODING).map(|value| value.to_str().unwrap_or_default());
    if let Some(encoding) = encoding.filter(|it| !it.eq_ignore_ascii_case("identity")) {
        let detail = format!("The body must not be compressed, but its encoding is {encoding:?}.");
        return Err(ApiError::new(Code::MediaTypeUnsupported, detail));
    }
    utf8_media_type(headers)
}

/// Like [`utf8_essence`], for a body that may be compressed.
///
/// # Errors
/// [`ApiError`] with status 415 for another character set.
pub fn utf8_media_type(headers: &HeaderMap) -> Result<Option<&str>, ApiError> {
    charset(headers)?;
    Ok(header_text(headers, header::CONTENT_TYPE).map(|content_type| MediaType::of(content_type).essence))
}

/// Returns the character set of a body. The default is UTF-8.
///
/// # Errors
/// [`ApiError`] with status 415 for another one, if several are named, and if the header cannot be read.
pub fn charset(headers: &HeaderMap) -> Result<Charset, ApiError> {
    let Some(content_type) = headers.get(header::CONTENT_TYPE) else { return Ok(Charset::Utf8) };
    let content_type = content_type.to_str().map_err(|_| {
        ApiError::new(Code::MediaTypeUnsupported, "The header Content-Type must be visible ASCII.")
    })?;
    let mut found = Charset::Utf8;
    for (place, label) in MediaType::of(content_type).parameters_named("charset").enumerate() {
        let named = Charset::named(label);
        if place > 0 && named != Some(found) {
            return Err(ApiError::new(
                Code::MediaTypeUnsupported,
                "Send one charset in the header Content-Type.",
            ));
        }
        found = named.ok_or_else(|| {
            let detail = format!("The body must be in UTF-8 or US-ASCII, but its charset is {label:?}.");
            ApiError::new(Code::MediaTypeUnsupported, detail)
        })?;
    }
    Ok(found)
}

/// Returns a parameter of the media type of a body, without quotes.
pub fn media_type_parameter<'a>(headers: &'a HeaderMap, wanted: &str) -> Option<&'a str> {
    MediaType::of(header_text(headers, header::CONTENT_TYPE)?).parameter(wanted)
}

/// Checks that a body is JSON, the only format of the admin API.
///
/// # Errors
/// [`ApiError`] with status 415 for another format.
pub fn only_json(format: &dyn Format) -> Result<(), ApiError> {
    if format.is_xml() {
        return Err(ApiError::new(
            Code::MediaTypeUnsupported,
            "Send application/json; no other format is supported here.",
        ));
    }
    Ok(())
}

/// Negotiated format of a response.
#[derive(Debug, Clone, Copy)]
pub struct Reply {
    format: &'static dyn Format,
    /// The media type in the response header.
    media_type: &'static str,
}

impl Reply {
    /// Selects the accepted format with the highest weight. Among equal weights, the format of the request comes first.
    ///
    /// # Errors
    /// [`ApiError`] with status 406 when no accepted format is available.
    pub fn to(request: &HttpRequest) -> Result<Self, ApiError> {
        let default = Self::default_for(request);
        let Some(accepted) = Accepted::of(request.headers()) else { return Ok(default) };
        accepted.best(default, profile(request)).ok_or_else(|| {
            let own: Vec<&str> = FORMATS.iter().map(|format| format.media_type()).collect();
            ApiError::new(Code::NotAcceptable, format!("Accept one of {}.", own.join(", ")))
        })
    }

    /// Like [`Self::to`], for errors, which are sent even if no accepted format is available.
    fn to_refused(request: &HttpRequest) -> Self {
        let default = Self::default_for(request);
        let accepted = Accepted::of(request.headers());
        accepted.and_then(|accepted| accepted.best(default, profile(request))).unwrap_or(default)
    }

    /// Returns the format for a request without `Accept`: the format of the body, else of the partner, else JSON.
    fn default_for(request: &HttpRequest) -> Self {
        let profile = profile(request);
        let sent = header_text(request.headers(), header::CONTENT_TYPE).map(|it| MediaType::of(it).essence);
        let of_body = sent.and_then(|essence| {
            let format = format_of(essence, profile)?;
            let generic = GENERIC_XML.iter().find(|it| it.eq_ignore_ascii_case(essence));
            Some(Self { format, media_type: generic.copied().unwrap_or(format.media_type()) })
        });
        let own = |format: &'static dyn Format| Self { format, media_type: format.media_type() };
        of_body.or_else(|| profile.map(own)).unwrap_or_else(|| own(&crate::formats::json::Json))
    }

    /// Returns the name of the format.
    pub fn format_name(self) -> &'static str {
        self.format.name()
    }

    /// Returns the size of a document in the format, in bytes.
    pub fn size_of(self, document: &(impl Clone + Into<Document>)) -> usize {
        self.format.write(&document.clone().into()).len()
    }

    /// Writes a document. The result has no spare capacity, because it is kept until the client has received it.
    pub fn write(self, document: impl Into<Document>) -> Vec<u8> {
        let mut written = self.format.write(&document.into());
        written.shrink_to_fit();
        written
    }

    /// Builds a response with a document as the body.
    pub fn with(self, response: HttpResponseBuilder, document: impl Into<Document>) -> HttpResponse {
        self.with_body(response, self.write(document))
    }

    /// Builds a response with a body that is already written.
    pub fn with_body(self, mut response: HttpResponseBuilder, body: Vec<u8>) -> HttpResponse {
        response.insert_header((header::VARY, "Accept")).content_type(labeled(self.media_type));
        response.body(body)
    }
}

/// Middleware of all routes. Writes errors in the negotiated format, and adds the request id to the body, because bug reports
/// quote the body rather than the headers.
///
/// # Errors
/// Errors of the wrapped service.
pub async fn refuse_in_format(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let response = next.call(request).await?.map_into_boxed_body();
    if soap_names::is_endpoint(query::path(response.request())) {
        return Ok(soap::fault::respond(response));
    }
    let format = Reply::to_refused(response.request()).format;
    let error = response.response().error().and_then(|error| error.as_error::<ApiError>());
    let Some(error) = error else { return Ok(response) };
    let request_id = header_text(response.headers(), X_REQUEST_ID).map(str::to_owned);
    // The id of a trace that the service started adds nothing to the request id.
    let trace_id = headers::traceparent(response.request().headers());
    let trace_id = trace_id.map(|trace| trace.trace_id().to_owned());
    let body = format.write(&Document::Problem(Problem { request_id, trace_id, ..error.problem() }));
    Ok(response.map_body(|head, _| {
        let content_type = header::HeaderValue::from_static(format.problem_media_type());
        head.headers_mut().insert(header::CONTENT_TYPE, content_type);
        BoxBody::new(body)
    }))
}

/// Returns the default format of the partner that made a request.
pub fn profile(request: &HttpRequest) -> Option<&'static dyn Format> {
    let extensions = request.extensions();
    named(extensions.get::<Arc<Partner>>()?.format.as_deref()?)
}

/// Returns the format of a media type. The generic XML types mean the XML format of the profile, or the canonical one.
fn format_of(essence: &str, profile: Option<&'static dyn Format>) -> Option<&'static dyn Format> {
    if GENERIC_XML.iter().any(|it| it.eq_ignore_ascii_case(essence)) {
        let own = profile.filter(|format| format.is_xml());
        return own.or_else(|| FORMATS.iter().copied().find(|format| format.is_xml()));
    }
    FORMATS.iter().copied().find(|format| format.media_type().eq_ignore_ascii_case(essence))
}

/// Adds the character set to `text/*` types, because old clients assume ASCII for XML without it (RFC 7303).
fn labeled(media_type: &'static str) -> String {
    if media_type.starts_with("text/") {
        format!("{media_type}; charset=utf-8")
    } else {
        media_type.to_owned()
    }
}

fn header_text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// A media type and its parameters.
struct MediaType<'a> {
    essence: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
}

impl<'a> MediaType<'a> {
    fn of(text: &'a str) -> Self {
        let mut parts = headers::split_unquoted(text, ';').map(str::trim);
        let essence = parts.next().unwrap_or_default();
        let parameters = parts.filter_map(|part| part.split_once('='));
        let trimmed = parameters.map(|(name, value)| (name.trim(), unquoted(value.trim())));
        Self { essence, parameters: trimmed.collect() }
    }

    /// Returns the first value of a parameter. Names are case-insensitive.
    fn parameter(&self, wanted: &str) -> Option<&'a str> {
        self.parameters_named(wanted).next()
    }

    fn parameters_named(&self, wanted: &str) -> impl Iterator<Item = &'a str> {
        self.parameters
            .iter()
            .filter(move |(name, _)| name.eq_ignore_ascii_case(wanted))
            .map(|(_, value)| *value)
    }
}

/// Parsed `Accept` header: media ranges with their weights in thousandths.
struct Accepted<'a>(Vec<(&'a str, u16)>);

impl<'a> Accepted<'a> {
    /// Parses the header. Returns `None` when it is missing or empty, which accepts everything.
    fn of(headers: &'a HeaderMap) -> Option<Self> {
        let lines = headers.get_all(header::ACCEPT).filter_map(|value| value.to_str().ok());
        let accepted = Self::of_ranges(lines.flat_map(|line| line.split(',')));
        (!accepted.0.is_empty()).then_some(accepted)
    }

    fn of_ranges(ranges: impl Iterator<Item = &'a str>) -> Self {
        let ranges = ranges.map(str::trim).filter(|range| !range.is_empty());
        let weighed = ranges.map(|range| {
            let range = MediaType::of(range);
            (range.essence, range.parameter("q").map_or(1000, thousandths))
        });
        Self(weighed.collect())
    }

    /// Returns the weight of a media type. The most specific range decides.
    fn weight(&self, media_type: &str) -> u16 {
        let (kind, _) = media_type.split_once('/').unwrap_or((media_type, ""));
        let of = |wanted: &dyn Fn(&str) -> bool| {
            let found = self.0.iter().filter(|(range, _)| wanted(range));
            found.map(|(_, weight)| *weight).max()
        };
        of(&|range| range.eq_ignore_ascii_case(media_type))
            .or_else(|| of(&|range| range.strip_suffix("/*").is_some_and(|it| it.eq_ignore_ascii_case(kind))))
            .or_else(|| of(&|range| range == "*/*"))
            .unwrap_or_default()
    }

    /// Returns the format with the highest weight. Among equal weights, the client's default comes first, then the order of
    /// the formats.
    fn best(&self, default: Reply, profile: Option<&'static dyn Format>) -> Option<Reply> {
        let own = FORMATS.iter().map(|format| Reply { format: *format, media_type: format.media_type() });
        let generic = GENERIC_XML
            .iter()
            .filter_map(|media_type| Some(Reply { format: format_of(media_type, profile)?, media_type }));
        let mut best: Option<(u16, Reply)> = None;
        for reply in std::iter::once(default).chain(own).chain(generic) {
            let weight = self.weight(reply.media_type);
            if weight > best.map_or(0, |(best, _)| best) {
                best = Some((weight, reply));
            }
        }
        best.map(|(_, reply)| reply)
    }
}

/// Returns the weight of a media type in thousandths, given the media ranges of `Accept`.
pub fn weight(accepted: &[&str], media_type: &str) -> u16 {
    Accepted::of_ranges(accepted.iter().copied()).weight(media_type)
}

/// Parses a weight (RFC 9110, section 12.4.2) in thousandths. An invalid weight counts as 1. The typed header of actix-web
/// drops a range with an invalid weight, such as the `q=.2` of Java before version 19.
fn thousandths(weight: &str) -> u16 {
    let (whole, decimals) = weight.split_once('.').unwrap_or((weight, ""));
    let padded = format!("{whole}{decimals:0<3}");
    padded.parse().unwrap_or(1000).min(1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_charset_has_the_names_of_the_registries() {
        let check = |content_type: &str, expected: Option<Charset>| {
            let mut headers = HeaderMap::new();
            headers.insert(
                header::CONTENT_TYPE,
                header::HeaderValue::from_bytes(content_type.as_bytes()).unwrap(),
            );
            assert_eq!(charset(&headers).ok(), expected, "{content_type}");
        };
        for utf_8 in [
            "application/json",
            "application/json;charset=utf8",
            "application/json; charset=\"UTF-8\"; version=1",
            "application/json; charset=unicode-1-1-utf-8;",
            "application/json; charset=utf-8; charset=UTF8",
            "application/json; note=\"; charset=latin1\"",
        ] {
            check(utf_8, Some(Charset::Utf8));
        }
        check("text/csv; charset=us-ascii", Some(Charset::UsAscii));
        check("text/xml; Charset=ISO646-US", Some(Charset::UsAscii));
        for other in [
            "text/csv; charset=latin1",
            "text/csv; charset=",
            "text/csv; charset=\"utf-8",
            "text/csv; charset=utf-8\"",
            "text/csv; charset=utf-8; charset=latin1",
            "text/csv; charset=us-ascii; charset=utf-8",
            "text/csv; charset='utf-8'",
            "text/csv; x=\"é\"; charset=latin1",
            "text/csv; x=é",
        ] {
            check(other, None);
        }
    }

    #[test]
    fn weights_outside_of_the_grammar_are_accepted() {
        let check = |text, expected| assert_eq!(thousandths(text), expected, "{text}");
        check("0", 0);
        check("0.5", 500);
        check("0.999", 999);
        check("1", 1000);
        check(".2", 200);
        check("high", 1000);
    }
}
