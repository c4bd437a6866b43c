//! Operations for operators, without HTTP: queues, dead letters, order numbers, costs, the number of workers, and the
//! gate.

pub mod costs;
pub mod gate;
pub mod service;
pub mod workers;
