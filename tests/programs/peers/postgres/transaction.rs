//! Instructions and their outcomes.

use std::time::SystemTime;

use uuid::Uuid;

/// A checked instruction that is not posted yet.
#[derive(Debug)]
pub struct Instruction {
    /// The client's id.
    pub message_id: Uuid,
    /// In minor units; a withdrawal is negative.
    pub amount: i64,
    /// The client's reference.
    pub reference: Option<String>,
    /// When it was received.
    pub accepted_at: SystemTime,
}

/// A transaction in its final status.
#[derive(Debug)]
pub struct Transaction {
    /// The instruction.
    pub instruction: Instruction,
    /// The posting; absent if the balance was insufficient.
    pub posting: Option<Posting>,
}

/// The posting of a transaction.
#[derive(Debug, Clone, Copy)]
pub struct Posting {
    /// The position in the journal of the account.
    pub sequence: i64,
    /// The balance after it.
    pub balance_after: i64,
    /// When it was posted.
    pub posted_at: SystemTime,
}

/// The outcome of an instruction.
#[derive(Debug)]
pub enum Outcome {
    /// Posted or rejected now.
    Final(Transaction),
    /// The message id is known with the same content: the stored transaction.
    Replayed(Transaction),
    /// The message id is known with other content.
    Reused,
    /// The balance would be out of range.
    OutOfRange,
}

/// The balance of an account.
#[derive(Debug)]
pub struct Balance {
    /// Its currency.
    pub currency: String,
    /// The amount.
    pub minor_units: i64,
    /// The number of postings.
    pub version: i64,
    /// When the account was opened.
    pub opened_at: SystemTime,
}
