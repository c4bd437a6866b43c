//! The bank in a simulated world. The real accept, post, settle, repair, order-number and gate code
//! runs over the memory adapter; one seed decides the schedule, the clocks and the faults; an
//! [independent auditor](auditor) checks the invariants after every write. The same seed gives the
//! same run, so a failure can be looked at as often as it takes.
//!
//! - [`scheduler`] runs the tasks of all processes on one thread, and [`process_world`] gives them time;
//! - [`network`] stands between a process and the store ([`ports`], [`queue_port`]), and [`faults`] says
//!   what goes wrong there;
//! - [`processes`] are the webs and workers, [`people`] the clients and operators;
//! - [`adversary`] may write to the queues and knows no secret;
//! - [`mutations`] are mistakes that the simulation has to find;
//! - [`run`](mod@run) puts it together.

pub mod adversary;
pub mod auditor;
mod believing;
mod books;
pub mod faults;
pub mod mutations;
pub mod network;
mod panics;
pub mod people;
pub mod ports;
mod posting_again;
pub mod process_world;
pub mod processes;
pub mod queue_port;
pub mod run;
pub mod scheduler;
pub mod trace;
mod work_in_flight;
