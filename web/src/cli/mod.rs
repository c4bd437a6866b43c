//! Administrative commands of `postonce-web`.

pub mod backup;
pub mod keys;
pub mod partners;
pub mod verify;
pub mod work;
