//! Members that may be absent but must not be null.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Visitor};

/// Deserializes a member that may be absent; if present, it must be a `T`. If `T` is an `Option`, the result
/// distinguishes null (`Some(None)`) from an absent member (`None`).
///
/// It calls `deserialize_any`. A deserializer calls `visit_some` with a value, or `visit_none` if it also visits
/// absent members.
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

        fn visit_some<D: Deserializer<'de>>(self, value: D) -> Result<Self::Value, D::Error> {
            T::deserialize(value).map(Some)
        }
    }

    deserializer.deserialize_any(NotNull(PhantomData))
}
