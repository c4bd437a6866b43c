//! The API key of a signed-in operator. The console calls the API on behalf of the key with which its session began; the key
//! itself is not kept anywhere, so its hash stands for it.

use actix_web::{HttpMessage as _, HttpRequest};

/// The hash of the API key on whose behalf a request is made. Only the console sets it, on requests that it makes itself within
/// this process: no request of a client can contain it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionKey(pub [u8; 32]);

/// A request that belongs to a valid session of the console.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OfSession;

impl OfSession {
    /// Records that a request belongs to a valid session.
    pub fn note(request: &HttpRequest) {
        request.extensions_mut().insert(Self);
    }

    /// Returns whether a request belongs to one.
    pub fn is(request: &HttpRequest) -> bool {
        request.extensions().contains::<Self>()
    }
}

impl SessionKey {
    /// Returns the key on whose behalf a request is made, if the console made it.
    pub fn of(request: &HttpRequest) -> Option<Self> {
        request.extensions().get::<Self>().copied()
    }
}
