//! Deliberate mistakes of the store, for tests that have to notice them.

/// One mistake. A store has none unless a test asks for it ([`super::MemoryStore::flawed`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// A commit is written whatever the account row looks like.
    AccountUnguarded,
    /// A commit is written whatever the transaction rows look like, final ones included.
    RowsUnguarded,
    /// A commit that only rejects is written whatever the account row looks like.
    RejectionUnguarded,
    /// An insert replaces the row that is there.
    InsertReplaces,
}
