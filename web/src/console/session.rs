//! Session of an operator: a cookie that contains the API key with which the operator signed in.
//!
//! The cookie is encrypted with a key derived from the shared secret of the bank's processes. Every process can thus read
//! it, and no session is stored. Each request presents the API key, so a session is worthless once the key is revoked.
//! Neither the store, which contains only hashes of API keys, nor a backup is sufficient to forge a session.

use std::time::Duration;

use actix_web::HttpRequest;
use actix_web::cookie::{Cookie, CookieJar, Key, SameSite};
use postonce_shared::cluster::doorbell_secret::DoorbellKeys;
use postonce_shared::domain::time::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq as _;
use uuid::Uuid;

use super::context::{Console, is_encrypted};
use crate::access::authentication::CONSOLE;

/// Maximum time from sign-in to the end of a session, regardless of its use.
const LIFETIME_MAX: Duration = Duration::from_secs(12 * 3600);
/// Maximum clock difference between two processes.
const SKEW_MAX: Duration = Duration::from_secs(300);
/// Divisor of the maximum idle time: a session is renewed after the resulting time without renewal.
const RENEWED_AFTER_PARTS: u32 = 8;
/// Name of the cookie over plain HTTP.
const COOKIE: &str = "postonce_console";
/// Name of the cookie over TLS. Its prefix makes browsers accept it only from this host and over TLS (RFC 6265bis,
/// section 4.1.3.2).
const HOST_COOKIE: &str = "__Host-postonce_console";

/// Session of a signed-in operator.
#[derive(Debug, Clone)]
pub struct Session {
    key: SecretString,
    signed_in_at: Timestamp,
    used_at: Timestamp,
    /// Token that forms of this session must contain. Other sites cannot know it.
    form_token: Uuid,
}

/// Content of the cookie. Times are Unix times in milliseconds.
#[derive(Serialize, Deserialize)]
struct Content {
    key: String,
    signed_in_at: i64,
    used_at: i64,
    form_token: Uuid,
}

impl Session {
    /// Starts a session of an API key. `form_token` must be random.
    pub fn begin(key: &str, now: Timestamp, form_token: Uuid) -> Self {
        Self { key: key.into(), signed_in_at: now, used_at: now, form_token }
    }

    /// Returns the API key of the operator.
    pub fn key(&self) -> &str {
        self.key.expose_secret()
    }

    /// Decrypts the session in a cookie. Returns `None` if it is not a valid session cookie, or the session has ended.
    pub fn read(
        cookie: &Cookie<'static>,
        keys: &DoorbellKeys,
        now: Timestamp,
        unused_max: Duration,
    ) -> Option<Self> {
        let decrypt = |key| CookieJar::new().private(&Key::derive_from(key)).decrypt(cookie.clone());
        let decrypted = keys.session_keys().find_map(decrypt)?;
        let content: Content = serde_json::from_str(decrypted.value()).ok()?;
        let session = Self {
            key: content.key.into(),
            signed_in_at: Timestamp::from_unix_ms(content.signed_in_at),
            used_at: Timestamp::from_unix_ms(content.used_at),
            form_token: content.form_token,
        };
        session.is_valid(now, unused_max).then_some(session)
    }

    /// Returns whether the session has not ended.
    pub fn is_valid(&self, now: Timestamp, unused_max: Duration) -> bool {
        let is_past = self.used_at.since(now) <= SKEW_MAX;
        is_past && now.since(self.used_at) < unused_max && now.since(self.signed_in_at) < LIFETIME_MAX
    }

    /// Returns the session with a new time of use, if its cookie is due for renewal.
    pub fn renewed(&self, now: Timestamp, unused_max: Duration) -> Option<Self> {
        let is_old = now.since(self.used_at) >= unused_max.checked_div(RENEWED_AFTER_PARTS)?;
        is_old.then(|| Self { used_at: now, ..self.clone() })
    }

    /// Returns the cookie of the session. Scripts cannot read it. Requests from other sites include it only for links, as
    /// in an email. Over TLS, it is sent only over TLS.
    pub fn cookie(&self, keys: &DoorbellKeys, is_encrypted: bool) -> Cookie<'static> {
        let content = Content {
            key: self.key().to_owned(),
            signed_in_at: self.signed_in_at.unix_ms(),
            used_at: self.used_at.unix_ms(),
            form_token: self.form_token,
        };
        let content =
            serde_json::to_string(&content).expect("texts and numbers can always be written as JSON");
        let key = keys.session_keys().next().map(Key::derive_from).expect("there is at least one");
        let (mut jar, cookie) = (CookieJar::new(), cookie(content, is_encrypted));
        let name = cookie.name().to_owned();
        jar.private_mut(&key).add(cookie);
        jar.get(&name).cloned().expect("it was added")
    }

    /// Returns the token that forms of this session must contain. It stays the same when the session is renewed.
    pub fn form_token(&self) -> String {
        self.form_token.simple().to_string()
    }

    /// Returns whether a form token is that of this session. Compares in constant time.
    pub fn has_token(&self, token: &str) -> bool {
        self.form_token().as_bytes().ct_eq(token.as_bytes()).into()
    }
}

/// Returns the session in the cookie of a request: `None` without a cookie, `Some(None)` if it is not valid or has ended.
pub fn session_of(
    request: &HttpRequest,
    console: &Console,
    secret: &DoorbellKeys,
) -> Option<Option<Session>> {
    let cookie = request.cookie(name(is_encrypted(request)))?;
    Some(Session::read(&cookie, secret, console.world.now(), console.terms.session))
}

/// Returns the cookie that removes the session from the browser.
pub fn removal(is_encrypted: bool) -> Cookie<'static> {
    let mut cookie = cookie(String::new(), is_encrypted);
    cookie.make_removal();
    cookie
}

const fn name(is_encrypted: bool) -> &'static str {
    if is_encrypted { HOST_COOKIE } else { COOKIE }
}

fn cookie(value: String, is_encrypted: bool) -> Cookie<'static> {
    Cookie::build(name(is_encrypted), value)
        .path(if is_encrypted { "/" } else { CONSOLE })
        .http_only(true)
        .same_site(SameSite::Lax)
        .secure(is_encrypted)
        .finish()
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::prelude::BASE64_STANDARD;

    use super::*;

    const UNUSED_MAX: Duration = Duration::from_secs(600);
    const KEY: &str = "po_0123456789";
    const SECRET: &str = "0123456789abcdef";
    const NEXT: &str = "fedcba9876543210,0123456789abcdef";

    fn keys(secret: &str) -> DoorbellKeys {
        DoorbellKeys::parse(secret).unwrap()
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_unix_ms(seconds.saturating_mul(1000).saturating_add(1_700_000_000_000))
    }

    fn begun() -> Session {
        Session::begin(KEY, at(0), Uuid::from_u128(1))
    }

    fn read(cookie: &Cookie<'static>, secret: &str, seconds: i64) -> Option<String> {
        let session = Session::read(cookie, &keys(secret), at(seconds), UNUSED_MAX);
        session.map(|session| session.key().to_owned())
    }

    #[test]
    fn a_session_lasts_while_it_is_used_and_at_most_half_a_day() {
        let mut session = begun();
        let cookie = session.cookie(&keys(SECRET), false);
        assert_eq!(read(&cookie, SECRET, 599).as_deref(), Some(KEY));
        assert_eq!(read(&cookie, SECRET, 600), None, "it was not used");
        assert!(session.renewed(at(74), UNUSED_MAX).is_none(), "not for every request");
        for seconds in (500..43_200).step_by(500) {
            session = session.renewed(at(seconds), UNUSED_MAX).unwrap();
        }
        let cookie = session.cookie(&keys(SECRET), false);
        assert_eq!(read(&cookie, SECRET, 43_199).as_deref(), Some(KEY));
        assert_eq!(read(&cookie, SECRET, 43_200), None, "half a day has passed");
        assert_eq!(read(&cookie, SECRET, 0), None, "it comes from the future");
    }

    #[test]
    fn each_process_reads_a_session_and_a_changed_one_is_refused() {
        let cookie = begun().cookie(&keys(SECRET), false);
        assert_eq!(read(&cookie, NEXT, 1).as_deref(), Some(KEY), "also after the secret was replaced");
        assert_eq!(read(&cookie, "another-secret!!", 1), None);
        let value = cookie.value().to_owned();
        for changed in 0..value.len() {
            let mut bytes = value.clone().into_bytes();
            bytes[changed] = if bytes[changed] == b'A' { b'B' } else { b'A' };
            let mut cookie = cookie.clone();
            cookie.set_value(String::from_utf8(bytes).unwrap());
            assert_eq!(read(&cookie, SECRET, 1), None, "byte {changed}");
        }
        let other_name = Cookie::new(HOST_COOKIE, value);
        assert_eq!(read(&other_name, SECRET, 1), None, "a cookie of plain HTTP is none of TLS");
    }

    #[test]
    fn the_cookie_does_not_show_the_key() {
        let cookie = begun().cookie(&keys(SECRET), false);
        let content = BASE64_STANDARD.decode(cookie.value()).unwrap();
        assert!(!String::from_utf8_lossy(&content).contains("po_"));
        assert!(!format!("{:?}", begun()).contains(KEY), "nor does the log");
        let twice = begun().cookie(&keys(SECRET), false);
        assert_ne!(twice.value(), cookie.value(), "equal sessions look different");
    }

    #[test]
    fn a_form_needs_the_token_of_its_session() {
        let (one, other) = (begun(), Session::begin(KEY, at(0), Uuid::from_u128(2)));
        let token = one.form_token();
        assert!(one.has_token(&token));
        assert!(!other.has_token(&token) && !one.has_token(""));
        assert!(
            one.renewed(at(500), UNUSED_MAX).unwrap().has_token(&token),
            "forms of open pages stay valid"
        );
    }

    #[test]
    fn the_cookie_is_kept_from_scripts_and_other_sites() {
        let over_tls = begun().cookie(&keys(SECRET), true).to_string();
        for attribute in ["__Host-postonce_console=", "HttpOnly", "SameSite=Lax", "Secure", "Path=/;"] {
            assert!(format!("{over_tls};").contains(attribute), "{attribute}: {over_tls}");
        }
        let plain = begun().cookie(&keys(SECRET), false).to_string();
        assert!(plain.contains("Path=/console") && !plain.contains("Secure"), "{plain}");
    }
}
