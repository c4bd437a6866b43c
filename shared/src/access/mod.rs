//! Permissions of partners: their records, cached for a short time, the rate of their requests, the network of a client, and
//! the signatures that they used.

pub mod client_network;
pub mod current_client;
pub mod partner_cache;
pub mod partner_grants;
pub mod partner_records;
pub mod token_bucket;
pub mod used_signatures;
