//! What each route does, as sentences: check, translate, ask, respond. The checks go in the order
//! of the contract: key and scope (the extractor), path, syntax and fields, id, and then the rest.

pub mod accounts;
pub mod admin;
pub mod dead_letters;
pub mod documents;
pub mod gate;
pub mod health;
pub mod partners;
pub mod soap;
pub mod submit;
pub mod transactions;
