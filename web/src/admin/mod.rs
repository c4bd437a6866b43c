//! Administration, independent of HTTP: queues, dead letters, order numbers, costs, workers, gate, look-ups, overview.

pub mod costs;
pub mod gate;
pub mod lookup;
pub mod overview;
pub mod service;
pub mod workers;
