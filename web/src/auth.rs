//! Who calls, and whether it may. A handler names its permission in its signature: a
//! [`Caller<Permission>`] can only be made here, so a route without one does not come into being by
//! accident, and `transactions:write` cannot be forgotten in a body.

use std::marker::PhantomData;

use actix_web::dev::Payload;
use actix_web::http::header::{self, HeaderMap};
use actix_web::{FromRequest, HttpMessage as _, HttpRequest, web};
use futures::FutureExt as _;
use futures::future::LocalBoxFuture;
use postonce_shared::domain::ids::PartnerId;
use postonce_shared::domain::partner::RequestRate;

use crate::error::{ApiError, Code};
use crate::keyring::Keyring;
use crate::limits::{Rates, RetryAfter};
use crate::scopes::Permission;

/// Somebody who may do what `P` says.
pub struct Caller<P> {
    partner: PartnerId,
    permission: PhantomData<P>,
}

impl<P> Caller<P> {
    /// The partner that calls.
    pub const fn partner(&self) -> &PartnerId {
        &self.partner
    }
}

impl<P: Permission> FromRequest for Caller<P> {
    type Error = ApiError;
    type Future = LocalBoxFuture<'static, Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let request = request.clone();
        async move {
            let partner = authenticate::<P>(&request).await?;
            Ok(Self { partner, permission: PhantomData })
        }
        .boxed_local()
    }
}

async fn authenticate<P: Permission>(request: &HttpRequest) -> Result<PartnerId, ApiError> {
    let key = api_key(request.headers())?;
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
    let Some(grant) = grant? else {
        if too_early {
            let detail = "The service has just started and does not know all keys yet. Try again.";
            return Err(ApiError::new(Code::StorageUnavailable, detail));
        }
        let detail = "Check the key in the Authorization header, or ask for a new one.";
        return Err(ApiError::new(Code::ApiKeyInvalid, detail));
    };
    // For the log: also what is refused from here on is its doing.
    request.extensions_mut().insert(grant.partner.clone());
    let standing = rates.request_of(&grant.partner, None);
    request.extensions_mut().insert(standing);
    if let Some(seconds) = standing.retry_in_s {
        request.extensions_mut().insert(RetryAfter(seconds));
        let RequestRate { per_second, burst } = standing.rate;
        let detail = format!(
            "Partner {} may make {per_second} requests a second and {burst} at once. Try again in {seconds} s.",
            grant.partner
        );
        return Err(ApiError::new(Code::RateLimited, detail));
    }
    if !grant.scopes.contains(&P::SCOPE) {
        let detail = format!("The key of partner {} has no scope {}.", grant.partner, P::SCOPE);
        return Err(ApiError::new(Code::ScopeMissing, detail));
    }
    Ok(grant.partner.clone())
}

fn too_many_keys(request: &HttpRequest, seconds: u64) -> ApiError {
    request.extensions_mut().insert(RetryAfter(seconds));
    let detail = format!("Too many wrong keys came from this address. Try again in {seconds} s.");
    ApiError::new(Code::RateLimited, detail)
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
