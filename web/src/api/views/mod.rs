//! The objects of the API: domain values as the wire structs of response bodies.

mod accounts;
mod admin;
mod gate;
mod overview;
mod partners;
mod scrubber;
mod transactions;

pub use accounts::account;
pub use admin::{anchor, audit_row, costs, dead_letter, order_numbers, queues, scale};
pub use gate::{changed_gate, gate};
pub use overview::overview;
pub use partners::{partner, partner_etag};
pub use scrubber::scrubber;
pub use transactions::{found_transaction, of_entry, transaction, transaction_of_partner};
