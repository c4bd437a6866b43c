//! Proxies in front of Azurite that refuse requests that the roles of a token do not include.

use std::sync::Arc;

use actix_web::web::{Bytes, Data, PayloadConfig, ServiceConfig, route};
use actix_web::{HttpRequest, HttpResponse};
use hyper::StatusCode;

use super::issuer::principal_of;
use super::server::Server;
use super::{Directory, Principal, rights};
use crate::azurite::Ports;
use crate::certificates::{TlsFiles, trusting};
use crate::storage_proxy::Service;
use crate::storage_proxy::error_responses::StorageError;

/// Maximum size of a body.
const BODY_BYTES_MAX: usize = 64 << 20;

const UNAUTHENTICATED: StorageError = StorageError {
    status: StatusCode::UNAUTHORIZED,
    code: "NoAuthenticationInformation",
    message: "Server failed to authenticate the request.",
};
const NOT_PERMITTED: StorageError = StorageError {
    status: StatusCode::FORBIDDEN,
    code: "AuthorizationPermissionMismatch",
    message: "This request is not authorized to perform this operation using this permission.",
};

/// A service of Azurite, which a proxy forwards to.
struct Target {
    service: Service,
    port: u16,
    http: reqwest::Client,
    directory: Arc<Directory>,
}

/// Starts the proxies of the blob, the queue and the table service.
pub(super) fn start(
    ports: Ports,
    directory: &Arc<Directory>,
    files: &TlsFiles,
    authority: &str,
) -> [Server; 3] {
    let http = trusting(reqwest::Client::builder().no_proxy(), authority).build().expect("a client");
    [(Service::Blob, ports.blob), (Service::Queue, ports.queue), (Service::Table, ports.table)].map(
        |(service, port)| {
            let directory = Arc::clone(directory);
            let target = Data::new(Target { service, port, http: http.clone(), directory });
            Server::start(files, move |routes: &mut ServiceConfig| {
                routes
                    .app_data(target.clone())
                    .app_data(PayloadConfig::new(BODY_BYTES_MAX))
                    .route("/{path:.*}", route().to(forward));
            })
        },
    )
}

async fn forward(request: HttpRequest, body: Bytes, target: Data<Target>) -> HttpResponse {
    let header = request.headers().get("authorization").and_then(|value| value.to_str().ok());
    let principal = header.and_then(|header| principal_of(header.strip_prefix("Bearer ")?));
    let Some(principal) = principal else { return target.error(UNAUTHENTICATED) };
    if !target.permits(principal, &request) {
        return target.error(NOT_PERMITTED);
    }
    target.forward(&request, body).await
}

impl Target {
    fn permits(&self, principal: Principal, request: &HttpRequest) -> bool {
        let (method, path) = (request.method().as_str(), request.path());
        let needed = rights::needed(self.service, method, path, request.query_string());
        let directory = &self.directory;
        let [web, worker] = directory.roles.lock().clone();
        let roles = match principal {
            Principal::Web => web,
            Principal::Worker => worker,
        };
        let is_permitted = rights::are_included(needed, &roles);
        if !is_permitted {
            directory.refused.lock().push(format!("{principal:?}: {method} {path}: {needed:?}"));
        }
        is_permitted
    }

    fn error(&self, error: StorageError) -> HttpResponse {
        let response = error.response(self.service);
        let mut answer = HttpResponse::build(status(response.status.as_u16()));
        for (name, value) in &response.headers {
            answer.insert_header((name.as_str(), value.as_bytes()));
        }
        answer.body(response.body)
    }

    async fn forward(&self, request: &HttpRequest, body: Bytes) -> HttpResponse {
        let method = reqwest::Method::from_bytes(request.method().as_str().as_bytes()).expect("a method");
        let url = format!("https://127.0.0.1:{}{}", self.port, request.uri());
        let mut sent = self.http.request(method, url);
        for (name, value) in request.headers() {
            if !matches!(name.as_str(), "host" | "connection" | "content-length" | "transfer-encoding") {
                sent = sent.header(name.as_str(), value.as_bytes());
            }
        }
        let Ok(received) = sent.body(body).send().await else { return self.error(UNREACHABLE) };
        let mut answer = HttpResponse::build(status(received.status().as_u16()));
        for (name, value) in received.headers() {
            if !matches!(name.as_str(), "connection" | "content-length" | "transfer-encoding") {
                answer.append_header((name.as_str(), value.as_bytes()));
            }
        }
        match received.bytes().await {
            Ok(body) => answer.body(body),
            Err(_) => self.error(UNREACHABLE),
        }
    }
}

const UNREACHABLE: StorageError = StorageError {
    status: StatusCode::INTERNAL_SERVER_ERROR,
    code: "InternalError",
    message: "Azurite did not answer.",
};

fn status(code: u16) -> actix_web::http::StatusCode {
    actix_web::http::StatusCode::from_u16(code).expect("a status")
}
