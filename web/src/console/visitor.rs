//! Signed-in operator of a request: the rights of the session's key, the requests to the API, and the pages in response.

use actix_web::cookie::Cookie;
use actix_web::dev::Payload;
use actix_web::http::{Method, StatusCode, header};
use actix_web::web::Data;
use actix_web::{FromRequest, HttpMessage as _, HttpRequest, HttpResponse};
use futures::FutureExt as _;
use futures::future::LocalBoxFuture;
use maud::Markup;
use postonce_process::build;
use postonce_process::http::note_known;
use postonce_schemas::json::{Key, Problem};
use postonce_shared::domain::ids::PartnerId;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::addresses::{STREAMS, is_of_stream};
use super::context::{Console, is_encrypted};
use super::html::components::problem;
use super::html::shell::{Section, Shell, page};
use super::local_api::{Answer, Call, LocalApi, status_of};
use super::page_error::{PageError, answer, keys, parts, unanswered};
use super::session::{self, Session, session_of};
use crate::access::authentication::KEY;
use crate::access::console_request::{SessionKey, ToConsole};
use crate::access::scopes::Scope;
use crate::access::shares::ByOperator;
use crate::access::slots::{NoSlot, SlotGuard};

/// Signed-in operator of a request.
pub struct Visitor {
    request: HttpRequest,
    api: Data<LocalApi>,
    console: Data<Console>,
    session: Session,
    form_token: String,
    key: Key,
    partner: PartnerId,
    scopes: Vec<Scope>,
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
        let scopes = Scope::of_stored(&key.scopes);
        let form_token = session.form_token();
        let visitor = Self { request, api, console, session, form_token, key, partner, scopes };
        if Scope::OF_OPERATORS.iter().any(|scope| visitor.may(*scope)) {
            visitor.request.extensions_mut().insert(ByOperator);
        }
        Ok(visitor)
    }

    /// Returns whether the key of the session has a scope.
    pub fn may(&self, scope: Scope) -> bool {
        self.scopes.iter().any(|own| own.includes(scope))
    }

    /// Returns the sections that the key may read.
    pub fn sections(&self) -> Vec<Section> {
        Section::ALL.iter().copied().filter(|section| self.may_read(*section)).collect()
    }

    /// Returns whether the key may read a section.
    pub fn may_read(&self, section: Section) -> bool {
        scopes_of(section).iter().any(|scope| self.may(*scope))
    }

    /// Returns the id of the partner that owns the key.
    pub fn partner(&self) -> &str {
        self.partner.as_str()
    }

    /// Returns the id of the key.
    pub fn key_id(&self) -> &str {
        &self.key.key_id
    }

    /// Returns the token that forms of this session must contain.
    pub fn form_token(&self) -> &str {
        &self.form_token
    }

    /// Returns whether a form contains the token of this session.
    pub fn has_token(&self, token: &str) -> bool {
        self.session.has_token(token)
    }

    /// Returns the request of the operator.
    pub const fn request(&self) -> &HttpRequest {
        &self.request
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

    /// Answers with a page.
    pub fn page(&self, section: Section, title: &str, body: Markup) -> HttpResponse {
        self.page_of(StatusCode::OK, (section, title), None, body)
    }

    /// Answers with a page whose regions are updated by the stream at `live`.
    pub fn live_page(&self, section: Section, title: &str, live: &str, body: Markup) -> HttpResponse {
        self.page_of(StatusCode::OK, (section, title), Some(live), body)
    }

    fn page_of(
        &self,
        status: StatusCode,
        (section, title): (Section, &str),
        live: Option<&str>,
        body: Markup,
    ) -> HttpResponse {
        let mut response = HttpResponse::build(status);
        if let Some(cookie) = self.renewed() {
            response.cookie(cookie);
        }
        answer(&mut response, self.shell((section, title), live, body).into_string())
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
        let body = problem(status.as_u16(), title, detail, &[], None);
        self.error(status, body)
    }

    /// Returns a page that explains why the API refused a request.
    pub fn refused(&self, refusal: &Problem) -> PageError {
        let status = status_of(refusal);
        let violations = refusal.violations.iter();
        let violations: Vec<_> = violations.map(|it| (it.field.clone(), it.message.clone())).collect();
        let Problem { title, detail, request_id, .. } = refusal;
        let body = problem(status.as_u16(), title, detail, &violations, request_id.as_deref());
        self.error(status, body)
    }

    fn error(&self, status: StatusCode, body: Markup) -> PageError {
        let section = self.section();
        let html = self.shell((section, section.label()), None, body).into_string();
        let refused = PageError { status, html, location: None, cookie: None, repeated_after_s: None };
        let refused = refused.repeated(self.request.method());
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
        let route = self.request.match_pattern().unwrap_or_default();
        let path = route.replacen(STREAMS, "/console/", 1);
        let of_path = Section::ALL.iter().rev().copied();
        of_path.into_iter().find(|section| path.starts_with(section.path())).unwrap_or(Section::Overview)
    }

    fn shell(&self, (current, title): (Section, &str), live: Option<&str>, body: Markup) -> Markup {
        let sections = self.sections();
        let shell = Shell {
            title,
            current,
            sections: &sections,
            partner: Some(self.partner()),
            csrf: Some(&self.form_token),
            build: build::DESCRIPTION,
            live,
            plots: live.is_some() && current == Section::Overview,
        };
        page(&shell, body)
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

/// Returns the scopes with which a section can be read. One of them suffices.
pub const fn scopes_of(section: Section) -> &'static [Scope] {
    match section {
        Section::Overview | Section::Gate | Section::Queues => &[Scope::Metrics],
        Section::Batches => &[Scope::Batch, Scope::Operate],
        Section::DeadLetters | Section::Scrubber | Section::Costs => &[Scope::Operate],
        Section::Accounts => &[Scope::Read],
        Section::Partners => &[Scope::Partners],
        Section::OrderNumbers | Section::Anchors | Section::AuditTrail => &[Scope::Admin],
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
