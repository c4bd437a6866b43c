//! Azure Storage: Tables, Queues and Blobs.
