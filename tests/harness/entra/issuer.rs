//! The endpoints that issue tokens: the instance metadata service of a machine, the endpoint of a container app, and the
//! authority for workload identities. Each refuses the requests that the real endpoint refuses.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use actix_web::http::StatusCode;
use actix_web::web::{Data, Form, Path, Query, ServiceConfig, get, post};
use actix_web::{HttpRequest, HttpResponse};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use postonce_shared::testing::prelude::*;
use serde_json::{Value, json};

use super::server::Server;
use super::{Directory, HEADER, Principal, TENANT};
use crate::certificates::TlsFiles;

/// The server of the endpoints.
pub(super) struct Issuer;

type Parameters = HashMap<String, String>;

impl Issuer {
    pub(super) fn start(directory: &Arc<Directory>, files: &TlsFiles) -> Server {
        let directory = Data::from(Arc::clone(directory));
        Server::start(files, move |routes: &mut ServiceConfig| {
            routes
                .app_data(directory.clone())
                .route("/{principal}/metadata/identity/oauth2/token", get().to(machine))
                .route("/{principal}/msi/token", get().to(container_app))
                .route("/{tenant}/oauth2/v2.0/token", post().to(workload));
        })
    }
}

async fn machine(
    request: HttpRequest,
    principal: Path<String>,
    query: Query<Parameters>,
    directory: Data<Directory>,
) -> HttpResponse {
    let principal = Principal::at(&principal);
    let is_metadata = request.headers().get("Metadata").is_some_and(|value| value == "true");
    match principal {
        _ if !is_metadata => refused("invalid_request", "Required metadata header not specified"),
        _ if !asks_for_storage(&query, "2018-02-01") => refused("invalid_request", "Unknown query"),
        Some(principal) if query.get("client_id").is_none_or(|id| id == principal.id()) => {
            // This endpoint writes numbers as strings.
            issue(
                &directory,
                principal,
                |lifetime, expires_on| json!({ "expires_in": lifetime.to_string(), "expires_on": expires_on.to_string() }),
            )
        }
        _ => refused("invalid_request", "Identity not found"),
    }
}

async fn container_app(
    request: HttpRequest,
    principal: Path<String>,
    query: Query<Parameters>,
    directory: Data<Directory>,
) -> HttpResponse {
    let principal = Principal::at(&principal);
    let knows_header = request.headers().get("X-IDENTITY-HEADER").is_some_and(|value| value == HEADER);
    match principal {
        Some(principal) if knows_header && asks_for_storage(&query, "2019-08-01") => {
            issue(&directory, principal, |_, expires_on| json!({ "expires_on": expires_on.to_string() }))
        }
        _ => HttpResponse::BadRequest().json(json!({ "statusCode": 400, "message": "Invalid request" })),
    }
}

async fn workload(tenant: Path<String>, form: Form<Parameters>, directory: Data<Directory>) -> HttpResponse {
    let field = |name: &str| form.get(name).map(String::as_str);
    let principal = field("client_id").and_then(Principal::with_id);
    let is_assertion = field("client_assertion_type")
        == Some("urn:ietf:params:oauth:client-assertion-type:jwt-bearer")
        && field("client_assertion") == Some(directory.pod_token.lock().as_str());
    let is_grant = field("grant_type") == Some("client_credentials")
        && field("scope") == Some("https://storage.azure.com/.default");
    match principal {
        Some(principal) if is_assertion && is_grant && *tenant == TENANT => {
            issue(&directory, principal, |lifetime, _| json!({ "expires_in": lifetime }))
        }
        _ => refused(
            "invalid_client",
            "AADSTS700213: No matching federated identity record found for the presented assertion.\r\nTrace ID: 1",
        ),
    }
}

fn asks_for_storage(query: &Parameters, version: &str) -> bool {
    let field = |name: &str| query.get(name).map(String::as_str);
    field("resource") == Some("https://storage.azure.com") && field("api-version") == Some(version)
}

fn refused(error: &str, description: &str) -> HttpResponse {
    HttpResponse::BadRequest().json(json!({ "error": error, "error_description": description }))
}

/// Issues a token. `expiry` returns the members with the expiry, which differ between the endpoints.
fn issue(directory: &Directory, principal: Principal, expiry: impl Fn(u64, i64) -> Value) -> HttpResponse {
    if *directory.is_failing.lock() {
        return HttpResponse::build(StatusCode::SERVICE_UNAVAILABLE).finish();
    }
    let IssuedToken { text, lifetime, expires_on } = token(directory, principal);
    let mut answer = expiry(lifetime, expires_on);
    answer["access_token"] = text.into();
    answer["token_type"] = "Bearer".into();
    HttpResponse::Ok().json(answer)
}

/// A token, its lifetime in seconds, and its expiry in seconds since 1970.
pub(super) struct IssuedToken {
    pub(super) text: String,
    lifetime: u64,
    expires_on: i64,
}

/// Creates a token for a principal.
pub(super) fn token(directory: &Directory, principal: Principal) -> IssuedToken {
    let lifetime = directory.lifetime.lock().as_secs();
    let now = SystemWorld::new().now().unix_ms().div_euclid(1000);
    let expires_on = now.saturating_add(i64::try_from(lifetime).expect("a short lifetime"));
    let claims = json!({
        "aud": "https://storage.azure.com",
        "iss": format!("https://sts.windows.net/{TENANT}/"),
        "iat": now, "nbf": now, "exp": expires_on, "oid": principal.id(), "tid": TENANT,
    });
    let encoded = |part: &Value| URL_SAFE_NO_PAD.encode(part.to_string());
    let text =
        format!("{}.{}.signature", encoded(&json!({ "alg": "RS256", "typ": "JWT" })), encoded(&claims));
    directory.issued.fetch_add(1, Ordering::SeqCst);
    IssuedToken { text, lifetime, expires_on }
}

/// Returns the principal of a token.
pub(super) fn principal_of(token: &str) -> Option<Principal> {
    let claims = token.split('.').nth(1)?;
    let claims: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).ok()?).ok()?;
    Principal::with_id(claims["oid"].as_str()?)
}
