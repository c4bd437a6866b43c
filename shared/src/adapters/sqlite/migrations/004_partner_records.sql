-- The reach and the terms of each partner, as one document. `partners` assigns numbers to names, also to those of
-- partners without a record. Rows are never removed, so a revision is never reused.
CREATE TABLE partner_records (
    id       TEXT PRIMARY KEY,
    revision INTEGER NOT NULL,
    body     TEXT    NOT NULL
) STRICT, WITHOUT ROWID;
