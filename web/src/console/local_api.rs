//! The API of this process, called without a connection.

use actix_http::{HttpMessage as _, Payload, Request};
use actix_service::boxed::{BoxService, service};
use actix_service::{IntoServiceFactory, Service as _, ServiceExt as _, ServiceFactory};
use actix_web::body::{BoxBody, MessageBody, to_bytes};
use actix_web::dev::{AppConfig, ServiceRequest, ServiceResponse};
use actix_web::http::header::{self, FORWARDED, HeaderName, HeaderValue, X_FORWARDED_FOR};
use actix_web::http::{Method, StatusCode};
use actix_web::web::Bytes;
use actix_web::{App, Error, HttpRequest, HttpResponse};
use futures::stream;
use postonce_schemas::json::Problem;
use serde_json::Value;

use crate::access::session_key::SessionKey;

/// Headers of the operator's request that tell from where it comes. The API trusts them as it does in its own requests.
const OF_PROXIES: [HeaderName; 2] = [FORWARDED, X_FORWARDED_FOR];

/// The routes of the API with their middleware, in the thread of a server.
pub struct LocalApi(BoxService<Request, ServiceResponse<BoxBody>, Error>);

/// On whose behalf a request is made.
#[derive(Debug, Clone, Copy)]
pub enum OnBehalf<'a> {
    /// The holder of an API key, who presents it.
    Key(&'a str),
    /// A signed-in operator.
    Session(SessionKey),
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

impl LocalApi {
    /// Starts the application for requests of this thread.
    ///
    /// # Errors
    /// Those of its parts.
    pub async fn start<T, B>(app: App<T>) -> Result<Self, ()>
    where
        T: ServiceFactory<
                ServiceRequest,
                Config = (),
                Response = ServiceResponse<B>,
                Error = Error,
                InitError = (),
            > + 'static,
        B: MessageBody + 'static,
    {
        let started = app.into_factory().new_service(AppConfig::default()).await?;
        Ok(Self(service(started.map(ServiceResponse::map_into_boxed_body))))
    }

    /// Makes a request with a JSON body, if there is one, and reads the answer. `of_operator` is the request that causes it.
    ///
    /// # Errors
    /// When the answer could not be made.
    pub async fn call(
        &self,
        of_operator: &HttpRequest,
        on_behalf: OnBehalf<'_>,
        (method, path): (Method, &str),
        body: Option<&Value>,
    ) -> Result<Answer, Error> {
        let request = request(of_operator, on_behalf, (method, path), body)?;
        read(self.0.call(request).await?.into()).await
    }

    /// As [`Self::call`], done only if what the path names still has this entity tag.
    ///
    /// # Errors
    /// As [`Self::call`].
    pub async fn call_if_match(
        &self,
        of_operator: &HttpRequest,
        on_behalf: OnBehalf<'_>,
        (method, path): (Method, &str),
        (body, etag): (Option<&Value>, &str),
    ) -> Result<Answer, Error> {
        let mut request = request(of_operator, on_behalf, (method, path), body)?;
        let etag = HeaderValue::from_str(etag).map_err(actix_web::error::ErrorBadRequest)?;
        request.head_mut().headers.insert(header::IF_MATCH, etag);
        read(self.0.call(request).await?.into()).await
    }

    /// Reads something in a format of its own, with the answer as it is: its body may be long.
    ///
    /// # Errors
    /// When the answer could not be begun.
    pub async fn read_as(
        &self,
        of_operator: &HttpRequest,
        on_behalf: OnBehalf<'_>,
        path: &str,
        media_type: &'static str,
    ) -> Result<HttpResponse, Error> {
        let mut request = request(of_operator, on_behalf, (Method::GET, path), None)?;
        request.head_mut().headers.insert(header::ACCEPT, HeaderValue::from_static(media_type));
        Ok(self.0.call(request).await?.into())
    }
}

/// Returns a request on behalf of somebody.
///
/// # Errors
/// When the path or the key cannot be sent.
fn request(
    of_operator: &HttpRequest,
    on_behalf: OnBehalf<'_>,
    (method, path): (Method, &str),
    body: Option<&Value>,
) -> Result<Request, Error> {
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
    head.headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
    if body.is_some() {
        head.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    match on_behalf {
        OnBehalf::Key(key) => {
            let value = HeaderValue::from_str(&format!("Bearer {key}"));
            head.headers.insert(header::AUTHORIZATION, value.map_err(actix_web::error::ErrorBadRequest)?);
        }
        OnBehalf::Session(key) => {
            request.extensions_mut().insert(key);
        }
    }
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
