//! State that the processes of one bank share, apart from transactions.
//!
//! [`gate`] holds and releases all processing. [`doorbell_secret`] authenticates requests between processes.
//! [`completions`] and [`replies`] return the outcome of a transaction to the process whose client waits for it, at the
//! return address in [`reply_to`]. [`contention`] keeps processes from changing one account concurrently.
//! [`registration`] records whether this process has a valid registry entry. [`attempts`] are recorded in messages
//! whose work may crash its worker. [`shared_value`] changes small shared values.

pub mod attempts;
pub mod completions;
pub mod contention;
pub mod doorbell_secret;
pub mod gate;
pub mod registration;
pub mod replies;
pub mod reply_to;
pub mod shared_value;
