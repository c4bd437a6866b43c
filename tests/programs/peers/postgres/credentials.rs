//! Authentication. As in any service that stores no keys in the clear, the hash of the received key is compared
//! with the known hash.

use actix_web::http::header::{AUTHORIZATION, HeaderMap};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::peers::postgres::answer::Refusal;

/// The hash of the one key.
#[derive(Debug)]
pub struct Credentials([u8; 32]);

impl Credentials {
    /// Accepts requests with this key.
    pub fn of(key: &str) -> Self {
        Self(Sha256::digest(key).into())
    }

    /// Refuses a request without the key.
    pub fn check(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let value = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let key = value.and_then(|value| value.split_once(' '));
        let Some((_, key)) = key.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")) else {
            return Err(Refusal::KeyMissing);
        };
        let presented: [u8; 32] = Sha256::digest(key.trim()).into();
        if bool::from(presented.ct_eq(&self.0)) { Ok(()) } else { Err(Refusal::KeyInvalid) }
    }
}
