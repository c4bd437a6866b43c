-- The batch that inserted a transaction, and its line there; empty for a request of its own.
ALTER TABLE transactions ADD COLUMN batch BLOB;
ALTER TABLE transactions ADD COLUMN batch_line INTEGER;

-- Small documents of several kinds, such as the partners. A rowid table, because bodies may be large.
CREATE TABLE records (
    collection TEXT    NOT NULL,
    id         TEXT    NOT NULL,
    revision   INTEGER NOT NULL,
    body       TEXT    NOT NULL,
    PRIMARY KEY (collection, id)
) STRICT;
INSERT INTO records (collection, id, revision, body) SELECT 'partner', id, revision, body FROM partner_records;
DROP TABLE partner_records;
