//! Commands of `postonce-web`: administration, and a client for batches.

pub mod anchors;
pub mod backup;
pub mod batches;
mod ids;
pub mod keys;
pub mod order_numbers;
pub mod partners;
pub mod verify;
pub mod work;
