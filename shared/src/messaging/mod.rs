//! Messages on work queues: their format, and how they are sent.
//!
//! [`envelope`] is the format, and [`dispatch`] sends it. A body that is too large for a message is kept in the payload
//! store, and the message is a claim on it ([`claim_check`]); [`sweep`] removes payloads that are no longer needed.
//! [`direct_producers`] reads the bodies of producers that write to a queue directly. Like the formats of partners, it uses
//! [`xml`] and [`json`], which read documents from untrusted sources.

pub mod claim_check;
pub mod direct_producers;
pub mod dispatch;
pub mod envelope;
pub mod json;
pub mod lost_queues;
pub mod queue_count;
pub mod sweep;
pub mod xml;
