-- How a transaction came to its decision, for operators: the id of the request that was accepted, when its message was put on
-- the queue, and when the worker received it that decided it.
ALTER TABLE transactions ADD COLUMN request_id TEXT;
ALTER TABLE transactions ADD COLUMN sent_at INTEGER;
ALTER TABLE transactions ADD COLUMN received_at INTEGER;

-- Finds a transaction by its order number. Numbers grow, so a new entry is near the end of the index.
CREATE INDEX transactions_numbered ON transactions (order_number) WHERE order_number IS NOT NULL;
