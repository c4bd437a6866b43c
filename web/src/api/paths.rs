//! Paths of the operations: their parameters, and their construction.

use actix_web::HttpRequest;
use postonce_schemas::json::Violation;
use postonce_shared::domain::batch::BatchKey;
use postonce_shared::domain::ids::{
    AccountId, AccountKey, BatchId, IdError, MessageId, PartnerId, TransactionKey, UserId, parse_hyphenated,
};
use utoipa::IntoParams;
use utoipa::openapi::path::Parameter;

use crate::api::arguments::PathParameters;
use crate::error::{ApiError, Code};

/// Declares the parameters of paths: a struct with a member for each parameter.
macro_rules! path_parameters {
    ($($(#[$attribute:meta])* $struct:ident { $(
        $(#[$member_attribute:meta])* $member:ident: $type:ty,
    )* })*) => {$(
        $(#[$attribute])*
        #[derive(Debug, IntoParams)]
        #[into_params(parameter_in = Path)]
        pub struct $struct {
            $($(#[$member_attribute])* #[param(value_type = String)] pub $member: $type,)*
        }

        impl PathParameters for $struct {
            fn described() -> Vec<Parameter> {
                Self::into_params(|| None)
            }

            fn read(request: &HttpRequest) -> Result<Self, ApiError> {
                let mut violations = Vec::new();
                $(let $member = parameter(request, stringify!($member), &mut violations);)*
                match ($($member,)*) {
                    ($(Some($member),)*) => Ok(Self { $($member,)* }),
                    _ => Err(ApiError::violations(Code::PathInvalid, violations)),
                }
            }
        }
    )*};
}

path_parameters! {
    /// The path of a user.
    UserPath {
        /// The user, a UUID.
        #[param(format = "uuid")]
        user_id: UserId,
    }

    /// The path of an account.
    AccountPath {
        /// The user, a UUID.
        #[param(format = "uuid")]
        user_id: UserId,
        /// The account of that user, a UUID.
        #[param(format = "uuid")]
        account_id: AccountId,
    }

    /// The path of a transaction.
    TransactionPath {
        /// The user, a UUID.
        #[param(format = "uuid")]
        user_id: UserId,
        /// The account of that user, a UUID.
        #[param(format = "uuid")]
        account_id: AccountId,
        /// The `Idempotency-Key` of the request.
        #[param(format = "uuid")]
        message_id: MessageId,
    }

    /// The path of a dead letter.
    DeadLetterPath {
        /// The id of the dead letter.
        id: String,
    }

    /// The path of an ingest queue.
    IngestPath {
        /// The name of the ingest queue in the configuration of the bank.
        #[param(example = "orders")]
        name: String,
    }

    /// The path of a partner.
    PartnerPath {
        /// The partner: 1 to 32 characters, a lower-case letter, then lower-case letters, digits or `_`.
        #[param(pattern = "^[a-z][a-z0-9_]{0,31}$", example = "shop")]
        partner_id: PartnerId,
    }

    /// The path of a key of a partner.
    PartnerKeyPath {
        /// The partner.
        #[param(pattern = "^[a-z][a-z0-9_]{0,31}$", example = "shop")]
        partner_id: PartnerId,
        /// The id of the key.
        key_id: String,
    }

    /// The path of a batch.
    BatchPath {
        /// The `Idempotency-Key` of the batch.
        #[param(format = "uuid")]
        batch_id: BatchId,
    }

    /// The path of a batch of a partner.
    PartnerBatchPath {
        /// The partner.
        #[param(pattern = "^[a-z][a-z0-9_]{0,31}$", example = "shop")]
        partner_id: PartnerId,
        /// The `Idempotency-Key` of the batch.
        #[param(format = "uuid")]
        batch_id: BatchId,
    }
}

impl AccountPath {
    /// Returns the key of the account.
    pub const fn key(&self) -> AccountKey {
        AccountKey { user: self.user_id, account: self.account_id }
    }
}

impl TransactionPath {
    /// Returns the key of the account, and the message id.
    pub const fn ids(&self) -> (AccountKey, MessageId) {
        (AccountKey { user: self.user_id, account: self.account_id }, self.message_id)
    }
}

impl PartnerBatchPath {
    /// Returns the key of the batch.
    pub fn key(self) -> BatchKey {
        BatchKey { partner: self.partner_id, batch: self.batch_id }
    }
}

/// The type of a parameter of a path.
trait PathParameter: Sized {
    /// Parses a parameter. The error says what is allowed.
    fn parse(text: &str) -> Result<Self, String>;
}

macro_rules! parameters_with_hyphens {
    ($($id:ident)*) => {$(
        impl PathParameter for $id {
            fn parse(text: &str) -> Result<Self, String> {
                parse_hyphenated(text).map_err(|error: IdError| error.to_string())
            }
        }
    )*};
}

parameters_with_hyphens! { UserId AccountId MessageId BatchId }

impl PathParameter for PartnerId {
    fn parse(text: &str) -> Result<Self, String> {
        Self::parse(text).map_err(|error| error.to_string())
    }
}

impl PathParameter for String {
    fn parse(text: &str) -> Result<Self, String> {
        Ok(text.to_owned())
    }
}

fn parameter<T: PathParameter>(
    request: &HttpRequest,
    name: &str,
    violations: &mut Vec<Violation>,
) -> Option<T> {
    let refuse = |message| violations.push(Violation { field: name.to_owned(), message });
    T::parse(request.match_info().query(name)).map_err(refuse).ok()
}

/// Returns the path of a batch.
pub fn of_batch(batch: BatchId) -> String {
    format!("/v1/batches/{batch}")
}

/// Returns the path of an account.
pub fn of_account(key: AccountKey) -> String {
    format!("/v1/users/{}/accounts/{}", key.user, key.account)
}

/// Returns the path of a transaction.
pub fn of_transaction(key: &TransactionKey) -> String {
    format!("{}/transactions/{}", of_account(key.account), key.message)
}
