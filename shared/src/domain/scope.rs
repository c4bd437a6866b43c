//! Permissions of an API key. The codes are stored with the keys and never change.

use std::collections::BTreeSet;
use std::fmt;

/// Declares the scopes with their codes and meanings.
macro_rules! scopes {
    ($($name:ident $code:literal $doc:literal;)*) => {
        /// A permission of an API key.
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
    Ring "ring" "Ring for the partner's own ingest queues; together with `operate` for all.";
    Read "read" "Read accounts, and the partner's own transactions.";
    Accounts "accounts" "Open and change accounts.";
    Credit "credit" "Set a new or higher overdraft limit, together with `accounts`.";
    Metrics "metrics" "Read metrics, the overview, the queues and the gate.";
    Scale "scale" "Read the wanted number of workers, and nothing else.";
    Operate "operate" "Operate the processing: read the queues, the scrubber and the storage operations, hold, schedule and \
        release the gate, read, replay and discard dead letters, which contain transactions of all partners, and read and \
        cancel batches of all partners. It includes `metrics` and `scale`.";
    Partners "partners" "Manage partners and their keys, up to the scopes, the reach and the credit of the own key; not the \
        terms of the own partner, and no partner that may do more.";
    Admin "admin" "Operate the bank: inspect and repair it, manage all partners and keys, and read the transactions of all \
        partners and the results of their batches. It includes `read`, `accounts`, `credit`, `metrics`, `scale`, `operate` and \
        `partners`, and grants every scope.";
}

impl Scope {
    /// The scopes for operating the service; [`Self::Admin`] includes them.
    pub const OF_OPERATORS: [Self; 4] = [Self::Metrics, Self::Scale, Self::Operate, Self::Partners];

    /// Returns the scope with this code.
    pub fn from_code(code: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|scope| scope.code() == code)
    }

    /// Returns the codes to store with a key that has these scopes.
    pub fn to_stored(scopes: &[Self]) -> Vec<String> {
        scopes.iter().map(|scope| scope.code().to_owned()).collect()
    }

    /// Returns the scopes that the stored codes grant, each once. Codes of newer versions are ignored.
    pub fn of_stored<C: AsRef<str>>(stored: &[C]) -> Vec<Self> {
        let scopes: BTreeSet<Self> =
            stored.iter().filter_map(|code| Self::from_code(code.as_ref())).collect();
        scopes.into_iter().collect()
    }

    /// Returns all codes, for error messages.
    pub fn codes() -> String {
        let codes: Vec<&str> = Self::ALL.iter().map(|scope| scope.code()).collect();
        codes.join(", ")
    }

    /// Returns whether this scope grants `other` as well.
    pub fn includes(self, other: Self) -> bool {
        self == other || self.included().contains(&other)
    }

    /// Returns the other scopes that this one grants, directly or through another scope.
    const fn included(self) -> &'static [Self] {
        match self {
            Self::Operate => &[Self::Metrics, Self::Scale],
            Self::Admin => &[
                Self::Read,
                Self::Accounts,
                Self::Credit,
                Self::Metrics,
                Self::Scale,
                Self::Operate,
                Self::Partners,
            ],
            Self::Deposit
            | Self::Withdraw
            | Self::Batch
            | Self::Ring
            | Self::Read
            | Self::Accounts
            | Self::Credit
            | Self::Metrics
            | Self::Scale
            | Self::Partners => &[],
        }
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
    fn stored_codes_are_read_as_they_were_written_and_unknown_ones_are_ignored() {
        for scope in Scope::ALL {
            assert_eq!(Scope::from_code(scope.code()), Some(*scope));
        }
        for wrong in ["", "Admin", "admin:read", "deposit,withdraw", "everything"] {
            assert_eq!(Scope::from_code(wrong), None, "{wrong}");
        }
        assert_eq!(Scope::of_stored(&Scope::to_stored(Scope::ALL)), Scope::ALL);
        assert_eq!(
            Scope::of_stored(&["read", "of a newer version", "accounts", "read"]),
            [Scope::Read, Scope::Accounts]
        );
    }

    #[test]
    fn only_scopes_of_operators_include_others() {
        let check = |one: Scope, expected: &[Scope]| {
            let included: Vec<Scope> = Scope::ALL.iter().copied().filter(|it| one.includes(*it)).collect();
            assert_eq!(included, expected, "{one}");
        };
        use Scope::{
            Accounts, Admin, Batch, Credit, Deposit, Metrics, Operate, Partners, Read, Ring, Scale, Withdraw,
        };
        for alone in [Deposit, Withdraw, Batch, Ring, Read, Accounts, Credit, Metrics, Scale, Partners] {
            check(alone, &[alone]);
        }
        check(Operate, &[Metrics, Scale, Operate]);
        check(Admin, &[Read, Accounts, Credit, Metrics, Scale, Operate, Partners, Admin]);
        let included = |scope: &Scope| scope.included().iter().flat_map(|it| it.included());
        assert!(Scope::ALL.iter().all(|scope| included(scope).all(|it| scope.includes(*it))), "transitive");
    }
}
