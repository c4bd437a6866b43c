-- The first version from which the journal of an account contains every decision.
ALTER TABLE accounts ADD COLUMN chained_from INTEGER;

-- The version of the account after a rejection that the journal contains.
ALTER TABLE transactions ADD COLUMN version INTEGER;

-- Pages of the journal without entries: rejections, openings and changes of terms. `first_sequence` is the sequence of the
-- next entry.
CREATE TABLE decision_pages (
    id             INTEGER PRIMARY KEY,
    account        INTEGER NOT NULL REFERENCES account_names,
    version        INTEGER NOT NULL,
    first_sequence INTEGER NOT NULL,
    content        TEXT    NOT NULL,
    previous_hash  BLOB    NOT NULL,
    hash           BLOB    NOT NULL,
    nonce          BLOB    NOT NULL,
    UNIQUE (account, version)
) STRICT;

CREATE TRIGGER decision_pages_never_change BEFORE UPDATE ON decision_pages
BEGIN SELECT raise(ABORT, 'a journal page is never changed'); END;
CREATE TRIGGER decision_pages_stay BEFORE DELETE ON decision_pages
BEGIN SELECT raise(ABORT, 'a journal page is never removed'); END;
