-- Whether the program of a process can read and continue journals that contain every decision.
ALTER TABLE roster ADD COLUMN chains_decisions INTEGER NOT NULL DEFAULT 0;
