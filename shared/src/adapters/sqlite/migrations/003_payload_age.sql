-- When a payload was written: payloads that no message refers to are removed by age. Rows that are older than this
-- column count as old.
ALTER TABLE payloads ADD COLUMN stored_at INTEGER NOT NULL DEFAULT 0;
