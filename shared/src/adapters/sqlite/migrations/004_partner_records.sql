-- What each partner may touch, and on what terms: one document each. `partners` gives the names their
-- numbers, also of partners that never had a record. Rows are never removed, so a revision never comes again.
CREATE TABLE partner_records (
    id       TEXT PRIMARY KEY,
    revision INTEGER NOT NULL,
    body     TEXT    NOT NULL
) STRICT, WITHOUT ROWID;
