//! Who calls, and whether it may. A handler names its permission in its signature: a
//! [`Caller<Permission>`] can only be made here, so a route without one does not come into being by
//! accident, and `withdraw` cannot be forgotten in a body. What the partner may touch is asked of the caller
//! as well: [`Caller::within`].

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
use postonce_shared::domain::ids::{AccountKey, PartnerId};
use postonce_shared::domain::partner::RequestRate;

use crate::access::keyring::{Grant, Keyring};
use crate::access::rates::{Rates, RetryAfter};
use crate::access::scopes::{Permission, Scope};
use crate::access::signatures::Verifier;
use crate::access::view::View;
use crate::error::{ApiError, Code};
use crate::formats::soap_names;

/// Somebody who may do what `P` says.
pub struct Caller<P> {
    grant: Arc<Grant>,
    permission: PhantomData<P>,
}

impl<P> Caller<P> {
    /// The partner that calls.
    pub fn partner(&self) -> &PartnerId {
        &self.grant.partner.id
    }

    /// What its key grants.
    pub fn grant(&self) -> &Grant {
        &self.grant
    }

    /// The account, if the partner may touch it. To others it looks as one that does not exist.
    ///
    /// # Errors
    /// [`ApiError`] of status 404.
    pub fn within(&self, account: AccountKey) -> Result<AccountKey, ApiError> {
        let reach = &self.grant.partner.reach;
        if reach.has_account(account) { Ok(account) } else { Err(ApiError::account_unknown()) }
    }

    /// Whose transactions it sees: its own, or, with the scope `admin`, those of all partners.
    pub fn view(&self) -> View<'_> {
        if self.grant.allows(Scope::Admin) { View::Everyones } else { View::Own(self.partner()) }
    }
}

impl<P: Permission> FromRequest for Caller<P> {
    type Error = ApiError;
    type Future = LocalBoxFuture<'static, Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let request = request.clone();
        async move {
            let grant = authenticate(&request).await?;
            authorize(&grant, P::SCOPE)?;
            Ok(Self { grant, permission: PhantomData })
        }
        .boxed_local()
    }
}

/// No permission yet: what the body asks for decides which one is needed. Whoever reads it must ask
/// [`Caller::authorize`].
#[derive(Debug)]
pub enum Undecided {}

impl FromRequest for Caller<Undecided> {
    type Error = ApiError;
    type Future = LocalBoxFuture<'static, Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let request = request.clone();
        async move {
            let grant = authenticate(&request).await?;
            Ok(Self { grant, permission: PhantomData })
        }
        .boxed_local()
    }
}

impl Caller<Undecided> {
    /// Whether its key allows what was asked for.
    ///
    /// # Errors
    /// [`ApiError`] of status 403.
    pub fn authorize(&self, scope: Scope) -> Result<(), ApiError> {
        authorize(&self.grant, scope)
    }
}

/// Who calls.
async fn authenticate(request: &HttpRequest) -> Result<Arc<Grant>, ApiError> {
    let key = &*credentials(request)?;
    let keyring = request
        .app_data::<web::Data<Keyring>>()
        .ok_or_else(|| ApiError::internal("the server was built without a keyring"))?;
    let rates = request
        .app_data::<web::Data<Rates>>()
        .ok_or_else(|| ApiError::internal("the server was built without rates"))?;
    let too_early = keyring.awaits_first_key();
    let spent = match request.peer_addr().filter(|_| keyring.is_unseen(key)) {
        Some(peer) => {
            Some(rates.unseen_key_from(peer.ip()).map_err(|seconds| too_many_keys(request, seconds))?)
        }
        None => None,
    };
    let grant = keyring.look_up(key).await;
    let is_wrong = matches!(grant, Ok(None)) && !too_early;
    if let Some(spent) = spent.filter(|_| !is_wrong) {
        spent.give_back();
    }
    if let Some(grant) = grant? {
        // For the log, and for answers in the partner's format: also what is refused from here on is its.
        request.extensions_mut().insert(Arc::clone(&grant.partner));
        spend(request, rates, &grant)?;
        check_signature(request, keyring, &grant)?;
        return Ok(grant);
    }
    if too_early {
        let detail = "The service has just started and does not know all keys yet. Try again.";
        return Err(ApiError::new(Code::StorageUnavailable, detail));
    }
    let detail = "Check the key in the Authorization header, or ask for a new one.";
    Err(ApiError::new(Code::ApiKeyInvalid, detail))
}

/// Whether the partner may make one more request now.
fn spend(request: &HttpRequest, rates: &Rates, grant: &Grant) -> Result<(), ApiError> {
    let partner = &grant.partner;
    let standing = rates.request_of(&partner.id, partner.rate);
    request.extensions_mut().insert(standing);
    let Some(seconds) = standing.retry_in_s else { return Ok(()) };
    request.extensions_mut().insert(RetryAfter(seconds));
    let RequestRate { per_second, burst } = standing.rate;
    let detail = format!(
        "Partner {} may make {per_second} requests a second and {burst} at once. Try again in {seconds} s.",
        partner.id
    );
    Err(ApiError::new(Code::RateLimited, detail))
}

/// Whether it is signed, as far as the partner signs. A key alone may have been stolen.
fn check_signature(request: &HttpRequest, keyring: &Keyring, grant: &Grant) -> Result<(), ApiError> {
    let verifier = request
        .app_data::<web::Data<Verifier>>()
        .ok_or_else(|| ApiError::internal("the server was built without a verifier"))?;
    verifier.check(request, &grant.partner, keyring.now())
}

/// Whether its key allows it.
fn authorize(grant: &Grant, scope: Scope) -> Result<(), ApiError> {
    if grant.allows(scope) {
        return Ok(());
    }
    let detail = format!("The key of partner {} has no scope {scope}.", grant.partner.id);
    Err(ApiError::new(Code::ScopeMissing, detail))
}

fn too_many_keys(request: &HttpRequest, seconds: u64) -> ApiError {
    request.extensions_mut().insert(RetryAfter(seconds));
    let detail = format!("Too many wrong keys came from this address. Try again in {seconds} s.");
    ApiError::new(Code::RateLimited, detail)
}

/// The key that came with a request. Clients of SOAP often know no other way than a user name with a
/// password (RFC 7617): then the key is the password, and the name is of no interest.
///
/// # Errors
/// [`ApiError`] of status 401 when there is none.
pub fn credentials(request: &HttpRequest) -> Result<Cow<'_, str>, ApiError> {
    let value = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let basic = value.and_then(|value| value.trim().split_once(' '));
    match basic
        .filter(|(scheme, _)| request.path() == soap_names::PATH && scheme.eq_ignore_ascii_case("basic"))
    {
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

/// The key in `Authorization: Bearer <key>`. The name of the scheme has no case (RFC 9110).
///
/// # Errors
/// [`ApiError`] of status 401 when there is none.
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
