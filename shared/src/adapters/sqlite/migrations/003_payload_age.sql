-- When a payload was written: what nobody claims any more is swept by age. What is older than this
-- column counts as old.
ALTER TABLE payloads ADD COLUMN stored_at INTEGER NOT NULL DEFAULT 0;
