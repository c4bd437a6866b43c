//! What a request asks for, and what became of it.

use std::time::SystemTime;

use uuid::Uuid;

/// What moves money: checked, not yet posted.
#[derive(Debug)]
pub struct Instruction {
    /// The client's id of it.
    pub message_id: Uuid,
    /// In minor units; a withdrawal is negative.
    pub amount: i64,
    /// The client's own words.
    pub reference: Option<String>,
    /// When it came.
    pub accepted_at: SystemTime,
}

/// A transaction in its final status.
#[derive(Debug)]
pub struct Transaction {
    /// What was asked for.
    pub instruction: Instruction,
    /// What became of it; nothing when the account could not pay.
    pub posting: Option<Posting>,
}

/// How a transaction was posted.
#[derive(Debug, Clone, Copy)]
pub struct Posting {
    /// Its place in the journal of the account.
    pub sequence: i64,
    /// The balance with it.
    pub balance_after: i64,
    /// When.
    pub posted_at: SystemTime,
}

/// What became of an instruction.
#[derive(Debug)]
pub enum Outcome {
    /// It was new.
    Final(Transaction),
    /// The message id is known, with this content: the answer of the first time.
    Replayed(Transaction),
    /// The message id is known, with other content.
    Reused,
    /// The balance can't be counted any more.
    OutOfRange,
}

/// What an account holds now.
#[derive(Debug)]
pub struct Balance {
    /// Its currency.
    pub currency: String,
    /// How much.
    pub minor_units: i64,
    /// How many postings it had.
    pub version: i64,
    /// Since when it exists.
    pub opened_at: SystemTime,
}
