//! What an API key allows: stable codes, and one type each so that a handler names its permission.

use std::fmt;

/// Declares the scopes, and for each of them the type that stands in a handler's signature.
macro_rules! scopes {
    ($($name:ident $code:literal $doc:literal;)*) => {
        /// A permission. The codes are stored with the keys and never change.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Scope {
            $(#[doc = $doc] $name,)*
        }

        impl Scope {
            /// Every scope.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The stable code, such as `accounts:read`.
            pub const fn code(self) -> &'static str {
                match self {
                    $(Self::$name => $code,)*
                }
            }

            /// What it allows, for people.
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$name => $doc,)*
                }
            }
        }

        $(
            #[doc = $doc]
            #[derive(Debug)]
            pub enum $name {}

            impl Permission for $name {
                const SCOPE: Scope = Scope::$name;
            }
        )*
    };
}

/// A scope as a type, for [`crate::auth::Caller`].
pub trait Permission: 'static {
    /// The scope that the caller's key must have.
    const SCOPE: Scope;
}

scopes! {
    AccountsRead "accounts:read" "Read accounts.";
    AccountsWrite "accounts:write" "Open and change accounts.";
    TransactionsRead "transactions:read" "Read transactions and statements.";
    TransactionsWrite "transactions:write" "Submit deposits and withdrawals.";
    Admin "admin" "Look at and repair what runs inside.";
    MetricsRead "metrics:read" "Read metrics.";
}

impl Scope {
    /// The scope with that code.
    pub fn from_code(code: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|scope| scope.code() == code)
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}
