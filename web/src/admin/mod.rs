//! Administration without HTTP: queues, dead letters, order numbers, costs, the number of workers, the gate, single
//! transactions, and the whole bank at once.

pub mod costs;
pub mod gate;
pub mod lookup;
pub mod overview;
pub mod service;
pub mod workers;
