//! Parameters of the operations in the OpenAPI document: paths, headers and queries.

use utoipa::IntoParams;

/// Declares parameters for the document. The handlers parse them separately, in the order of the checks, so these
/// structs are never instantiated.
macro_rules! parameters {
    ($($(#[$attribute:meta])* $name:ident { $($(#[$field_attribute:meta])* $field:ident: $type:ty,)* })*) => {$(
        #[derive(IntoParams)]
        #[expect(dead_code, reason = "only described, never instantiated")]
        $(#[$attribute])*
        pub struct $name {
            $($(#[$field_attribute])* $field: $type,)*
        }
    )*};
}

parameters! {
    /// The path of a user.
    #[into_params(parameter_in = Path)]
    UserPath {
        /// The user, a UUID.
        #[param(format = "uuid")]
        user_id: String,
    }

    /// The path of an account.
    #[into_params(parameter_in = Path)]
    AccountPath {
        /// The user, a UUID.
        #[param(format = "uuid")]
        user_id: String,
        /// The account of that user, a UUID.
        #[param(format = "uuid")]
        account_id: String,
    }

    /// The path of a transaction.
    #[into_params(parameter_in = Path)]
    TransactionPath {
        /// The user, a UUID.
        #[param(format = "uuid")]
        user_id: String,
        /// The account of that user, a UUID.
        #[param(format = "uuid")]
        account_id: String,
        /// The `Idempotency-Key` of the request.
        #[param(format = "uuid")]
        message_id: String,
    }

    /// The path of a dead letter.
    #[into_params(parameter_in = Path)]
    DeadLetterPath {
        /// The id of the dead letter.
        id: String,
    }

    /// The path of a partner.
    #[into_params(parameter_in = Path)]
    PartnerPath {
        /// The partner: 1 to 32 characters, a lower-case letter, then lower-case letters, digits or `_`.
        #[param(pattern = "^[a-z][a-z0-9_]{0,31}$", example = "shop")]
        partner_id: String,
    }

    /// The path of a key of a partner.
    #[into_params(parameter_in = Path)]
    PartnerKeyPath {
        /// The partner.
        #[param(pattern = "^[a-z][a-z0-9_]{0,31}$", example = "shop")]
        partner_id: String,
        /// The id of the key.
        key_id: String,
    }

    /// The headers of a change of the gate.
    #[into_params(parameter_in = Header)]
    GatePutHeaders {
        /// The `ETag` of the gate that you read.
        #[param(rename = "If-Match")]
        if_match: Option<String>,
    }

    /// The headers of a change of a partner.
    #[into_params(parameter_in = Header)]
    PartnerPutHeaders {
        /// The `ETag` of the partner that you read, or `*` for any existing partner.
        #[param(rename = "If-Match")]
        if_match: Option<String>,
    }

    /// The conditions of opening an account.
    #[into_params(parameter_in = Header)]
    AccountPutHeaders {
        /// The `ETag` of the account that you read, or `*` for any existing account: then no account is opened.
        #[param(rename = "If-Match")]
        if_match: Option<String>,
        /// `*`: only if the account does not exist. So a repetition is refused, too.
        #[param(rename = "If-None-Match")]
        if_none_match: Option<String>,
    }

    /// The condition of a change of an account.
    #[into_params(parameter_in = Header)]
    AccountPatchHeaders {
        /// The `ETag` of the account that you read: the change is made only if the account was not changed since, by a
        /// posting either.
        #[param(rename = "If-Match")]
        if_match: Option<String>,
    }

    /// The condition of reading an account.
    #[into_params(parameter_in = Header)]
    AccountGetHeaders {
        /// The `ETag` of the account that you have: the answer is 304 if the account was not changed since.
        #[param(rename = "If-None-Match")]
        if_none_match: Option<String>,
    }

    /// The headers of a deposit or a withdrawal.
    #[into_params(parameter_in = Header)]
    SubmissionHeaders {
        /// The id of the request, a UUID of your choice, quoted or bare. It must be the same for every retry.
        #[param(
            rename = "Idempotency-Key",
            example = "4f9d0c9e-5d3e-4c0e-9a51-1b7a4a4e2f10",
            pattern = r#"^([0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")$"#
        )]
        idempotency_key: String,
        /// `wait=N`: wait up to N seconds (at most 30) for the final result (RFC 7240). Usually it is posted at once.
        /// `handling=strict`: a rejected transaction is answered with 422 and `transaction_rejected`, instead of 200.
        #[param(rename = "Prefer", example = "wait=5")]
        prefer: Option<String>,
        /// The trace of this request (W3C Trace Context).
        traceparent: Option<String>,
    }

    /// The path of a batch.
    #[into_params(parameter_in = Path)]
    BatchPath {
        /// The `Idempotency-Key` of the batch.
        #[param(format = "uuid")]
        batch_id: String,
    }

    /// The path of a batch of a partner.
    #[into_params(parameter_in = Path)]
    PartnerBatchPath {
        /// The partner.
        #[param(pattern = "^[a-z][a-z0-9_]{0,31}$", example = "shop")]
        partner_id: String,
        /// The `Idempotency-Key` of the batch.
        #[param(format = "uuid")]
        batch_id: String,
    }

    /// The headers of a batch.
    #[into_params(parameter_in = Header)]
    BatchHeaders {
        /// The id of the batch, a UUID of your choice, quoted or bare. It must be the same for every retry.
        #[param(
            rename = "Idempotency-Key",
            example = "4f9d0c9e-5d3e-4c0e-9a51-1b7a4a4e2f10",
            pattern = r#"^([0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")$"#
        )]
        idempotency_key: String,
        /// The number of items in the document.
        #[param(rename = "Batch-Count", pattern = "^[0-9]{1,7}$")]
        batch_count: Option<String>,
        /// The sum of all amounts in each currency, deposits and withdrawals together.
        #[param(rename = "Batch-Sums", example = "EUR=1250.00, USD=7.00")]
        batch_sums: Option<String>,
    }

    /// The query of a batch.
    #[into_params(parameter_in = Query)]
    BatchSubmitParams {
        /// What becomes of items that break a rule: with `refuse` the whole batch is refused and nothing is posted; with
        /// `skip` the other items are posted, and these are reported in the results. A member whose name looks like a known one
        /// always refuses a new batch.
        #[param(rename = "on-invalid", default = "refuse", pattern = "^(refuse|skip)$")]
        on_invalid: Option<String>,
    }

    /// Filter of batches.
    #[into_params(parameter_in = Query)]
    BatchListParams {
        /// The phase.
        #[param(pattern = "^(received|splitting|posting|completed|cancelled)$")]
        phase: Option<String>,
    }

    /// The partner whose batches are listed.
    #[into_params(parameter_in = Query)]
    BatchPartnerParam {
        /// The partner. Without it, the open batches of all partners are listed.
        #[param(pattern = "^[a-z][a-z0-9_]{0,31}$", example = "shop")]
        partner_id: Option<String>,
    }

    /// The query of results.
    #[into_params(parameter_in = Query)]
    ResultParams {
        /// The last line that you received; the results continue with the next one.
        #[param(minimum = 0, maximum = 1000000)]
        after: Option<u32>,
    }

    /// A header to wait.
    #[into_params(parameter_in = Header)]
    WaitHeader {
        /// `wait=N`: wait up to N seconds (at most 30) for the completion (RFC 7240).
        #[param(rename = "Prefer", example = "wait=5")]
        prefer: Option<String>,
    }

    /// Page of a listing.
    #[into_params(parameter_in = Query)]
    PageParams {
        /// Maximum number of items.
        #[param(minimum = 1, maximum = 1000, default = 100)]
        limit: Option<u16>,
        /// The `next_cursor` of the previous page.
        #[param(pattern = "^[A-Za-z0-9_-]+$", min_length = 11, max_length = 1024)]
        cursor: Option<String>,
    }

    /// Order and filters of a statement.
    #[into_params(parameter_in = Query)]
    StatementParams {
        /// `posted` (the statement), `accepted` or `rejected`.
        #[param(default = "posted", pattern = "^(posted|accepted|rejected)$")]
        status: Option<String>,
        /// `oldest_first`, which lists accepted and rejected transactions by id; for posted ones also `newest_first`; for
        /// rejected ones also `by_decision`, which leaves out those that were decided before the account was opened, or before
        /// its journal contained every decision.
        #[param(default = "oldest_first", pattern = "^(oldest_first|newest_first|by_decision)$")]
        order: Option<String>,
        /// Only transactions that were posted, accepted or rejected, according to `status`, at this time or later.
        #[param(format = "date-time", example = "2026-11-01T00:00:00Z")]
        from: Option<String>,
        /// The same, before this time.
        #[param(format = "date-time", example = "2026-12-01T00:00:00Z")]
        until: Option<String>,
        /// `deposit` or `withdrawal`.
        #[param(pattern = "^(deposit|withdrawal)$")]
        r#type: Option<String>,
        /// The smallest amount.
        #[param(pattern = r"^(0|[1-9][0-9]{0,17})(\.[0-9]{1,4})?$", example = "12.50")]
        amount_min: Option<String>,
        /// The largest amount.
        #[param(pattern = r"^(0|[1-9][0-9]{0,17})(\.[0-9]{1,4})?$", example = "12.50")]
        amount_max: Option<String>,
        /// Only transactions with exactly this reference.
        reference: Option<String>,
    }

    /// The transaction to find: by order number, or by message id and account.
    #[into_params(parameter_in = Query)]
    LookupParams {
        /// The order number, with its check digit.
        #[param(pattern = "^[0-9]{2,18}$", example = "10000422")]
        order_number: Option<String>,
        /// The `Idempotency-Key` of the request.
        #[param(format = "uuid")]
        message_id: Option<String>,
        /// The user of the account.
        #[param(format = "uuid")]
        user_id: Option<String>,
        /// The account of that user.
        #[param(format = "uuid")]
        account_id: Option<String>,
    }

    /// The length of the activity.
    #[into_params(parameter_in = Query)]
    OverviewParams {
        /// The length of `activity` in seconds.
        #[param(minimum = 2, maximum = 3600, default = 60)]
        seconds: Option<u16>,
    }

    /// Filter of dead letters.
    #[into_params(parameter_in = Query)]
    ResolvedParam {
        /// `include` lists resolved dead letters too.
        #[param(pattern = "^include$")]
        resolved: Option<String>,
    }
}
