//! Marks of console requests, used by the log, the audit trail and the limits.

use actix_web::{HttpMessage as _, HttpRequest};
use postonce_schemas::json::Key;

/// Marks a request that the console makes to the API within this process. Clients cannot set this extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MadeByConsole {
    /// Whether the request reads current values for the event stream of an open page.
    pub for_stream: bool,
}

impl MadeByConsole {
    /// Returns the mark of a request, if the console made it.
    pub fn of(request: &HttpRequest) -> Option<Self> {
        request.extensions().get::<Self>().copied()
    }
}

/// Marks a request of a browser to the console.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToConsole {
    /// Whether the cookie belongs to a session that has not ended.
    pub has_session: bool,
    /// The API key of the session, once it was looked up and found valid.
    pub key: Option<SessionKey>,
    /// Whether the API refused a request on behalf of this one. The API has then recorded the refusal.
    pub is_refused_by_api: bool,
    /// Whether the API failed on behalf of this request, with a server error. The API has then counted the failure.
    pub is_failed_by_api: bool,
}

/// The API key of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionKey {
    /// Id of the partner that owns the key.
    pub partner: String,
    /// Id of the key.
    pub id: String,
}

impl SessionKey {
    /// Converts the description of a key that the API returns.
    pub fn of(found: &Key) -> Self {
        Self { partner: found.partner_id.clone(), id: found.key_id.clone() }
    }
}

impl ToConsole {
    /// Returns the mark of a request, or an empty one.
    pub fn of(request: &HttpRequest) -> Self {
        request.extensions().get::<Self>().cloned().unwrap_or_default()
    }

    /// Changes the mark of a request.
    pub fn note(request: &HttpRequest, change: impl FnOnce(&mut Self)) {
        let mut known = Self::of(request);
        change(&mut known);
        request.extensions_mut().insert(known);
    }
}
