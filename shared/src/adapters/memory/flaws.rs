//! Deliberate bugs of the store, with which tests verify that such bugs are detected.

/// A deliberate bug. A store has none unless a test sets one with [`super::MemoryStore::flawed`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// A commit ignores the revision of the account row.
    AccountUnguarded,
    /// A commit ignores the revisions of the transaction rows, and overwrites even final ones.
    RowsUnguarded,
    /// A commit with rejections only ignores the revision of the account row.
    RejectionUnguarded,
    /// An insert replaces an existing row.
    InsertReplaces,
    /// A commit inserts transactions although rows with their keys exist.
    KeysUnguarded,
    /// A commit that inserts transactions ignores the revision of the account row.
    InsertionUnguarded,
}
