//! Permissions of partners: their records, cached for a short time, and the rate of their requests.

pub mod partner_cache;
pub mod partner_grants;
pub mod partner_records;
pub mod token_bucket;
