-- Number of attempts to do the work of a message alone that a process survived.
ALTER TABLE roster ADD COLUMN survivals INTEGER NOT NULL DEFAULT 0;
