//! Messages on work queues: their format, and how they are sent.
//!
//! [`envelope`] is the format, and [`dispatch`] sends it. A body that is too large for a message is kept in the payload
//! store, and the message is a claim on it ([`claim_check`]); [`sweep`] removes payloads that are no longer needed.
//! [`direct_producers`] reads the older bodies of producers that write to a queue directly, and uses [`xml`].

pub mod claim_check;
pub mod direct_producers;
pub mod dispatch;
pub mod envelope;
pub mod lost_queues;
pub mod queue_count;
pub mod sweep;
pub mod xml;
