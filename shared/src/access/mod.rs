//! Permissions of partners: their records and a short-lived cache of them, rate limits, client networks, and used
//! signatures.

pub mod client_network;
pub mod current_client;
pub mod partner_cache;
pub mod partner_grants;
pub mod partner_records;
pub mod token_bucket;
pub mod used_signatures;
