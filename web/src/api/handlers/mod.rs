//! The handlers of all routes. Each handler validates, translates, calls a service and responds. The checks run in the
//! order of the contract: key and scope (in the extractor), path, syntax and fields, id, then the rest.

pub mod accounts;
pub mod admin;
pub mod admin_batches;
pub mod anchors;
pub mod audit_trail;
pub mod batches;
pub mod dead_letters;
pub mod documents;
pub mod gate;
pub mod greeting;
pub mod health;
pub mod ingest;
pub mod key;
pub mod overview;
pub mod partners;
pub mod soap;
pub mod submit;
pub mod transactions;
