//! The scopes as types, one each, so that a handler names its permission in its signature.

pub use postonce_shared::domain::scope::Scope;

/// A scope as a type, for [`crate::access::authentication::Caller`].
pub trait Permission: 'static {
    /// The scope that the caller's key must have.
    const SCOPE: Scope;
}

macro_rules! permissions {
    ($($name:ident)*) => {
        $(
            #[doc = concat!("The permission [`Scope::", stringify!($name), "`].")]
            #[derive(Debug)]
            pub enum $name {}

            impl Permission for $name {
                const SCOPE: Scope = Scope::$name;
            }
        )*
    };
}

permissions! { Deposit Withdraw Read Accounts Metrics Admin }
