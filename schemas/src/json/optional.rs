//! Members that may be absent but must not be null.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserialize, Deserializer, Error, IntoDeserializer as _, MapAccess, SeqAccess, Visitor};

/// Deserializes a member that may be absent. If present, it must be a `T`. If `T` is an `Option`, the result distinguishes null
/// (`Some(None)`) from an absent member (`None`).
///
/// The function calls `deserialize_any`. A deserializer that also visits absent members calls `visit_some` or `visit_none`;
/// others, such as the one for JSON, visit the value directly.
pub(super) fn not_null<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    struct NotNull<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for NotNull<T> {
        type Value = Option<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a value")
        }

        fn visit_none<E>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_bool<E: Error>(self, value: bool) -> Result<Self::Value, E> {
            T::deserialize(value.into_deserializer()).map(Some)
        }

        fn visit_u64<E: Error>(self, value: u64) -> Result<Self::Value, E> {
            T::deserialize(value.into_deserializer()).map(Some)
        }

        fn visit_str<E: Error>(self, value: &str) -> Result<Self::Value, E> {
            T::deserialize(value.into_deserializer()).map(Some)
        }

        fn visit_seq<A: SeqAccess<'de>>(self, values: A) -> Result<Self::Value, A::Error> {
            T::deserialize(SeqAccessDeserializer::new(values)).map(Some)
        }

        fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<Self::Value, A::Error> {
            T::deserialize(MapAccessDeserializer::new(members)).map(Some)
        }

        fn visit_some<D: Deserializer<'de>>(self, value: D) -> Result<Self::Value, D::Error> {
            T::deserialize(value).map(Some)
        }
    }

    deserializer.deserialize_any(NotNull(PhantomData))
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use crate::json::PartnerReach;

    #[test]
    fn a_document_is_read_as_it_was_written() {
        let reach = [
            json!({"everything": true}),
            json!({"users": ["0b1c6f0a-54f2-4f0c-9c64-2f4b6a3f0d11"], "accounts": []}),
            json!({"accounts": [{"user_id": "0b1c6f0a", "account_id": "77aa0b9e"}]}),
        ];
        for written in reach {
            let read: PartnerReach = from_value(written.clone()).unwrap();
            assert_eq!(json!(read), written);
        }
        for refused in [json!({"everything": null}), json!({"users": null}), json!({"accounts": [null]})] {
            assert!(from_value::<PartnerReach>(refused.clone()).is_err(), "{refused}");
        }
    }
}
