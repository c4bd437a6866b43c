//! Administration without HTTP: queues, dead letters, order numbers, costs, the number of workers, the gate, and
//! single transactions.

pub mod costs;
pub mod gate;
pub mod lookup;
pub mod service;
pub mod workers;
