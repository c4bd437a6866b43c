//! Scopes as marker types, so that a handler names its permission in its signature.

pub use postonce_shared::domain::scope::Scope;

/// Marker type of a scope, for [`crate::access::authentication::Caller`].
pub trait Permission: 'static {
    /// The scope that the key of the caller must have.
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

permissions! { Deposit Withdraw Batch Ring Read Accounts Metrics Scale Operate Partners Admin }
