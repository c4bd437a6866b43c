//! The root of the service: links to its parts, as an HTML page or as JSON.

use std::sync::LazyLock;

use actix_web::http::header::{self, Accept, Header as _};
use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use postonce_process::build;
use postonce_shared::config::ConsoleTerms;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use crate::access::authentication::CONSOLE;
use crate::api::surface::Surface;

/// Name, address and description of each link.
const LINKS: [(&str, &str, &str); 8] = [
    ("console", CONSOLE, "the console for operators"),
    ("documentation", "/docs", "the API, to read and to try"),
    ("openapi", "/openapi.json", "the API, for generators of clients"),
    ("wsdl", "/soap/UserAccountService?wsdl", "the service over SOAP"),
    ("compat-wsdl", "/soap/compat?wsdl", "the service over SOAP, for clients of the classic contract"),
    ("liveness", "/livez", "whether this process runs"),
    ("readiness", "/readyz", "whether it is ready for requests, or what is missing"),
    ("metrics", "/metrics", "the metrics of this process, with a key of the scope metrics"),
];

const STYLE: &str = ":root{color-scheme:light dark;font:16px/1.5 system-ui,sans-serif}\
                     body{max-width:40rem;margin:4rem auto;padding:0 1rem}\
                     dt{font-weight:600}dd{margin:0 0 .75rem}footer{opacity:.7;font-size:.875rem}";

/// Content security policy: the page loads nothing, and only `STYLE` applies.
static POLICY: LazyLock<String> = LazyLock::new(|| {
    let hash = BASE64_STANDARD.encode(Sha256::digest(STYLE));
    format!("default-src 'none'; style-src 'sha256-{hash}'; frame-ancestors 'none'")
});

/// Responds with the links that are served at this address.
pub async fn greeting(
    request: HttpRequest,
    surface: Data<Surface>,
    console: Option<Data<ConsoleTerms>>,
) -> HttpResponse {
    let is_served = |address| surface.has(path_of(address)) && (address != CONSOLE || console.is_some());
    let links = || LINKS.iter().filter(|(_, address, _)| is_served(address));
    let mut response = HttpResponse::Ok();
    response.insert_header((header::VARY, "Accept"));
    if !prefers_page(&request) {
        let links: Map<String, Value> = links().map(|(name, at, _)| ((*name).into(), json!(at))).collect();
        let mut body = json!({ "name": "Postonce", "links": links });
        if surface.shows_build() {
            body["version"] = json!(build::VERSION);
            body["commit"] = json!(build::COMMIT);
        }
        return response.json(body);
    }
    let links: String =
        links().map(|(_, at, text)| format!("<dt><a href=\"{at}\">{at}</a></dt><dd>{text}</dd>")).collect();
    let build = if surface.shows_build() { build::DESCRIPTION } else { "" };
    response.insert_header((header::CONTENT_SECURITY_POLICY, POLICY.as_str()));
    response.content_type("text/html; charset=utf-8").body(format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width\"><title>Postonce</title><style>{STYLE}</style></head>\n<body>\n\
         <h1>Postonce</h1>\n<p>Deposits and withdrawals that post exactly once.</p>\n<dl>{links}</dl>\n\
         <footer>{build}</footer>\n</body>\n</html>\n"
    ))
}

/// Returns an address without its query.
fn path_of(address: &str) -> &str {
    address.split_once('?').map_or(address, |(path, _)| path)
}

/// Returns whether the client prefers HTML to JSON, as browsers do.
fn prefers_page(request: &HttpRequest) -> bool {
    let accepted = Accept::parse(request).map(|accept| accept.ranked()).unwrap_or_default();
    let mut essences = accepted.iter().map(|range| range.essence_str());
    essences.find(|essence| ["text/html", "application/json"].contains(essence)) == Some("text/html")
}
