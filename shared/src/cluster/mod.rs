//! State that the processes of one bank share, apart from transactions.
//!
//! [`gate`] holds and releases all processing. [`doorbell_secret`] is the key that authenticates requests between
//! processes. [`completions`] and [`replies`] return the outcome of a transaction to the process whose client
//! waits for it, and [`reply_to`] is the return address that travels with the work. [`contention`] keeps processes from
//! changing one account at the same time. [`registration`] records whether this process has a valid registry entry, and
//! [`attempts`] are recorded in messages whose work may kill its worker. [`shared_value`] changes small values that
//! processes share.

pub mod attempts;
pub mod completions;
pub mod contention;
pub mod doorbell_secret;
pub mod gate;
pub mod registration;
pub mod replies;
pub mod reply_to;
pub mod shared_value;
