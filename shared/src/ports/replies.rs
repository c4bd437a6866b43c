//! The way back: telling a process that waits what became of its work. A lost reply costs delay,
//! never an answer: whoever waits reads the row at the end of its patience.

use crate::completions::Completion;
use crate::reply_to::ReplyTo;

/// Replies to processes that wait.
pub trait Replies: Send + Sync {
    /// Tells the process that asked for it that a transaction became final. Whoever cannot prove to be a
    /// process of the bank is not called. Never waits, never fails.
    fn tell(&self, to: &ReplyTo, completion: Completion);
}

/// Tells nobody: for a process that has no way to others.
#[derive(Debug, Clone, Copy)]
pub struct NoReplies;

impl Replies for NoReplies {
    fn tell(&self, _: &ReplyTo, _: Completion) {}
}
