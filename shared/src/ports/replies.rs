//! The way back: telling a process that waits what became of its work. A lost reply costs delay,
//! never an answer: whoever waits reads the row at the end of its patience.

use super::roster::Address;
use crate::completions::Completion;

/// Replies to processes that wait.
pub trait Replies: Send + Sync {
    /// Tells the process at that address that a transaction became final. Never waits, never fails.
    fn tell(&self, to: &Address, completion: Completion);
}

/// Tells nobody: for a process that has no way to others.
#[derive(Debug, Clone, Copy)]
pub struct NoReplies;

impl Replies for NoReplies {
    fn tell(&self, _: &Address, _: Completion) {}
}
