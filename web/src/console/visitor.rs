//! Request of a signed-in operator: the session, the requests to the API, and the pages in response.

use actix_web::cookie::Cookie;
use actix_web::dev::Payload;
use actix_web::http::{Method, StatusCode, header};
use actix_web::web::Data;
use actix_web::{FromRequest, HttpMessage as _, HttpRequest, HttpResponse};
use futures::FutureExt as _;
use futures::future::LocalBoxFuture;
use maud::Markup;
use postonce_process::http::note_known;
use postonce_schemas::json::{Key, Problem};
use postonce_shared::domain::ids::PartnerId;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::addresses::{Section, is_of_stream, with_query};
use super::context::{Console, is_encrypted};
use super::html::components::{problem, refusal};
use super::html::shell::{Shell, page};
use super::local_api::{Answer, Call, LocalApi, status_of};
use super::page_error::{PageError, answer, keys, parts, unanswered};
use super::session::{self, Session, session_of};
use super::values::Values;
use super::viewer::Viewer;
use crate::access::authentication::KEY;
use crate::access::console_request::{SessionKey, ToConsole};
use crate::access::scopes::Scope;
use crate::access::shares::ByOperator;
use crate::access::slots::{NoSlot, SlotGuard};

/// Request of a signed-in operator.
pub struct Visitor {
    request: HttpRequest,
    api: Data<LocalApi>,
    console: Data<Console>,
    session: Session,
    partner: PartnerId,
    query: Values,
    viewer: Viewer,
}

impl FromRequest for Visitor {
    type Error = PageError;
    type Future = LocalBoxFuture<'static, Result<Self, PageError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let request = request.clone();
        async move { Self::of(request).await }.boxed_local()
    }
}

impl Visitor {
    /// # Errors
    /// [`PageError`] that redirects to the sign-in page, if there is no session or its key is no longer valid.
    async fn of(request: HttpRequest) -> Result<Self, PageError> {
        let (console, api) = parts(&request)?;
        let secret = keys(&console).map_err(|starting| starting.repeated(request.method()))?;
        let read = session_of(&request, &console, &secret);
        let session = match read {
            Some(Some(session)) => session,
            ended => return Err(PageError::not_signed_in(&request, ended.is_some())),
        };
        ToConsole::note(&request, |known| known.has_session = true);
        let found = api.call(&request, session.key(), Call::get(KEY)).await;
        let found = found.map_err(|fault| unanswered(&fault))?;
        let key: Key = match attempted(&found)? {
            Ok(key) => key,
            Err(_) if found.status == StatusCode::UNAUTHORIZED => {
                return Err(PageError::not_signed_in(&request, true));
            }
            Err(problem) => {
                let page = PageError::plain(found.status, &problem.title, &problem.detail);
                return Err(page.repeated(request.method()));
            }
        };
        ToConsole::note(&request, |known| known.key = Some(SessionKey::of(&key)));
        let partner = PartnerId::parse(&key.partner_id).map_err(|fault| unanswered(&fault))?;
        note_known(&request, &partner);
        let viewer = Viewer::new(key, session.form_token(), console.world.now());
        if Scope::OF_OPERATORS.iter().any(|scope| viewer.may(*scope)) {
            request.extensions_mut().insert(ByOperator);
        }
        let query = Values::of_query(request.query_string());
        Ok(Self { request, api, console, session, partner, query, viewer })
    }

    /// Returns the operator.
    pub const fn viewer(&self) -> &Viewer {
        &self.viewer
    }

    /// Returns the values of the query.
    pub const fn query(&self) -> &Values {
        &self.query
    }

    /// Returns the value of a name in the template of the path; empty if the template does not have it.
    pub fn path(&self, name: &str) -> &str {
        self.request.match_info().query(name)
    }

    /// Returns whether a form contains the token of this session.
    pub fn has_token(&self, token: &str) -> bool {
        self.session.has_token(token)
    }

    /// Returns the context of the console.
    pub const fn console(&self) -> &Data<Console> {
        &self.console
    }

    /// Reads a document of the API. `path` includes the query.
    ///
    /// # Errors
    /// [`PageError`] with the problem that the API answers.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, PageError> {
        self.send((Method::GET, path), None).await
    }

    /// Reads the page of a listing at which the query has its `cursor`. `path` includes a query.
    ///
    /// # Errors
    /// Same as [`Self::get`].
    pub async fn listing<T: DeserializeOwned>(&self, path: &str) -> Result<T, PageError> {
        self.attempt_listing(path).await?.map_err(|problem| self.refused(&problem))
    }

    /// Same as [`Self::listing`], but returns the problem that the API answers.
    ///
    /// # Errors
    /// Same as [`Self::attempt`].
    pub async fn attempt_listing<T: DeserializeOwned>(
        &self,
        path: &str,
    ) -> Result<Result<T, Problem>, PageError> {
        let path = with_query(path, &[("cursor", self.query.given("cursor"))]);
        self.attempt((Method::GET, &path), None).await
    }

    /// Returns whether the first page of a listing is requested.
    pub fn is_first_page(&self) -> bool {
        self.query.given("cursor").is_none()
    }

    /// Makes a request to the API, and parses the document in its answer.
    ///
    /// # Errors
    /// Same as [`Self::get`].
    pub async fn send<T: DeserializeOwned>(
        &self,
        route: (Method, &str),
        body: Option<&Value>,
    ) -> Result<T, PageError> {
        self.attempt(route, body).await?.map_err(|problem| self.refused(&problem))
    }

    /// Makes a request to the API. Returns the document, or the problem that the API answers.
    ///
    /// # Errors
    /// [`PageError`] when there is no readable answer, or the session has ended.
    pub async fn attempt<T: DeserializeOwned>(
        &self,
        route: (Method, &str),
        body: Option<&Value>,
    ) -> Result<Result<T, Problem>, PageError> {
        attempted(&self.ask(Call::new(route, body)).await?)
    }

    /// Same as [`Self::get`], but also returns the entity tag of the document for [`Self::attempt_if_match`].
    ///
    /// # Errors
    /// Same as [`Self::get`].
    pub async fn get_tagged<T: DeserializeOwned>(
        &self,
        path: &str,
    ) -> Result<(T, Option<String>), PageError> {
        let answer = self.ask(Call::get(path)).await?;
        let document = attempted(&answer)?.map_err(|problem| self.refused(&problem))?;
        Ok((document, answer.etag))
    }

    /// Same as [`Self::attempt`], on condition that the resource still has this entity tag. Otherwise the problem has the
    /// code `precondition_failed`.
    ///
    /// # Errors
    /// Same as [`Self::attempt`].
    pub async fn attempt_if_match<T: DeserializeOwned>(
        &self,
        route: (Method, &str),
        body: Option<&Value>,
        etag: &str,
    ) -> Result<Result<T, Problem>, PageError> {
        attempted(&self.ask(Call { if_match: Some(etag), ..Call::new(route, body) }).await?)
    }

    /// # Errors
    /// [`PageError`] when there is no readable answer, or the session has ended.
    async fn ask(&self, call: Call<'_>) -> Result<Answer, PageError> {
        let answer = self.api.call(&self.request, self.session.key(), call).await;
        let answer = answer.map_err(|fault| unanswered(&fault))?;
        if answer.status == StatusCode::UNAUTHORIZED {
            return Err(PageError::not_signed_in(&self.request, true));
        }
        Ok(answer)
    }

    /// Forwards an answer of the API in the format `media_type` as a file download.
    ///
    /// # Errors
    /// Same as [`Self::get`].
    pub async fn download(
        &self,
        path: &str,
        media_type: &'static str,
        file_name: &str,
    ) -> Result<HttpResponse, PageError> {
        let call = Call { accept: media_type, ..Call::get(path) };
        let begun = self.api.begin(&self.request, self.session.key(), call).await;
        let response = begun.map_err(|fault| unanswered(&fault))?;
        if !response.status().is_success() {
            let status = response.status();
            let body = actix_web::body::to_bytes(response.into_body()).await.unwrap_or_default();
            let answer = Answer { status, etag: None, body };
            return Err(self.refused(&answer.problem()));
        }
        let mut download = HttpResponse::build(response.status());
        if let Some(media_type) = response.headers().get(header::CONTENT_TYPE) {
            download.insert_header((header::CONTENT_TYPE, media_type.clone()));
        }
        download
            .insert_header((header::CACHE_CONTROL, "no-store"))
            .insert_header((header::CONTENT_DISPOSITION, format!("attachment; filename=\"{file_name}\"")));
        Ok(download.body(response.into_body()))
    }

    /// Answers with a page of the section to which the path belongs.
    pub fn page(&self, title: &str, body: Markup) -> HttpResponse {
        self.page_of(StatusCode::OK, title, None, body)
    }

    /// Answers with the page again from which a form was sent, with what is wrong in it.
    pub fn page_again(&self, status: StatusCode, title: &str, body: Markup) -> HttpResponse {
        self.page_of(status, title, None, body)
    }

    /// Answers with a page whose regions are updated by the stream at `live`.
    pub fn live_page(&self, status: StatusCode, live: &str, body: Markup) -> HttpResponse {
        self.page_of(status, self.section().label(), Some(live), body)
    }

    fn page_of(&self, status: StatusCode, title: &str, live: Option<&str>, body: Markup) -> HttpResponse {
        let mut response = HttpResponse::build(status);
        if let Some(cookie) = self.renewed() {
            response.cookie(cookie);
        }
        answer(&mut response, self.shell(title, live, body).into_string())
    }

    /// Redirects the browser to another page of the console, after a form or a search.
    pub fn see_other(&self, location: &str) -> HttpResponse {
        let mut response = HttpResponse::SeeOther();
        if let Some(cookie) = self.renewed() {
            response.cookie(cookie);
        }
        response.insert_header((header::LOCATION, location));
        answer(&mut response, String::new())
    }

    /// Returns a page that explains why a request was not carried out.
    pub fn refuse(&self, status: StatusCode, title: &str, detail: &str) -> PageError {
        let body = problem(status.as_u16(), title, detail);
        self.error(status, body)
    }

    /// Returns a page that explains why the API refused a request.
    pub fn refused(&self, of: &Problem) -> PageError {
        self.error(status_of(of), refusal(of))
    }

    fn error(&self, status: StatusCode, body: Markup) -> PageError {
        let html = self.shell(self.section().label(), None, body).into_string();
        let refused = PageError::new(status, html).repeated(self.request.method());
        // A request that the browser repeats automatically does not count as use of the session.
        let is_of_operator = refused.repeated_after_s.is_none() && !is_of_stream(&self.request);
        PageError { cookie: self.renewed().filter(|_| is_of_operator).map(Box::new), ..refused }
    }

    /// Takes a slot for a stream from the limits of the partner and the process.
    ///
    /// # Errors
    /// [`NoSlot`] when a limit is reached.
    pub fn stream_slot(&self) -> Result<SlotGuard, NoSlot> {
        self.console.shares.streams.take(&self.partner, 1)
    }

    /// Returns the section to which the requested path belongs.
    pub fn section(&self) -> Section {
        Section::of_path(&self.request.match_pattern().unwrap_or_default())
    }

    fn shell(&self, title: &str, live: Option<&str>, body: Markup) -> Markup {
        let current = self.section();
        let plots = live.is_some() && current == Section::Overview;
        page(&Shell { title, current, viewer: Some(&self.viewer), live, plots }, body)
    }

    /// Returns the cookie that renews the session, if that is due.
    fn renewed(&self) -> Option<Cookie<'static>> {
        let renewed = self.session.renewed(self.console.world.now(), self.console.terms.session)?;
        Some(renewed.cookie(&keys(&self.console).ok()?, is_encrypted(&self.request)))
    }

    /// Returns whether the session has not ended. Streams do not extend it.
    pub fn is_valid(&self) -> bool {
        self.session.is_valid(self.console.world.now(), self.console.terms.session)
    }

    /// Returns the cookie that removes the session from the browser.
    pub fn removal(&self) -> Cookie<'static> {
        session::removal(is_encrypted(&self.request))
    }
}

/// Parses the document or the problem in an answer.
///
/// # Errors
/// [`PageError`] when a successful answer is not the expected document.
fn attempted<T: DeserializeOwned>(answer: &Answer) -> Result<Result<T, Problem>, PageError> {
    if !answer.status.is_success() {
        return Ok(Err(answer.problem()));
    }
    serde_json::from_slice(&answer.body).map(Ok).map_err(|fault| unanswered(&fault))
}
