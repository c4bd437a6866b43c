//! A separate type for every kind of id, so that the compiler rejects mix-ups.

use std::fmt;
use std::str::FromStr;

use uuid::Uuid;

/// Declares id types that wrap a UUID, without conversions between them.
macro_rules! uuid_id {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Uuid);

        impl $name {
            /// Wraps a UUID of any version.
            pub const fn from_uuid(uuid: Uuid) -> Self {
                Self(uuid)
            }

            /// Returns the UUID.
            pub const fn as_uuid(self) -> Uuid {
                self.0
            }

            /// Returns 32 lower-case hexadecimal digits without hyphens, which every storage key allows.
            pub fn simple(self) -> String {
                self.0.simple().to_string()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.hyphenated().fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), self.0)
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                Uuid::try_parse(text).map(Self).map_err(|_| IdError)
            }
        }
    )*};
}

uuid_id! {
    /// A customer of the bank, who owns accounts.
    UserId;
    /// One account of a user; unique within the user.
    AccountId;
    /// The id that a partner gave a request: its idempotency key.
    MessageId;
    /// The id that a partner gave a batch: its idempotency key.
    BatchId;
    /// Identifies all attempts of one write (accept or commit). After an unclear outcome, its author recognizes the write.
    Nonce;
}

/// Error: the text is not a UUID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is not a UUID, such as 4f9d0c9e-5d3e-4c0e-9a51-1b7a4a4e2f10")]
pub struct IdError;

const HYPHENATED_CHARS: usize = 36;
/// Length of a UUID without hyphens.
const SIMPLE_CHARS: usize = 32;

/// Parses an id in the form that clients must write: with hyphens, in upper or lower case. The schemas (`uuid`) allow
/// only this form; rows and messages of the bank use other forms too.
///
/// # Errors
/// [`IdError`] for anything else, including a UUID in braces, as a URN or without hyphens.
pub fn parse_hyphenated<T: FromStr<Err = IdError>>(text: &str) -> Result<T, IdError> {
    if text.len() == HYPHENATED_CHARS { text.parse() } else { Err(IdError) }
}

/// Parses an id as [`parse_hyphenated`] does, or as thirty-two hexadecimal digits, the other form that direct producers may write.
///
/// # Errors
/// [`IdError`] for anything else, including a UUID in braces and as a URN.
pub fn parse_bare<T: FromStr<Err = IdError>>(text: &str) -> Result<T, IdError> {
    if matches!(text.len(), SIMPLE_CHARS | HYPHENATED_CHARS) { text.parse() } else { Err(IdError) }
}

/// Longest name of a partner, in characters.
pub const PARTNER_CHARS_MAX: usize = 32;

/// The name of a partner, a client of the bank. Message ids of different partners never conflict.
///
/// Invariant: 1 to 32 characters, a lower-case letter first, then lower-case letters, digits or
/// `_`, so that every storage key allows it and it never contains the separator `-`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartnerId(String);

impl PartnerId {
    /// Parses a partner's name; fails when the invariant does not hold.
    pub fn parse(text: &str) -> Result<Self, PartnerIdError> {
        let mut characters = text.chars();
        let valid = characters.next().is_some_and(|first| first.is_ascii_lowercase())
            && characters.all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
            && text.len() <= PARTNER_CHARS_MAX;
        if valid { Ok(Self(text.to_owned())) } else { Err(PartnerIdError) }
    }

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PartnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for PartnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PartnerId({})", self.0)
    }
}

/// Error: the text is not the name of a partner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "is not a partner's name: 1 to 32 characters, a lower-case letter first, then lower-case letters, digits or _"
)]
pub struct PartnerIdError;

/// Identifies one account. Postings of one account are serialized; accounts are independent of each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AccountKey {
    /// The user who owns the account.
    pub user: UserId,
    /// The id of the account, unique within the user.
    pub account: AccountId,
}

impl AccountKey {
    /// Number of bits of [`Self::position`].
    pub const POSITION_BITS: u32 = 47;

    /// Returns a hash that is the same on every machine and in every version: FNV-1a of both ids.
    pub fn stable_hash(self) -> u64 {
        let bytes = self.user.as_uuid().into_bytes().into_iter().chain(self.account.as_uuid().into_bytes());
        bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        })
    }

    /// Returns the account's position in an order that spreads accounts evenly, whatever their ids. It need not be unique.
    pub fn position(self) -> u64 {
        // The upper bits of FNV-1a depend little on the last bytes; this is the final step of MurmurHash3.
        let hash = self.stable_hash();
        let hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        let hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        (hash ^ (hash >> 33)) >> (u64::BITS - Self::POSITION_BITS)
    }
}

impl fmt::Display for AccountKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.user, self.account)
    }
}

/// Identifies one transaction for ever: requests with the same key are the same transaction.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransactionKey {
    /// The account whose money is moved.
    pub account: AccountKey,
    /// The partner that sent the instruction.
    pub partner: PartnerId,
    /// The id that the partner gave the request.
    pub message: MessageId,
}

impl fmt::Display for TransactionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.account, self.partner, self.message)
    }
}

/// The number of a posted transaction for use by people: a counter followed by a Damm check digit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OrderNumber(u64);

impl OrderNumber {
    /// Largest counter whose number, with its check digit, still fits 18 decimal digits.
    pub const COUNTER_MAX: u64 = 99_999_999_999_999_999;

    /// Builds the order number of a counter value. Panics above [`Self::COUNTER_MAX`]; the allocator refuses such ranges.
    pub fn from_counter(counter: u64) -> Self {
        assert!(counter <= Self::COUNTER_MAX, "order number counter {counter} is out of range");
        Self(counter)
    }

    /// Returns the counter value, without the check digit.
    pub const fn counter(self) -> u64 {
        self.0
    }

    /// Parses a number with its check digit; refuses a mistyped number.
    pub fn parse(text: &str) -> Result<Self, OrderNumberError> {
        let digits_only = text.bytes().all(|byte| byte.is_ascii_digit());
        if !digits_only || text.len() < 2 || text.len() > 18 || damm(text) != 0 {
            return Err(OrderNumberError);
        }
        let counter = text.get(..text.len().saturating_sub(1)).and_then(|head| head.parse().ok());
        counter.map(Self).ok_or(OrderNumberError)
    }
}

impl fmt::Display for OrderNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counter = self.0.to_string();
        write!(f, "{counter}{}", damm(&counter))
    }
}

/// Error: the text is not an order number, or its check digit does not match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is not an order number (2 to 18 digits, the last one a check digit)")]
pub struct OrderNumberError;

/// Damm's check digit over decimal digits. It detects every single wrong digit and every swap of two neighbours. The table
/// is the totally anti-symmetric quasigroup of order 10 from H. M. Damm, "Total anti-symmetrische Quasigruppen" (2004).
fn damm(digits: &str) -> u8 {
    const QUASIGROUP: [[u8; 10]; 10] = [
        [0, 3, 1, 7, 5, 9, 8, 6, 4, 2],
        [7, 0, 9, 2, 1, 5, 4, 8, 6, 3],
        [4, 2, 0, 6, 8, 7, 1, 3, 5, 9],
        [1, 7, 5, 0, 9, 8, 3, 4, 2, 6],
        [6, 1, 2, 3, 0, 4, 5, 9, 7, 8],
        [3, 6, 7, 4, 2, 0, 9, 5, 8, 1],
        [5, 8, 6, 9, 7, 2, 0, 1, 3, 4],
        [8, 9, 4, 5, 3, 6, 2, 0, 1, 7],
        [9, 4, 3, 8, 6, 1, 7, 2, 0, 5],
        [2, 5, 8, 1, 4, 3, 6, 7, 9, 0],
    ];
    digits.bytes().fold(0, |interim, byte| {
        let digit = byte.wrapping_sub(b'0');
        QUASIGROUP[usize::from(interim)][usize::from(digit)]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_numbers_end_in_damms_check_digit() {
        // The published example: 572 has the check digit 4.
        assert_eq!(OrderNumber::from_counter(572).to_string(), "5724");
        assert_eq!(OrderNumber::parse("5724"), Ok(OrderNumber::from_counter(572)));
    }

    #[test]
    fn a_wrong_digit_or_a_swap_is_detected() {
        let number = OrderNumber::from_counter(1_000_042).to_string();
        let digits: Vec<char> = number.chars().collect();
        for position in 0..digits.len() {
            for wrong in '0'..='9' {
                let mut typed = digits.clone();
                typed[position] = wrong;
                let typed: String = typed.into_iter().collect();
                assert_eq!(OrderNumber::parse(&typed).is_ok(), typed == number, "{typed}");
            }
            if let Some(next) = position.checked_add(1).filter(|next| *next < digits.len()) {
                let mut typed = digits.clone();
                typed.swap(position, next);
                let typed: String = typed.into_iter().collect();
                assert_eq!(OrderNumber::parse(&typed).is_ok(), typed == number, "{typed}");
            }
        }
    }

    #[test]
    fn invalid_order_numbers_are_refused() {
        for text in ["", "0", "12a4", "5723", " 5724", "٥724", "1234567890123456789"] {
            assert_eq!(OrderNumber::parse(text), Err(OrderNumberError), "{text}");
        }
    }

    #[test]
    fn positions_are_spread_evenly() {
        let account = |user: u128, account: u128| AccountKey {
            user: UserId::from_uuid(Uuid::from_u128(user)),
            account: AccountId::from_uuid(Uuid::from_u128(account)),
        };
        for keys in [|n| (n, 7), |n| (7, n), |n| (n << 100, n)] {
            let mut counts = [0; 32];
            for number in 0..32_000 {
                let (user, of_user) = keys(number);
                let position = account(user, of_user).position();
                assert!(position < 1 << AccountKey::POSITION_BITS);
                counts[usize::try_from(position >> (AccountKey::POSITION_BITS - 5)).unwrap()] += 1;
            }
            assert!(counts.iter().all(|count| (800..1200).contains(count)), "{counts:?}");
        }
    }

    #[test]
    fn partner_names_are_safe_in_storage_keys() {
        for valid in ["bootstrap", "shop_12", "a"] {
            assert!(PartnerId::parse(valid).is_ok(), "{valid}");
        }
        let long = "a".repeat(33);
        for invalid in ["", "Shop", "1shop", "shop-1", "shop/1", "shöp", long.as_str()] {
            assert_eq!(PartnerId::parse(invalid), Err(PartnerIdError), "{invalid}");
        }
    }
}
