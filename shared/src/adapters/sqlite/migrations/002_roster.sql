-- The processes that can be called.
CREATE TABLE roster (
    id         TEXT PRIMARY KEY,
    kind       TEXT    NOT NULL,
    address    TEXT    NOT NULL,
    started_at INTEGER NOT NULL,
    next_by    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
