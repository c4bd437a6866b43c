//! Authentication and authorization of requests. A handler names its permission in its signature: only this module
//! creates a [`Caller<Permission>`], so no handler can omit the check. [`Caller::within`] checks the access to an
//! account.
//!
//! Rights can end while a request waits for its body, for its turn, for an outcome, or for its client to receive the
//! answer. [`Caller::confirm`] therefore looks them up again after each wait, before anything is stored or answered.
//! The readers of bodies require a [`Caller`], so a handler cannot omit this check.

use std::borrow::Cow;
use std::marker::PhantomData;
use std::sync::Arc;

use actix_web::dev::Payload;
use actix_web::http::header::{self, HeaderMap};
use actix_web::{FromRequest, HttpMessage as _, HttpRequest, web};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use futures::FutureExt as _;
use futures::future::LocalBoxFuture;
use postonce_process::http::note_known;
use postonce_shared::access::partner_cache::Standing;
use postonce_shared::access::used_signatures::UsedSignatures;
use postonce_shared::domain::ids::{AccountKey, PartnerId};
use postonce_shared::domain::partner::{Partner, RequestRate};

use crate::access::acts;
use crate::access::api_keys::is_mistyped;
use crate::access::client_address::client_address;
use crate::access::console_request::MadeByConsole;
use crate::access::keyring::{Confirmed, Grant, Keyring, PresentedKey};
use crate::access::rates::{Rates, RetryAfter};
use crate::access::reader::Reader;
use crate::access::scopes::{Permission, Scope};
use crate::access::shares::{self, ByOperator, PartnerShares};
use crate::access::signatures::{VerifiedSignature, Verifier};
use crate::access::slots::{NoSlot, SlotGuard};
use crate::access::turns::{Turn, Turns};
use crate::access::view::View;
use crate::error::{ApiError, Code};
use crate::formats::soap_names;
use crate::headers::Wait;
use crate::query;

/// Path of the console.
pub const CONSOLE: &str = "/console";

/// Path of the description of the caller's own key.
pub const KEY: &str = "/v1/key";

/// Number of attempts of an act whose rights change while it reads.
const ATTEMPTS_MAX: u32 = 3;

/// Returns whether a path belongs to operators or monitoring, which must work even when partners exhaust their limits.
pub fn is_of_operators(path: &str) -> bool {
    path.starts_with("/v1/admin/") || path == "/metrics" || is_of_console(path)
}

/// Returns whether a path belongs to the console.
pub fn is_of_console(path: &str) -> bool {
    path == CONSOLE || path.strip_prefix(CONSOLE).is_some_and(|rest| rest.starts_with('/'))
}

/// Returns whether the request is the look-up of a session's key, which the console makes for each of its pages.
pub fn is_of_session(request: &HttpRequest) -> bool {
    query::path(request) == KEY && MadeByConsole::of(request).is_some()
}

/// Authenticated caller with permission `P`.
pub struct Caller<P> {
    keyring: web::Data<Keyring>,
    key: PresentedKey,
    /// Scope of the permission; `None` while it still depends on the body.
    scope: Option<Scope>,
    /// The partner record against which the signature was verified.
    verified: Arc<Partner>,
    permission: PhantomData<P>,
}

impl<P> Caller<P> {
    /// Creates a caller whose signature has been verified.
    fn new(keyring: web::Data<Keyring>, key: PresentedKey, scope: Option<Scope>) -> Self {
        let verified = Arc::clone(&key.grant.partner);
        Self { keyring, key, scope, verified, permission: PhantomData }
    }

    /// Returns the id of the caller's partner.
    pub fn partner(&self) -> &PartnerId {
        &self.key.grant.partner.id
    }

    /// Returns the grant of the key, as of the last look-up.
    pub fn grant(&self) -> &Grant {
        &self.key.grant
    }

    /// Returns whether the grant is valid without another look-up.
    pub const fn standing(&self) -> &Standing {
        &self.key.standing
    }

    /// Looks the rights of the caller up again, after a wait and before what they are needed for: the key is valid, its
    /// partner active, and the key has the scope of the permission; and the signature, if there is one, is by a key of the
    /// partner. From then on, [`Self::within`] checks the present reach. In the usual case the partner has not changed, and this
    /// only compares two numbers.
    ///
    /// # Errors
    /// [`ApiError`] with status 401 or 403 if the rights have ended, and 503 if they cannot be read.
    pub async fn confirm(&mut self, request: &HttpRequest) -> Result<(), ApiError> {
        self.still_permitted().await?;
        let partner = &self.key.grant.partner;
        if !Arc::ptr_eq(&self.verified, partner) {
            check_signature(request, &self.key)?;
            self.verified = Arc::clone(partner);
            request.extensions_mut().insert(Arc::clone(partner));
        }
        Ok(())
    }

    /// Same as [`Self::confirm`] without the signature, for waits during which nothing is stored or read.
    ///
    /// # Errors
    /// Same as [`Self::confirm`].
    pub async fn still_permitted(&mut self) -> Result<(), ApiError> {
        match self.keyring.confirm(&mut self.key).await? {
            Confirmed::Unchanged => Ok(()),
            Confirmed::Replaced => self.scope.map_or(Ok(()), |scope| authorize(&self.key.grant, scope)),
            Confirmed::Ended => {
                let detail = "The API key is not valid any more: it was revoked or has expired, or its partner is suspended, \
                              since the request began.";
                Err(ApiError::new(Code::ApiKeyInvalid, detail))
            }
        }
    }

    /// Carries out an act under the standing of the caller. If the partner changes before the act writes, confirms the rights and
    /// begins the act again: a change of another right of the partner does not refuse it.
    ///
    /// # Errors
    /// Those of the act; as [`Self::confirm`]; and [`Code::RightsChanged`] if the partner changes during each attempt.
    pub async fn under_present_rights<T>(
        &mut self,
        request: &HttpRequest,
        act: impl AsyncFn(&Self) -> Result<T, ApiError>,
    ) -> Result<T, ApiError> {
        for _ in 1..ATTEMPTS_MAX {
            match act(self).await {
                Err(error) if error.code() == Code::RightsChanged => self.confirm(request).await?,
                done => return done,
            }
        }
        act(self).await
    }

    /// Returns the account if the partner may access it. Otherwise the error is the same as for an unknown account,
    /// so every operation must use the same text for both.
    ///
    /// # Errors
    /// [`ApiError`] with status 404.
    pub fn within(&self, account: AccountKey) -> Result<AccountKey, ApiError> {
        let reach = &self.key.grant.partner.reach;
        if reach.has_account(account) { Ok(account) } else { Err(ApiError::account_unknown().beyond_reach()) }
    }

    /// Returns the wanted wait with a slot for it. Without a free slot, the request is answered at once, and the client
    /// reads the outcome later.
    ///
    /// # Errors
    /// [`ApiError`] when the server was built without shares.
    pub fn wait(
        &self,
        request: &HttpRequest,
        wanted: Option<Wait>,
    ) -> Result<(Option<Wait>, Option<SlotGuard>), ApiError> {
        let Some(wanted) = wanted else { return Ok((None, None)) };
        let slot = shares(request)?.waiting.take(self.partner(), 1).ok();
        Ok((Some(wanted).filter(|_| slot.is_some()), slot))
    }

    /// Refuses a submission while the partner has a debt. The partner can still read, and cancel a batch.
    ///
    /// # Errors
    /// [`ApiError`] with status 429.
    pub fn refuse_in_debt(&self, request: &HttpRequest) -> Result<(), ApiError> {
        let partner = &self.key.grant.partner;
        let Some(seconds) = rates(request)?.debt_of(&partner.id, partner.rate) else { return Ok(()) };
        request.extensions_mut().insert(RetryAfter(seconds));
        let detail = format!(
            "The items of the batches of partner {} count as requests, and there are more of them than its rate allows. Retry in \
             {seconds} s.",
            partner.id
        );
        Err(ApiError::new(Code::RateLimited, detail))
    }

    /// Takes the memory of the body of the request, which has up to `bytes` bytes.
    ///
    /// # Errors
    /// As [`shares::PartnerShares::body_memory`].
    pub fn body_memory(&self, request: &HttpRequest, bytes: usize) -> Result<SlotGuard, ApiError> {
        shares(request)?.body_memory(request, self.partner(), bytes)
    }

    /// Waits until a page of up to `limit` items can be built for the partner, then confirms the rights of the caller.
    ///
    /// # Errors
    /// [`ApiError`] with status 429 while other pages of the partner, and with 503 while pages of other partners, are
    /// being built or sent; and as [`Self::confirm`].
    pub async fn page_turn(&mut self, request: &HttpRequest, limit: usize) -> Result<PageTurn, ApiError> {
        let all = shares(request)?;
        let turn = self.turn(request, &all.capacity(request).pages).await?;
        Ok((turn, all.page_memory(request, limit)?))
    }

    /// Waits for a turn of the partner, whose rights are looked up again then.
    ///
    /// # Errors
    /// As [`Self::page_turn`].
    pub async fn turn(&mut self, request: &HttpRequest, turns: &Turns) -> Result<Turn, ApiError> {
        let waited = turns.wait(self.partner()).await;
        let of_partner = |count| format!("Partner {} may read {count} pages at a time.", self.partner());
        let of_all = "Too many pages are being read. Try again.";
        let turn = waited.map_err(|refusal| shares::refused(request, refusal, of_partner, of_all))?;
        self.confirm(request).await?;
        Ok(turn)
    }

    /// Returns the visible transactions: all with the scope `admin`, otherwise those of the partner.
    pub fn view(&self) -> View<'_> {
        if self.key.grant.allows(Scope::Admin) { View::All } else { View::Own(self.partner()) }
    }
}

/// Permission to build a page, with its memory.
type PageTurn = (Turn, SlotGuard<Reader>);

impl<P: Permission> FromRequest for Caller<P> {
    type Error = ApiError;
    type Future = LocalBoxFuture<'static, Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let request = request.clone();
        async move {
            let (keyring, key) = authenticate(&request).await?;
            authorize(&key.grant, P::SCOPE)?;
            query::refuse_unknown(&request)?;
            use_signatures(&request).await?;
            let mut caller = Self::new(keyring, key, Some(P::SCOPE));
            // Recording the signatures may have waited for the store.
            caller.confirm(&request).await?;
            Ok(caller)
        }
        .boxed_local()
    }
}

/// Placeholder for a permission that depends on the body, after which the handler must call [`Caller::authorize`].
#[derive(Debug)]
pub enum Undecided {}

impl FromRequest for Caller<Undecided> {
    type Error = ApiError;
    type Future = LocalBoxFuture<'static, Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let request = request.clone();
        async move {
            let (keyring, key) = authenticate(&request).await?;
            Ok(Self::new(keyring, key, None))
        }
        .boxed_local()
    }
}

impl Caller<Undecided> {
    /// Checks that the key has a scope. Every later confirmation checks it again.
    ///
    /// # Errors
    /// [`ApiError`] with status 403.
    pub fn authorize(&mut self, scope: Scope) -> Result<(), ApiError> {
        self.scope = Some(scope);
        authorize(&self.key.grant, scope)
    }
}

/// Authenticates a request: checks key, request rate, slot and signature.
async fn authenticate(request: &HttpRequest) -> Result<(web::Data<Keyring>, PresentedKey), ApiError> {
    let key = credentials(request)?;
    let keyring = request
        .app_data::<web::Data<Keyring>>()
        .ok_or_else(|| ApiError::internal("the server was built without a keyring"))?;
    let rates = rates(request)?;
    let first_key_pending = keyring.awaits_first_key();
    if let Some(key) = keyring.look_up(&key).await? {
        note_known(request, &key.grant.partner.id);
        // The log and answers in the format of the partner use it, including the errors below.
        request.extensions_mut().insert(Arc::clone(&key.grant.partner));
        limit_rate(request, rates, &key.grant)?;
        take_slot(request, &key.grant)?;
        check_signature(request, &key)?;
        return Ok((keyring.clone(), key));
    }
    if first_key_pending {
        let detail = "The service is starting, and the first key is not stored yet. Try again.";
        return Err(ApiError::new(Code::StorageUnavailable, detail));
    }
    if let Some(address) = client_address(request) {
        rates.wrong_key_from(address).map_err(|seconds| too_many_invalid_keys(request, seconds))?;
    }
    let detail = if is_mistyped(&key) {
        "The API key in the Authorization header has a typing error: its checksum does not match."
    } else {
        "Check the API key in the Authorization header, or request a new one."
    };
    Err(ApiError::new(Code::ApiKeyInvalid, detail))
}

/// Returns whether an operator makes the request: on a path for operators or by the console, with an operator's scope.
/// Such requests have separate limits, so that operators can act while the partner of the key exhausts its own.
fn is_by_operator(request: &HttpRequest, grant: &Grant) -> bool {
    let is_theirs = is_of_operators(query::path(request)) || MadeByConsole::of(request).is_some();
    is_theirs && Scope::OF_OPERATORS.iter().any(|scope| grant.allows(*scope))
}

/// Takes one request from the rate limit of the partner. For an operator, uses the limit of the key, and marks the request.
fn limit_rate(request: &HttpRequest, rates: &Rates, grant: &Grant) -> Result<(), ApiError> {
    let partner = &grant.partner;
    let standing = if is_by_operator(request, grant) {
        request.extensions_mut().insert(ByOperator);
        rates.request_of_operator(&grant.key_id, partner.rate)
    } else {
        rates.request_of(&partner.id, partner.rate)
    };
    request.extensions_mut().insert(standing);
    let Some(seconds) = standing.retry_in_s else { return Ok(()) };
    request.extensions_mut().insert(RetryAfter(seconds));
    let RequestRate { per_second, burst } = standing.rate;
    let detail = format!(
        "Partner {} is limited to {per_second} requests per second and bursts of {burst}. Retry in {seconds} s.",
        partner.id
    );
    Err(ApiError::new(Code::RateLimited, detail))
}

/// Returns the rate limits of the server.
///
/// # Errors
/// [`ApiError`] if the server was built without them.
pub fn rates(request: &HttpRequest) -> Result<&web::Data<Rates>, ApiError> {
    request
        .app_data::<web::Data<Rates>>()
        .ok_or_else(|| ApiError::internal("the server was built without rates"))
}

/// Returns the resource limits of partners.
///
/// # Errors
/// [`ApiError`] if the server was built without.
pub fn shares(request: &HttpRequest) -> Result<&web::Data<PartnerShares>, ApiError> {
    request
        .app_data::<web::Data<PartnerShares>>()
        .ok_or_else(|| ApiError::internal("the server was built without shares of the partners"))
}

/// Takes one of the partner's slots for requests in progress, until the request is answered.
fn take_slot(request: &HttpRequest, grant: &Grant) -> Result<(), ApiError> {
    if is_by_operator(request, grant) {
        return Ok(());
    }
    let partner = &grant.partner.id;
    match shares(request)?.in_progress.take(partner, 1) {
        Ok(slot) => {
            request.extensions_mut().insert(slot);
            Ok(())
        }
        Err(NoSlot::OfHolder(count) | NoSlot::OfAll(count)) => {
            request.extensions_mut().insert(RetryAfter(1));
            let detail =
                format!("Partner {partner} may have {count} requests in progress. Wait for an answer first.");
            Err(ApiError::new(Code::RateLimited, detail))
        }
    }
}

/// Verifies the signature if the partner signs its requests, because a key alone could be stolen. The time is that at
/// which the key was presented: receiving a body can take longer than a signature is valid.
fn check_signature(request: &HttpRequest, key: &PresentedKey) -> Result<(), ApiError> {
    let verifier = request
        .app_data::<web::Data<Verifier>>()
        .ok_or_else(|| ApiError::internal("the server was built without a verifier"))?;
    verifier.check(request, &key.grant.partner, key.presented_at)
}

/// Records the signatures of a request as used, if it changes state and has no id of its own. Called before the request
/// has any effect, and only for permitted requests, so that others cannot fill the store.
async fn use_signatures(request: &HttpRequest) -> Result<(), ApiError> {
    let route = request.match_pattern().unwrap_or_default();
    if !acts::is_without_own_id(request.method().as_str(), &route) {
        return Ok(());
    }
    let verified = request.extensions().get::<VerifiedSignature>().cloned();
    let used = request
        .app_data::<web::Data<UsedSignatures>>()
        .ok_or_else(|| ApiError::internal("the server was built without used signatures"))?;
    for signature in verified.into_iter().flat_map(|verified| verified.uses) {
        if !used.use_once(&signature).await? {
            let detail = "A request without an id of its own needs a signature of its own. Sign the request again, with a \
                          new created or nonce.";
            return Err(ApiError::new(Code::SignatureUsed, detail));
        }
    }
    Ok(())
}

fn authorize(grant: &Grant, scope: Scope) -> Result<(), ApiError> {
    if grant.allows(scope) {
        return Ok(());
    }
    let detail = format!("The API key of partner {} lacks the scope {scope}.", grant.partner.id);
    Err(ApiError::new(Code::ScopeMissing, detail))
}

fn too_many_invalid_keys(request: &HttpRequest, seconds: u64) -> ApiError {
    request.extensions_mut().insert(RetryAfter(seconds));
    let detail = format!("This address sent too many invalid keys. Retry in {seconds} s.");
    ApiError::new(Code::RateLimited, detail)
}

/// Returns the key of a request. SOAP requests may use Basic authentication (RFC 7617), because many SOAP clients
/// support nothing else: the password is the key, and the user name is ignored.
///
/// # Errors
/// [`ApiError`] with status 401 when there is no key.
pub fn credentials(request: &HttpRequest) -> Result<Cow<'_, str>, ApiError> {
    let value = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let basic = value.and_then(|value| value.trim().split_once(' '));
    match basic.filter(|(scheme, _)| {
        soap_names::is_endpoint(query::path(request)) && scheme.eq_ignore_ascii_case("basic")
    }) {
        None => api_key(request.headers()).map(Cow::Borrowed),
        Some((_, encoded)) => password(encoded).map(Cow::Owned).ok_or_else(|| {
            let detail = "Send your key as the password in \"Authorization: Basic …\".";
            ApiError::new(Code::ApiKeyMissing, detail)
        }),
    }
}

fn password(encoded: &str) -> Option<String> {
    let decoded = String::from_utf8(BASE64_STANDARD.decode(encoded.trim()).ok()?).ok()?;
    let (_, password) = decoded.split_once(':')?;
    (!password.is_empty()).then(|| password.to_owned())
}

/// Returns the key in `Authorization: Bearer <key>`. The scheme name is case-insensitive (RFC 9110).
///
/// # Errors
/// [`ApiError`] with status 401 when there is no key.
pub fn api_key(headers: &HeaderMap) -> Result<&str, ApiError> {
    let missing = || {
        ApiError::new(Code::ApiKeyMissing, "Send your key in the header \"Authorization: Bearer <api key>\".")
    };
    let value = headers.get(header::AUTHORIZATION).ok_or_else(missing)?;
    let (scheme, key) =
        value.to_str().ok().and_then(|text| text.trim().split_once(' ')).ok_or_else(missing)?;
    let key = key.trim();
    if scheme.eq_ignore_ascii_case("bearer") && !key.is_empty() { Ok(key) } else { Err(missing()) }
}
