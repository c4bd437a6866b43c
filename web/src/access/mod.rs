//! Authentication and authorization: API keys, scopes, signatures, request rates, partner records and the audit trail.

pub mod acts;
pub mod api_keys;
pub mod audit;
pub mod authentication;
pub mod client_address;
pub mod console_request;
pub mod credit;
pub mod keyring;
pub mod management_rights;
pub mod page_threads;
pub mod partner_broadcast;
pub mod partner_service;
pub mod partner_terms;
pub mod rates;
pub mod reader;
pub mod scopes;
pub mod shares;
pub mod signatures;
pub mod slots;
pub mod turns;
pub mod view;
