//! Commands of `postonce-web`: administration, and a client that submits batches.

pub mod accounts;
pub mod anchors;
pub mod backup;
pub mod batches;
pub mod config;
pub mod costs;
pub mod dead_letters;
pub mod gate;
mod ids;
pub mod keys;
pub mod operator;
pub mod order_numbers;
mod output;
pub mod partners;
pub mod queues;
pub mod times;
pub mod verify;
pub mod work;
pub mod workers;
