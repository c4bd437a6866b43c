//! Members that may be left out but must not be null.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Visitor};

/// Reads a member that may be left out: what is there must be a `T`. Of an `Option`, this tells null (`Some(None)`)
/// from left out (`None`).
///
/// It asks for any value; a deserializer answers with a value (`visit_some`), or, where it presents members that
/// were left out, with `visit_none`.
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
