//! The bank in a simulated world. The production code for accept, post, settle, repair, order numbers and the gate runs over the
//! memory adapter, or over the adapter for Azure with a simulated wire. One seed determines the schedule, the clocks and the
//! faults. An [independent auditor](auditor) checks the invariants after every write. The same seed gives the same run, so a
//! failure can be reproduced at any time.
//!
//! - [`scheduler`] runs the tasks of all processes on one thread, and [`process_world`] gives them time;
//! - [`network`] connects a process with the store ([`ports`], [`queue_port`]), and [`faults`] lists its faults;
//! - [`processes`] contains the web and worker processes, [`workload`] the clients and operators;
//! - [`azure`] is another store: the adapter for Azure Storage over a simulated table service;
//! - [`batches`] contains everything about batches;
//! - [`adversary`] may write to the queues and has no secret;
//! - [`mutations`] are mistakes that the simulation must find;
//! - [`run`](mod@run) combines the parts.

mod accounts_port;
pub mod adversary;
mod archive_port;
pub mod auditor;
pub mod azure;
pub mod batches;
pub mod event_counts;
pub mod faults;
mod gate_audit;
mod immediate_commits;
pub mod immediate_counts;
mod immediate_records;
mod journal_records;
mod left_out_mutations;
mod letters;
pub mod mutations;
pub mod network;
mod panics;
pub mod ports;
pub mod process_world;
pub mod processes;
pub mod queue_port;
mod records;
mod registry_port;
mod repost_mutation;
pub mod run;
pub mod scheduler;
mod seal_mutations;
pub mod trace;
mod work_in_flight;
pub mod workload;
