-- The schema of version 0.1.0. A migration that was released is never edited: each change is a new file.
--
-- Keys are small integers: user and account ids and the names of partners are stored once, in the tables that assign
-- them a number. Money is in minor units. Times are milliseconds since 1970. Statuses, kinds and reasons are the
-- stable codes of the domain, so that an operator can read the rows.

-- A number for each account that was ever named; `accounts` has a row if the account was opened.
CREATE TABLE account_names (
    id         INTEGER PRIMARY KEY,
    user_id    BLOB NOT NULL,
    account_id BLOB NOT NULL,
    UNIQUE (user_id, account_id)
) STRICT;

CREATE TABLE partners (
    id   INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE
) STRICT;

-- The guard of every commit is `version`.
CREATE TABLE accounts (
    id              INTEGER PRIMARY KEY REFERENCES account_names,
    currency        TEXT    NOT NULL,
    status          TEXT    NOT NULL,
    overdraft_limit INTEGER NOT NULL,
    given_name      TEXT,
    family_name     TEXT,
    opened_at       INTEGER NOT NULL,
    balance         INTEGER NOT NULL,
    version         INTEGER NOT NULL,
    sequence        INTEGER NOT NULL,
    head            BLOB    NOT NULL
) STRICT;

-- Rows are in the order of their acceptance, so that new ones are adjacent: the message ids of their keys are random, and
-- only the entry in the index, a tenth of the size, is written to a random page. `revision` grows with every change of the
-- row.
CREATE TABLE transactions (
    id                  INTEGER PRIMARY KEY,
    account             INTEGER NOT NULL REFERENCES account_names,
    partner             INTEGER NOT NULL REFERENCES partners,
    message             BLOB    NOT NULL,
    status              TEXT    NOT NULL,
    revision            INTEGER NOT NULL,
    kind                TEXT    NOT NULL,
    amount              INTEGER NOT NULL,
    currency            TEXT    NOT NULL,
    reference           TEXT,
    metadata            TEXT,
    unknown_members     TEXT,
    fingerprint_version INTEGER NOT NULL,
    fingerprint         BLOB    NOT NULL,
    accepted_at         INTEGER NOT NULL,
    accept_nonce        BLOB    NOT NULL,
    dead_letter         INTEGER NOT NULL DEFAULT 0,
    repairs             INTEGER NOT NULL DEFAULT 0,
    repaired_at         INTEGER,
    -- What became of it; empty while it is accepted.
    commit_nonce        BLOB,
    decided_at          INTEGER,
    order_number        INTEGER,
    sequence            INTEGER,
    balance_after       INTEGER,
    reason              TEXT,
    -- The version of the account after a rejection.
    version             INTEGER,
    -- The batch that inserted it, and its line there; empty for a request of its own.
    batch               BLOB,
    batch_line          INTEGER,
    -- How it came to its decision, for operators: the id of the request that was accepted, when its message was put on the
    -- queue, and when the worker received it that decided it.
    request_id          TEXT,
    sent_at             INTEGER,
    received_at         INTEGER,
    -- The idempotency check.
    UNIQUE (account, partner, message)
) STRICT;

-- Recovery reads accepted transactions only, not the history.
CREATE INDEX transactions_accepted ON transactions (account, partner, message) WHERE status = 'accepted';
CREATE INDEX transactions_rejected ON transactions (account, partner, message) WHERE status = 'rejected';
-- Finds a transaction by its order number. Numbers grow, so a new entry is near the end of the index.
CREATE INDEX transactions_numbered ON transactions (order_number) WHERE order_number IS NOT NULL;

-- Pages of the journal with entries. A rowid table, because pages are large and are appended.
CREATE TABLE journal_pages (
    id             INTEGER PRIMARY KEY,
    account        INTEGER NOT NULL REFERENCES account_names,
    first_sequence INTEGER NOT NULL,
    entries        TEXT    NOT NULL,
    previous_hash  BLOB    NOT NULL,
    hash           BLOB    NOT NULL,
    nonce          BLOB    NOT NULL,
    UNIQUE (account, first_sequence)
) STRICT;

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

-- Changes that the program never makes are refused by the database as well.
CREATE TRIGGER transactions_final_never_changes BEFORE UPDATE ON transactions WHEN old.status <> 'accepted'
BEGIN SELECT raise(ABORT, 'a final status never changes'); END;
CREATE TRIGGER transactions_stay BEFORE DELETE ON transactions
BEGIN SELECT raise(ABORT, 'a transaction is never removed'); END;
CREATE TRIGGER journal_pages_never_change BEFORE UPDATE ON journal_pages
BEGIN SELECT raise(ABORT, 'a journal page is never changed'); END;
CREATE TRIGGER journal_pages_stay BEFORE DELETE ON journal_pages
BEGIN SELECT raise(ABORT, 'a journal page is never removed'); END;
CREATE TRIGGER decision_pages_never_change BEFORE UPDATE ON decision_pages
BEGIN SELECT raise(ABORT, 'a journal page is never changed'); END;
CREATE TRIGGER decision_pages_stay BEFORE DELETE ON decision_pages
BEGIN SELECT raise(ABORT, 'a journal page is never removed'); END;

-- AUTOINCREMENT, because an id is never reused: dead letters are stored under it.
CREATE TABLE queue_messages (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    queue         TEXT    NOT NULL,
    visible_at    INTEGER NOT NULL,
    dequeue_count INTEGER NOT NULL DEFAULT 0,
    pop_receipt   INTEGER,
    inserted_at   INTEGER NOT NULL
) STRICT;
CREATE INDEX queue_messages_visible ON queue_messages (queue, visible_at);

-- Separate from the messages, so that a receipt rewrites a small row and not 48 KiB.
CREATE TABLE queue_bodies (
    id   INTEGER PRIMARY KEY REFERENCES queue_messages ON DELETE CASCADE,
    body BLOB NOT NULL
) STRICT;

CREATE TABLE dead_letters (
    id            TEXT PRIMARY KEY,
    queue         TEXT    NOT NULL,
    reason        TEXT    NOT NULL,
    body          BLOB    NOT NULL,
    dequeue_count INTEGER NOT NULL,
    inserted_at   INTEGER NOT NULL,
    dead_at       INTEGER NOT NULL,
    resolution    TEXT,
    resolved_by   TEXT,
    resolved_at   INTEGER
) STRICT;
CREATE INDEX dead_letters_open ON dead_letters (id, queue) WHERE resolution IS NULL;

-- Rows are never removed, so a revision is never reused.
CREATE TABLE sync_values (
    name     TEXT PRIMARY KEY,
    revision INTEGER NOT NULL,
    value    TEXT    NOT NULL
) STRICT, WITHOUT ROWID;

-- `stored_at`: payloads that no message refers to are removed by age.
CREATE TABLE payloads (
    name      TEXT PRIMARY KEY,
    body      BLOB    NOT NULL,
    stored_at INTEGER NOT NULL
) STRICT;

-- `last_used_at` is a time at which the key was used, less than some days before its last use.
CREATE TABLE api_keys (
    id           TEXT PRIMARY KEY,
    hash         BLOB    NOT NULL,
    partner      TEXT    NOT NULL,
    scopes       TEXT    NOT NULL,
    created_at   INTEGER NOT NULL,
    revoked_at   INTEGER,
    expires_at   INTEGER,
    last_used_at INTEGER
) STRICT;

-- The processes that can be called. `survivals` is the number of attempts to do the work of a message alone that a process
-- survived, and `level` what its program knows.
CREATE TABLE roster (
    id         TEXT PRIMARY KEY,
    kind       TEXT    NOT NULL,
    address    TEXT    NOT NULL,
    started_at INTEGER NOT NULL,
    next_by    INTEGER NOT NULL,
    survivals  INTEGER NOT NULL,
    level      INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Small documents of several kinds, such as the partners. A rowid table, because bodies may be large.
CREATE TABLE records (
    collection TEXT    NOT NULL,
    id         TEXT    NOT NULL,
    revision   INTEGER NOT NULL,
    body       TEXT    NOT NULL,
    PRIMARY KEY (collection, id)
) STRICT;
