//! What is known about requests of the console, for log, audit trail and limits.

use actix_web::{HttpMessage as _, HttpRequest};
use postonce_schemas::json::Key;

/// A request that the console makes to the API within this process. Only the console sets it: no request of a client can contain
/// it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MadeByConsole {
    /// Whether it reads current values for a page that is open.
    pub for_stream: bool,
}

impl MadeByConsole {
    /// Returns the mark of a request, if the console makes it.
    pub fn of(request: &HttpRequest) -> Option<Self> {
        request.extensions().get::<Self>().copied()
    }
}

/// A request of a browser to the console.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToConsole {
    /// Whether its cookie is that of a session that has not ended.
    pub has_session: bool,
    /// The API key of that session, once it was looked up and is valid.
    pub key: Option<SessionKey>,
    /// Whether the API refused a request that was made for this one: it has then recorded the refusal.
    pub is_refused_by_api: bool,
    /// Whether the API answered a request that was made for this one with a server error: it has then counted the failure.
    pub is_failed_by_api: bool,
}

/// The API key of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionKey {
    /// Its partner.
    pub partner: String,
    /// Its id.
    pub id: String,
}

impl SessionKey {
    /// Returns the key that the API describes.
    pub fn of(found: &Key) -> Self {
        Self { partner: found.partner_id.clone(), id: found.key_id.clone() }
    }
}

impl ToConsole {
    /// Returns what is known about a request.
    pub fn of(request: &HttpRequest) -> Self {
        request.extensions().get::<Self>().cloned().unwrap_or_default()
    }

    /// Changes what is known about a request.
    pub fn note(request: &HttpRequest, change: impl FnOnce(&mut Self)) {
        let mut known = Self::of(request);
        change(&mut known);
        request.extensions_mut().insert(known);
    }
}
