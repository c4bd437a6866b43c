//! Requests and responses of the operations on queues, gate, dead letters and order numbers.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use validator::{Validate, ValidationError};

use super::{codes, rules};

/// The work queues.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct QueueList {
    /// The queues, by name.
    pub queues: Vec<Queue>,
    /// The rules by which the workers that responded choose the number of receivers of a queue: `adaptive`, or pairs
    /// `depth:receivers` (setting `receivers-rule`). Usually one; several if the settings of the workers differ.
    #[schema(example = json!(["adaptive"]))]
    pub receivers_rules: Vec<String>,
}

/// One queue: of work, of a role of batches, or of direct producers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Queue {
    /// The name of the queue; of an ingest queue `ingest:` and its name in the store.
    #[schema(example = "work-0")]
    pub name: String,
    /// The number of messages, visible and invisible. One message can contain many transactions.
    pub depth: u64,
    /// The age in seconds of the oldest message; 0 if there is none, or it is not known. On Azure it is the age of the first
    /// visible message: how old the messages are that workers have received is not known there.
    pub oldest_age_s: u64,
    /// Whether the age is known: false on Azure while workers have received all messages of the queue, also workers that ended.
    pub oldest_age_known: bool,
    /// The number of open dead letters from this queue.
    pub dead_letters: u64,
    /// The number of active listeners; 0 if the worker runs in another process.
    pub active_listeners: u32,
    /// The maximum number of listeners; 0 if the worker runs in another process.
    pub listeners_max: u32,
}

/// The state of the gate: while it is held, listeners receive no messages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Gate {
    /// `held` or `released`.
    #[schema(example = "held", pattern = "^(held|released)$")]
    #[serde(deserialize_with = "codes::gate_state")]
    pub state: Cow<'static, str>,
    /// Increases with every change.
    pub epoch: u64,
    /// The time when a held gate is released automatically.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub release_at: Option<String>,
    /// When it was changed to this state; absent if it was never changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub since: Option<String>,
    /// The author of the change: partner and API key (`partner=ops key=9f86d081884c7d65`), `command` with the user and the host of a
    /// command, `schedule` for a scheduled release, `start` for a worker that was started with `--held`, or `restore`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "partner=ops key=9f86d081884c7d65")]
    pub by: Option<String>,
    /// The reason for the change, as text of an operator.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "nightly close")]
    pub reason: Option<String>,
    /// The reason why the process that answers does not perform the scheduled release: its clock differs from that of the
    /// store. If this applies to all processes, the gate stays held until an operator releases it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_problem: Option<String>,
}

/// The requested state of the gate.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"state": "held", "release_at": "2026-11-23T06:00:00Z"}))]
#[validate(schema(function = "release_time_only_if_held", skip_on_field_errors = false))]
pub struct GateChange {
    /// `held` or `released`.
    #[schema(example = "held", pattern = "^(held|released)$")]
    #[validate(custom(function = "codes::is_gate_state"))]
    pub state: String,
    /// The time when a held gate is released automatically (RFC 3339).
    #[schema(format = DateTime)]
    pub release_at: Option<String>,
    /// The reason: 1 to 200 characters in one line, shown with the gate.
    #[schema(
        example = "nightly close",
        min_length = 1,
        max_length = 200,
        pattern = r"^[^\u0000-\u001F\u007F-\u009F]*$"
    )]
    #[validate(custom(function = "rules::gate_reason"))]
    pub reason: Option<String>,
}

fn release_time_only_if_held(change: &GateChange) -> Result<(), ValidationError> {
    if change.state != "released" || change.release_at.is_none() {
        return Ok(());
    }
    let error = rules::broken("release_time", "must not be set with state \"released\"");
    Err(rules::of_part(error, ".release_at"))
}

/// The state of the gate after a change, and the listeners that confirmed it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GateChanged {
    /// `held` or `released`.
    #[schema(example = "held", pattern = "^(held|released)$")]
    #[serde(deserialize_with = "codes::gate_state")]
    pub state: Cow<'static, str>,
    /// Increases with every change.
    pub epoch: u64,
    /// The time when a held gate is released automatically.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub release_at: Option<String>,
    /// When it was changed to this state; absent if it was never changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub since: Option<String>,
    /// The author of the change: partner and API key (`partner=ops key=9f86d081884c7d65`), `command` with the user and the host of a
    /// command, `schedule` for a scheduled release, `start` for a worker that was started with `--held`, or `restore`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "partner=ops key=9f86d081884c7d65")]
    pub by: Option<String>,
    /// The reason for the change, as text of an operator.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "nightly close")]
    pub reason: Option<String>,
    /// The fault, if the process registry could not be read: no other process was notified, and those that post are not listed. They
    /// apply the change when they read the gate the next time; repeating the request notifies them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "reading the process registry: the store cannot be reached")]
    pub registry_problem: Option<String>,
    /// The processes that post.
    pub listeners: Vec<GateListener>,
}

/// A process that posts work from the queues or requests that wait, and the state of the gate that it applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GateListener {
    /// The id of the process, as in its log.
    #[schema(format = Uuid)]
    pub listener: String,
    /// The address at which other processes reach it.
    #[schema(example = "http://10.0.0.7:8081")]
    pub address: String,
    /// When the process last renewed its entry in the process registry, about every 15 minutes.
    #[schema(format = "date-time")]
    pub seen_at: String,
    /// Whether the process applied the epoch of this response. While the gate is held, it then posts nothing new.
    pub acknowledged: bool,
    /// The epoch that the process applied; `null` if it did not respond in time.
    #[schema(required = true)]
    pub epoch: Option<u64>,
    /// Why it is not known which epoch the process applied; absent if it is. A process that ended without notice is listed for
    /// up to 36 minutes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "another process listens at the address now")]
    pub problem: Option<String>,
}

/// An administrative act that was done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AuditRow {
    /// The position in the audit trail, from 1, without gaps.
    pub sequence: u64,
    /// The time when the act was recorded as done.
    #[schema(format = "date-time")]
    pub at: String,
    /// The partner whose API key was used, or `operator` for the command line.
    #[schema(example = "shop")]
    pub actor: String,
    /// The id of the API key, never the key itself; absent for the command line.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "9f86d081884c7d65")]
    pub key_id: Option<String>,
    /// The code of the act.
    #[schema(example = "gate.change")]
    pub act: String,
    /// The ids of the targets and further details, as `name=value`, separated by spaces; a value with other characters
    /// is a quoted string. Empty if there is none.
    #[schema(example = "state=held epoch=3")]
    pub target: String,
    /// The address of the client, or of the proxy in front of the service; `command line` for the command line.
    #[schema(example = "192.0.2.1:50114")]
    pub origin: String,
    /// The nonce, a UUID without hyphens. It is part of the hash.
    #[schema(example = "0192f3c4a5b67c8d9e0f1a2b3c4d5e6f", pattern = "^[0-9a-f]{32}$")]
    pub nonce: String,
    /// The hash of the row before, in hexadecimal; zeros for the first row.
    #[schema(
        example = "0000000000000000000000000000000000000000000000000000000000000000",
        pattern = "^[0-9a-f]{64}$"
    )]
    pub previous_hash: String,
    /// The hash of the row, in hexadecimal: SHA-256 over its other members and the hash of the row before.
    #[schema(
        example = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        pattern = "^[0-9a-f]{64}$"
    )]
    pub hash: String,
}

/// A page of the audit trail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AuditPage {
    /// The rows, the last one first.
    pub rows: Vec<AuditRow>,
    /// Pass it as `cursor` for the next page; null on the last page.
    #[schema(required = true)]
    pub next_cursor: Option<String>,
}

/// An anchor: a signed statement about the ends of all journals at one time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Anchor {
    /// The position among the anchors, from 1, without gaps.
    pub sequence: u64,
    /// The time when it was made.
    #[schema(format = "date-time")]
    pub made_at: String,
    /// `round`, or `restore` if the store continues from an earlier state.
    #[schema(example = "round", pattern = "^(round|restore)$")]
    #[serde(deserialize_with = "codes::anchor_kind")]
    pub kind: Cow<'static, str>,
    /// Number of accounts.
    pub accounts: u64,
    /// The text that is signed: a JSON object, of which the other members are copies.
    #[schema(
        example = r#"{"v":1,"sequence":1,"previous":"0000000000000000000000000000000000000000000000000000000000000000","kind":"round","made_at":"2026-11-21T08:00:00.123Z","began_at":"2026-11-21T07:59:59.456Z","leaves":{"count":1,"root":"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08","digest":"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08","parts":1},"audit":null,"returned_to":null}"#
    )]
    pub statement: String,
    /// The public key of the signer: base64 of 32 bytes.
    #[schema(example = "JrQLj5P/89iXES9+vFgrIy29clF9CC/oPPsw3c5D0bs=", pattern = "^[A-Za-z0-9+/]{43}=$")]
    pub public_key: String,
    /// The Ed25519 signature of the line `postonce anchor 1`, its line feed, and the statement: base64 of 64 bytes.
    #[schema(
        example = "pKvURIxJVi2CgRXROh/M6pJ/UrTVRZKX+LQ+QtqJI4vBNibkPcs43bCCSIkn7JBPtCBXRDmD6IWFF51QVRr+Yg==",
        pattern = "^[A-Za-z0-9+/]{86}==$"
    )]
    pub signature: String,
}

/// A page of the anchors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AnchorPage {
    /// The anchors, the last one first.
    pub anchors: Vec<Anchor>,
    /// Pass it as `cursor` for the next page; null on the last page.
    #[schema(required = true)]
    pub next_cursor: Option<String>,
}

/// A queue message that was set aside for an operator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DeadLetter {
    /// The id of the dead letter.
    #[schema(example = "2f1c6f0a-54f2-4f0c-9c64-2f4b6a3f0d11")]
    pub id: String,
    /// The queue that the message came from.
    #[schema(example = "work-0")]
    pub queue: String,
    /// The reason why the message was set aside.
    #[schema(example = "the message was delivered 5 times without success")]
    pub reason: String,
    /// The number of times that the message was delivered.
    pub dequeue_count: u32,
    /// The time when the message was sent.
    #[schema(format = "date-time")]
    pub inserted_at: String,
    /// The time when the message was set aside.
    #[schema(format = "date-time")]
    pub dead_at: String,
    /// The body of the message. Bytes that are not valid UTF-8 are replaced.
    #[schema(example = "not a message of the bank")]
    pub body: String,
    /// The message ids of the transactions in the message, if it can be decoded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub items: Option<Vec<String>>,
    /// The decision of an operator; null while the dead letter is open.
    #[schema(required = true)]
    pub resolution: Option<Resolution>,
}

/// The decision of an operator about a dead letter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Resolution {
    /// `replayed` or `discarded`.
    #[schema(example = "replayed", pattern = "^(replayed|discarded)$")]
    #[serde(deserialize_with = "codes::resolution")]
    pub kind: Cow<'static, str>,
    /// The partner whose API key was used, or `operator` for the command line.
    #[schema(example = "operations")]
    pub by: String,
    /// The time of the decision.
    #[schema(format = "date-time")]
    pub at: String,
}

/// A page of dead letters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DeadLetterPage {
    /// The dead letters, by id.
    pub dead_letters: Vec<DeadLetter>,
    /// The `cursor` of the next page; null at the end.
    #[schema(required = true)]
    pub next_cursor: Option<String>,
}

/// The use of order numbers. All counts are numbers of order numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OrderNumbers {
    /// Order numbers that processes have reserved so far.
    pub reserved: u64,
    /// Order numbers assigned to transactions.
    pub issued: u64,
    /// Order numbers returned at a clean shutdown.
    pub returned: u64,
    /// Order numbers that will never be assigned.
    pub lost: u64,
    /// The ranges in use.
    pub ranges: Vec<OrderNumberRange>,
}

/// A reserved range of order numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OrderNumberRange {
    /// The process that reserved it.
    #[schema(example = "4f9d0c9e5d3e4c0e9a511b7a4a4e2f10")]
    pub holder: String,
    /// The first order number of the range.
    #[schema(example = "10000000", pattern = "^[0-9]+$")]
    pub first: String,
    /// The last order number of the range.
    #[schema(example = "10009999", pattern = "^[0-9]+$")]
    pub last: String,
    /// The time when the range was reserved.
    #[schema(format = "date-time")]
    pub at: String,
}

/// Progress and results of the scrubber, which checks all rows of the store again and again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Scrubber {
    /// The configured number of storage operations per day; 0: there are no rounds.
    pub operations_per_day: u32,
    /// The process that scrubs, as written in logs of the process registry; absent while none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<String>,
    /// The round in progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round: Option<ScrubberRound>,
    /// The last round that ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_round: Option<ScrubberRound>,
    /// When the oldest transaction was accepted that is not final and not a dead letter. It was so when a round passed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = "date-time")]
    pub oldest_accepted_at: Option<String>,
    /// When an examination of all accepted transactions was requested that has not ended yet, because a process ended
    /// without notice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = "date-time")]
    pub recovery_requested_at: Option<String>,
    /// The last such examination.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_recovery: Option<ScrubberRecovery>,
    /// The last findings, the oldest first. All of them are logged.
    pub findings: Vec<ScrubberFinding>,
}

/// A round of the scrubber over all rows of the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ScrubberRound {
    /// When it began.
    #[schema(format = "date-time")]
    pub started_at: String,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = "date-time")]
    pub ended_at: Option<String>,
    /// When it will probably end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = "date-time")]
    pub expected_end: Option<String>,
    /// The part of it that is done, in thousandths.
    pub progress_permille: u16,
    /// Accounts so far.
    pub accounts: u64,
    /// Rows so far.
    pub rows: u64,
    /// Storage operations so far.
    pub operations: u64,
    /// Findings so far.
    pub findings: u64,
    /// Accepted transactions so far.
    pub accepted: u64,
    /// Accepted transactions whose forgotten work was enqueued again.
    pub enqueued: u64,
}

/// An examination of all accepted transactions at full speed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ScrubberRecovery {
    /// When it was requested.
    #[schema(format = "date-time")]
    pub requested_at: String,
    /// When it ended.
    #[schema(format = "date-time")]
    pub ended_at: String,
    /// Accepted transactions.
    pub examined: u64,
    /// Accepted transactions whose forgotten work was enqueued again.
    pub enqueued: u64,
    /// Accepted transactions that cannot be read.
    pub damaged: u64,
}

/// A difference from what the bank wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ScrubberFinding {
    /// When it was found.
    #[schema(format = "date-time")]
    pub at: String,
    /// The code of its kind, as in the output of `postonce-web verify`.
    #[schema(example = "account_missing")]
    pub kind: String,
    /// A sentence for operators.
    #[schema(example = "the account does not exist, but has pages or transactions")]
    pub text: String,
}
