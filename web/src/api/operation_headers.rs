//! Headers of the operations.

use postonce_shared::domain::ids::MessageId;

use crate::api::arguments::{Preferences, header_parameters};
use crate::api::conditions::EntityTags;
use crate::headers::Wait;

header_parameters! {
    /// The headers of a change of the gate.
    GatePutHeaders {
        /// The `ETag` of the gate that you read.
        "If-Match" as Option<String> => if_match: Option<EntityTags>,
    }

    /// The headers of a change of a partner.
    PartnerPutHeaders {
        /// The `ETag` of the partner that you read, or `*` for any existing partner.
        "If-Match" as Option<String> => if_match: Option<EntityTags>,
    }

    /// The conditions of opening an account.
    AccountPutHeaders {
        /// The `ETag` of the account that you read, or `*` for any existing account: then no account is opened.
        "If-Match" as Option<String> => if_match: Option<EntityTags>,
        /// `*`: only if the account does not exist. So a repetition is refused, too.
        "If-None-Match" as Option<String> => if_none_match: Option<EntityTags>,
    }

    /// The condition of a change of an account.
    AccountPatchHeaders {
        /// The `ETag` of the account that you read: the change is made only if the account was not changed since, by a
        /// posting either.
        "If-Match" as Option<String> => if_match: Option<EntityTags>,
    }

    /// The condition of reading an account.
    AccountGetHeaders {
        /// The `ETag` of the account that you have: the answer is 304 if the account was not changed since.
        "If-None-Match" as Option<String> => if_none_match: Option<EntityTags>,
    }

    /// The headers of a deposit or a withdrawal.
    SubmissionHeaders {
        /// The id of the request, a UUID of your choice, quoted or bare. It must be the same for every retry.
        #[param(
            example = "4f9d0c9e-5d3e-4c0e-9a51-1b7a4a4e2f10",
            pattern = r#"^([0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")$"#
        )]
        "Idempotency-Key" as String => message: MessageId,
        /// `wait=N`: wait up to N seconds (at most 30) for the final result (RFC 7240). Usually it is posted at once.
        /// `handling=strict`: a rejected transaction is answered with 422 and `transaction_rejected`, instead of 200.
        #[param(example = "wait=5")]
        "Prefer" as Option<String> => preferences: Preferences,
        /// The trace of this request (W3C Trace Context).
        "traceparent" as Option<String> => traceparent: (),
    }

    /// The headers of a batch.
    BatchHeaders {
        /// The id of the batch, a UUID of your choice, quoted or bare. It must be the same for every retry.
        #[param(
            example = "4f9d0c9e-5d3e-4c0e-9a51-1b7a4a4e2f10",
            pattern = r#"^([0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")$"#
        )]
        "Idempotency-Key" as String => batch: MessageId,
        /// The number of items in the document.
        #[param(pattern = "^[0-9]{1,7}$")]
        "Batch-Count" as Option<String> => count: Option<String>,
        /// The sum of all amounts in each currency, deposits and withdrawals together.
        #[param(example = "EUR=1250.00, USD=7.00")]
        "Batch-Sums" as Option<String> => sums: Option<String>,
    }

    /// A header to wait.
    WaitHeader {
        /// `wait=N`: wait up to N seconds (at most 30) for the completion (RFC 7240).
        #[param(example = "wait=5")]
        "Prefer" as Option<String> => wait: Option<Wait>,
    }
}
