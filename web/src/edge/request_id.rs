//! The id of a request: in its answer and in the log lines about it, so that a partner and an operator can speak about the
//! same request. It has no effect: a repetition is recognised by its `Idempotency-Key` alone.

use actix_web::http::header::{HeaderMap, HeaderValue};
use postonce_shared::ports::world::{World, WorldExt as _};

use crate::headers::X_REQUEST_ID;

/// Maximum length of an id that a client chose.
const CHARS_MAX: usize = 64;

/// The id of a request: visible ASCII.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestId(HeaderValue);

impl RequestId {
    /// Returns the id in the headers of a request, or a new one if there is none, or none that log lines can contain: up to 64
    /// letters, digits and `-._~:/+=@`.
    pub fn of(headers: &HeaderMap, world: &dyn World) -> Self {
        let mut values = headers.get_all(X_REQUEST_ID);
        let sent = values.next().filter(|value| is_valid(value.as_bytes()) && values.next().is_none());
        Self(sent.cloned().unwrap_or_else(|| {
            let new = world.uuid().simple().to_string();
            new.parse().expect("hexadecimal digits are visible ASCII")
        }))
    }

    /// Returns the id as text.
    pub fn as_str(&self) -> &str {
        self.0.to_str().unwrap_or_default()
    }

    /// Returns the value of the header of the answer.
    pub fn into_value(self) -> HeaderValue {
        self.0
    }
}

fn is_valid(id: &[u8]) -> bool {
    let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~:/+=@".contains(byte);
    (1..=CHARS_MAX).contains(&id.len()) && id.iter().all(allowed)
}

#[cfg(test)]
mod tests {
    use postonce_shared::adapters::memory::world::TestWorld;

    use super::*;

    #[test]
    fn valid_ids_are_kept_and_all_others_replaced() {
        let world = TestWorld::new(1);
        let id = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(X_REQUEST_ID, HeaderValue::from_str(value).unwrap());
            }
            RequestId::of(&headers, &world).as_str().to_owned()
        };
        for kept in
            ["1", "4f9d0c9e-5d3e-4c0e-9a51-1b7a4a4e2f10", "Root=1-67891233:abc/+@~._", &"x".repeat(64)]
        {
            assert_eq!(id(&[kept]), kept);
        }
        for replaced in ["", "a b", "a\"b", "a{b}", "\u{fc}", &"x".repeat(65)] {
            let made = id(&[replaced]);
            assert_eq!((made.len(), made == replaced), (32, false), "{replaced}");
        }
        assert_eq!(id(&["one", "two"]).len(), 32);
        assert_ne!(id(&[]), id(&[]));
    }
}
