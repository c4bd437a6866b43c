//! Deliberate mistakes of the store: tests check that they are detected.

/// A mistake. A store has none unless a test requests one ([`super::MemoryStore::flawed`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// A commit is written regardless of the state of the account row.
    AccountUnguarded,
    /// A commit is written regardless of the states of the transaction rows, even if they are final.
    RowsUnguarded,
    /// A commit with rejections only is written regardless of the state of the account row.
    RejectionUnguarded,
    /// An insert replaces an existing row.
    InsertReplaces,
    /// A commit that inserts transactions is written although rows with their keys exist.
    KeysUnguarded,
    /// A commit that inserts transactions is written regardless of the state of the account row.
    InsertionUnguarded,
}
