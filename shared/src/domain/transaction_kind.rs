//! The kinds of transactions.

/// Declares the kinds with their codes.
macro_rules! kinds {
    ($($name:ident $code:literal $doc:literal;)*) => {
        /// The direction in which a transaction moves money.
        ///
        /// **To add a kind**, add its line here and follow the compiler errors: the effect on a balance (in
        /// [`decide`](super::decision::decide), [`Entry::apply_to`](super::journal::Entry::apply_to) and the audit of the
        /// journal), the scope that a direct producer needs, and the sign and document names in the XML formats. A test
        /// of the OpenAPI document requires the code in the schemas and an operation `submit_<code>`. Neither covers:
        ///
        /// - the scope and the route of that operation, an operation of the SOAP service, and its WSDL;
        /// - a form in the bodies of direct producers, which only have a sign;
        /// - the overdraft check of the audit, which covers only withdrawals;
        /// - a sign of its own in the model of World Wide Importers: of kinds with the same sign, the first is read.
        ///
        /// Codes are stored: programs of older versions cannot read a row with a new one.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum TransactionKind {
            $(#[doc = $doc] $name,)*
        }

        impl TransactionKind {
            /// All kinds.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Returns the stable code.
            pub const fn code(self) -> &'static str {
                match self {
                    $(Self::$name => $code,)*
                }
            }
        }
    };
}

kinds! {
    Deposit "deposit" "Money is paid in.";
    Withdrawal "withdrawal" "Money is paid out.";
}

impl TransactionKind {
    /// Returns the kind with this code.
    pub fn from_code(code: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.code() == code)
    }
}
