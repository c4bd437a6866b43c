//! Permissions of an API key. The codes are stored with the keys and never change.

use std::collections::BTreeSet;
use std::fmt;

/// Declares the scopes with their codes and meanings.
macro_rules! scopes {
    ($($name:ident $code:literal $doc:literal;)*) => {
        /// A permission.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Scope {
            $(#[doc = $doc] $name,)*
        }

        impl Scope {
            /// Every scope.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Returns the stable code, such as `deposit`.
            pub const fn code(self) -> &'static str {
                match self {
                    $(Self::$name => $code,)*
                }
            }

            /// Returns a description for people.
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$name => $doc,)*
                }
            }
        }
    };
}

scopes! {
    Deposit "deposit" "Submit deposits.";
    Withdraw "withdraw" "Submit withdrawals.";
    Batch "batch" "Submit batches of the transactions that the other scopes allow.";
    Read "read" "Read accounts, and the partner's own transactions.";
    Accounts "accounts" "Open and change accounts.";
    Metrics "metrics" "Read metrics.";
    Admin "admin" "Operate the bank: inspect and repair it, manage partners and keys, and read the transactions of all \
        partners. It includes `accounts` and `metrics`.";
}

/// Codes of earlier versions, which occur in stores and scripts, with their current meaning.
const ALIASES: [(&str, &[Scope]); 5] = [
    ("transactions:write", &[Scope::Deposit, Scope::Withdraw]),
    ("transactions:read", &[Scope::Read]),
    ("accounts:read", &[Scope::Read]),
    ("accounts:write", &[Scope::Accounts]),
    ("metrics:read", &[Scope::Metrics]),
];

impl Scope {
    /// Returns the scopes that a current or earlier code grants; `None` for other codes.
    pub fn of_code(code: &str) -> Option<&'static [Self]> {
        let today = Self::ALL.iter().find(|scope| scope.code() == code).map(std::slice::from_ref);
        today.or_else(|| ALIASES.iter().find(|(alias, _)| *alias == code).map(|(_, scopes)| *scopes))
    }

    /// Returns the scopes that stored codes grant together, each once. Codes of newer versions are ignored.
    pub fn of_codes<C: AsRef<str>>(codes: &[C]) -> Vec<Self> {
        let scopes = codes.iter().filter_map(|code| Self::of_code(code.as_ref())).flatten().copied();
        scopes.collect::<BTreeSet<Self>>().into_iter().collect()
    }

    /// Returns all current codes, for error messages.
    pub fn codes() -> String {
        let codes: Vec<&str> = Self::ALL.iter().map(|scope| scope.code()).collect();
        codes.join(", ")
    }

    /// Returns whether this scope grants `other` as well.
    pub fn includes(self, other: Self) -> bool {
        self == other || (self == Self::Admin && matches!(other, Self::Accounts | Self::Metrics))
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_of_earlier_versions_keep_their_meaning() {
        let check =
            |code: &str, expected: Option<&[Scope]>| assert_eq!(Scope::of_code(code), expected, "{code}");
        for scope in Scope::ALL {
            check(scope.code(), Some(&[*scope]));
        }
        check("transactions:write", Some(&[Scope::Deposit, Scope::Withdraw]));
        check("transactions:read", Some(&[Scope::Read]));
        check("accounts:read", Some(&[Scope::Read]));
        check("accounts:write", Some(&[Scope::Accounts]));
        check("metrics:read", Some(&[Scope::Metrics]));
        for wrong in ["", "Admin", "admin:read", "deposit,withdraw", "everything"] {
            check(wrong, None);
        }
    }

    #[test]
    fn only_admin_includes_others() {
        for one in Scope::ALL {
            for other in Scope::ALL {
                let by_admin = *one == Scope::Admin && [Scope::Accounts, Scope::Metrics].contains(other);
                assert_eq!(one.includes(*other), one == other || by_admin, "{one} and {other}");
            }
        }
    }
}
