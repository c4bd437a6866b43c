//! Administration, independent of HTTP: queues, dead letters, order numbers, costs, number of workers, gate, look-up
//! of transactions, and the overview of the bank.

pub mod costs;
pub mod gate;
pub mod lookup;
pub mod overview;
pub mod service;
pub mod workers;
