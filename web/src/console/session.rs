//! The session of an operator: a cookie that stands for the API key with which it began.
//!
//! The cookie contains the hash of the key, and an authentication code with a key that is derived from the secret of the bank's
//! processes. So each of them recognizes it, nothing is stored, and the session is worth nothing once its key is revoked.

use std::time::Duration;

use actix_web::HttpRequest;
use actix_web::cookie::{Cookie, SameSite};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use postonce_shared::cluster::doorbell_secret::{CODE_BYTES, DoorbellKeys};
use postonce_shared::domain::time::Timestamp;

use super::context::Console;
use crate::access::authentication::CONSOLE;
use crate::access::session_key::SessionKey;

/// Longest time from signing in to the end of a session, however much it is used.
const LIFETIME_MAX: Duration = Duration::from_secs(12 * 3600);
/// How far the clocks of two processes may differ.
const SKEW_MAX: Duration = Duration::from_secs(60);
/// A session is renewed once this part of its time has passed.
const RENEWED_AFTER_PARTS: u32 = 8;
/// The name of the cookie.
const COOKIE: &str = "postonce_console";
/// What the codes of cookies and of forms are about.
const OF_COOKIE: &[u8] = b"cookie";
const OF_FORMS: &[u8] = b"forms";
/// Lengths of the parts of the content.
const HASH_BYTES: usize = 32;
const TIME_BYTES: usize = 8;
const NONCE_BYTES: usize = 16;

/// A session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Session {
    /// The key on whose behalf the operator acts.
    pub key: SessionKey,
    signed_in_at: Timestamp,
    used_at: Timestamp,
    /// Tells the sessions of one key apart.
    nonce: [u8; NONCE_BYTES],
}

impl Session {
    /// Begins a session now.
    pub const fn begin(key: SessionKey, now: Timestamp, nonce: [u8; NONCE_BYTES]) -> Self {
        Self { key, signed_in_at: now, used_at: now, nonce }
    }

    /// Returns the session in the value of a cookie; `None` if it is not one of the bank, or has ended.
    pub fn read(value: &str, keys: &DoorbellKeys, now: Timestamp, unused_max: Duration) -> Option<Self> {
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(value).ok()?;
        let (content, code) = bytes.split_last_chunk::<CODE_BYTES>()?;
        if !keys.verify_session(&[OF_COOKIE, content], code) {
            return None;
        }
        let (hash, rest) = content.split_first_chunk::<HASH_BYTES>()?;
        let (signed_in, rest) = rest.split_first_chunk::<TIME_BYTES>()?;
        let (used, nonce) = rest.split_first_chunk::<TIME_BYTES>()?;
        let time = |bytes: &[u8; TIME_BYTES]| Timestamp::from_unix_ms(i64::from_be_bytes(*bytes));
        let session = Self {
            key: SessionKey(*hash),
            signed_in_at: time(signed_in),
            used_at: time(used),
            nonce: nonce.try_into().ok()?,
        };
        session.is_valid(now, unused_max).then_some(session)
    }

    /// Returns whether the session has not ended.
    pub fn is_valid(&self, now: Timestamp, unused_max: Duration) -> bool {
        let is_past = self.used_at.since(now) <= SKEW_MAX;
        is_past && now.since(self.used_at) < unused_max && now.since(self.signed_in_at) < LIFETIME_MAX
    }

    /// Returns the session as used now, if its cookie is old enough to be replaced.
    pub fn renewed(&self, now: Timestamp, unused_max: Duration) -> Option<Self> {
        let is_old = now.since(self.used_at) >= unused_max.checked_div(RENEWED_AFTER_PARTS)?;
        is_old.then_some(Self { used_at: now, ..*self })
    }

    /// Returns the cookie of the session. Scripts cannot read it, other sites cannot send it, and over TLS it is sent only there.
    pub fn cookie(&self, keys: &DoorbellKeys, is_encrypted: bool) -> Cookie<'static> {
        let content = [
            &self.key.0[..],
            &self.signed_in_at.unix_ms().to_be_bytes(),
            &self.used_at.unix_ms().to_be_bytes(),
            &self.nonce,
        ]
        .concat();
        let code = keys.sign_session(&[OF_COOKIE, &content]);
        cookie(BASE64_URL_SAFE_NO_PAD.encode([&content[..], &code].concat()), is_encrypted)
    }

    /// Returns the token of the forms of this session: another site cannot know it.
    pub fn form_token(&self, keys: &DoorbellKeys) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(keys.sign_session(&self.of_forms()))
    }

    /// Returns whether a form has the token of this session.
    pub fn has_token(&self, token: &str, keys: &DoorbellKeys) -> bool {
        BASE64_URL_SAFE_NO_PAD.decode(token).is_ok_and(|code| keys.verify_session(&self.of_forms(), &code))
    }

    fn of_forms(&self) -> [&[u8]; 3] {
        [OF_FORMS, &self.key.0[..], &self.nonce[..]]
    }
}

/// Returns the session in the cookie of a request, and `Some(None)` if it has ended or is not one of the bank.
pub fn session_of(
    request: &HttpRequest,
    console: &Console,
    secret: &DoorbellKeys,
) -> Option<Option<Session>> {
    let cookie = request.cookie(COOKIE)?;
    Some(Session::read(cookie.value(), secret, console.world.now(), console.terms.session))
}

/// Returns the cookie that ends a session in the browser.
pub fn removal(is_encrypted: bool) -> Cookie<'static> {
    let mut cookie = cookie(String::new(), is_encrypted);
    cookie.make_removal();
    cookie
}

fn cookie(value: String, is_encrypted: bool) -> Cookie<'static> {
    Cookie::build(COOKIE, value)
        .path(CONSOLE)
        .http_only(true)
        .same_site(SameSite::Strict)
        .secure(is_encrypted)
        .finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNUSED_MAX: Duration = Duration::from_secs(600);

    fn keys(secret: &str) -> DoorbellKeys {
        DoorbellKeys::parse(secret).unwrap()
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_unix_ms(seconds.saturating_mul(1000).saturating_add(1_700_000_000_000))
    }

    fn read(value: &str, secret: &str, seconds: i64) -> Option<Session> {
        Session::read(value, &keys(secret), at(seconds), UNUSED_MAX)
    }

    const SECRET: &str = "0123456789abcdef";
    const NEXT: &str = "fedcba9876543210,0123456789abcdef";

    #[test]
    fn a_session_lasts_while_it_is_used_and_at_most_half_a_day() {
        let mut session = Session::begin(SessionKey([7; 32]), at(0), [1; 16]);
        let value = session.cookie(&keys(SECRET), false).value().to_owned();
        assert_eq!(read(&value, SECRET, 599), Some(session));
        assert_eq!(read(&value, SECRET, 600), None, "it was not used");
        assert_eq!(session.renewed(at(74), UNUSED_MAX), None, "not for every request");
        for seconds in (500..43_200).step_by(500) {
            session = session.renewed(at(seconds), UNUSED_MAX).unwrap();
        }
        let value = session.cookie(&keys(SECRET), false).value().to_owned();
        assert_eq!(read(&value, SECRET, 43_199), Some(session));
        assert_eq!(read(&value, SECRET, 43_200), None, "half a day has passed");
        assert_eq!(read(&value, SECRET, 0), None, "it comes from the future");
    }

    #[test]
    fn each_process_reads_a_session_and_nobody_else_makes_one() {
        let session = Session::begin(SessionKey([7; 32]), at(0), [1; 16]);
        let value = session.cookie(&keys(SECRET), false).value().to_owned();
        assert_eq!(read(&value, NEXT, 1), Some(session), "also after the secret was replaced");
        assert_eq!(read(&value, "another-secret!!", 1), None);
        for changed in 0..value.len() {
            let mut bytes = value.clone().into_bytes();
            bytes[changed] = if bytes[changed] == b'A' { b'B' } else { b'A' };
            assert_eq!(read(std::str::from_utf8(&bytes).unwrap(), SECRET, 1), None, "byte {changed}");
        }
    }

    #[test]
    fn a_form_needs_the_token_of_its_session() {
        let (one, other) = ([1; 16], [2; 16]);
        let [one, other] = [one, other].map(|nonce| Session::begin(SessionKey([7; 32]), at(0), nonce));
        let token = one.form_token(&keys(SECRET));
        assert!(one.has_token(&token, &keys(NEXT)));
        assert!(!other.has_token(&token, &keys(SECRET)));
        let cookie = one.cookie(&keys(SECRET), false).value().to_owned();
        let code = BASE64_URL_SAFE_NO_PAD.decode(cookie).unwrap().split_off(64);
        assert!(!one.has_token(&BASE64_URL_SAFE_NO_PAD.encode(code), &keys(SECRET)), "that of the cookie");
        let renewed = one.renewed(at(500), UNUSED_MAX).unwrap();
        assert!(renewed.has_token(&token, &keys(SECRET)), "forms of open pages stay valid");
    }

    #[test]
    fn the_cookie_is_kept_from_scripts_and_other_sites() {
        let session = Session::begin(SessionKey([7; 32]), at(0), [1; 16]);
        let attributes = session.cookie(&keys(SECRET), true).to_string();
        for attribute in ["HttpOnly", "SameSite=Strict", "Secure", "Path=/console"] {
            assert!(attributes.contains(attribute), "{attribute}: {attributes}");
        }
        assert!(!session.cookie(&keys(SECRET), false).to_string().contains("Secure"));
    }
}
