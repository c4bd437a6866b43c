//! Pages of the console. A page reads documents of the API and shows them. Each form on it makes one request to the API.

pub mod accounts;
pub mod anchors;
pub mod audit_trail;
pub mod batches;
pub mod costs;
pub mod dead_letters;
pub mod gate;
pub mod order_numbers;
pub mod overview;
pub mod partners;
pub mod queues;
pub mod scrubber;
