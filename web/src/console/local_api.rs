//! The API of this process, called without a connection.

use actix_http::{HttpMessage as _, Payload, Request};
use actix_service::boxed::{BoxService, service};
use actix_service::{IntoServiceFactory, Service as _, ServiceExt as _, ServiceFactory};
use actix_web::body::{BoxBody, to_bytes};
use actix_web::dev::{AppConfig, ServiceResponse};
use actix_web::http::header::{self, FORWARDED, HeaderName, HeaderValue, X_FORWARDED_FOR};
use actix_web::http::{Method, StatusCode};
use actix_web::web::Bytes;
use actix_web::{App, Error, HttpRequest, HttpResponse};
use futures::stream;
use postonce_process::http::Application;
use postonce_schemas::json::Problem;
use serde_json::Value;
use tokio::task::yield_now;

use super::addresses::is_of_stream;
use crate::access::audit::because_of_the_caller;
use crate::access::console_request::{MadeByConsole, ToConsole};

/// Headers of the operator's request that tell from where it comes. The API trusts them as it does in its own requests.
const OF_PROXIES: [HeaderName; 2] = [FORWARDED, X_FORWARDED_FOR];

/// The routes of the API with their middleware, in the thread of a server.
pub struct LocalApi(BoxService<Request, ServiceResponse<BoxBody>, Error>);

/// A request to the API.
#[derive(Debug, Clone)]
pub struct Call<'a> {
    /// The method.
    pub method: Method,
    /// The path with the query.
    pub path: &'a str,
    /// The body, in JSON.
    pub body: Option<&'a Value>,
    /// The request is done only if what the path names still has this entity tag.
    pub if_match: Option<&'a str>,
    /// The media type of the answer.
    pub accept: &'static str,
}

impl<'a> Call<'a> {
    /// Returns a request with or without a body.
    pub fn new((method, path): (Method, &'a str), body: Option<&'a Value>) -> Self {
        Self { method, path, body, if_match: None, accept: "application/json" }
    }

    /// Returns a request for a document.
    pub fn get(path: &'a str) -> Self {
        Self::new((Method::GET, path), None)
    }
}

/// An answer of the API.
#[derive(Debug)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The entity tag of the document, if it has one.
    pub etag: Option<String>,
    /// The body.
    pub body: Bytes,
}

impl Answer {
    /// Reads the problem in the answer.
    pub fn problem(&self) -> Problem {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| Problem {
            r#type: "about:blank".to_owned(),
            title: self.status.canonical_reason().unwrap_or("The request failed").into(),
            status: self.status.as_u16(),
            detail: "The API gave no reason.".to_owned(),
            code: "internal_error".into(),
            reason: None,
            violations: Vec::new(),
            request_id: None,
            trace_id: None,
        })
    }
}

/// Returns the status of a problem.
pub fn status_of(problem: &Problem) -> StatusCode {
    StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

impl LocalApi {
    /// Starts the application for requests of this thread.
    ///
    /// # Errors
    /// Those of its parts.
    pub async fn start(app: App<impl Application>) -> Result<Self, ()> {
        let started = app.into_factory().new_service(AppConfig::default()).await?;
        Ok(Self(service(started.map(ServiceResponse::map_into_boxed_body))))
    }

    /// Makes a request with an API key, and reads the answer. `of_operator` is the request of the browser that causes it.
    ///
    /// # Errors
    /// When the answer could not be made.
    pub async fn call(&self, of_operator: &HttpRequest, key: &str, call: Call<'_>) -> Result<Answer, Error> {
        read(self.begin(of_operator, key, call).await?).await
    }

    /// As [`Self::call`], with the answer as it is: its body may be long.
    ///
    /// # Errors
    /// When the answer could not be begun.
    pub async fn begin(
        &self,
        of_operator: &HttpRequest,
        key: &str,
        call: Call<'_>,
    ) -> Result<HttpResponse, Error> {
        let response: HttpResponse = self.0.call(request(of_operator, key, call)?).await?.into();
        // A page is made of several answers. Requests of other clients may come between them.
        yield_now().await;
        if because_of_the_caller(response.status()) {
            ToConsole::note(of_operator, |known| known.is_refused_by_api = true);
        }
        if response.status().is_server_error() {
            ToConsole::note(of_operator, |known| known.is_failed_by_api = true);
        }
        Ok(response)
    }
}

/// Returns a request with an API key.
///
/// # Errors
/// When the path, the key or the entity tag cannot be sent.
fn request(of_operator: &HttpRequest, key: &str, call: Call<'_>) -> Result<Request, Error> {
    let Call { method, path, body, if_match, accept } = call;
    let payload: Payload = match body {
        Some(body) => {
            let body = Ok(Bytes::from(body.to_string()));
            Payload::Stream { payload: Box::pin(stream::iter([body])) }
        }
        None => Payload::None,
    };
    let mut request = Request::new().replace_payload(payload).0;
    let head = request.head_mut();
    head.method = method;
    head.uri = path.parse().map_err(actix_web::error::ErrorBadRequest)?;
    head.peer_addr = of_operator.peer_addr();
    let headers = of_operator.headers();
    for name in OF_PROXIES {
        headers.get_all(&name).for_each(|value| head.headers.append(name.clone(), value.clone()));
    }
    if let Some(host) = headers.get(header::HOST) {
        head.headers.insert(header::HOST, host.clone());
    }
    head.headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
    if body.is_some() {
        head.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    if let Some(etag) = if_match {
        let etag = HeaderValue::from_str(etag).map_err(actix_web::error::ErrorBadRequest)?;
        head.headers.insert(header::IF_MATCH, etag);
    }
    let authorization = HeaderValue::from_str(&format!("Bearer {key}"));
    head.headers.insert(header::AUTHORIZATION, authorization.map_err(actix_web::error::ErrorBadRequest)?);
    request.extensions_mut().insert(MadeByConsole { for_stream: is_of_stream(of_operator) });
    Ok(request)
}

/// Reads the whole answer.
///
/// # Errors
/// When it ends early.
async fn read(response: HttpResponse) -> Result<Answer, Error> {
    let status = response.status();
    let etag =
        response.headers().get(header::ETAG).and_then(|etag| etag.to_str().ok()).map(ToOwned::to_owned);
    let body = to_bytes(response.into_body()).await;
    let body = body.map_err(|fault| actix_web::error::ErrorInternalServerError(fault.to_string()))?;
    Ok(Answer { status, etag, body })
}
