//! The commands of `postonce-web` for operators.

pub mod backup;
pub mod keys;
pub mod partners;
pub mod verify;
