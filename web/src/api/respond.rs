//! Conversion of domain values to response bodies.

use actix_web::http::{StatusCode, header};
use actix_web::{HttpResponse, HttpResponseBuilder};
use postonce_schemas::json::{self as wire, RawMembers};
use postonce_shared::batches::open::BatchBacklog;
use postonce_shared::domain::account::{Account, Holder};
use postonce_shared::domain::anchor::signed::SignedAnchor;
use postonce_shared::domain::audit_row::{AuditRow, DoneAct};
use postonce_shared::domain::decision::Submission;
use postonce_shared::domain::ids::{AccountKey, OrderNumber, TransactionKey};
use postonce_shared::domain::instruction::Instruction;
use postonce_shared::domain::journal::Entry;
use postonce_shared::domain::origin::Origin;
use postonce_shared::domain::time::Timestamp;
use postonce_shared::domain::transaction::{Outcome, TransactionStatus};
use postonce_shared::messaging::envelope::Names;
use postonce_shared::oversight::anchors::StoredAnchor;
use postonce_shared::oversight::prices::{Prices, operations_per_posting};
use postonce_shared::oversight::scaling::{Demand, ScalingPolicy, WorkersWanted};
use postonce_shared::ports::dead_letters::{DeadLetter, Resolution};
use postonce_shared::posting::order_numbers::{Holding, Register};
use postonce_shared::protocol::accept::{Acceptance, Accepted};

use crate::admin::costs::{CostReport, ProcessReport, ReportedOperation};
use crate::admin::service::{QueueReport, ScaleReport};
use crate::api::account_service::OpenOutcome;
use crate::api::conditions::tag_of_version;
use crate::api::negotiate::Reply;
use crate::api::paths;
use crate::error::{ApiError, Code};
use crate::headers::{Handling, IDEMPOTENT_REPLAYED, PREFERENCE_APPLIED, Wait};

/// Returns the accepted transaction of a deposit or a withdrawal.
///
/// # Errors
/// [`ApiError`] for a refused request. A rejected transaction is not an error.
pub fn accepted_or_refused(acceptance: Acceptance) -> Result<Accepted, ApiError> {
    let refused = |code, detail: String| Err(ApiError::new(code, detail));
    match acceptance {
        Acceptance::Accepted(accepted) => Ok(accepted),
        Acceptance::KeyReused => {
            let detail = "You used this id on this account with different content. To retry, send the content of the first \
                          attempt, unchanged. A new id is a new payment.";
            refused(Code::IdempotencyKeyReused, detail.to_owned())
        }
        Acceptance::AccountUnknown => Err(ApiError::account_to_open()),
        Acceptance::CurrencyMismatch { account } => {
            let detail = format!("The account is in {account}. The id can be used again.");
            refused(Code::CurrencyMismatch, detail)
        }
    }
}

/// Builds the response to a deposit or a withdrawal. With [`Handling::Strict`], a rejected transaction is an error.
///
/// # Errors
/// See [`accepted_or_refused`].
pub fn acceptance(
    acceptance: Acceptance,
    (wait, handling): (Option<Wait>, Handling),
    reply: Reply,
) -> Result<HttpResponse, ApiError> {
    let Accepted { submission, outcome, replayed } = accepted_or_refused(acceptance)?;
    let is_final = outcome.is_some();
    let location = paths::of_transaction(&submission.key);
    let applied = [wait.filter(|_| is_final).map(Wait::applied), handling.applied()];
    let applied: Vec<String> = applied.into_iter().flatten().collect();
    let mut response = match &outcome {
        Some(Outcome::Rejected { reason, .. }) if handling == Handling::Strict => {
            HttpResponse::from_error(ApiError::rejected(*reason))
        }
        Some(Outcome::Posted { .. } | Outcome::Rejected { .. }) | None => {
            let status = if is_final { StatusCode::OK } else { StatusCode::ACCEPTED };
            reply.with(HttpResponse::build(status), transaction(submission, outcome))
        }
    };
    let headers = [
        (header::LOCATION, Some(location)),
        (IDEMPOTENT_REPLAYED, replayed.then(|| "true".to_owned())),
        (PREFERENCE_APPLIED, Some(applied.join(", ")).filter(|applied| !applied.is_empty())),
    ];
    for (name, value) in headers.into_iter().filter_map(|(name, value)| Some((name, value?))) {
        let value = value.parse().expect("paths and preferences are visible ASCII");
        response.headers_mut().insert(name, value);
    }
    Ok(response)
}

/// Builds the response to the opening of an account.
///
/// # Errors
/// [`ApiError`] when the account exists with different terms, or the key may not grant the overdraft limit.
pub fn opening(opening: OpenOutcome, reply: Reply) -> Result<HttpResponse, ApiError> {
    match opening {
        OpenOutcome::Created(account) => {
            let location = (header::LOCATION, paths::of_account(account.key));
            let mut created = HttpResponse::Created();
            created.insert_header(location);
            Ok(tagged_account(created, account, reply))
        }
        OpenOutcome::Same(account) => Ok(tagged_account(HttpResponse::Ok(), account, reply)),
        OpenOutcome::CreditRefused(refusal) => Err(refusal.into()),
        OpenOutcome::Different(account) => {
            let detail = format!(
                "The account is in {}, with an overdraft limit of {}. Change it with PATCH; its currency \
                 stays.",
                account.currency, account.overdraft_limit
            );
            Err(ApiError::new(Code::AccountExists, detail))
        }
    }
}

/// Builds a response with an account and its `ETag`.
pub fn tagged_account(mut response: HttpResponseBuilder, account: Account, reply: Reply) -> HttpResponse {
    response.insert_header((header::ETAG, account_tag(&account, reply)));
    reply.with(response, self::account(account))
}

/// Returns the `ETag` of an account in the format of the reply.
pub fn account_tag(account: &Account, reply: Reply) -> String {
    tag_of_version(account.version, reply.format_name())
}

/// Converts an account to its wire struct.
pub fn account(account: Account) -> wire::Account {
    let (available, key) = (account.available(), account.key);
    let Account {
        key: _,
        currency,
        status,
        overdraft_limit,
        holder,
        opened_at,
        balance,
        version,
        sequence: _,
        head: _,
    } = account;
    wire::Account {
        user_id: key.user.to_string(),
        account_id: key.account.to_string(),
        currency: currency.to_string(),
        status: status.code().into(),
        balance: balance.to_string(),
        available: available.to_string(),
        overdraft_limit: overdraft_limit.to_string(),
        version,
        opened_at: opened_at.to_string(),
        holder: holder.map(|Holder { given_name, family_name }| wire::Holder { given_name, family_name }),
    }
}

/// Converts a transaction for its partner.
pub fn transaction(submission: Submission, outcome: Option<Outcome>) -> wire::Transaction {
    let status = TransactionStatus::of(outcome.as_ref());
    let Submission { key, instruction, accepted_at, .. } = submission;
    let accepted = accepted(&key, instruction, status, accepted_at);
    match outcome {
        None => accepted,
        Some(Outcome::Posted { order_number, sequence, balance_after, posted_at }) => wire::Transaction {
            order_number: Some(order_number.to_string()),
            sequence: Some(sequence),
            balance_after: Some(balance_after.to_string()),
            posted_at: Some(posted_at.to_string()),
            ..accepted
        },
        Some(Outcome::Rejected { reason, rejected_at, .. }) => wire::Transaction {
            reason: Some(reason.code().into()),
            rejected_at: Some(rejected_at.to_string()),
            ..accepted
        },
    }
}

/// Converts a transaction for a reader of the transactions of all partners.
pub fn transaction_of_partner(submission: Submission, outcome: Option<Outcome>) -> wire::Transaction {
    let partner_id = Some(submission.key.partner.to_string());
    let converted = transaction(submission, outcome);
    // A partner can send a member with this name. It stays in `unknown_members`.
    let flattened_members = converted.flattened_members.without(wire::Transaction::PARTNER_ID);
    wire::Transaction { partner_id, flattened_members, ..converted }
}

/// Converts an entry of the journal to its submission and outcome.
pub fn of_entry(account: AccountKey, entry: Entry) -> (Submission, Option<Outcome>) {
    let Entry {
        sequence,
        partner,
        message,
        kind,
        amount,
        details,
        order_number,
        balance_after,
        accepted_at,
        posted_at,
    } = entry;
    let submission = Submission {
        key: TransactionKey { account, partner, message },
        instruction: Instruction { kind, amount, details },
        accepted_at,
        origin: Origin::default(),
        batch_line: None,
    };
    (submission, Some(Outcome::Posted { order_number, sequence, balance_after, posted_at }))
}

fn accepted(
    key: &TransactionKey,
    instruction: Instruction,
    status: TransactionStatus,
    accepted_at: Timestamp,
) -> wire::Transaction {
    let Instruction { kind, amount, details } = instruction;
    // The partner chose this content. Parts that cannot be parsed are omitted.
    let (unknown_members, unknown_elements) = match details.unknown_members() {
        list if list.starts_with('[') => {
            (RawMembers::default(), serde_json::from_str(list).unwrap_or_default())
        }
        object => (RawMembers::new(object), Vec::new()),
    };
    let flattened_members = unknown_members.without(wire::Transaction::UNKNOWN_MEMBERS);
    wire::Transaction {
        message_id: key.message.to_string(),
        user_id: key.account.user.to_string(),
        account_id: key.account.account.to_string(),
        r#type: kind.code().into(),
        amount: amount.to_string(),
        currency: amount.currency().to_string(),
        status: status.code().into(),
        reference: details.reference().map(str::to_owned),
        metadata: details.metadata().clone(),
        accepted_at: accepted_at.to_string(),
        order_number: None,
        sequence: None,
        balance_after: None,
        posted_at: None,
        reason: None,
        rejected_at: None,
        partner_id: None,
        unknown_members,
        flattened_members,
        unknown_elements,
    }
}

/// Converts the report on a queue. The age of its oldest message is relative to `now`.
pub fn queue(report: QueueReport, now: Timestamp) -> wire::Queue {
    let QueueReport { name, backlog, dead_letters, listeners } = report;
    wire::Queue {
        name: name.to_string(),
        depth: backlog.depth,
        oldest_age_s: backlog.oldest_inserted_at.map_or(0, |at| now.since(at).as_secs()),
        oldest_age_known: backlog.depth == 0 || backlog.oldest_inserted_at.is_some(),
        dead_letters,
        active_listeners: listeners.active,
        listeners_max: listeners.max,
    }
}

/// Converts a dead letter, with the message ids in its body if all can be read.
pub fn dead_letter(letter: DeadLetter) -> wire::DeadLetter {
    let DeadLetter { id, queue, reason, body, dequeue_count, inserted_at, dead_at, resolution } = letter;
    let names = Names::read(&body).ok().filter(Names::is_complete);
    let items = names.map(|names| {
        let keys = names.items().iter().filter_map(|name| name.key.as_ref());
        keys.map(|key| key.message.to_string()).collect()
    });
    let resolution = resolution.map(|Resolution { kind, by, at }| wire::Resolution {
        kind: kind.code().into(),
        by,
        at: at.to_string(),
    });
    wire::DeadLetter {
        id,
        queue: queue.to_string(),
        reason,
        dequeue_count,
        inserted_at: inserted_at.to_string(),
        dead_at: dead_at.to_string(),
        body: String::from_utf8_lossy(&body).into_owned(),
        items,
        resolution,
    }
}

/// Converts a stored anchor.
pub fn anchor(anchor: StoredAnchor) -> wire::Anchor {
    let StoredAnchor { statement: stated, signed, list: _ } = anchor;
    let SignedAnchor { statement, public_key, signature } = signed;
    wire::Anchor {
        sequence: stated.sequence,
        made_at: stated.made_at.to_string(),
        kind: stated.kind.code().into(),
        accounts: stated.leaves.count,
        statement,
        public_key,
        signature,
    }
}

/// Converts a row of the audit trail.
pub fn audit_row(row: AuditRow) -> wire::AuditRow {
    let AuditRow { sequence, done, previous_hash, hash } = row;
    let DoneAct { at, actor, key_id, act, target, origin, nonce } = done;
    wire::AuditRow {
        sequence,
        at: at.to_string(),
        actor,
        key_id: Some(key_id).filter(|id| !id.is_empty()),
        act,
        target,
        origin,
        nonce: nonce.as_uuid().simple().to_string(),
        previous_hash: previous_hash.to_string(),
        hash: hash.to_string(),
    }
}

/// Converts the register of order numbers, with the ranges in use.
pub fn order_numbers(register: Register) -> wire::OrderNumbers {
    let Register { next: _, reserved, issued, returned, lost, holdings } = register;
    let range = |holding: Holding| {
        let last = holding.span.until.saturating_sub(1);
        wire::OrderNumberRange {
            holder: holding.holder,
            first: OrderNumber::from_counter(holding.span.from).to_string(),
            last: OrderNumber::from_counter(last).to_string(),
            at: holding.at.to_string(),
        }
    };
    wire::OrderNumbers { reserved, issued, returned, lost, ranges: holdings.into_iter().map(range).collect() }
}

/// Converts the costs of all processes, and their sum, at these prices.
pub fn costs(costs: &CostReport, prices: &Prices) -> wire::StorageOperations {
    let total = &costs.total;
    let operation = |(operation, count): (&ReportedOperation, &u64)| wire::StorageOperation {
        service: operation.service.code().into(),
        operation: operation.name.clone().into_owned(),
        count: *count,
        price_usd: prices.of(operation.price, *count).usd(),
    };
    let process = |report: &ProcessReport| wire::ProcessCost {
        process: report.process.clone(),
        postings: report.postings,
        immediate_postings: report.immediate,
        count: report.count(),
        price_usd: report.cost(prices).usd(),
    };
    let cost = total.cost(prices);
    wire::StorageOperations {
        operations: total.operations.iter().map(operation).collect(),
        count: total.count(),
        price_usd: cost.usd(),
        postings: total.postings,
        immediate_postings: total.immediate,
        operations_per_posting: operations_per_posting(total.count(), total.postings),
        price_usd_per_million_postings: cost.of_a_million(total.postings).map(|cost| cost.usd()),
        processes: costs.processes.iter().map(process).collect(),
    }
}

/// Converts the wanted number of workers, with the values that it was computed from.
pub fn scale(report: ScaleReport) -> wire::Scale {
    let ScaleReport { demand, policy, wanted } = report;
    let WorkersWanted { workers, for_backlog, floor } = wanted;
    let Demand { depth, waiting, oldest_age, batches: BatchBacklog { items, chunks } } = demand;
    let ScalingPolicy { age_target, worker_rate, workers_min, workers_max, floors: _, down_delay: _ } =
        policy;
    wire::Scale {
        workers_wanted: workers,
        workers_for_backlog: for_backlog,
        workers_floor: floor,
        workers_min,
        workers_max,
        depth,
        waiting,
        oldest_age_s: oldest_age.as_secs(),
        batch_items: items,
        batch_chunks: chunks,
        posting_age_target_s: age_target.as_secs(),
        worker_rate,
    }
}
